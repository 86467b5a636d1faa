"""What the explanation of `stability_penalty` predicts of trained networks; numpy only.

Three rules, fixed before looking:

- `state_growth`, the reference report's: `rho_hat` equals the growth of the hidden state's energy.
  Any bounded stationary state has growth 1, so it says little; it decides nothing.
- `lift_predicts_growth`: the time-varying lift predicts how weight noise accumulates.  It is a
  first-order identity of any smooth recurrence, so that an untrained network obeys it too and the
  verdict can be no better than `vacuous`; it says whether the other numbers can be trusted.
- `penalty_lowers_growth`, the idea's own claim: penalised networks let deviations grow less, by as
  much as their `rho_hat` fell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxbench.base import Compared, Finding, Signature

if TYPE_CHECKING:
    from jaxtyping import Float

    Samples = Mapping[str, np.ndarray]

STATE_TOLERANCE = {"relative_error": 0.10}
LIFT_TOLERANCE = {"slope_error": 0.10, "r_squared": 0.90, "median_relative_error": 0.10}
EFFECT_TOLERANCE = {"relative_error_of_mean": 0.50, "least_predicted_fall": 0.05}


def finite_rows(samples: Samples, *names: str) -> np.ndarray:
    """Which runs have finite values of all these quantities [runs]; the others diverged."""
    each = [np.isfinite(samples[name]) for name in names]
    return np.all([one.all(axis=tuple(range(1, one.ndim))) for one in each], axis=0)


# --------------------------------------------------------------------------------------------------
# The reported rule
# --------------------------------------------------------------------------------------------------


def state_growth(samples: Samples) -> Finding:
    """`|mean rho_hat - mean state growth| / mean rho_hat <= 0.10`."""
    rows = finite_rows(samples, "rho_hat", "state_growth")
    counts = _counts(rows)
    if not rows.any():
        return Finding(None, counts, None, "No run has finite measurements.")
    rho = float(np.mean(samples["rho_hat"][rows]))
    growth = float(np.mean(samples["state_growth"][rows]))
    error = abs(rho - growth) / rho if rho > 0 else abs(growth)
    limit = STATE_TOLERANCE["relative_error"]
    values = {"rho_hat": rho, "state_growth": growth, "relative_error": error, **counts}
    return Finding(
        error <= limit,
        values,
        error,
        f"Mean rho_hat {rho:.4f} against a state growth of {growth:.4f}: relative error "
        f"{error:.4f}, limit {limit}.",
    )


# --------------------------------------------------------------------------------------------------
# The lift
# --------------------------------------------------------------------------------------------------


def lift_predicts_growth(samples: Samples) -> Finding:
    """Compare `log G = log(E |delta_t|^2 / injected)`, measured and by the lift, at all points.

    A point is a run, a sigma and a horizon.  The error is the median of `|log G - log G_lift|`.
    """
    rows = finite_rows(samples, "log_predicted", "log_measured", "log_injected")
    counts = _counts(rows)
    injected = samples["log_injected"][rows]
    predicted = (samples["log_predicted"][rows] - injected).astype(float)
    measured = (samples["log_measured"][rows] - injected).astype(float)
    if predicted.size < 3:
        return Finding(None, counts, None, f"Points with finite values: only {predicted.size}.")
    apart = np.abs(measured - predicted)
    relative = np.abs(np.expm1(measured - predicted))
    values = {
        "points": predicted.size,
        "median_relative_error": float(np.median(relative)),
        "median_relative_error_by_sigma": np.median(relative, axis=(0, 2)).tolist(),
        "median_sampling_error": _median(samples, "log_measured_error", rows),
        **counts,
    }
    error = float(np.median(apart))
    x, y = predicted.ravel(), measured.ravel()
    if np.std(x) < 1e-9 or np.std(y) < 1e-9:
        return Finding(None, values, error, "All points have the same growth: there is no slope.")
    slope = float(np.polyfit(x, y, 1)[0])
    r_squared = float(np.corrcoef(x, y)[0, 1] ** 2)
    values |= {"slope": slope, "r_squared": r_squared}
    passed = (
        abs(slope - 1) <= LIFT_TOLERANCE["slope_error"]
        and r_squared >= LIFT_TOLERANCE["r_squared"]
        and values["median_relative_error"] <= LIFT_TOLERANCE["median_relative_error"]
    )
    reason = (
        f"Slope {slope:.3f} (1 +- {LIFT_TOLERANCE['slope_error']}), R^2 {r_squared:.3f} (at least "
        f"{LIFT_TOLERANCE['r_squared']}), median relative error "
        f"{values['median_relative_error']:.3f} (at most "
        f"{LIFT_TOLERANCE['median_relative_error']}) over {predicted.size} points."
    )
    return Finding(passed, values, error, reason)


def no_growth(samples: Samples) -> Samples:
    """Put growth 1 in place of the lift's: what was injected stays, neither grown nor shrunk."""
    return {**samples, "log_predicted": samples["log_injected"]}


