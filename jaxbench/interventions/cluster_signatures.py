"""What the explanation of `cluster_updates` predicts of trained networks; numpy only.

Three rules, fixed before looking:

- `eta_squared_reported`, the reference report's: the largest difference between one synchronous
  and one sequential sweep grows like the square of the damping, its quotient by `eta^2` at 0.2,
  0.4, 0.6 and 0.8 within a factor of 1.25.  It decides nothing.
- `eta_squared`: the same with the coefficient predicted without any fit.  It is Taylor's theorem,
  which untrained networks obey too, so that it can be no better than `vacuous`; it says whether
  the sweeps are what they are said to be.
- `fewer_updates`: choosing clusters by their residuals needs at most 0.9 times the node updates of
  taking them in turn, for the same residuals.  Its null is choosing at random.  It is a claim about
  schedules on a trained network, which says nothing on untrained ones, so that they are no control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench.base import Finding, Signature

if TYPE_CHECKING:
    Samples = Mapping[str, np.ndarray]

REPORTED = {"largest_over_smallest": 1.25}
LAW = {"relative_error": 0.05, "least_slope": 1.9, "greatest_slope": 2.1}
UPDATES = {"quotient": 0.9, "least_share_reached": 0.5}
REPORTED_ETAS = (0.2, 0.4, 0.6, 0.8)
SLOPE_ETAS = (0.05, 0.1, 0.2, 0.4)


def finite_rows(samples: Samples, *names: str) -> np.ndarray:
    """Which runs have finite values of all these quantities [runs]; the others diverged."""
    each = [np.isfinite(samples[name]).reshape(len(samples[name]), -1) for name in names]
    return np.all([one.all(axis=1) for one in each], axis=0)


def counts(rows: np.ndarray) -> dict[str, int]:
    """How many runs were used, and how many left out."""
    return {"runs": int(rows.sum()), "runs_dropped": int((~rows).sum())}


def columns(samples: Samples, etas: tuple[float, ...]) -> list[int]:
    """Where these dampings stand among the measured ones."""
    measured = np.asarray(samples["eta"])[0]
    return [int(np.abs(measured - eta).argmin()) for eta in etas]


def eta_squared_reported(samples: Samples) -> Finding:
    """The mean observed difference over `eta^2` varies by a factor of at most 1.25."""
    rows = finite_rows(samples, "observed")
    if not rows.any():
        return Finding(None, counts(rows), None, "no run has finite measurements")
    observed = samples["observed"][rows][:, columns(samples, REPORTED_ETAS)].mean(axis=0)
    quotients = observed / np.square(REPORTED_ETAS)
    values: dict[str, Any] = {
        "observed": observed.tolist(),
        "over_eta_squared": quotients.tolist(),
        **counts(rows),
    }
    if not (observed > 0).all():
        return Finding(None, values, None, "synchronous and sequential sweeps are the same here")
    spread = float(quotients.max() / quotients.min())
    limit = REPORTED["largest_over_smallest"]
    return Finding(
        spread <= limit,
        values | {"largest_over_smallest": spread},
        spread - 1,
        f"the difference over eta^2 is from {quotients.min():.4g} to {quotients.max():.4g}, a "
        f"factor of {spread:.3f}, limit {limit}",
    )


def eta_squared(samples: Samples) -> Finding:
    """Observed over `eta^2` at 0.05 is the predicted coefficient, and the log-log slope is 2.

    The error is the mean over runs of `|observed / (0.05^2 coefficient) - 1|`, at most 0.05; the
    slope over 0.05 to 0.4, from 1.9 to 2.1, is the runs' mean.
    """
    rows = finite_rows(samples, "observed", "predicted_coefficient")
    rows &= (samples["observed"] > 0).all(axis=1) & (samples["predicted_coefficient"] > 0)
    if not rows.any():
        return Finding(None, counts(rows), None, "in no run do the two sweeps differ")
    places = columns(samples, SLOPE_ETAS)
    observed = samples["observed"][rows][:, places].astype(float)
    coefficient = observed[:, 0] / SLOPE_ETAS[0] ** 2
    error = float(np.mean(np.abs(coefficient / samples["predicted_coefficient"][rows] - 1)))
    slope = float(np.polyfit(np.log(SLOPE_ETAS), np.log(observed).T, 1)[0].mean())
    values = {
        "observed_coefficient": float(coefficient.mean()),
        "predicted_coefficient": float(samples["predicted_coefficient"][rows].mean()),
        "relative_error": error,
        "slope": slope,
        **counts(rows),
    }
    passed = error <= LAW["relative_error"] and LAW["least_slope"] <= slope <= LAW["greatest_slope"]
    return Finding(
        passed,
        values,
        error,
        f"at eta 0.05 the difference is off its prediction by {error:.3%} (limit "
        f"{LAW['relative_error']:.0%}), and its log-log slope is {slope:.3f} (from "
        f"{LAW['least_slope']} to {LAW['greatest_slope']}), over {rows.sum()} runs",
    )


def linear_in_eta(samples: Samples) -> Samples:
    """Put a law linear in eta in place of the square, through the difference at 0.4."""
    (small, large) = columns(samples, (0.05, 0.4))
    etas = np.asarray(samples["eta"])[0]
    linear = samples["observed"][:, large] * etas[small] / etas[large]
    return {**samples, "predicted_coefficient": linear / etas[small] ** 2}


def fewer_updates(samples: Samples) -> Finding:
    """Mean node updates of the policy over those of taking turns are at most 0.9.

    Where a schedule does not reach the tolerance, its whole budget is counted.
    """
    names = ("updates_policy", "updates_in_turn", "reached_policy", "reached_in_turn")
    rows = finite_rows(samples, *names)
    if not rows.any():
        return Finding(None, counts(rows), None, "no run has finite measurements")
    policy, in_turn, reached, reached_in_turn = (float(samples[n][rows].mean()) for n in names)
    values = {
        "updates_policy": policy,
        "updates_in_turn": in_turn,
        "reached_policy": reached,
        "reached_in_turn": reached_in_turn,
        **counts(rows),
    }
    if max(reached, reached_in_turn) < UPDATES["least_share_reached"]:
        reason = (
            f"only {reached:.0%} of the samples reach the tolerance, and {reached_in_turn:.0%} in "
            f"turn, so that there is nothing to compare"
        )
        return Finding(None, values, None, reason)
    if in_turn == 0:
        return Finding(None, values, None, "every sample meets the tolerance before any update")
    quotient = policy / in_turn
    values["quotient"] = quotient
    return Finding(
        quotient <= UPDATES["quotient"],
        values,
        None,
        f"{policy:.1f} node updates against {in_turn:.1f} in turn, a quotient of {quotient:.3f} "
        f"(at most {UPDATES['quotient']}), over {rows.sum()} runs",
    )


def at_random(samples: Samples) -> Samples:
    """Put clusters drawn at random in place of the policy's."""
    return {
        **samples,
        "updates_policy": samples["updates_random"],
        "reached_policy": samples["reached_random"],
    }


SIGNATURES = (
    Signature(
        name="eta_squared_reported",
        claim="one synchronous and one sequential sweep differ in proportion to eta^2",
        formula="max |x_GS - x_J| / eta^2 = constant; the reference report's rule",
        tolerance=REPORTED,
        evaluate=eta_squared_reported,
        reported_rule=True,
    ),
    Signature(
        name="eta_squared",
        claim=(
            "they differ by eta^2 times a coefficient that follows from the network's Jacobian; "
            "Taylor's theorem, which untrained networks obey too, so at best `vacuous`"
        ),
        formula="max |x_GS - x_J| = eta^2 max |sum_{b < c(i)} J_ib Fhat_b| + O(eta^3)",
        tolerance=LAW,
        evaluate=eta_squared,
        null=linear_in_eta,
        null_name="a difference in proportion to eta",
        controls=("untrained",),
    ),
    Signature(
        name="fewer_updates",
        claim=(
            "choosing the next cluster by residuals brings them down with fewer node updates than "
            "taking clusters in turn"
        ),
        formula="node updates until |r| <= tolerance |r_0|: policy <= 0.9 in turn",
        tolerance=UPDATES,
        evaluate=fewer_updates,
        null=at_random,
        null_name="clusters chosen at random",
    ),
)
