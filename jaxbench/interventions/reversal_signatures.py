"""What the explanation of `reversal_checkpointing` predicts of trained networks; numpy only.

All are about the runs of every idea of a study together, since one cell alone moves its interval to
one place.

- `checkpoints_rise`, the reference report's rule: runs whose defect exceeds the threshold have more
  checkpoints on average.  It needs at least three intervals among the runs: a controller that is
  at one end of its range everywhere shows nothing.  It decides nothing.
- `checkpoints_follow_defect`: over all runs, the larger the defect, the more checkpoints.
- `gradient_follows_defect` and `rounding_follows_jacobians`: identities of first order, which hold
  in untrained networks too, so that they can be no better than `vacuous` where those are reversed
  as well; they say whether the measurements can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxbench.base import Compared, Finding, Signature

if TYPE_CHECKING:
    from jaxtyping import Float

    Samples = Mapping[str, np.ndarray]

LEAST_INTERVALS = 3
FOLLOW_TOLERANCE = {"spearman": 0.8, "least_intervals": LEAST_INTERVALS}
GRADIENT_TOLERANCE = {"largest_ratio": 1.0, "r_squared": 0.8, "least_points": 3}
ROUNDING_TOLERANCE = {"largest_factor": 10.0, "largest_error": 0.1}


def checkpoints_rise(samples: Samples) -> Finding:
    """Mean checkpoints of the runs with `D > tau` exceed those of the others."""
    rows = finite(samples, "defect", "threshold", "checkpoints")
    above = rows & (samples["defect"] > samples["threshold"])
    below = rows & ~above
    intervals = len(np.unique(samples["interval"][rows]))
    values = {
        "runs_above": int(above.sum()),
        "runs_below": int(below.sum()),
        "intervals": intervals,
        "checkpoints_above": _mean(samples["checkpoints"][above]),
        "checkpoints_below": _mean(samples["checkpoints"][below]),
    }
    if intervals < LEAST_INTERVALS or not (above.any() and below.any()):
        reason = (
            f"{values['runs_above']} runs have a defect above the threshold and "
            f"{values['runs_below']} not, at {intervals} different intervals: a rise needs both, "
            f"and at least {LEAST_INTERVALS} intervals."
        )
        return Finding(None, values, None, reason)
    high = float(samples["checkpoints"][above].mean())
    low = float(samples["checkpoints"][below].mean())
    reason = f"Mean checkpoints {high:.1f} where the defect exceeds the threshold, {low:.1f} else."
    return Finding(high > low, values, None, reason)


def checkpoints_follow_defect(samples: Samples) -> Finding:
    """Spearman's correlation of D, at the first interval, with the checkpoints is at least 0.8.

    D is the defect that moves the interval; at one and the same interval it compares runs.  The
    error is 1 less the correlation.
    """
    rows = finite(samples, "reference_defect", "checkpoints")
    defect, checkpoints = samples["reference_defect"][rows], samples["checkpoints"][rows]
    intervals = len(np.unique(samples["interval"][rows]))
    values: dict[str, float] = {"runs": int(rows.sum()), "intervals": intervals}
    if intervals < LEAST_INTERVALS:
        reason = (
            f"The runs ended at {intervals} different intervals, of which a correlation needs at "
            f"least {LEAST_INTERVALS}: the controller saturated."
        )
        return Finding(None, values, None, reason)
    correlation = spearman(defect, checkpoints)
    values["spearman"] = correlation
    reason = (
        f"Spearman's correlation of defect and checkpoints is {correlation:.3f} over "
        f"{values['runs']} runs (at least {FOLLOW_TOLERANCE['spearman']})."
    )
    return Finding(correlation >= FOLLOW_TOLERANCE["spearman"], values, 1 - correlation, reason)


def same_defect(samples: Samples) -> Samples:
    """Give all runs the same defect: checkpoints have nothing to do with it."""
    return {**samples, "reference_defect": np.ones_like(samples["reference_defect"])}


def gradient_follows_defect(samples: Samples) -> Finding:
    """`1 - cos <= C segment defect`, with C = 1, and R^2 of the logarithms of at least 0.8.

    Runs that keep every state have neither and say nothing.  The error is the root mean square of
    `log (1 - cos)` about its regression on the log of the defect.
    """
    rows = finite(samples, "segment_defect", "gradient_disagreement")
    rows &= (samples["segment_defect"] > 0) & (samples["gradient_disagreement"] > 0)
    defect = samples["segment_defect"][rows].astype(float)
    apart = samples["gradient_disagreement"][rows].astype(float)
    values: dict[str, float] = {"runs": int(rows.sum())}
    if len(defect) < GRADIENT_TOLERANCE["least_points"]:
        return Finding(None, values, None, f"Runs that made states again: only {len(defect)}.")
    x, y = np.log(defect), np.log(apart)
    r_squared = 0.0 if _constant(x) or _constant(y) else float(np.corrcoef(x, y)[0, 1] ** 2)
    slope = 0.0 if _constant(x) else float(np.polyfit(x, y, 1)[0])
    ratio = float(np.max(apart / defect))
    error = float(np.std(y) * np.sqrt(max(0.0, 1 - r_squared)))
    values |= {"r_squared": r_squared, "slope": slope, "largest_ratio": ratio}
    passed = (
        ratio <= GRADIENT_TOLERANCE["largest_ratio"]
        and r_squared >= GRADIENT_TOLERANCE["r_squared"]
    )
    reason = (
        f"1 - cos is at most {ratio:.3g} times the segment defect (limit "
        f"{GRADIENT_TOLERANCE['largest_ratio']}), with R^2 {r_squared:.3f} of the logarithms (at "
        f"least {GRADIENT_TOLERANCE['r_squared']}) over {len(defect)} runs."
    )
    return Finding(passed, values, error, reason)


def same_segment_defect(samples: Samples) -> Samples:
    """Give all runs that made states again the same segment defect, the largest."""
    defect = samples["segment_defect"]
    rows = np.isfinite(defect) & (defect > 0)
    largest = defect[rows].max() if rows.any() else 1.0
    return {**samples, "segment_defect": np.where(rows, largest, defect)}


def rounding_follows_jacobians(samples: Samples) -> Finding:
    """Errors of an exact inverse are `u |J^-1 ... J^-1|` within a factor of 10.

    A point is a run and a number of steps back; those with errors above 0.1 are no longer small.
    The error is the median of `|log error - log prediction|`.
    """
    rows = finite(samples, "log_error", "log_error_predicted") & (samples["exact"] > 0)
    observed = samples["log_error"][rows].astype(float)
    predicted = samples["log_error_predicted"][rows].astype(float)
    limit = np.log(ROUNDING_TOLERANCE["largest_error"])
    small = (observed <= limit) & (predicted <= limit)
    values: dict[str, float] = {"runs": int(rows.sum()), "points": int(small.sum())}
    if not small.any():
        return Finding(None, values, None, "No run has an exact inverse with small errors.")
    apart = np.abs(observed - predicted)[small]
    factor = float(np.exp(apart.max()))
    values |= {"largest_factor": factor, "median_factor": float(np.exp(np.median(apart)))}
    reason = (
        f"Rounding errors of the reversal lie within a factor of {factor:.3g} of the Jacobians' "
        f"prediction (limit {ROUNDING_TOLERANCE['largest_factor']}) at {values['points']} points."
    )
    passed = factor <= ROUNDING_TOLERANCE["largest_factor"]
    return Finding(passed, values, float(np.median(apart)), reason)


def no_enlargement(samples: Samples) -> Samples:
    """Predict the unit roundoff of float32 throughout: reversing enlarges no error."""
    predicted = samples["log_error_predicted"]
    return {**samples, "log_error_predicted": np.full_like(predicted, np.log(2.0**-24))}


def finite(samples: Samples, *names: str) -> np.ndarray:
    """Which runs have finite values of all these quantities [runs]."""
    each = [np.isfinite(samples[name]) for name in names]
    return np.all([one.reshape(len(one), -1).all(axis=1) for one in each], axis=0)


def spearman(x: Float[np.ndarray, " runs"], y: Float[np.ndarray, " runs"]) -> float:
    """The correlation of the ranks, ties at their mean rank; 0 where all values are the same."""
    if _constant(x) or _constant(y):
        return 0.0
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def ranks(values: Float[np.ndarray, " runs"]) -> Float[np.ndarray, " runs"]:
    """Ranks from 0, ties at their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[place]


