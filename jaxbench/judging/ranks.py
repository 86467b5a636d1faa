"""Ranks: the signed-rank test, which is defined where some runs diverged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxbench.judging.arguments import Direction
from jaxbench.judging.pairs import paired_scores
from jaxbench.judging.sign_flip import (
    RELATIVE_TOLERANCE,
    RESAMPLES,
    Alternative,
    SignFlipTest,
    sign_flip_test,
)

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike


def signed_ranks(
    differences: Float[np.ndarray, " pairs"],
    rounding: Float[np.ndarray, " pairs"] | None = None,
) -> Float[np.ndarray, " pairs"]:
    """Replace differences by the ranks of their sizes, with their signs.

    Zero differences get rank 0 and are not counted in the ranking (Wilcoxon's treatment).  Equal
    sizes share the mean of their ranks; sizes within rounding are equal, and so are infinite ones.

    Args:
        differences: may be infinite, not NaN.
        rounding: absolute error of each difference, from rounding of the scores.

    Reference: Wilcoxon (1945), Individual comparisons by ranking methods.
    """
    ranks = np.zeros_like(differences)
    moved = np.flatnonzero(differences)
    if moved.size == 0:
        return ranks
    sizes = np.abs(differences[moved])
    finite = sizes[np.isfinite(sizes)]
    beyond = 2.0 * float(finite.max()) if finite.size else 1.0
    sizes = np.where(np.isfinite(sizes), sizes, beyond)
    order = np.argsort(sizes, kind="stable")
    errors = RELATIVE_TOLERANCE * sizes + (0.0 if rounding is None else rounding[moved])
    apart = np.diff(sizes[order]) > errors[order][1:] + errors[order][:-1]
    group = np.concatenate([[0], np.cumsum(apart)])
    places = np.arange(1.0, moved.size + 1.0)
    mean_rank = np.bincount(group, weights=places) / np.bincount(group)
    ranks[moved[order]] = mean_rank[group]
    return np.copysign(ranks, differences)


def signed_rank_test(
    baseline_scores: ArrayLike,
    idea_scores: ArrayLike,
    *,
    direction: Direction,
    alternative: Alternative = "two-sided",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> SignFlipTest:
    """Test paired scores by Wilcoxon's signed ranks; a diverged run is the worst outcome.

    The exact sign-flip test of the signed ranks, with mid-ranks for ties: exact by enumeration up
    to 20 pairs.

    Args:
        baseline_scores: one a seed; not finite means diverged.
        idea_scores: the same, in the same order of seeds.
        direction: in which the score improves, `lower` or `higher`.
        alternative: about idea minus baseline, as for `sign_flip_test`.
        resamples: random flips beyond 20 pairs.
        seed: of the random flips.

    Raises:
        JaxbenchError: unequal lengths, fewer than two pairs, an unknown direction.
    """
    pairs = paired_scores(baseline_scores, idea_scores, direction)
    return sign_flip_test(
        signed_ranks(pairs.differences, pairs.rounding),
        alternative=alternative,
        resamples=resamples,
        seed=seed,
    )
