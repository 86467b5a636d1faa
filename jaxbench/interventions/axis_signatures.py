"""What the explanation of `axis_pruning` predicts of trained networks; numpy only.

Four rules, fixed before looking, all on the network as it is before it is pruned and on the test
inputs, which no choice has seen:

- `one_sided_axes_are_affine`, the reference report's: the removed units that lie on one side of
  their axis err by 0 when they are replaced.  A quantile allows some data on the other side, so it
  does not follow from the rule by which units are chosen; it decides nothing.
- `bound_holds`: outputs move by at most the bound, and by all of it where one unit errs.  A
  theorem, which untrained networks obey too, so that it can be no better than `vacuous`; it says
  whether the other numbers can be trusted.
- `certified_units_lose_nothing`: units certified on the whole domain err by nothing, which units
  that merely look one-sided on the sample do not.
- `bound_predicts_move`: across thresholds, outputs move in proportion to the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench.base import Compared, Finding, Signature

if TYPE_CHECKING:
    Samples = Mapping[str, np.ndarray]

EXACT = {"relative_error": 1e-5}
BOUND = {"relative_excess": 1e-5, "tightness": 0.5}
CORRELATION = {"pearson": 0.9}


def finite_rows(samples: Samples, *names: str) -> np.ndarray:
    """Which runs have finite values of all these quantities [runs]; the others diverged."""
    each = [np.isfinite(samples[name]).reshape(len(samples[name]), -1) for name in names]
    return np.all([one.all(axis=1) for one in each], axis=0)


def one_sided_axes_are_affine(samples: Samples) -> Finding:
    """The largest relative error of the removed one-sided units, over all runs, is at most 1e-5."""
    rows = finite_rows(samples, "one_sided_relative_error", "one_sided_error")
    units = samples["one_sided_units"][rows]
    values: dict[str, Any] = {"units": int(units.sum()), **_counts(samples, rows)}
    if not units.sum():
        return Finding(None, values, None, "no removed unit is one-sided, so there is none to test")
    error = float(samples["one_sided_relative_error"][rows].max())
    values |= {
        "relative_error": error,
        "error": float(samples["one_sided_error"][rows].max()),
        "runs_without_error": int((samples["one_sided_relative_error"][rows] == 0).sum()),
    }
    limit = EXACT["relative_error"]
    return Finding(
        error <= limit,
        values,
        error,
        f"{values['units']} removed one-sided units of {rows.sum()} networks err by up to "
        f"{values['error']:.4g} on the test inputs ({error:.3g} of the unit's range), where 0 is "
        f"predicted, limit {limit:g}",
    )


def bound_holds(samples: Samples) -> Finding:
    """No output moves further than its bound, and at least half of it where a single unit errs."""
    names = ("threshold_excess", "output_scale", "tightness")
    rows = finite_rows(samples, *names)
    replaced, single = samples["threshold_units"][rows], samples["single_errors"][rows]
    values: dict[str, Any] = {
        "units": int(replaced.sum()),
        "single_errors": int(single.sum()),
        "runs": int(rows.sum()),
        "runs_dropped": int((~rows).sum()),
    }
    if not replaced.sum() or not single.sum():
        missing = "no sample has a single erring unit" if replaced.sum() else "no unit is one-sided"
        return Finding(None, values, None, f"{missing}, so the bound cannot be tested")
    excess = samples["threshold_excess"][rows] / samples["output_scale"][rows, None]
    error = max(float(excess.max()), 0.0)
    tight = float(samples["tightness"][rows][single > 0].min())
    values |= {"relative_excess": float(excess.max()), "tightness": tight}
    return Finding(
        error <= BOUND["relative_excess"] and tight >= BOUND["tightness"],
        values,
        error,
        f"outputs exceed their bound by at most {error:.2g} of their size (limit "
        f"{BOUND['relative_excess']:g}) and reach {tight:.3f} of it where one unit errs (at least "
        f"{BOUND['tightness']}), over {values['single_errors']} such samples",
    )


def nothing_moves(samples: Samples) -> Samples:
    """Put a bound of 0 in place of the idea's: one-sided on the sample, one-sided on the test."""
    return {
        **samples,
        "threshold_excess": samples["threshold_excess"] + samples["threshold_bound"],
    }


def certified_units_lose_nothing(samples: Samples) -> Finding:
    """The largest relative error of removed units that are certified, over all runs, is <= 1e-5."""
    rows = finite_rows(samples, "certified_relative_error")
    units = samples["certified_units"][rows].sum()
    errors = samples["certified_relative_error"][rows]
    if "milp_units" in samples:
        tried = rows & np.isfinite(samples["milp_units"])
        units += samples["milp_units"][tried].sum()
        errors = np.concatenate([errors, samples["milp_relative_error"][tried]])
    values: dict[str, Any] = {"units": int(units), **_counts(samples, rows)}
    if not units:
        reason = "no removed unit is certified on the whole domain, so there is none to test"
        return Finding(None, values, None, reason)
    error = float(errors.max())
    limit = EXACT["relative_error"]
    return Finding(
        error <= limit,
        values | {"relative_error": error},
        error,
        f"{int(units)} certified removed units err by up to {error:.3g} of their range on the test "
        f"inputs, limit {limit:g}",
    )


