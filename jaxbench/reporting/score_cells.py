"""Score cells: what one score and one seed may look like, and how several rows of a seed count."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.base import JaxbenchError
from jaxbench.reporting.written import shown

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "-"})
WHOLE = re.compile(r"([+-]?)0*(\d+)(\.0*)?")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Options:
    """How tables are read.

    Attributes:
        seed_column, score_column: their names; None to find them.
        aggregate: whether several rows of one seed are averaged rather than refused.
        missing_is_diverged: whether an empty or NaN score is a diverged run rather than refused.
    """

    seed_column: str | None = None
    score_column: str | None = None
    aggregate: bool = False
    missing_is_diverged: bool = False


def parse(label: str, where: str, cell: Any, options: Options) -> float:
    """Read one score; NaN is a diverged run.

    Raises:
        JaxbenchError: no number, too large a one, or a missing one that is not said to be diverged.
    """
    text = "" if cell is None else shown(cell)
    if isinstance(cell, bool | Mapping | list):
        raise JaxbenchError(f"{label}, {where}: {text} is no number")
    if text.lower() in MISSING:
        if options.missing_is_diverged:
            return math.nan
        raise JaxbenchError(
            f"{label}, {where}: the score is missing ({text or 'empty'}); if that run diverged, "
            f"say --missing-is-diverged, else run it or leave its seed out"
        )
    if not NUMBER.fullmatch(text):
        raise JaxbenchError(f"{label}, {where}: {text[:60]!r} is no number")
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        raise JaxbenchError(f"{label}, {where}: {text[:20]}... is too large for a score")
    return value


def seed_name(label: str, where: Any, cell: str) -> str:
    """Write a seed in one way only: 3, 03 and 3.0 are the same."""
    if cell.lower() in MISSING:
        raise JaxbenchError(f"{label}, line {where}: the seed is missing")
    whole = WHOLE.fullmatch(cell.strip())
    return f"{whole[1].replace('+', '')}{whole[2]}" if whole else cell.strip()


def collect(label: str, seeds: Sequence[tuple[str, float]], options: Options) -> dict[str, float]:
    """Bring scores in order by seed, one each.

    Raises:
        JaxbenchError: a seed has several, and they are not to be averaged.
    """
    grouped: dict[str, list[float]] = {}
    for seed, score in seeds:
        grouped.setdefault(seed, []).append(score)
    several = {seed: rows for seed, rows in grouped.items() if len(rows) > 1}
    if several and not options.aggregate:
        seed, rows = next(iter(several.items()))
        what = f"{len(several)} of {len(grouped)} seeds have" if len(several) > 1 else "a seed has"
        raise JaxbenchError(
            f"{label}: {what} several rows (seed {seed} has {len(rows)}); rows of one seed, such "
            f"as episodes, are not independent and count once: --aggregate mean takes their mean"
        )
    means = {seed: sum(rows) / len(rows) for seed, rows in grouped.items()}
    return dict(sorted(means.items(), key=lambda item: in_order(item[0])))


def in_order(seed: str) -> tuple[int, int, str]:
    """Sort whole numbers by value, then names."""
    whole = WHOLE.fullmatch(seed) is not None
    digits = seed.lstrip("-")
    return (0 if whole else 1, len(digits) if whole else 0, seed)


def words(names: Sequence[str]) -> str:
    """List names, the first twenty."""
    listed = ", ".join(names[:20])
    return f"{listed} and {len(names) - 20} more" if len(names) > 20 else listed
