"""Says in words what is wrong with a config: what was expected, what came, and on which line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from jaxbench.config import Arm, Comparison, Config, Protocol, Sweep, Training
from jaxbench.registry import nearest
from jaxbench.toml_text import Place, contains, dotted, lines_of

PARTS: dict[tuple[Any, int], type[BaseModel]] = {
    (None, 0): Config,
    ("training", 1): Training,
    ("protocol", 1): Protocol,
    ("arms", 2): Arm,
    ("comparisons", 2): Comparison,
    ("sweep", 1): Sweep,
}
EXPECTED = {
    "int_type": "expected an integer",
    "float_type": "expected a number",
    "string_type": "expected text in quotes",
    "bool_type": "expected true or false",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "string_pattern_mismatch": "expected letters, digits, '_', '-' or '.', beginning with a letter"
    " or digit",
    "greater_than": "expected a number above {gt:g}",
    "greater_than_equal": "expected a number of at least {ge:g}",
    "less_than": "expected a number below {lt:g}",
    "less_than_equal": "expected a number of at most {le:g}",
    "too_short": "expected {min_length} or more entries",
}


def shown(value: Any) -> str:
    """Write a value that came, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    text = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(text, text)
    return text if len(text) <= 60 else text[:57] + "..."


def message(problems: Mapping[Place, str], label: str, text: str, changed: Sequence[Place]) -> str:
    """Write problems in the order of their lines, each with its line and place."""
    by_hand = {p for p in problems if any(p[: len(each)] == each for each in changed)}
    lines = lines_of(text, [p for p in problems if p not in by_hand]) if text else {}
    entries = []
    for place, problem in sorted(problems.items(), key=lambda item: lines.get(item[0], 0)):
        where = "from the command line" if place in by_hand else ""
        where = f"line {lines[place]}" if place in lines else where
        entries.append(f"{where + ': ' if where else ''}{dotted(place)}: {problem}")
    if len(entries) == 1:
        return f"{label}, {entries[0]}"
    return f"{label} has {len(entries)} problems:\n  " + "\n  ".join(entries)


def valid_keys(place: Place) -> list[str]:
    """List the keys that the table at this place may have."""
    part = PARTS.get((place[0] if place else None, len(place)))
    return [*(part.model_fields if part else ()), *([] if place else ["sweep", "quick", "tracks"])]


def explain(
    error: ValidationError, document: Any, keys: Callable[[Place], list[str]]
) -> dict[Place, str]:
    """Say for each place what was expected and what came; `keys(place)` lists the valid keys."""
    found: dict[Place, str] = {}
    for each in error.errors(include_url=False):
        place: Place = each["loc"]
        kind = each["type"]
        if kind == "extra_forbidden":
            names = keys(place[:-1])
            found[place] = (
                f"unknown key{nearest(str(place[-1]), names)} (valid: {', '.join(names) or 'none'})"
            )
            continue
        if kind == "too_short" and len(each["input"]) >= each["ctx"]["min_length"]:
            continue  # pydantic counts entries that are right; those that are wrong have their own
        if kind == "missing":
            field = PARTS.get((place[0] if len(place) > 1 else None, len(place) - 1))
            what = field.model_fields[str(place[-1])].description if field else None
            found[place] = f"missing: expected {what}" if what else "missing"
            continue
        while place and not contains(document, place):  # names of a union's members
            place = place[:-1]
        text = EXPECTED.get(kind) or each["msg"].replace("Input should be", "expected")
        text = text.removeprefix("Value error, ").format_map(each.get("ctx", {}))
        if place in found:
            head, _, tail = found[place].rpartition(", got ")
            found[place] = f"{head} or {text.removeprefix('expected ')}, got {tail}"
            continue
        found[place] = text
        if place == ("comparisons",) and isinstance(each["input"], dict):
            found[place] = (
                "expected a list of tables, got one table; write [[comparisons]] above it"
            )
        elif kind != "value_error":
            found[place] += f", got {shown(each['input'])}"
        if kind == "literal_error" and isinstance(each["input"], str):
            found[place] += nearest(each["input"], re.findall("'(.*?)'", each["ctx"]["expected"]))
    return found
