"""Written numbers: a document whose numbers remember how they were written, and its places."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxbench import storage
from jaxbench.base import JaxbenchError
from jaxbench.reporting import strict_json
from jaxbench.toml_text import Place

DEEPEST = 100
"""Levels of nesting that are read; no report has a tenth of it."""

DIGITS_OF_A_ZERO = 2
"""A zero with fewer decimals than this, such as 0.0, is exact; 0.00 may be rounded."""


class Written(float):
    """A number, with the text that it stood as.

    Attributes:
        text: the literal.
        rounding: half a unit of its last decimal, which is how far off the unrounded number may be.
    """

    text: str
    rounding: float

    def __new__(cls, text: str) -> Written:
        """Read a literal, of whatever length."""
        self = super().__new__(cls, text)
        self.text = text
        self.rounding = _rounding(text, float(self))
        return self

    @property
    def whole(self) -> bool:
        """Whether it is an integer."""
        return math.isfinite(self) and self == math.floor(self)

    def __reduce__(self) -> Any:
        return Written, (self.text,)


def _rounding(text: str, value: float) -> float:
    """Give half a unit of the last decimal of a literal."""
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not math.isfinite(value) or (value == 0.0 and decimals < DIGITS_OF_A_ZERO):
        return 0.0
    try:
        half = float(f"5e{int(exponent or 0) - decimals - 1}")
    except ValueError:
        return 0.0
    return half if math.isfinite(half) else 0.0


def report_file(path: str | os.PathLike[str]) -> Path:
    """Give the file that is meant by a path: itself, or the report in the folder of a run.

    Raises:
        JaxbenchError: a folder without a report.
    """
    file = Path(path)
    if not os.path.isdir(path):
        return file
    if not (file / storage.REPORT).is_file():
        runs = sorted(each.parent.name for each in file.glob(f"*/{storage.REPORT}"))
        inside = f" (its runs: {', '.join(runs)})" if runs else ""
        raise JaxbenchError(
            f"{path} is a folder without {storage.REPORT}; expected a file or the folder of a run"
            f"{inside}"
        )
    return file / storage.REPORT


def read_document(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file with `Written` for every number, NaN and the infinities included.

    Args:
        path: of the file, or of the folder of a run, whose report is read then.

    Raises:
        JaxbenchError: there is no such file, or it is not JSON, or a key stands twice in it, or it
            is nested too deeply.
    """
    file = report_file(path)
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise JaxbenchError(f"{path} cannot be read: {reason}") from error
    try:
        document = strict_json.loads(content, Written)
        if any(len(place) > DEEPEST for place, _ in walk(document)):
            raise JaxbenchError("not readable: it is nested too deeply")
    except JaxbenchError as error:
        raise JaxbenchError(f"{path}: {error}") from error
    return document


def walk(document: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Visit every value of a document with its place, in order of appearance, outer ones first."""
    waiting = [(place, document)]
    while waiting:
        here, value = waiting.pop()
        yield here, value
        if isinstance(value, Mapping):
            waiting += [((*here, key), value[key]) for key in reversed(value)]
        elif isinstance(value, list):
            waiting += [((*here, index), value[index]) for index in reversed(range(len(value)))]


def shown(value: Any) -> str:
    """Write a value of a document as it stood there."""
    return value.text if isinstance(value, Written) else str(value)


def numbers(value: Any) -> list[Written | None] | None:
    """Give a flat list of numbers, in which null may stand for one; None for anything else."""
    if not isinstance(value, list) or not any(isinstance(item, Written) for item in value):
        return None
    if not all(item is None or isinstance(item, Written) for item in value):
        return None
    return value


def roundings(values: Sequence[Written | None]) -> list[float]:
    """Give the rounding of each number of a list, whose zeros at the end may have been dropped.

    All were rounded alike, to as many decimals or to as many digits as the longest of them has.
    """
    found = [value for value in values if value is not None and value.rounding > 0.0]
    finest = min((value.rounding for value in found), default=0.0)
    digits = max((_digits(value) for value in found), default=0)

    def rounding(value: Written | None) -> float:
        if value is None or value.rounding == 0.0:
            return 0.0
        exponent = int(f"{float(value):e}".partition("e")[2])
        return min(value.rounding, max(finest, float(f"5e{exponent - digits}")))

    return [rounding(value) for value in values]


def _digits(value: Written) -> int:
    """Count the significant digits of a literal."""
    mantissa = value.text.lower().partition("e")[0]
    return len(mantissa.replace(".", "").lstrip("+-0"))