# --------------------------------------------------------------------------------------------------
# The effect of the penalty
# --------------------------------------------------------------------------------------------------


def penalty_lowers_growth(samples: Samples) -> Finding:
    """Compare paired differences of `log G`, penalised minus baseline, with those of `rho_hat`.

    A pair is one seed: the runs that share their `method` key, one of them with weight 0.  At the
    noise level nearest to the penalty's sigma and at each horizon, the prediction is the difference
    of `log accumulated(rho_hat, horizon)`.  The error is the median distance between the measured
    and the predicted difference.
    """
    rows = finite_rows(samples, "rho_hat", "log_measured", "log_injected", "log_predicted")
    counts = _counts(rows)
    looseness = _looseness(samples)
    samples = {name: value[rows] for name, value in samples.items() if len(value) == len(rows)}
    pairs = paired_rows(samples)
    counts["pairs"] = len(pairs)
    if len(pairs) < 2:
        few = "No pair" if not pairs else "Only one pair"
        return Finding(None, counts, None, f"{few} of a run with and without it.")
    baseline, idea = np.array(pairs).T
    horizons = samples["horizons"][0]

    def difference(values: Float[np.ndarray, "runs horizons"]) -> np.ndarray:
        return values[idea] - values[baseline]

    measured = difference(_at_own_sigma(samples, "log_measured"))
    by_lift = difference(_at_own_sigma(samples, "log_predicted"))
    predicted = difference(np.array([log_accumulated(r, horizons) for r in samples["rho_hat"]]))
    fall, effect = float(predicted.mean()), float(measured.mean())
    error = float(np.median(np.abs(measured - predicted)))
    values = {
        "mean_difference_predicted_by_rho_hat": fall,
        "mean_difference_predicted_by_the_lift": float(by_lift.mean()),
        "mean_difference_measured": effect,
        "standard_error": float(measured.mean(axis=1).std(ddof=1) / len(pairs) ** 0.5),
        "pairs_that_fell": int((measured.mean(axis=1) < 0).sum()),
        **looseness,
        **counts,
    }
    least = EFFECT_TOLERANCE["least_predicted_fall"]
    if fall > -least:
        reason = (
            f"rho_hat predicts a mean change of log growth of {fall:+.3f}, no fall by {least} or "
            "more: the penalty did not lower it."
        )
        return Finding(None, values, error, reason)
    limit = EFFECT_TOLERANCE["relative_error_of_mean"]
    reason = (
        f"Log growth changed by {effect:+.3f} +- {values['standard_error']:.3f} over {len(pairs)} "
        f"pairs, where rho_hat predicts {fall:+.3f} within {limit:.0%} (and the lift "
        f"{values['mean_difference_predicted_by_the_lift']:+.3f})."
    )
    return Finding(abs(effect - fall) <= limit * abs(fall), values, error, reason)


def same_growth(samples: Samples) -> Samples:
    """Put the same `rho_hat` in all runs: the penalty changes no growth."""
    return {**samples, "rho_hat": np.where(np.isfinite(samples["rho_hat"]), 1.0, np.nan)}


def log_accumulated(rho: float, horizons: np.ndarray) -> np.ndarray:
    """`log (1/t sum_{k<t} rho^k)`: the growth after `t` equal injections, by `D' = rho D + s`."""
    log_rho = np.log(max(float(rho), np.finfo(float).tiny))
    return np.array(
        [np.logaddexp.reduce(np.arange(int(t)) * log_rho) - np.log(t) for t in horizons]
    )


