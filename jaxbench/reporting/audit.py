"""Audit: whether a report follows from its own numbers, and what is weak about it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from jaxbench.base import JaxbenchError
from jaxbench.counted import counted
from jaxbench.reporting import audit_checks, audit_weaknesses, terminal
from jaxbench.reporting.audit_claims import choices, labels, signatures
from jaxbench.reporting.audit_comparisons import comparison, families
from jaxbench.reporting.audit_findings import Check, Findings, Status, Weakness
from jaxbench.reporting.audit_parts import parts
from jaxbench.reporting.audit_prose import sentences
from jaxbench.reporting.audit_settings import settings
from jaxbench.reporting.report_fields import Fields
from jaxbench.reporting.written import Written, read_document
from jaxbench.toml_text import Place, dotted

ALONE = "nothing in the report says what it should be"
SHOWN = 10
"""Lines that are printed of what agrees, unless all are wanted."""


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        checks: one for each number, truth value and label (a text of one word), recomputed or not.
        weaknesses: what makes the conclusion doubtful.
        texts: sentences with digits in them, of which no more was read than the checks say.
    """

    checks: list[Check]
    weaknesses: list[Weakness]
    texts: list[Place]

    def by_status(self, status: Status) -> list[Check]:
        """Give the checks of one status."""
        return [check for check in self.checks if check.status == status]

    @property
    def clean(self) -> bool:
        """Whether nothing contradicts."""
        return not self.by_status("contradicts")

    @property
    def summary(self) -> str:
        """One sentence with the counts."""
        agree, against, unchecked = (
            len(self.by_status(status)) for status in ("agrees", "contradicts", "unchecked")
        )
        return (
            f"{agree} of its numbers and labels agree with the others, {against} "
            f"contradict{'s' if against == 1 else ''} them, {unchecked} cannot be checked; "
            f"{counted(len(self.weaknesses), 'weakness', 'weaknesses')}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        lists = {
            status: [
                {
                    "path": dotted(check.place),
                    "stated": check.stated,
                    "expected": check.expected,
                    "because": check.because,
                    "within": check.within,
                }
                for check in self.by_status(status)
            ]
            for status in ("contradicts", "agrees", "unchecked")
        }
        weak = [
            {"kind": each.kind, "path": dotted(each.place), "text": each.text}
            for each in self.weaknesses
        ]
        texts = [dotted(place) for place in self.texts]
        head = {"clean": self.clean, "summary": self.summary}
        return head | lists | {"weak": weak, "texts": texts}


def audit(document: Any) -> Audit:
    """Recompute every derived number of a report, and look for weaknesses.

    Args:
        document: the report as `read_document` gives it.
    """
    fields, findings = Fields(document), Findings()
    audit_checks.check(fields, findings)
    compared = {place: comparison(fields, place, findings) for place in fields.comparisons}
    primary = families(fields, compared, findings)
    choices(fields, findings)
    signatures(fields, findings)
    labels(fields, primary, findings)
    settings(fields, findings)
    sentences(fields, findings)
    audit_weaknesses.look(fields, findings)
    parts(fields, findings)
    texts = []
    for place, value in fields.everything:
        if isinstance(value, Written | bool) or is_label(value):
            findings.unchecked(place, value, ALONE)
        elif isinstance(value, str) and " " in value and any(map(str.isdigit, value)):
            texts.append(place)
    order = {place: index for index, (place, _) in enumerate(fields.everything)}

    def position(check: Check) -> int:
        """Give that of a part that is missing as that of what it should be in."""
        there = (check.place[:end] for end in range(len(check.place), 0, -1))
        return next((order[place] for place in there if place in order), 0)

    checks = sorted(findings.checks.values(), key=position)
    return Audit(checks, list(findings.weaknesses.values()), texts)


def is_label(value: Any) -> bool:
    """Tell whether a value is a text of one word, such as an outcome or a digest."""
    return isinstance(value, str) and len(value.split()) == 1


def audit_file(path: str | os.PathLike[str]) -> Audit:
    """Audit the report in a file.

    Raises:
        JaxbenchError: it cannot be read, is not JSON, or has nothing in it that could be checked.
    """
    result = audit(read_document(path))
    recomputed = any(check.status != "unchecked" for check in result.checks)
    if not recomputed and all(each.kind == "not strict JSON" for each in result.weaknesses):
        raise JaxbenchError(
            f"{path}: nothing in it that audit could check; expected a report of jaxbench, or one "
            "in the style of the reference reports"
        )
    return result


# --------------------------------------------------------------------------------------------------
# For people
# --------------------------------------------------------------------------------------------------


def render(result: Audit, console: Console, *, everything: bool = False) -> None:
    """Print an audit: contradictions first, then weaknesses, what agrees, and what is left.

    Contradictions and weaknesses are printed in full.  Unless `everything`, what agrees is
    shortened, and what is left is counted only.
    """
    most = None if everything else SHOWN
    console.print(Text(result.summary, style="green" if result.clean else "red"))
    wrong = [
        (dotted(check.place), check.stated, check.expected, check.because)
        for check in result.by_status("contradicts")
    ]
    _list("Contradicts", ("where", "stated", "expected", "because"), wrong, console)
    weak = [(each.kind, each.text) for each in result.weaknesses]
    _list("Weak", ("what", "why"), weak, console)
    right = collapsed(result.by_status("agrees"), lambda check: check.because)
    _list("Agrees", ("where", "stated", "because"), right, console, most)
    unchecked = result.by_status("unchecked")
    if not everything:
        console.print()
        console.print(Text(
            f"Cannot be checked: {counted(len(unchecked), 'number or label', 'numbers and labels')}"
            f"; no more was read of {counted(len(result.texts), 'sentence')}; --all lists them, "
            f"--json too"
        ))  # fmt: skip
        return
    left = [(where, stated) for where, stated, _ in collapsed(unchecked)]
    _list("Cannot be checked", ("where", "stated"), left, console)
    texts = [(dotted(place),) for place in result.texts]
    _list("Sentences of which no more was read", ("where",), texts, console)


def collapsed(
    checks: list[Check], reason: Callable[[Check], str] = lambda check: ""
) -> list[tuple[str, str, str]]:
    """Write checks one a line, and those of one list in one line."""

    def group(check: Check) -> tuple[str, str]:
        inside = "".join("[]" if isinstance(p, int) else f".{p}" for p in check.place)
        return inside.removeprefix("."), reason(check) if "[]" not in inside else ""

    lines = []
    for (where, because), group_of in itertools.groupby(checks, group):
        together = list(group_of)
        first = together[0]
        if len(together) == 1:
            lines.append((dotted(first.place), first.stated, because or reason(first)))
        else:
            several = f"{len(together)} values"
            lines.append((where, several, reason(first)))
    return lines


def _list(
    title: str,
    headings: tuple[str, ...],
    rows: Sequence[Sequence[str]],
    console: Console,
    most: int | None = None,
) -> None:
    if not rows:
        return
    table = terminal.make_table(*headings)
    for row in rows[:most]:
        terminal.add_row(table, row)
    terminal.section(f"{title} ({len(rows)})", console, table)
    if most is not None and len(rows) > most:
        console.print(Text(f"... and {len(rows) - most} more; --all prints them, --json too"))
