"""Prose of an audit: the few kinds of numbers in sentences whose meaning is beyond doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jaxbench.reporting.audit_findings import NOISE, Findings
from jaxbench.reporting.report_fields import Fields
from jaxbench.reporting.written import Written
from jaxbench.toml_text import Place, dotted

NUMBER = r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
OF_THE_COMPARISON = {
    "p_value": re.compile(rf"\bp\s*=\s*{NUMBER}"),
    "delta_mean": re.compile(rf"\b(?:delta|delta_mean|difference)\s*=?\s*(?=[+-]|0){NUMBER}"),
    "idea_wins": re.compile(r"\b(\d+)/\d+ wins"),
    "n_pairs": re.compile(r"\b\d+/(\d+) wins"),
}
OF_AN_ARM = {
    "mean": re.compile(rf"\bmean(?:[ =]|of|is|test|MSE|squared|error|score)*{NUMBER}"),
    "std": re.compile(rf"\bstd\s*=?\s*{NUMBER}"),
}


def sentences(fields: Fields, findings: Findings) -> None:
    """Hold the p-value, difference and wins in the verdict, and the arms' means, against the rest.

    A sentence agrees where each kind of number that could be read in it does, once at least: there
    may be a second p-value, of something else.  Its other numbers are not read.
    """
    for place in texts(fields):
        stated = list(statements(fields, place))
        if not stated:
            continue
        right = {source for _, number, source, value in stated if same(number, value)}
        wrong = {
            f"{dotted(source)} is {value.text}"
            for _, _, source, value in stated
            if source not in right
        }
        words = ", ".join(phrase for phrase, *_ in stated)
        sources = ", ".join(dict.fromkeys(dotted(source) for _, _, source, _ in stated))
        findings.add(place, words, not wrong, "; ".join(sorted(wrong)), f"by {sources}")


def same(number: Written, value: Written) -> bool:
    """Tell whether a number in a sentence restates a value, within the rounding of both."""
    return bool(abs(number - value) <= number.rounding + value.rounding + NOISE * abs(value))


def texts(fields: Fields) -> Iterator[Place]:
    """Find the sentences that sum up: the verdict, and what the metrics say of each arm."""
    for place, value in fields.everything:
        if isinstance(value, str) and (place == ("verdict",) or place[:1] == ("metrics",)):
            yield place


def statements(fields: Fields, place: Place) -> Iterator[tuple[str, Written, Place, Written]]:
    """Read a sentence: phrase, number, and the place and value that it restates."""
    sources: list[tuple[re.Pattern[str], Place]] = []
    where = primary(fields)
    if where is not None:
        sources += [(pattern, (*where, name)) for name, pattern in OF_THE_COMPARISON.items()]
    arm = fields.arms.get(str(place[-1])) if place[:1] == ("metrics",) and len(place) == 2 else None
    if arm is not None and arm.mean is not None:
        sources.append((OF_AN_ARM["mean"], arm.mean_place))
        table = arm.place[:-1] if arm.scores is not None else arm.place
        sources.append((OF_AN_ARM["std"], (*table, "std")))
    text = fields.at(place)
    for pattern, source in sources:
        value: Any = fields.at(source)
        for match in pattern.finditer(text) if isinstance(value, Written) else ():
            yield match[0], Written(match[1]), source, value


def primary(fields: Fields) -> Place | None:
    """Find the one comparison that sentences are about."""
    named = [place for place in fields.comparisons if place[-1:] == ("comparison",)]
    return named[0] if len(named) == 1 else None
