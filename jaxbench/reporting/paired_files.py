"""Paired files: two arms' scores from files, matched by seed and compared."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Console
from rich.text import Text

from jaxbench.base import JaxbenchError
from jaxbench.judging import Comparison, compare
from jaxbench.judging.arguments import Direction
from jaxbench.reporting import sentences, terminal
from jaxbench.reporting.score_cells import Options, words
from jaxbench.reporting.score_tables import Scores, read_scores


@dataclasses.dataclass(frozen=True)
class PairedFiles:
    """A comparison, and what was compared.

    Attributes:
        baseline, idea: the scores, as read.
        seeds: the shared seeds, in the order of the pairs.
        left_out: seeds that only one of them has.
        comparison: of the idea with the baseline.
    """

    baseline: Scores
    idea: Scores
    seeds: list[str]
    left_out: list[str]
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """What came out, in a sentence."""
        finding = sentences.finding(self.comparison, "score", "baseline", "--margin")
        return f"Over {len(self.seeds)} paired seeds {finding}."

    @property
    def notes(self) -> list[str]:
        """What the reader should know of how the scores were paired."""
        unnamed = [arm for arm in (self.baseline, self.idea) if not arm.named]
        if len(unnamed) == 2:
            both = " and ".join(arm.label for arm in unnamed)
            return [f"{both} have no seeds: their rows are taken as pairs in their order"]
        named = self.baseline if self.baseline.named else self.idea
        return [
            f"{arm.label} has no seeds: its rows are taken in order as those of {named.label}"
            for arm in unnamed
        ]

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        return {
            "verdict": self.verdict,
            "baseline": self.baseline.label,
            "idea": self.idea.label,
            "seeds": self.seeds,
            "left_out": self.left_out,
            "notes": self.notes,
            "comparison": self.comparison.to_dict(),
        }


def compare_files(
    first: str,
    second: str | None,
    *,
    direction: Direction | None = None,
    alpha: float = 0.05,
    margin: float = 0.05,
    common_seeds: bool = False,
    options: Options | None = None,
) -> PairedFiles:
    """Compare the scores in two files, or the two arms in one.

    Args:
        first: of the baseline; see `read_scores`.
        second: of the idea; None where one file has both.
        direction: in which the score improves; needed unless a report says so.
        alpha: level of the tests.
        margin: differences that do not matter, as a fraction of the baseline's mean.
        common_seeds: whether seeds that only one of them has are left out rather than refused.
        options: how files are read.

    Raises:
        JaxbenchError: a file cannot be read, seeds or directions do not match, or there is no
            direction.
    """
    options = options or Options()
    baseline = read_scores(first, "baseline", options)
    idea = read_scores(first if second is None else second, "idea", options)
    if baseline.label == idea.label:
        raise JaxbenchError(
            f"both arms are {baseline.label}; name two files, or one with a `baseline` and an "
            f"`idea` in it"
        )
    seeds, left_out = match(baseline, idea, common_seeds)
    comparison = compare(
        [baseline.by_seed[seed] for seed in seeds],
        [idea.by_seed[seed] for seed in seeds],
        direction=agreed_direction(direction, baseline, idea),
        alpha=alpha,
        margin=margin,
    )
    return PairedFiles(baseline, idea, seeds, left_out, comparison)


def agreed_direction(wanted: Direction | None, *arms: Scores) -> Direction:
    """Give the direction that was asked for and that the files state.

    Raises:
        JaxbenchError: they differ, or there is none.
    """
    stated: dict[str, Direction] = {a.label: a.direction for a in arms if a.direction is not None}
    if not stated and wanted is None:
        raise JaxbenchError(
            "the files do not say in which direction the score improves; say --direction lower (as "
            "for a loss) or --direction higher (as for an accuracy)"
        )
    for label, direction in stated.items():
        if wanted is not None and direction != wanted:
            raise JaxbenchError(
                f"--direction {wanted} contradicts {label}, where {direction} is better"
            )
    if len(set(stated.values())) > 1:
        said = " but ".join(
            f"{direction} is better in {label}" for label, direction in stated.items()
        )
        raise JaxbenchError(f"the scores improve in different directions: {said}")
    return next(iter(stated.values())) if wanted is None else wanted


def match(baseline: Scores, idea: Scores, common: bool) -> tuple[list[str], list[str]]:
    """Give the seeds that both arms have, and those that only one has.

    Raises:
        JaxbenchError: the seeds differ and may not be left out, or only one arm names its seeds.
    """
    if baseline.named != idea.named:
        with_names, without = (baseline, idea) if baseline.named else (idea, baseline)
        if baseline.by_seed.keys() != idea.by_seed.keys():
            raise JaxbenchError(
                f"{with_names.label} names its seeds and {without.label} does not, so they cannot "
                f"be paired; give both a seed column"
            )
    only = {
        arm.label: [seed for seed in arm.by_seed if seed not in other.by_seed]
        for arm, other in ((baseline, idea), (idea, baseline))
    }
    left_out = [seed for seeds in only.values() for seed in seeds]
    if left_out and not (common and baseline.named and idea.named):
        if not (baseline.named and idea.named):
            raise JaxbenchError(
                f"{baseline.label} has {len(baseline.by_seed)} scores and {idea.label} "
                f"{len(idea.by_seed)}, without the names of their seeds; give both a seed column"
            )
        said = "; ".join(
            f"only {label} has {words(seeds)}" for label, seeds in only.items() if seeds
        )
        raise JaxbenchError(
            f"the arms did not run the same seeds: {said}; --common-seeds compares those that both "
            f"have"
        )
    shared = [seed for seed in baseline.by_seed if seed in idea.by_seed]
    return shared, left_out


def render(result: PairedFiles, console: Console) -> None:
    """Print the verdict, the pairs and the comparison."""
    comparison = result.comparison.to_dict()
    outcome = comparison["outcome"]
    console.print(Text(result.verdict, style=terminal.COLOURS.get(outcome, "yellow")))
    console.print(Text(f"baseline: {result.baseline.label}\nidea: {result.idea.label}"))
    if result.left_out:
        console.print(Text(f"left out, since only one arm has them: {words(result.left_out)}"))
    bench = {
        "metric": {"name": "score", "unit": ""},
        "metric_direction": f"{result.comparison.direction} is better",
        "protocol": {"evaluation_seeds": result.seeds},
        "baseline": {"full": comparison["baseline"]},
        "idea": {"full": comparison["idea"]},
        "comparison": comparison,
    }
    terminal.pairs(bench, console)
    terminal.comparison(bench, console)
