"""Strict JSON: full-precision numbers, numpy accepted, NaN and infinities refused both ways."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from jaxbench.base import JaxbenchError


def plain(value: Any, place: str = "report") -> Any:
    """Turn a document into dicts, lists, text and Python numbers; numpy's and jax's become lists.

    Raises:
        JaxbenchError: a float that is not finite, or a value without a JSON form, with its place.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise JaxbenchError(f"{place} has the key {key!r}; expected text")
        return {key: plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise JaxbenchError(f"{place} is {value}; a report says null and gives a reason")
        return float(value)
    raise JaxbenchError(f"{place} is a {type(value).__name__}, which has no form in JSON")


def dumps(document: Any) -> str:
    """Write a document as indented JSON in ASCII, with a newline at the end.

    Raises:
        JaxbenchError: as for `plain`.
    """
    return json.dumps(plain(document), indent=1, allow_nan=False) + "\n"


def loads(text: str | bytes, read_number: Callable[[str], float] | None = None) -> Any:
    """Read a document, refusing NaN, infinities and keys that stand twice.

    Args:
        text: the document.
        read_number: makes a number of each literal, NaN and the infinities included, and may accept
            what this module would refuse.

    Raises:
        JaxbenchError: it is no strict JSON, or nested too deeply to be read.
    """

    def number(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise ValueError(f"{literal} is no finite number")
        return value

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise ValueError(f"a key stands twice among {', '.join(key for key, _ in pairs)}")
        return result

    try:
        return json.loads(
            text,
            parse_int=read_number or int,
            parse_float=read_number or number,
            parse_constant=read_number or number,
            object_pairs_hook=table,
        )
    except ValueError as error:
        raise JaxbenchError(f"not strict JSON: {error}") from error
    except RecursionError as error:
        raise JaxbenchError("not readable: it is nested too deeply") from error