def _constant(values: np.ndarray) -> bool:
    return len(values) == 0 or bool(np.ptp(values) == 0)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


SIGNATURES = (
    Signature(
        name="checkpoints_rise",
        claim="runs whose defect exceeds the threshold have more checkpoints",
        formula="E[checkpoints | D > tau] > E[checkpoints | D <= tau]; the reference report's rule",
        tolerance={"least_intervals": LEAST_INTERVALS},
        evaluate=checkpoints_rise,
        pool=("ideas",),
        reported_rule=True,
    ),
    Signature(
        name="checkpoints_follow_defect",
        claim="over all runs, the larger the defect at the first interval, the more checkpoints",
        formula="Spearman(D, ceil(T / k) + 1) >= 0.8",
        tolerance=FOLLOW_TOLERANCE,
        evaluate=checkpoints_follow_defect,
        pool=("ideas",),
        null=same_defect,
        null_name="checkpoints have nothing to do with the defect",
        controls=("untrained",),
    ),
    Signature(
        name="gradient_follows_defect",
        claim=(
            "the gradient's angle to the dense one is bounded by the segment defect and follows "
            "it; untrained networks obey this too, so at best `vacuous` where they are reversed"
        ),
        formula="1 - cos(g, g_dense) <= C delta_segment, C = 1, R^2 of the logarithms >= 0.8",
        tolerance=GRADIENT_TOLERANCE,
        evaluate=gradient_follows_defect,
        pool=("ideas",),
        null=same_segment_defect,
        null_name="all runs have the same segment defect",
        controls=("untrained",),
    ),
    Signature(
        name="rounding_follows_jacobians",
        claim=(
            "the error of an exact inverse is rounding, enlarged by the product of the inverse's "
            "Jacobians; untrained networks obey this too, so at best `vacuous`"
        ),
        formula="delta ~ u |J_t^-1 ... J_T^-1| within a factor of 10 (float32, u = 2^-24)",
        tolerance=ROUNDING_TOLERANCE,
        evaluate=rounding_follows_jacobians,
        compared=Compared("log_error_predicted", "log_error", equal=True),
        pool=("ideas",),
        null=no_enlargement,
        null_name="reversing enlarges no error",
        controls=("untrained",),
    ),
)
