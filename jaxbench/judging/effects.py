"""Effects: how large a difference is, on scales that compare across studies."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from jaxbench.judging.arguments import Direction, finite_vector, sign_of_better
from jaxbench.judging.intervals import Interval, t_interval
from jaxbench.judging.pairs import PairedScores
from jaxbench.judging.spread import standard_deviation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True)
class EffectSizes:
    """Sizes of the effect of idea over baseline; None where one does not exist.

    Attributes:
        paired_d: mean(d) / sd(d), Cohen's d_z; None where the differences do not vary.
        relative_change: mean(d) / |mean(baseline)|, as a fraction.
        log_ratio: mean(log(idea / baseline)), for scores that are all positive.
        log_ratio_interval: its t interval.
        probability_of_improvement: the chance that a run of the idea beats a run of the baseline,
            over all pairs of runs whatever their seed, ties counted half.
        probability_idea_better: the posterior chance that the mean difference favours the idea.
    """

    paired_d: float | None
    relative_change: float | None
    log_ratio: float | None
    log_ratio_interval: Interval | None
    probability_of_improvement: float
    probability_idea_better: float | None


def probability_better(differences: ArrayLike, *, direction: Direction) -> float:
    """Give the posterior probability that the mean difference favours the idea.

    With Jeffreys' prior the mean has the posterior mean(d) + s / sqrt(n) t_{n-1}.  Differences that
    do not vary give 0, 1, or 1/2 where they are zero.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        direction: in which the score improves.

    Raises:
        JaxbenchError: too few or infinite differences, an unknown direction.
    """
    checked = finite_vector(differences)
    gain = sign_of_better(direction) * float(checked.mean())
    deviation = standard_deviation(checked)
    if deviation == 0.0:
        return 0.5 * (float(gain >= 0.0) + float(gain > 0.0))
    return float(special.stdtr(checked.size - 1, gain / deviation * math.sqrt(checked.size)))


def probability_of_improvement(pairs: PairedScores) -> float:
    """Give P(idea run beats baseline run) + P(tie) / 2 over all pairs of runs.

    The Mann-Whitney statistic over its maximum; a diverged run loses against all that did not.

    Reference: Agarwal et al. (2021), Deep reinforcement learning at the edge of the statistical
        precipice.
    """
    better = sign_of_better(pairs.direction)
    baseline_lost, idea_lost = pairs.diverged
    baseline = np.where(baseline_lost, -np.inf, better * pairs.baseline)
    idea = np.where(idea_lost, -np.inf, better * pairs.idea)
    ordered = np.sort(baseline)
    below = np.searchsorted(ordered, idea, side="left")
    not_above = np.searchsorted(ordered, idea, side="right")
    return float(np.mean(below + not_above)) / (2.0 * baseline.size)


def effect_sizes(pairs: PairedScores, *, confidence: float = 0.95) -> EffectSizes:
    """Measure the effect on every scale; where runs diverged, only on that of ranks.

    Args:
        pairs: scores of both arms.
        confidence: of the log ratio's interval.
    """
    improvement = probability_of_improvement(pairs)
    if not pairs.all_finite:
        return EffectSizes(None, None, None, None, improvement, None)
    differences = pairs.differences
    deviation = standard_deviation(differences)
    mean, level = float(differences.mean()), abs(float(pairs.baseline.mean()))
    log_ratio = interval = None
    if min(pairs.baseline.min(), pairs.idea.min()) > 0.0:
        logarithms = np.log(pairs.idea) - np.log(pairs.baseline)
        log_ratio, interval = (
            float(logarithms.mean()),
            t_interval(logarithms, confidence=confidence),
        )
    return EffectSizes(
        paired_d=mean / deviation if deviation > 0.0 else None,
        relative_change=mean / level if level > 0.0 else None,
        log_ratio=log_ratio,
        log_ratio_interval=interval,
        probability_of_improvement=improvement,
        probability_idea_better=probability_better(differences, direction=pairs.direction),
    )
