"""Comparison: all that paired scores say about an idea against a baseline."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import Direction, check_at_least, check_fraction, sign_of_better
from jaxbench.judging.effects import EffectSizes, effect_sizes
from jaxbench.judging.equivalence import Rope, Tost, rope, tost
from jaxbench.judging.intervals import Intervals, all_intervals
from jaxbench.judging.json_values import strict_json
from jaxbench.judging.multiplicity import holm
from jaxbench.judging.pairs import ScoreSummary, paired_scores, with_gaps
from jaxbench.judging.power import Detectable, detectable, seeds_to_reach_significance
from jaxbench.judging.ranks import signed_ranks
from jaxbench.judging.sequential import (
    Sequential,
    attainable_p_anytime,
    seeds_to_decide,
    sequential,
)
from jaxbench.judging.sign_flip import RESAMPLES, legacy_signflip_p, sign_flip_test
from jaxbench.judging.spread import Spread, measure_spread
from jaxbench.judging.verdicts import LegacyVerdict, Outcome, legacy_verdict, outcome

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MEAN_TEST = "sign flips of the mean difference"
RANK_TEST = "sign flips of the signed ranks, diverged runs worst"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Idea against baseline on shared seeds; differences are idea minus baseline throughout.

    Where a run diverged the p-value comes from ranks, and what needs finite scores is None.

    Attributes:
        direction: in which the score improves.
        alpha: level of every test.
        baseline, idea: the arms' scores.
        per_seed_diffs: idea minus baseline; None where either run diverged.
        delta_mean: their mean; None where a run diverged.
        delta_mean_finite_pairs: their mean over the pairs in which neither run diverged.
        idea_wins, ties: pairs in which the idea is better, and equal; a diverged run loses.
        acted: False where no pair differs at all: the idea changed nothing.
        test: what `p_value` tests.
        gain: the tested statistic, positive where the idea is better.
        p_value: exact up to 20 pairs, two-sided, before correction.
        p_value_exact: whether it was enumerated.
        p_value_one_sided: against "the idea is not better".
        attainable_p: the smallest p-value that these pairs could have given.
        p_corrected, family_size: after Holm's correction; see `correct`.
        rank_p_value: of the signed-rank test, exact up to 20 pairs.
        legacy_p_value: the reference reports' Monte-Carlo p-value.
        margin: half-width of the differences that do not matter, in the metric's unit.
        sequential: of pairs that were added until the test decides, which then makes the verdict;
            None where their number was fixed beforehand.
        intervals, spread, effects, detectable, tost, rope: see their types.
    """

    direction: Direction
    alpha: float
    baseline: ScoreSummary
    idea: ScoreSummary
    per_seed_diffs: tuple[float | None, ...]
    delta_mean: float | None
    delta_mean_finite_pairs: float | None
    idea_wins: int
    ties: int
    acted: bool
    test: str
    gain: float
    p_value: float
    p_value_exact: bool
    p_value_one_sided: float
    attainable_p: float
    p_corrected: float
    family_size: int
    rank_p_value: float
    legacy_p_value: float | None
    margin: float | None
    intervals: Intervals | None
    spread: Spread | None
    effects: EffectSizes
    detectable: Detectable | None
    tost: Tost | None
    rope: Rope | None
    sequential: Sequential | None = None

    @property
    def n_pairs(self) -> int:
        """Number of shared seeds."""
        return self.baseline.n

    @property
    def outcome(self) -> Outcome:
        """The four-way verdict, from the corrected p-value."""
        return outcome(self.p_corrected, self.decisive_gain, self.equivalence_p, alpha=self.alpha)

    @property
    def equivalence_p(self) -> float | None:
        """The p-value of equivalence; None where runs diverged or it is not valid.

        Where pairs were added until the test decides, equivalence is tested at the last one
        possible only, which was fixed beforehand.
        """
        fixed = self.sequential is None or self.n_pairs == self.sequential.max_pairs
        return self.tost.p_value if self.tost is not None and fixed else None

    @property
    def decisive_p(self) -> float:
        """The p-value behind the verdict, before correction: anytime-valid if there is one."""
        return self.p_value if self.sequential is None else self.sequential.p_anytime

    @property
    def decisive_attainable_p(self) -> float:
        """The smallest value that `decisive_p` could have had with these pairs."""
        if self.sequential is None:
            return self.attainable_p
        return attainable_p_anytime(self.n_pairs, zeros=self.ties)

    @property
    def decisive_gain(self) -> float:
        """A number that is positive where the test behind the verdict has the idea as better."""
        if self.sequential is None:
            return self.gain
        return float(sign_of_better(self.direction) * self.sequential.sign)

    @property
    def negligible(self) -> bool:
        """Whether a significant difference is yet too small to matter."""
        inside = self.equivalence_p is not None and self.equivalence_p <= self.alpha
        return inside and self.outcome in ("better", "worse")

    @property
    def verdict(self) -> LegacyVerdict:
        """The reference reports' label, from the p-value before correction."""
        return legacy_verdict(self.decisive_p, self.decisive_gain, alpha=self.alpha)

    @property
    def system_worked(self) -> bool:
        """Whether that label is a win."""
        return self.verdict == "idea better (significant)"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of this comparison should know, in sentences."""
        return tuple(_warnings(self))

    def warnings_knowing(self, shared: str) -> tuple[str, ...]:
        """Give the warnings where it is known what both arms share, such as `data`."""
        return tuple(_warnings(self, shared))

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON, under the reference reports' names where they exist."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        detectable = fields.pop("detectable")
        level = self.baseline.mean
        sizes = {
            "mde": None if detectable is None else detectable.mde,
            "mde_80": None if detectable is None else detectable.mde_80,
        }
        relative = {
            f"{name}_rel_pct": 100.0 * size / abs(level) if size is not None and level else None
            for name, size in sizes.items()
        }
        needed = None if detectable is None else detectable.seeds_for_80_power
        derived = {
            name: getattr(self, name)
            for name in ("n_pairs", "outcome", "negligible", "verdict", "system_worked", "warnings")
        }
        return strict_json(fields | sizes | relative | {"seeds_for_80_power": needed} | derived)


def compare(
    baseline_scores: ArrayLike,
    idea_scores: ArrayLike,
    *,
    direction: Direction,
    alpha: float = 0.05,
    margin: float = 0.05,
    resamples: int = RESAMPLES,
    seed: int = 0,
    max_pairs: int | None = None,
) -> Comparison:
    """Compare an idea with a baseline on the scores of shared seeds.

    The primary statistic is the mean of idea minus baseline, tested by the exact sign-flip test.
    Where a run diverged (a score that is NaN, None, infinite or beyond 1e300) the mean does not
    exist: the signed-rank test decides then, with a diverged run as the worst outcome.

    Args:
        baseline_scores: one a seed.
        idea_scores: one a seed, in the same order of seeds.
        direction: in which the score improves, `lower` or `higher`.
        alpha: level of the tests and 1 - confidence of the intervals.
        margin: differences that do not matter, as a fraction of the baseline's mean.
        resamples: random sign flips beyond 20 pairs.
        seed: of the random sign flips.
        max_pairs: at how many pairs it would have stopped, if pairs were added until the
            sequential test decides; None if their number was fixed beforehand.

    Returns:
        The comparison as a family of one; `correct` corrects several for their number.

    Raises:
        JaxbenchError: unequal lengths, fewer than two pairs, an unknown direction, an alpha or a
            margin out of range, or more pairs than `max_pairs`.
    """
    check_fraction(alpha, "alpha")
    if alpha >= 0.5:
        raise JaxbenchError(f"alpha must lie below 0.5; got {alpha!r}. A usual choice is 0.05.")
    check_at_least(margin, 0.0, "margin")
    pairs = paired_scores(baseline_scores, idea_scores, direction)
    better = sign_of_better(direction)
    baseline, idea = pairs.summaries
    differences, finite = pairs.differences, ~np.any(pairs.diverged, axis=0)
    ranks = signed_ranks(differences, pairs.rounding)
    whole = pairs.all_finite
    test_flips = functools.partial(sign_flip_test, resamples=resamples, seed=seed)
    tested = differences if whole else ranks
    rounding = float(pairs.rounding.sum()) if whole else 0.0
    test = test_flips(tested, rounding=rounding)
    one_sided = test_flips(better * tested, alternative="greater", rounding=rounding)
    kept = differences[finite]
    steps = None
    if max_pairs is not None:
        steps = sequential(differences, alpha=alpha, max_pairs=max_pairs)
    comparison = Comparison(
        direction=direction,
        alpha=alpha,
        baseline=baseline,
        idea=idea,
        per_seed_diffs=with_gaps(differences, ~finite),
        delta_mean=float(differences.mean()) if whole else None,
        delta_mean_finite_pairs=float(kept.mean()) if kept.size else None,
        idea_wins=int(np.count_nonzero(better * differences > 0.0)),
        ties=int(np.count_nonzero(differences == 0.0)),
        acted=bool(np.any(differences != 0.0)),
        test=MEAN_TEST if whole else RANK_TEST,
        gain=better * float(tested.mean()),
        p_value=test.p_value,
        p_value_exact=test.exact,
        p_value_one_sided=one_sided.p_value,
        attainable_p=test.attainable_p,
        p_corrected=test.p_value if steps is None else steps.p_anytime,
        family_size=1,
        rank_p_value=test_flips(ranks).p_value,
        legacy_p_value=None,
        margin=None,
        intervals=None,
        spread=None,
        effects=effect_sizes(pairs, confidence=1.0 - alpha),
        detectable=None,
        tost=None,
        rope=None,
        sequential=steps,
    )
    if not whole:
        return comparison
    width = margin * abs(float(pairs.baseline.mean()))
    return dataclasses.replace(
        comparison,
        legacy_p_value=legacy_signflip_p(differences),
        margin=width,
        intervals=all_intervals(differences, alpha=alpha, resamples=resamples, seed=seed),
        spread=measure_spread(pairs.baseline, pairs.idea),
        detectable=detectable(differences, alpha=alpha),
        tost=tost(differences, width),
        rope=rope(differences, width),
    )


def correct(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Correct a family of comparisons for their number, by Holm's rule.

    Args:
        comparisons: all that could have been called a win; controls stay out.

    Returns:
        The same in the same order, with `p_corrected` and `family_size`, from which their outcomes
        follow.

    Raises:
        JaxbenchError: they were made at different levels.
    """
    levels = {comparison.alpha for comparison in comparisons}
    if len(levels) > 1:
        raise JaxbenchError(
            f"the comparisons of one family must share their alpha; got {sorted(levels)}. "
            f"Compare them again at one level."
        )
    corrected = holm([comparison.decisive_p for comparison in comparisons])
    return [
        dataclasses.replace(comparison, p_corrected=p_value, family_size=len(comparisons))
        for comparison, p_value in zip(comparisons, corrected, strict=True)
    ]


