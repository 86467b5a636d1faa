"""Numbers as a page writes them: sensible digits, a true minus sign, powers of ten, units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MINUS, TIMES, THIN = "\u2212", "\u00d7", "\u202f"
SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
MISSING = "\u2013"
DIGITS = 4


def number(
    value: Any, *, digits: int = DIGITS, signed: bool = False, missing: str = MISSING
) -> str:
    """Write a number with a few significant digits, as 0.0123 or 4.95 x 10^9; None as `missing`."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return str(value).replace("-", MINUS)
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    size = abs(value)
    if isinstance(value, int) and size < 10**7:
        return sign + (f"{size:,}".replace(",", THIN) if size >= 10_000 else str(size))
    text = f"{size:.{digits}g}"
    mantissa, marked, exponent = text.partition("e")
    if not marked:
        return sign + text
    return f"{sign}{mantissa}{THIN}{TIMES}{THIN}10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def signed(value: Any) -> str:
    """Write a number with its sign."""
    return number(value, signed=True)


def percent(value: float | None) -> str:
    """Write a fraction as a signed percentage, with three digits."""
    return MISSING if value is None else f"{number(100.0 * value, digits=3, signed=True)}{THIN}%"


def with_unit(text: str, unit: str | None) -> str:
    """Put a unit behind a number; nothing where there is none."""
    return f"{text} {unit}" if unit else text


def interval(ends: Mapping[str, Any] | None, scale: float = 1.0) -> str:
    """Write an interval, whose missing end is unbounded."""
    if not ends:
        return MISSING
    low, high = (None if ends[end] is None else ends[end] * scale for end in ("low", "high"))
    return f"{_end(low)} to {_end(high)}"


def _end(value: float | None) -> str:
    return number(value, signed=True, missing="unbounded")


def level(ends: Mapping[str, Any] | None) -> str:
    """Write an interval's confidence as a percentage."""
    return MISSING if not ends else f"{100 * ends['confidence']:.3g}{THIN}%"


def duration(seconds: float | None) -> str:
    """Write a time in seconds, minutes or hours, whichever gives the shorter number."""
    if seconds is None:
        return MISSING
    if seconds < 120:
        return f"{number(seconds, digits=3)} s"
    if seconds < 7200:
        return f"{number(seconds / 60, digits=3)} min"
    return f"{number(seconds / 3600, digits=3)} h"


def data_size(count: float | None) -> str:
    """Write a number of bytes in MB or GB (powers of ten)."""
    if count is None:
        return MISSING
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{number(count / size, digits=3)} {unit}"
    return f"{number(count)} B"


def words(name: str) -> str:
    """Write a name from the code, such as `train_loss`, in words."""
    return name.replace("_", " ")
