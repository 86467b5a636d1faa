"""Mutants: files that are almost reports or score tables, for fuzzing."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 8, 10**400, -(10**400), 1e308, -1e308, 5e-324, 0.5, "", "lower",
    "higher", "confirmed", "better", "nan", "é\u0000", [], {}, [None], [[]], [1], [1, None, "x"],
    {"": {}}, {"per_seed": [1, 2]}, {"mean": 1}, float("nan"), float("inf"), -float("inf"),
]  # fmt: skip


def places(document: Any) -> list[tuple[Any, Any]]:
    """List every (container, key) of a document."""
    found, waiting = [], [document]
    while waiting:
        here = waiting.pop()
        if not isinstance(here, dict | list):
            continue
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        for key in keys:
            found.append((here, key))
            waiting.append(here[key])
    return found


def mutant(document: Any, chance: random.Random) -> bytes:
    """Change a document in one to six places, then sometimes its bytes."""
    changed = copy.deepcopy(document)
    for _ in range(chance.randint(1, 6)):
        there = places(changed)
        if not there:
            break
        container, key = chance.choice(there)
        match chance.randrange(7):
            case 0:
                del container[key]
            case 1:
                container[key] = copy.deepcopy(chance.choice(ODD))
            case 2:
                other, source = chance.choice(there)
                container[key] = copy.deepcopy(other[source])
            case 3:
                other, source = chance.choice(there)
                container[key], other[source] = other[source], container[key]
                changed = _without_cycles(changed, document)
            case 4 if isinstance(container, dict):
                container[chance.choice(["mean", "std", "cfg", "baseline", "idea", ""])] = (
                    container.pop(key)
                )
            case 5 if isinstance(container[key], int | float):
                container[key] = container[key] * chance.choice([0, -1, 1.1, 1e200, 1e-200])
            case _:
                container[key] = [copy.deepcopy(container[key])] * chance.randint(0, 3)
    return scrambled(json.dumps(changed, indent=1).encode(), chance)


def _without_cycles(changed: Any, original: Any) -> Any:
    """Give the document, or the original where swapping has put a part inside itself."""
    try:
        json.dumps(changed)
    except (ValueError, RecursionError):
        return copy.deepcopy(original)
    return changed


def scrambled(content: bytes, chance: random.Random) -> bytes:
    """Sometimes change, cut, double or insert bytes."""
    if chance.random() < 0.7 or not content:
        return content
    at = chance.randrange(len(content))
    to = min(len(content), at + chance.randint(1, 40))
    odd = [
        b"",
        b"\x00",
        b"\xff\xfe",
        b'"',
        b",",
        b";",
        b"\n",
        b"1e999",
        b"NaN",
        b"[" * 2000,
        b"9" * 5000,
    ]
    match chance.randrange(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + chance.choice(odd) + content[to:]
        case 2:
            return content[:to] + content[at:]
        case _:
            return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
