"""Power table: the seeds that an effect needs, and what other numbers of seeds would find."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from jaxbench.base import JaxbenchError
from jaxbench.judging import (
    attainable_p,
    mde_at_power,
    paired_power,
    seeds_needed,
    seeds_to_reach_significance,
    standard_deviation,
)
from jaxbench.judging.arguments import check_at_least, check_fraction, finite_vector
from jaxbench.reporting import terminal
from jaxbench.reporting.score_cells import Options
from jaxbench.reporting.score_tables import read_scores

SEEDS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)


class Question(NamedTuple):
    """An effect to be found.

    Attributes:
        effect: in units of the paired spread.
        deviation: that spread, in the metric's unit; None where it is not known.
        source: where the numbers are from, in words.
    """

    effect: float
    deviation: float | None
    source: str


class Line(NamedTuple):
    """What a number of seeds finds.

    Attributes:
        seeds: their number.
        power: the chance to find the effect.
        detectable: the smallest effect found with the wanted power, in units of the paired spread.
        detectable_delta: the same in the metric's unit, or None.
        attainable_p: the smallest p-value of the sign-flip test, after correction.
        enough: whether it can be significant.
    """

    seeds: int
    power: float
    detectable: float
    detectable_delta: float | None
    attainable_p: float
    enough: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many seeds an effect needs.

    Attributes:
        question: the effect.
        wanted: the chance to find it.
        alpha, hypotheses: level, and number of comparisons that are corrected for.
        seeds: the fewest that do.
        least: the fewest with which the sign-flip test can be significant at all.
        lines: power against the number of seeds.
    """

    question: Question
    wanted: float
    alpha: float
    hypotheses: int
    seeds: int
    least: int
    lines: list[Line]

    @property
    def answer(self) -> str:
        """The answer in a sentence."""
        family = f", corrected for {self.hypotheses} comparisons" if self.hypotheses > 1 else ""
        return (
            f"{self.seeds} seeds find an effect of {self.question.effect:.4g} paired standard "
            f"deviations with a power of {100 * self.wanted:.3g} % at alpha = {self.alpha:g}"
            f"{family}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        table = [line._asdict() for line in self.lines]
        return {
            "answer": self.answer,
            **self.question._asdict(),
            "power": self.wanted,
            "alpha": self.alpha,
            "hypotheses": self.hypotheses,
            "seeds": self.seeds,
            "least_seeds": self.least,
            "table": table,
        }


def question(
    report: str | None,
    *,
    effect: float | None = None,
    delta: float | None = None,
    deviation: float | None = None,
) -> Question:
    """Gather the effect from a report, from numbers, or from both.

    Raises:
        JaxbenchError: too few or too many numbers, one out of range, or a report without spread.
    """
    source = "the numbers given"
    if report is not None:
        if effect is not None or deviation is not None:
            raise JaxbenchError("with a report only --delta can be given; it has the spread itself")
        baseline, idea = (read_scores(report, role, Options()) for role in ("baseline", "idea"))
        shared = [seed for seed in baseline.by_seed if seed in idea.by_seed]
        differences = finite_vector([idea.by_seed[s] - baseline.by_seed[s] for s in shared])
        deviation = standard_deviation(differences)
        seen = float(differences.mean())
        source = f"the spread of {len(shared)} pairs in {report}"
        source += "" if delta is not None else f", and the difference seen there, {seen:+.4g}"
        delta = seen if delta is None else delta
    if effect is not None and (delta is not None or deviation is not None):
        raise JaxbenchError("give either --effect, or --delta and --sd")
    if effect is None:
        if delta is None or deviation is None:
            raise JaxbenchError("give --effect, or --delta and --sd, or a report")
        check_at_least(deviation, 0.0, "--sd")
        if deviation == 0.0:
            raise JaxbenchError("the paired spread is 0, so that any difference would be certain")
        effect = delta / deviation
    if not (math.isfinite(effect) and effect != 0.0):
        raise JaxbenchError(f"the effect must be a finite number other than 0; got {effect!r}")
    return Question(abs(effect), deviation, source)


def plan(question: Question, *, wanted: float, alpha: float, hypotheses: int) -> Plan:
    """Compute the seeds needed, and the table of power.

    Raises:
        JaxbenchError: a power or level out of range, or an effect out of reach.
    """
    check_fraction(wanted, "--power")
    check_fraction(alpha, "--alpha")
    check_at_least(hypotheses, 1, "--hypotheses")
    level = alpha / hypotheses
    needed = seeds_needed(question.effect, power_wanted=wanted, alpha=alpha, hypotheses=hypotheses)
    lines = []
    for seeds in sorted({*SEEDS, needed}):
        detectable = mde_at_power(seeds, power_wanted=wanted, alpha=level)
        deviation = question.deviation
        smallest = min(1.0, hypotheses * attainable_p(seeds))
        lines.append(
            Line(
                seeds=seeds,
                power=paired_power(question.effect, seeds, alpha=level),
                detectable=detectable,
                detectable_delta=None if deviation is None else detectable * deviation,
                attainable_p=smallest,
                enough=smallest <= alpha,
            )
        )
    least = seeds_to_reach_significance(hypotheses, alpha=alpha)
    return Plan(question, wanted, alpha, hypotheses, needed, least, lines)


def render(plan: Plan, console: Console) -> None:
    """Print the answer, and power against the number of seeds."""
    console.print(Text(plan.answer, style="bold"))
    console.print(Text(f"From {plan.question.source}."))
    wanted = f"{100 * plan.wanted:.3g} %"
    with_delta = plan.question.deviation is not None
    table = terminal.make_table(
        "seeds", "power", f"effect found with {wanted}", *(["as a difference"] * with_delta),
        "smallest p", "",
    )  # fmt: skip
    for line in plan.lines:
        cells = [str(line.seeds), f"{100 * line.power:.1f} %", terminal.number(line.detectable)]
        cells += [terminal.number(line.detectable_delta)] * with_delta
        note = "" if line.enough else "cannot be significant"
        note = "needed" if line.seeds == plan.seeds else note
        style = "bold" if line.seeds == plan.seeds else ""
        terminal.add_row(table, [*cells, terminal.number(line.attainable_p), note], style)
    terminal.section("Power of the paired test", console, table)
    correction = " after correction" if plan.hypotheses > 1 else ""
    console.print(
        Text(
            f"smallest p: the least that the exact sign-flip test can give with so many pairs"
            f"{correction}, however large the effect."
        )
    )
    console.print(
        Text(f"Fewer than {plan.least} seeds cannot reach significance, whatever the effect.")
    )
