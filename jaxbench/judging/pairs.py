"""Paired scores: two arms on the same seeds, with the runs that diverged told apart."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import Direction, sign_of_better, vector
from jaxbench.judging.spread import standard_deviation

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy.typing import ArrayLike

LARGEST_SCORE = 1e300
"""A score of this size or beyond counts as diverged, as do NaN and the infinities."""


@dataclasses.dataclass(frozen=True)
class ScoreSummary:
    """One arm's scores, as the reference reports give them.

    Attributes:
        mean: over seeds; None where a run diverged.
        std: over seeds with n in the denominator (ddof 0); None where a run diverged.
        n: number of seeds.
        diverged: how many of them diverged.
        per_seed: the scores; None for a diverged run.
    """

    mean: float | None
    std: float | None
    n: int
    diverged: int
    per_seed: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class PairedScores:
    """Scores of two arms on the same seeds.

    Attributes:
        baseline, idea: one a seed, in the metric's unit.
        direction: in which the score improves.
    """

    baseline: Float[np.ndarray, " pairs"]
    idea: Float[np.ndarray, " pairs"]
    direction: Direction

    @property
    def diverged(self) -> tuple[Bool[np.ndarray, " pairs"], Bool[np.ndarray, " pairs"]]:
        """Which runs of the baseline and of the idea diverged."""
        return ~(np.abs(self.baseline) < LARGEST_SCORE), ~(np.abs(self.idea) < LARGEST_SCORE)

    @property
    def all_finite(self) -> bool:
        """Whether no run diverged, so that means and spreads exist."""
        return not np.any(self.diverged)

    @property
    def differences(self) -> Float[np.ndarray, " pairs"]:
        """Idea minus baseline, where a diverged run is the worst outcome there is.

        A pair in which only one arm diverged differs by infinity in favour of the other arm; one in
        which both did differs by zero.
        """
        baseline_lost, idea_lost = self.diverged
        worst = -sign_of_better(self.direction) * np.inf
        kept_idea = np.where(idea_lost, 0.0, self.idea)
        finite = kept_idea - np.where(baseline_lost, 0.0, self.baseline)
        one_lost = np.where(idea_lost, worst, -worst)
        both_or_none = np.where(baseline_lost & idea_lost, 0.0, finite)
        return np.where(baseline_lost ^ idea_lost, one_lost, both_or_none)

    @property
    def summaries(self) -> tuple[ScoreSummary, ScoreSummary]:
        """The scores of the baseline and of the idea, summed up."""
        baseline_lost, idea_lost = self.diverged
        return _summary(self.baseline, baseline_lost), _summary(self.idea, idea_lost)

    @property
    def rounding(self) -> Float[np.ndarray, " pairs"]:
        """Absolute error of each difference: one unit in the last place of the larger score."""
        sizes = np.maximum(np.abs(self.baseline), np.abs(self.idea))
        return np.spacing(np.where(sizes < LARGEST_SCORE, sizes, 0.0))


def paired_scores(
    baseline_scores: ArrayLike, idea_scores: ArrayLike, direction: Direction
) -> PairedScores:
    """Check two arms' scores and pair them by position.

    Args:
        baseline_scores: one a seed; NaN, None, infinite or beyond `LARGEST_SCORE` means that the
            run diverged.
        idea_scores: the same, in the same order of seeds.
        direction: in which the score improves, `lower` or `higher`.

    Raises:
        JaxbenchError: not flat lists of numbers, unequal lengths, fewer than two pairs, an unknown
            direction.
    """
    sign_of_better(direction)
    baseline = vector(baseline_scores, "baseline scores")
    idea = vector(idea_scores, "idea scores")
    if baseline.size != idea.size:
        raise JaxbenchError(
            f"both arms must have one score for each shared seed; got {baseline.size} baseline "
            f"scores and {idea.size} idea scores. Keep the seeds that both arms ran."
        )
    return PairedScores(baseline, idea, direction)


def with_gaps(
    values: Float[np.ndarray, " pairs"], gaps: Bool[np.ndarray, " pairs"]
) -> tuple[float | None, ...]:
    """Give values as plain floats, with None in the gaps."""
    return tuple(None if gap else float(value) for value, gap in zip(values, gaps, strict=True))


def _summary(scores: Float[np.ndarray, " pairs"], lost: Bool[np.ndarray, " pairs"]) -> ScoreSummary:
    whole = not lost.any()
    return ScoreSummary(
        mean=float(scores.mean()) if whole else None,
        std=standard_deviation(scores, ddof=0) if whole else None,
        n=scores.size,
        diverged=int(lost.sum()),
        per_seed=with_gaps(scores, lost),
    )