def _warnings(comparison: Comparison, shared: str | None = None) -> list[str]:
    sentences = []
    lost = comparison.baseline.diverged, comparison.idea.diverged
    if any(lost):
        sentences.append(
            f"{lost[0]} of {comparison.n_pairs} baseline runs and {lost[1]} of "
            f"{comparison.n_pairs} idea runs diverged: the verdict comes from ranks, with a "
            f"diverged run as the worst outcome."
        )
    if not comparison.acted:
        sentences.append("No pair differs at all: the idea did not act.")
    smallest = comparison.decisive_attainable_p
    if smallest * comparison.family_size > comparison.alpha:
        fixed = comparison.sequential is None
        fewest = seeds_to_reach_significance if fixed else seeds_to_decide
        needed = fewest(comparison.family_size, alpha=comparison.alpha)
        enumerated = comparison.p_value_exact or not fixed
        sentences.append(
            f"The smallest {'' if fixed else 'anytime-valid '}p-value that {comparison.n_pairs} "
            f"pairs could give is {smallest:.3g}, which cannot reach {comparison.alpha} in a "
            f"family of {comparison.family_size}: it takes at least {needed} pairs that differ"
            f"{'.' if enumerated else ', and more random sign flips.'}"
        )
    spread = comparison.spread
    if spread is not None and spread.paired_sd > spread.unpaired_sd * (1.0 + 1e-9):
        known = f"although both arms share {shared}"
        unknown = "so check that both arms share data, initial parameters and batch order"
        sentences.append(
            f"The paired spread ({spread.paired_sd:.3g}) is above the unpaired one "
            f"({spread.unpaired_sd:.3g}): sharing seeds did not help, "
            f"{unknown if shared is None else known}."
        )
    return sentences
