"""Sweeps: a `[sweep]` table makes a study's arms and comparisons over a product of values.

Each arm that is swept becomes one arm a point, named like `idea.keep-16.rounds-3`, and each
comparison one comparison a point.  One point of the primary comparison stays primary; its others
become secondary.  A config as run names all of them and has no `[sweep]` any more.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jaxbench.config import Sweep
from jaxbench.config_messages import explain, shown, valid_keys
from jaxbench.registry import nearest
from jaxbench.toml_text import Place

PARTS = ("options", "fixed", "model")
Key = tuple[str, str]
"""A part of an arm, and the key in it that is swept."""
Point = dict[Key, Any]


@dataclasses.dataclass(frozen=True)
class Expanded:
    """A document whose sweep was carried out, or could not be.

    Attributes:
        document: without the sweep.
        problems: what is wrong with the sweep, by place; then the document is not expanded, unless
            it is only the primary point that is wrong.
        origins: of each arm and comparison made, the place that it was made of.
        values: of each swept value of an arm made, its place in the sweep.
    """

    document: dict[str, Any]
    problems: dict[Place, str]
    origins: Mapping[Place, Place] = dataclasses.field(default_factory=dict)
    values: Mapping[Place, Place] = dataclasses.field(default_factory=dict)

    def origin(self, place: Place) -> Place:
        """Say where in the file a place of the expanded document comes from."""
        if place[:4] in self.values:
            return self.values[place[:4]]
        return (*self.origins.get(place[:2], place[:2]), *place[2:])


def expand(document: Mapping[str, Any], default_comparisons: list[dict[str, Any]]) -> Expanded:
    """Carry out a document's sweep; a document without one stays as it is."""
    plain = {key: value for key, value in document.items() if key != "sweep"}
    if "sweep" not in document:
        return Expanded(plain, {})
    arms: Any = plain.get("arms")
    comparisons = plain.get("comparisons", default_comparisons)
    if not _tables(arms) or not isinstance(comparisons, list):
        return Expanded(plain, {})  # which is refused as it is
    rows = [row for row in comparisons if isinstance(row, dict)]
    try:
        sweep = Sweep.model_validate_json(json.dumps(document["sweep"], default=str))
    except ValidationError as error:
        inside = explain(error, document["sweep"], lambda place: valid_keys(("sweep", *place)))
        return Expanded(plain, {("sweep", *place): text for place, text in inside.items()})
    problems = problems_of(sweep, arms, rows)
    fatal = [place for place in problems if place[:2] != ("sweep", "primary")]
    if fatal or len(rows) < len(comparisons):
        return Expanded(plain, problems)
    return expanded(plain, sweep, rows, problems)


