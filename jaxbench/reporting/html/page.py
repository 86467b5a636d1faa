"""A report as one self-contained HTML page: the verdict first, then what it rests on.

A page has no script, fetches nothing and forbids itself both by its content security policy; all
text is escaped, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxbench import storage
from jaxbench.reporting.html import (
    comparisons,
    curves,
    differences,
    pairs,
    quantities,
    signatures,
    tables,
    tuning,
)
from jaxbench.reporting.html.drawing import Drawing, embedded, style
from jaxbench.reporting.html.quantities import interval, level, number, percent, signed
from jaxbench.reporting.sentences import outcome, sentence

if TYPE_CHECKING:
    import jinja2


def environment() -> jinja2.Environment:
    """Give the templates, which escape everything that they are given."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("jaxbench.reporting.html"),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "number": number,
        "words": quantities.words,
        "sentence": sentence,
    }
    return made


def figures(report: Mapping[str, Any]) -> dict[str, list[Drawing]]:
    """Draw a report's figures, by the section of the page where they stand."""
    bench = report["bench_report"]
    with style():
        drawn: dict[str, Sequence[Drawing | None]] = {
            "scores": [pairs.draw(bench), differences.draw(bench)],
            "comparisons": [comparisons.draw(bench)],
            "tuning": [tuning.draw(bench)],
            "curves": curves.draw(bench),
            "mechanism": signatures.draw(bench["mechanism_signature"]),
        }
    return {part: [each for each in some if each is not None] for part, some in drawn.items()}


def render(report: Mapping[str, Any]) -> str:
    """Write a report as a page."""
    from markupsafe import Markup

    bench = report["bench_report"]
    drawn = figures(report)
    made = environment()
    pictures = {
        part: [{"drawing": each, "svg": Markup(embedded(each))} for each in some]
        for part, some in drawn.items()
    }
    several = len(bench["comparisons"]) > 1
    return made.get_template("report.html").render(
        report=report,
        bench=bench,
        headline=headline(bench["comparison"], bench["metric"]),
        labels=labels(report),
        key_numbers=key_numbers(bench),
        drawings=pictures,
        pairs_table=pairs.table(bench),
        numbers_table=differences.table(bench),
        comparisons_table=comparisons.table(bench["comparisons"], bench) if several else None,
        looks_table=tables.looks(bench),
        sequence_table=tables.sequence(bench),
        chosen_table=tuning.chosen_table(bench),
        tuning_table=tuning.table(bench, list(bench["arms"]), "Every configuration of every arm"),
        limitations=sentences_of(report["limitations"]),
        mechanism=[
            {
                "signature": each,
                "state": signatures.state(each),
                "table": signatures.table(each),
                "reason": signatures.own_reason(each),
                "numbers": signatures.values_table(each),
            }
            for each in bench["mechanism_signature"]["signatures"]
        ],
        measured_table=tables.measured(bench),
        references_table=tables.references(bench),
        cost_table=tables.cost(bench),
        compact_table=tables.compact(bench),
        gradients_table=tables.gradients(bench),
        programs_table=tables.programs(bench),
        versions_table=tables.versions(bench),
        provenance_table=tables.provenance(bench),
        config_text=tables.config_text(bench),
    )


def write(report: Mapping[str, Any], file: Path, out: str | None = None) -> Path:
    """Write the page of a report, by default beside it under the same name.

    Args:
        report: the report.
        file: where the report is.
        out: where the page goes instead.

    Raises:
        StorageError: it cannot be written.
    """
    path = file.with_suffix(".html") if out is None else Path(out)
    storage.write_text(path, render(report))
    return path


def sentences_of(text: str) -> list[str]:
    """Split text at the ends of sentences, for a list that is easier to read; no word is lost."""
    return [part for part in re.split(r"(?<=[.!?]) +(?=[A-Z])", text.strip()) if part]


def headline(judged: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    """Say in one sentence what came out."""
    if judged.get("acted") is False:
        return "The idea did not act: every difference is exactly 0."
    said = outcome(judged, setting="")
    said = said[0].upper() + said[1:]
    ends = (judged.get("intervals") or {}).get("t")
    if judged["delta_mean"] is None or not ends:
        return f"{said}; runs diverged, so ranks decide (p = {number(judged['p_value'])})."
    relative = (judged.get("effects") or {}).get("relative_change")
    change = f"{percent(relative)}, that is " if relative is not None else ""
    return (
        f"{said}: over {judged['n_pairs']} seeds its {metric['name']} differs by "
        f"{change}{signed(judged['delta_mean'])} ({level(ends)} interval {interval(ends)})."
    )


def labels(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Give the labels of the verdict: name, value, and what kind of news it is."""
    practical, system = report["practical_verdict"], report["system_verdict"]
    mechanism = report["bench_report"]["mechanism_signature"]["state"]
    quick = ("Quick run", "only shows that the study works", "bad")
    return [
        *([quick] if report["bench_report"].get("quick") else []),
        ("In practice", practical, _news(practical)),
        ("Mechanism", f"{'shown' if report['mechanism_ok'] else 'not shown'} ({mechanism})",
         "good" if report["mechanism_ok"] else "plain"),
        ("Both together", system, _news(system)),
        ("Confidence in the outcome", f"{report['confidence']} of 10", "plain"),
    ]  # fmt: skip


def _news(value: str) -> str:
    if value in ("helps", "worked"):
        return "good"
    return "bad" if value in ("harms", "failed") else "plain"


def key_numbers(bench: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Give the numbers that a reader looks for first: name, value, and what it is."""
    judged, unit = bench["comparison"], bench["metric"]["unit"]
    ends = (judged.get("intervals") or {}).get("t")
    steps = judged.get("sequential")
    p = steps["p_values"][-1] if steps else judged["p_value"]
    family = judged.get("family_size", 1)
    corrected = f"corrected for {family} comparisons: {number(judged['p_corrected'], digits=3)}"
    margin, in_unit = judged.get("margin"), f", in {unit}" if unit else ""
    given = [
        ("Difference", signed(judged["delta_mean"]), f"idea minus baseline{in_unit}"),
        ("Interval", interval(ends), f"{level(ends)}, Student's t"),
        ("p", number(p, digits=3), corrected if family > 1 else _test(judged)),
        ("Wins", f"{judged['idea_wins']} of {judged['n_pairs']}", "seeds that the idea wins"),
        ("Equivalence margin", "\u2013" if margin is None else f"\u00b1 {number(margin, digits=3)}",
         "smaller differences do not matter"),
        ("Detectable", number(judged.get("mde_80"), digits=3), "difference, with 80 % power"),
    ]  # fmt: skip
    return [(name, value, what) for name, value, what in given if value not in ("\u2013", "")]


def _test(judged: Mapping[str, Any]) -> str:
    if judged.get("sequential"):
        return "anytime-valid"
    kind = "exact" if judged.get("p_value_exact", True) else "Monte Carlo"
    return f"{kind}, {judged.get('test', 'sign flips')}"
