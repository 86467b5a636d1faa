"""TOML as text: where a key stands, one value or key from the command line, and writing it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

Place = tuple[str | int, ...]


def dotted(place: Place) -> str:
    """Write a place as in `comparisons[0].role`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def contains(document: Any, place: Place) -> bool:
    """Whether the document has this place."""
    for part in place:
        if isinstance(document, list):
            inside = isinstance(part, int) and part < len(document)
        else:
            inside = isinstance(document, Mapping) and part in document
        if not inside:
            return False
        document = document[part]
    return True


def lines_of(text: str, places: Iterable[Place]) -> dict[Place, int]:
    """Find the line (from 1) on which each place, or the innermost table around it, begins.

    The text is parsed line by line: a place begins after the last prefix that parses without it.
    """
    document = tomllib.loads(text)
    wanted = {place: place for place in places}
    for place, inner in wanted.items():
        while inner and not contains(document, inner):
            inner = inner[:-1]
        wanted[place] = inner
    found: dict[Place, int] = {}
    lines = text.splitlines(keepends=True)
    begins = 1
    for count in range(1, len(lines) + 1):
        try:
            document = tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        for place, inner in wanted.items():
            if inner and place not in found and contains(document, inner):
                found[place] = begins
        begins = count + 1
    return found


def parse_key(text: str) -> tuple[str, ...]:
    """Read a dotted key, such as `training.epochs`.

    Raises:
        ValueError: it is no TOML key.
    """
    document: Any = tomllib.loads(f"{text} = 0") if "\n" not in text else {}
    parts: list[str] = []
    while isinstance(document, dict) and len(document) == 1:
        [(part, document)] = document.items()
        parts.append(part)
    if not parts or document != 0:
        raise ValueError(f"{text!r} is no key")
    return tuple(parts)


def parse_value(text: str) -> Any:
    """Read a TOML value; what is none is text."""
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if list(document) == ["value"] else text


def dumps(document: Mapping[str, Any]) -> str:
    """Write tables, lists of tables and plain values as TOML; numbers keep their full precision."""
    return "\n".join(_table(document, ())).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Write a table: its values first, then its tables, then its lists of tables."""
    values = {k: v for k, v in table.items() if not isinstance(v, Mapping) and not _tables(v)}
    lines = [f"{_key(key)} = {inline(value)}" for key, value in values.items()]
    for key, value in table.items():
        inner = (*path, key)
        header = ".".join(map(_key, inner))
        if isinstance(value, Mapping):
            only_tables = value and all(isinstance(v, Mapping) for v in value.values())
            lines += [] if only_tables else ["", f"[{header}]"]
            lines += _table(value, inner)
        elif _tables(value):
            for row in value:
                lines += ["", f"[[{header}]]", *_table(row, inner)]
    return lines


def _tables(value: Any) -> bool:
    """Whether a value is written as a list of tables."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    """Write a key, quoted where it must be."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else inline(key)


def inline(value: Any) -> str:
    """Write a value in one line; strings and numbers are JSON's, but for the delete character."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {inline(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