def paired_rows(samples: Samples) -> list[tuple[int, int]]:
    """Pair each penalised run with the baseline run of the same seed: (baseline, penalised)."""
    keys = [tuple(key) for key in samples["pair"].tolist()]
    weights = samples["weight"].tolist()
    baseline = {key: row for row, key in enumerate(keys) if weights[row] == 0}
    return [
        (baseline[key], row) for row, key in enumerate(keys) if weights[row] > 0 and key in baseline
    ]


def _at_own_sigma(samples: Samples, name: str) -> Float[np.ndarray, "runs horizons"]:
    """`log G` at the noise level nearest to each run's sigma."""
    growth = (samples[name] - samples["log_injected"]).astype(float)
    nearest = np.abs(samples["noise_sigma"] - samples["sigma"][:, None]).argmin(axis=1)
    return growth[np.arange(len(growth)), nearest]


def _looseness(samples: Samples) -> dict[str, float]:
    """How far the two estimates lie above the exact growth, where it was measured."""
    names = ("exact_rho", "exact_rho_by_norm", "exact_rho_by_power")
    if not all(name in samples for name in names):
        return {}
    exact, norm, power = (np.asarray(samples[name], float).ravel() for name in names)
    good = np.isfinite(exact) & np.isfinite(norm) & np.isfinite(power) & (exact > 0)
    if good.sum() < 3 or np.std(exact[good]) == 0 or np.std(norm[good]) == 0:
        return {}
    return {
        "norm_over_exact": float(np.mean(norm[good] / exact[good])),
        "power_over_exact": float(np.mean(power[good] / exact[good])),
        "correlation_norm_exact": float(np.corrcoef(norm[good], exact[good])[0, 1]),
    }


def _counts(rows: np.ndarray) -> dict[str, int]:
    return {"runs": int(rows.sum()), "runs_dropped": int((~rows).sum())}


def _median(samples: Samples, name: str, rows: np.ndarray) -> float | None:
    return float(np.median(samples[name][rows])) if name in samples else None


# --------------------------------------------------------------------------------------------------
# The rules
# --------------------------------------------------------------------------------------------------

SIGNATURES = (
    Signature(
        name="state_growth",
        claim="rho_hat equals the growth of the hidden state's energy from step to step",
        formula="rho_hat = E|h_{t+1}|^2 / E|h_t|^2; the reference report's rule",
        tolerance=STATE_TOLERANCE,
        evaluate=state_growth,
        reported_rule=True,
    ),
    Signature(
        name="lift_predicts_growth",
        claim=(
            "the time-varying lift predicts how deviations under weight noise grow; a first-order "
            "identity, which untrained networks obey too, so at best `vacuous`: it says whether "
            "the measurement can be trusted"
        ),
        formula=(
            "G_t = E|delta_t|^2 / (sigma^2 sum_{s<t,g} |b_{g,s}|^2) = tr P_t / (the same), "
            "P_{t+1} = J P J^T + sigma^2 sum_g (B_g P B_g^T + b_g b_g^T), P_0 = 0 (Kleinman 1969)"
        ),
        tolerance=LIFT_TOLERANCE,
        evaluate=lift_predicts_growth,
        compared=Compared("log_predicted", "log_measured", equal=True),
        pool=("idea", "baseline"),
        null=no_growth,
        null_name="growth 1: injected deviations neither grow nor shrink (J an isometry, B = 0)",
        controls=("untrained",),
    ),
    Signature(
        name="penalty_lowers_growth",
        claim=(
            "under weight noise, deviations grow less in a penalised network than in its paired "
            "baseline, by as much as rho_hat fell"
        ),
        formula=(
            "log G_t(idea) - log G_t(baseline) = log S_t(rho_hat(idea)) - log "
            "S_t(rho_hat(baseline)), S_t(rho) = 1/t sum_{k<t} rho^k, from D' = rho_hat D + s"
        ),
        tolerance=EFFECT_TOLERANCE,
        evaluate=penalty_lowers_growth,
        pool=("idea", "baseline"),
        null=same_growth,
        null_name="the penalty changes no growth",
        controls=("untrained",),
    ),
)
