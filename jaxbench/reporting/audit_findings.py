"""Findings of an audit: what became of each number, and what is weak."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from jaxbench.reporting.written import Written
from jaxbench.toml_text import Place

Status = Literal["agrees", "contradicts", "unchecked"]
Kind = Literal[
    "optimum at the edge of the grid",
    "selection on test scores",
    "unequal tuning",
    "p-value not attainable",
    "too few seeds",
    "diverged runs",
    "vacuous signature",
    "saturated signature",
    "no better than linear",
    "no linear reference",
    "paired spread above unpaired",
    "imprecise number",
    "not strict JSON",
]

NOISE = 1e-14
"""Relative error of sums and roots in double precision that no report can help."""

RETYPED = 1e-9
"""A relative error up to this is no contradiction but a number retyped or made in fewer digits."""


class Check(NamedTuple):
    """What became of one number or label of a report.

    Attributes:
        place: where it stands.
        stated: what stands there, as written.
        status: `agrees` and `contradicts` of what could be recomputed, else `unchecked`.
        expected: what it should be, in words; empty where it was not recomputed.
        because: how it was recomputed, or why it was not.
        within: how far off a number may be, from its rounding and that of what it is made of.
    """

    place: Place
    stated: str
    status: Status
    expected: str
    because: str
    within: float = 0.0


class Weakness(NamedTuple):
    """What a reader should know although no number contradicts another."""

    kind: Kind
    text: str
    place: Place


class Findings:
    """Everything found so far; of several checks of one place a contradiction stays."""

    def __init__(self) -> None:
        self.checks: dict[Place, Check] = {}
        self.weaknesses: dict[tuple[Kind, str], Weakness] = {}
        self.imprecise: dict[Place, float] = {}

    def number(
        self,
        place: Place,
        stated: Any,
        expected: float | None,
        because: str,
        *,
        scale: float = 0.0,
        slack: float = 0.0,
    ) -> bool:
        """Compare a number within its stated rounding, and say whether it agrees.

        |stated - expected| may be half a unit of the last decimal written, and what is unavoidable
        in double precision.  Beyond that and up to 1e-9 of the scale it agrees still, and counts as
        imprecise: such a number was retyped or made in fewer digits than it is written with, which
        moves no conclusion.

        Args:
            place: where it stands.
            stated: what stands there; anything but a number is passed over.
            expected: what it should be; None where it should not exist.
            because: how it was recomputed.
            scale: size of the largest number that it was made of.
            slack: error of `expected`, from the rounding of what it was made of; an unbounded one
                leaves nothing to check.
        """
        if not isinstance(stated, Written) or not math.isfinite(slack):
            return True
        if expected is None or not math.isfinite(expected):
            good = not math.isfinite(stated)
            self.add(place, stated.text, good, "no number", because)
            return good
        scale = max(scale, abs(expected))
        off = abs(stated - expected)
        within = stated.rounding * (1.0 + 1e-9) + slack
        good = bool(off <= within + RETYPED * scale)
        if good and off > within + NOISE * scale:
            self.imprecise[place] = off
        self.add(place, stated.text, good, f"{expected!r}", because, within)
        return good

    def count(self, place: Place, stated: Any, expected: int, because: str) -> bool:
        """Compare an integer, exactly."""
        if not isinstance(stated, Written):
            return True
        self.add(place, stated.text, stated == expected, str(expected), because)
        return stated == expected

    def label(self, place: Place, stated: Any, expected: Any, because: str) -> None:
        """Compare a word or a truth value, exactly; anything else is passed over."""
        if isinstance(stated, str | bool):
            self.add(place, _shown(stated), stated == expected, _shown(expected), because)

    def add(
        self,
        place: Place,
        stated: str,
        good: bool,
        expected: str,
        because: str,
        within: float = 0.0,
    ) -> None:
        """Take a verdict on a place: the first, unless a later one contradicts."""
        before = self.checks.get(place)
        if before is None or (before.status == "agrees" and not good):
            status: Status = "agrees" if good else "contradicts"
            self.checks[place] = Check(place, stated, status, expected, because, within)

    def unchecked(self, place: Place, stated: Written | str | bool, because: str) -> None:
        """List a number or label that nothing in the report says anything about."""
        text = stated.text if isinstance(stated, Written) else _shown(stated)
        self.checks.setdefault(place, Check(place, text, "unchecked", "", because))

    def weak(self, kind: Kind, text: str, place: Place) -> None:
        """List a weakness, once."""
        self.weaknesses.setdefault((kind, text), Weakness(kind, text, place))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else repr(value)