def problems_of(
    sweep: Sweep, arms: Mapping[str, Any], rows: list[dict[str, Any]]
) -> dict[Place, str]:
    """Find what a sweep asks for that cannot be."""
    problems: dict[Place, str] = {}
    swept = sweep.arms or tuple(arms)
    for index, name in enumerate(swept):
        if name not in arms:
            listed = f"{nearest(name, arms)} ({', '.join(arms)})"
            problems["sweep", "arms", index] = f"no arm named {name!r}{listed}"
    for index, row in enumerate(rows):
        for side in ("idea", "baseline"):
            named = row.get(side)
            if isinstance(named, str) and named not in arms:
                listed = f"{nearest(named, arms)} ({', '.join(arms)})"
                problems["comparisons", index, side] = f"no arm named {named!r}{listed}"
    keys = keys_of(sweep)
    if not keys:
        return problems | {("sweep",): "missing: expected values to sweep, such as [sweep.options]"}
    for place, (part, key) in enumerate(keys):
        if key in [other for _, other in keys[:place]]:
            problems["sweep", part, key] = "swept twice; give it in one of the sweep's tables"
        for arm in swept:
            table = arms.get(arm, {}).get(part)
            if isinstance(table, dict) and key in table:
                problems["arms", arm, part, key] = (
                    f"also in sweep.{part}; give it in one of them, or name other sweep.arms"
                )
    points = points_of(sweep)
    names = [name_of(arm, point) for arm in swept for point in points]
    twice = [name for place, name in enumerate(names) if name in [*names[:place], *arms]]
    if twice:
        problems["sweep",] = f"two arms would be named {twice[0]!r}; sweep values that differ more"
    primary = next((row for row in rows if row.get("role") == "primary"), {})
    chosen = {key: sweep.primary.get(key) for _, key in keys}
    if not {primary.get("idea"), primary.get("baseline")} & set(swept):
        if sweep.primary:
            problems["sweep", "primary"] = "no arm of the primary comparison is swept"
    else:
        for key in sweep.primary.keys() - chosen.keys():
            listed = f"{nearest(key, chosen)} ({', '.join(chosen)})"
            problems["sweep", "primary", key] = f"not swept{listed}"
        for part, key in keys:
            values = getattr(sweep, part)[key]
            if key not in sweep.primary:
                problems["sweep", "primary", key] = (
                    "missing: expected which of the values is the primary comparison's, "
                    f"{' or '.join(map(shown, values))}"
                )
            elif chosen[key] not in values:
                problems["sweep", "primary", key] = (
                    f"expected one of the values swept, {' or '.join(map(shown, values))}, got "
                    f"{shown(chosen[key])}"
                )
    return problems


def expanded(
    plain: dict[str, Any], sweep: Sweep, rows: list[dict[str, Any]], problems: dict[Place, str]
) -> Expanded:
    """Make the arms and comparisons of a sweep; with a wrong primary point, the first is it."""
    arms = plain["arms"]
    swept = sweep.arms or tuple(arms)
    points = points_of(sweep)
    named = {(part, key): sweep.primary.get(key) for part, key in keys_of(sweep)}
    primary = points[0] if problems else named
    origins: dict[Place, Place] = {}
    values: dict[Place, Place] = {}
    made: dict[str, Any] = {}
    for arm, table in arms.items():
        if arm not in swept:
            made[arm] = table
            continue
        for point in points:
            name = name_of(arm, point)
            made[name] = copy.deepcopy(table)
            origins["arms", name] = ("arms", arm)
            for (part, key), value in point.items():
                made[name].setdefault(part, {})[key] = value
                index = getattr(sweep, part)[key].index(value)
                values["arms", name, part, key] = ("sweep", part, key, index)
    listed: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        moves = [side for side in ("idea", "baseline") if row.get(side) in swept]
        for point in points if moves else [{}]:
            here = {**row, **{side: name_of(row[side], point) for side in moves}}
            if moves and row.get("role") == "primary" and point != primary:
                here["role"] = "secondary"
            origins["comparisons", len(listed)] = ("comparisons", index)
            listed.append(here)
    return Expanded({**plain, "arms": made, "comparisons": listed}, problems, origins, values)


def keys_of(sweep: Sweep) -> list[Key]:
    """List what is swept, in the order of the file's tables."""
    return [(part, key) for part in PARTS for key in getattr(sweep, part)]


def points_of(sweep: Sweep) -> list[Point]:
    """List the product of all values, the last key varying fastest."""
    keys = keys_of(sweep)
    lists = [getattr(sweep, part)[key] for part, key in keys]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*lists)]


def name_of(arm: str, point: Point) -> str:
    """Name an arm at a point, such as `idea.keep-16.rounds-3`."""
    return ".".join([arm, *(f"{key}-{_word(value)}" for (_, key), value in point.items())])


def _word(value: Any) -> str:
    """Write a value so that it can be part of a name."""
    if isinstance(value, list | tuple):
        return "x".join(map(_word, value))
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)


def _tables(value: Any) -> bool:
    """Whether this is a table of tables."""
    return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())