def looks_are_enough(samples: Samples) -> Samples:
    """Put the units that are one-sided on every sample in place of the certified ones."""
    without = {name: value for name, value in samples.items() if not name.startswith("milp")}
    return {
        **without,
        "certified_units": samples["sampled_units"],
        "certified_relative_error": samples["sampled_relative_error"],
    }


def bound_predicts_move(samples: Samples) -> Finding:
    """The mean move of the outputs and its mean bound correlate over runs and thresholds."""
    rows = finite_rows(samples, "threshold_move", "threshold_bound")
    move, bound = samples["threshold_move"][rows].ravel(), samples["threshold_bound"][rows].ravel()
    values: dict[str, Any] = {"points": move.size, "runs": int(rows.sum())}
    if move.size < 3 or np.std(move) == 0 or np.std(bound) == 0:
        reason = f"points without variance: {move.size}, so there is no correlation"
        return Finding(None, values, None, reason)
    pearson = float(np.corrcoef(move, bound)[0, 1])
    limit = CORRELATION["pearson"]
    values |= {
        "pearson": pearson,
        "mean_move": float(move.mean()),
        "mean_bound": float(bound.mean()),
    }
    return Finding(
        pearson >= limit,
        values,
        1 - pearson,
        f"the bound and the move of the outputs correlate with {pearson:.3f} (at least {limit}) "
        f"over {move.size} points",
    )


def every_unit_the_same(samples: Samples) -> Samples:
    """Put the number of replaced units in place of the bound: each moves the outputs alike."""
    return {**samples, "threshold_bound": samples["threshold_units"]}


def _counts(samples: Samples, rows: np.ndarray) -> dict[str, Any]:
    """Runs, and units [layers, domains, (off, crossing, on)], all and removed, summed over runs."""
    return {
        "runs": int(rows.sum()),
        "runs_dropped": int((~rows).sum()),
        "all_units": samples["units"][rows].sum(axis=0).astype(int).tolist(),
        "removed_units": samples["removed"][rows].sum(axis=0).astype(int).tolist(),
    }


SIGNATURES = (
    Signature(
        name="one_sided_axes_are_affine",
        claim="removed units that lie on one side of their axis can be replaced without error",
        formula=(
            "max over test inputs of |max(a, 0) - r(a)| / max |a| = 0, with r = a for units that "
            "are on by quantiles and 0 for those that are off; the reference report's rule"
        ),
        tolerance=EXACT,
        evaluate=one_sided_axes_are_affine,
        reported_rule=True,
    ),
    Signature(
        name="bound_holds",
        claim=(
            "outputs move by at most the bound, and by all of it where one unit errs; a theorem, "
            "which untrained networks obey too, so at best `vacuous`: it says whether the "
            "measurements can be trusted"
        ),
        formula=(
            "|y' - y| <= B(x) = sum_l L_l (sum_on |V_j| a_j^- + sum_off |V_j| a_j^+), L_l the "
            "product of later kernels' norms"
        ),
        tolerance=BOUND,
        evaluate=bound_holds,
        null=nothing_moves,
        null_name="a bound of 0: units one-sided on the sample are so on the test inputs",
        controls=("untrained",),
    ),
    Signature(
        name="certified_units_lose_nothing",
        claim=(
            "removed units that are certified on the whole domain are replaced without error on "
            "inputs never seen, unlike those that look one-sided on the sample"
        ),
        formula=(
            "max over test inputs of |max(a, 0) - r(a)| / max |a| = 0 where interval bounds or "
            "signs of weights give a >= 0 or a <= 0 on the box (Gowal et al. 2018; Tjeng et al. "
            "2019)"
        ),
        tolerance=EXACT,
        evaluate=certified_units_lose_nothing,
        null=looks_are_enough,
        null_name="units one-sided on every sample err by nothing too",
        controls=("untrained",),
    ),
    Signature(
        name="bound_predicts_move",
        claim="across thresholds, replacing one-sided units moves the outputs as the bound says",
        formula="Pearson(mean B, mean |y' - y|) over runs and alpha in {0, .01, .02, .05, .1, .2}",
        tolerance=CORRELATION,
        evaluate=bound_predicts_move,
        compared=Compared("threshold_bound", "threshold_move"),
        null=every_unit_the_same,
        null_name="every replaced unit moves the outputs alike, wherever the data lie",
        controls=("untrained",),
    ),
)
