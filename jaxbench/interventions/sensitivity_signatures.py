"""What the explanation of `sensitivity_pruning` predicts of trained networks; numpy only.

Three rules, fixed before looking; each correlates, within a run, a score of the units with what
removing them costs, and averages over runs:

- `score_against_ablation`, the reference report's: the score that pruned against the raw ablation.
  The conditional score predicts something else, so it decides nothing.
- `marginal_predicts_ablation`: the marginal information against the raw ablation.
- `conditional_predicts_refitted_ablation`: the conditional information against the ablation after
  the other units' masks were refitted.

The nulls are not random scores: their correlation is 0, so that a correlation of 0.7 beats them by
itself.  They are what a sceptic would use instead: the weights' norms (the baseline's score) for
the first claim, and the marginal information for the second, whose point is to be better than it.
Scores come from training data, costs from test data.  The negative control is the untrained
network, where the loss has a gradient that neither score knows of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxbench.base import Compared, Finding, Signature

if TYPE_CHECKING:
    from jaxtyping import Float

    Samples = Mapping[str, np.ndarray]

REPORTED_TOLERANCE = {"mean_pearson": 0.5}
TOLERANCE = {"mean_pearson": 0.7}
CONDITIONING = ("condition_before", "condition_after", "collinearity_before", "collinearity_after")
LOSSES = ("dense_loss", "pruned_loss")
SOLVER = ("solver_evaluations_dense", "solver_evaluations_pruned")
"""Only of models that solve a differential equation, and not of untrained ones."""


def score_against_ablation(samples: Samples) -> Finding:
    """Correlate the score that pruned with the raw ablation."""
    return correlates(samples, "score", "raw_ablation", REPORTED_TOLERANCE["mean_pearson"])


def marginal_predicts_ablation(samples: Samples) -> Finding:
    """Correlate the marginal information with the raw ablation."""
    return correlates(samples, "marginal", "raw_ablation", TOLERANCE["mean_pearson"])


def conditional_predicts_refitted_ablation(samples: Samples) -> Finding:
    """Correlate the conditional information with the refitted ablation."""
    return correlates(samples, "conditional", "refitted_ablation", TOLERANCE["mean_pearson"])


def correlates(samples: Samples, score: str, cost: str, least: float) -> Finding:
    """`mean over runs of Pearson(score, cost) >= least`; the error is 1 less that mean."""
    pearson = correlations(samples[score], samples[cost])
    spearman = correlations(ranks(samples[score]), ranks(samples[cost]))
    known = np.isfinite(pearson)
    counts = {"runs": int(known.sum()), "runs_dropped": int((~known).sum())}
    if not known.any():
        return Finding(None, counts, None, "no run has scores and costs that are finite and vary")
    mean = float(pearson[known].mean())
    values = {
        "mean_pearson": mean,
        "mean_spearman": float(spearman[known].mean()),
        "pearson": [float(each) if np.isfinite(each) else None for each in pearson],
        "cost_over_score": float(
            np.median(samples[cost][known].mean(axis=1) / samples[score][known].mean(axis=1))
        ),
        **{
            name: float(np.median(samples[name][known]))
            for name in (*CONDITIONING, *LOSSES, *SOLVER)
            if name in samples
        },
        **counts,
    }
    reason = (
        f"Pearson correlation {mean:.3f} of {score} with {cost}, averaged over {known.sum()} runs "
        f"(at least {least}); Spearman {values['mean_spearman']:.3f}"
    )
    return Finding(mean >= least, values, 1 - mean, reason)


def correlations(
    x: Float[np.ndarray, "runs units"], y: Float[np.ndarray, "runs units"]
) -> Float[np.ndarray, " runs"]:
    """Pearson's correlation within each run; NaN where a value is not finite or none varies."""
    found = np.full(len(x), np.nan)
    for run, (a, b) in enumerate(zip(x, y, strict=True)):
        if np.isfinite(a).all() and np.isfinite(b).all() and np.ptp(a) > 0 and np.ptp(b) > 0:
            found[run] = np.corrcoef(a, b)[0, 1]
    return found


def ranks(values: Float[np.ndarray, "runs units"]) -> Float[np.ndarray, "runs units"]:
    """The ranks within each run, equal values sharing the mean of theirs; NaN where one is NaN."""
    ranked = np.full(values.shape, np.nan)
    for run, row in enumerate(values):
        if np.isfinite(row).all():
            _, place, counts = np.unique(row, return_inverse=True, return_counts=True)
            ranked[run] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranked


def norms_as_marginal(samples: Samples) -> Samples:
    """Put the norms of the outgoing weights in place of the marginal information."""
    return {**samples, "marginal": samples["magnitude"]}


def marginal_as_conditional(samples: Samples) -> Samples:
    """Put the marginal information in place of the conditional one."""
    return {**samples, "conditional": samples["marginal"]}


SIGNATURES = (
    Signature(
        name="score_against_ablation",
        claim="the score that pruned correlates with the raw ablation of each unit",
        formula="mean over runs of Pearson(score, dL) >= 0.5; the reference report's rule",
        tolerance=REPORTED_TOLERANCE,
        evaluate=score_against_ablation,
        reported_rule=True,
    ),
    Signature(
        name="marginal_predicts_ablation",
        claim="the marginal information of a unit predicts what its raw ablation costs",
        formula=(
            "mean over runs of Pearson(F_jj / 2, L(1 - e_j) - L(1)) >= 0.7, F on training and L on "
            "test data (LeCun et al. 1990)"
        ),
        tolerance=TOLERANCE,
        evaluate=marginal_predicts_ablation,
        compared=Compared("marginal", "raw_ablation"),
        null=norms_as_marginal,
        null_name="the norm of a unit's outgoing weights",
        controls=("untrained",),
    ),
    Signature(
        name="conditional_predicts_refitted_ablation",
        claim=(
            "the conditional information of a unit predicts what its ablation costs once the other "
            "units are refitted, and better than the marginal information does"
        ),
        formula=(
            "mean over runs of Pearson(1 / (2 [F^-1]_jj), min_m L(m | m_j = 0) - L(1)) >= 0.7, F "
            "and the refit on training and L on test data (Hassibi & Stork 1993)"
        ),
        tolerance=TOLERANCE,
        evaluate=conditional_predicts_refitted_ablation,
        compared=Compared("conditional", "refitted_ablation"),
        null=marginal_as_conditional,
        null_name="the marginal information",
        controls=("untrained",),
    ),
)
