"""Grids: the configurations that each arm tries, and parity between arms."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import one_of
from jaxbench.judging.json_values import strict_json

Grid = Mapping[str, Sequence[Any]]
Configuration = dict[str, Any]
ParityMode = Literal["fill", "strict", "off"]


@dataclasses.dataclass(frozen=True)
class Parity:
    """The tuning trials of every arm.

    Attributes:
        mode: `fill`, `strict` or `off`.
        configurations: of each arm, after filling.
        shared: the hyperparameters that several arms have, with the union of their values.
        requested: number of configurations of each arm before filling.
        added: the configurations that filling added to each arm.
    """

    mode: ParityMode
    configurations: Mapping[str, list[Configuration]]
    shared: Mapping[str, list[Any]]
    requested: Mapping[str, int]
    added: Mapping[str, list[Configuration]]

    @property
    def counts(self) -> dict[str, int]:
        """Number of configurations that each arm tries."""
        return {arm: len(tried) for arm, tried in self.configurations.items()}

    @property
    def equal(self) -> bool:
        """Whether all arms try equally many."""
        return len(set(self.counts.values())) <= 1

    @property
    def statement(self) -> str:
        """One sentence for the report."""
        counts = ", ".join(f"{arm} {count}" for arm, count in self.counts.items())
        added = ", ".join(f"{len(new)} of {arm}'s" for arm, new in self.added.items() if new)
        if added:
            return f"Tuning trials: {counts}; {added} were added between the values asked for."
        return f"Tuning trials: {counts}{'' if self.equal else '; the arms are tuned unequally'}."

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        derived = {"counts": self.counts, "equal": self.equal, "statement": self.statement}
        return strict_json(self) | derived


def configurations(grid: Grid) -> list[Configuration]:
    """List every combination of a grid's values, the last hyperparameter running fastest.

    Args:
        grid: {hyperparameter: its values}; without hyperparameters there is one configuration.

    Raises:
        JaxbenchError: a hyperparameter without values, or with a value that is not finite.
    """
    columns = {name: _distinct(name, values) for name, values in grid.items()}
    return [
        dict(zip(columns, point, strict=True)) for point in itertools.product(*columns.values())
    ]


def union_grids(
    grids: Mapping[str, Grid],
) -> tuple[dict[str, dict[str, list[Any]]], dict[str, list[Any]]]:
    """Give every hyperparameter that several arms have the union of their values.

    Args:
        grids: {arm: grid}.

    Returns:
        The arms' grids with the unions, and the shared hyperparameters with their values, numbers
        ascending and others in order of appearance.

    Raises:
        JaxbenchError: a hyperparameter without values, or with a value that is not finite.
    """
    checked = {
        arm: {name: _distinct(name, values) for name, values in grid.items()}
        for arm, grid in grids.items()
    }
    shared: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for grid in checked.values() for name in grid):
        columns = [grid[name] for grid in checked.values() if name in grid]
        if len(columns) > 1:
            union = _distinct(name, [value for column in columns for value in column])
            shared[name] = sorted(union) if _numeric(union) else union
    united = {
        arm: {name: list(shared.get(name, values)) for name, values in grid.items()}
        for arm, grid in checked.items()
    }
    return united, shared


def match_trials(grids: Mapping[str, Grid], mode: ParityMode = "fill") -> Parity:
    """Plan the tuning trials of every arm so that none is tuned harder than another.

    Shared hyperparameters take the union of all arms' values.  With `fill`, an arm with fewer
    configurations than the largest gets more values between the least and the greatest of its
    shared hyperparameters: the geometric midpoint of the widest gap (on a log scale), in the
    hyperparameter that has the fewest values, until the counts are equal.  Values asked for stay;
    where a last value would bring more configurations than are missing, the first of them are
    taken.  Zero and negative values stay too: midpoints are geometric between the positive values
    where there are two of them, else arithmetic.  Integers stay integers.

    Args:
        grids: {arm: {hyperparameter: values}}.
        mode: `fill`; `strict` refuses unequal counts; `off` leaves them unequal.

    Raises:
        JaxbenchError: an empty or infinite grid; unequal counts with `strict`; with `fill`, an arm
            that shares no hyperparameter with a range to fill.
    """
    one_of(mode, get_args(ParityMode), "parity")
    united, shared = union_grids(grids)
    tried = {arm: configurations(grid) for arm, grid in united.items()}
    requested = {arm: len(points) for arm, points in tried.items()}
    most = max(requested.values(), default=0)
    if mode == "strict" and len(set(requested.values())) > 1:
        counts = " and ".join(f"{count} for {arm}" for arm, count in requested.items())
        raise JaxbenchError(
            f"parity = 'strict' needs equally many configurations for all arms; got {counts}. "
            f"Give the arm with fewer more values, or use parity = 'fill'."
        )
    added: dict[str, list[Configuration]] = {arm: [] for arm in tried}
    if mode == "fill":
        for arm, points in tried.items():
            axes = [name for name in united[arm] if name in shared]
            added[arm] = _fill(arm, united[arm], axes, most - len(points))
            tried[arm] = points + added[arm]
    return Parity(mode, tried, shared, requested, added)


def geometric_extension(
    values: Sequence[float], side: Literal["low", "high"], *, factor: float = 3.0
) -> float:
    """Give the next value beyond an edge of a grid: the edge divided or multiplied by `factor`.

    Integers stay integers.

    Args:
        values: of one hyperparameter.
        side: the edge to go beyond.
        factor: above 1.

    Raises:
        JaxbenchError: no numbers, an edge that is not positive, or no further integer.
    """
    one_of(side, ("low", "high"), "side")
    if not values or not _numeric(values):
        raise JaxbenchError(f"a grid to extend must hold numbers; got {list(values)!r}.")
    if not 1.0 < factor < math.inf:
        raise JaxbenchError(f"factor must be a finite number above 1; got {factor!r}.")
    edge = min(values) if side == "low" else max(values)
    extended = edge / factor if side == "low" else edge * factor
    if all(isinstance(value, int) for value in values):
        extended = round(extended)
    beyond = 0 < extended < edge if side == "low" else edge < extended < math.inf
    if edge <= 0 or not beyond:
        raise JaxbenchError(
            f"a grid can be extended geometrically only from a positive edge; got {edge!r} at the "
            f"{side} end. Set its values by hand."
        )
    return extended


def _distinct(name: str, values: Sequence[Any]) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise JaxbenchError(f"the grid of {name!r} must be a list of values; got {values!r}.")
    distinct = [value for place, value in enumerate(values) if value not in values[:place]]
    if not distinct:
        raise JaxbenchError(
            f"the grid of {name!r} has no values; give it at least one, or leave {name!r} out."
        )
    if any(isinstance(value, float) and not math.isfinite(value) for value in distinct):
        raise JaxbenchError(f"the grid of {name!r} must hold finite values; got {list(values)!r}.")
    return distinct


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _fill(
    arm: str, grid: Mapping[str, Sequence[Any]], axes: Sequence[str], missing: int
) -> list[Configuration]:
    """Give `missing` further configurations, between the values of the grid's shared `axes`."""
    denser = {name: list(values) for name, values in grid.items()}
    new: list[Configuration] = []
    while len(new) < missing:
        midpoints = {name: _midpoint(denser[name]) for name in axes}
        open_axes = [name for name in axes if midpoints[name] is not None]
        if not open_axes:
            raise JaxbenchError(
                f"parity = 'fill' cannot give {arm!r} the {missing} further configurations that it "
                f"is short of: it shares no hyperparameter with two numeric values and room "
                f"between them. Give it more values or a hyperparameter of its own, or use "
                f"parity = 'off'."
            )
        name = min(open_axes, key=lambda axis: len(denser[axis]))
        others = {axis: [midpoints[name]] if axis == name else denser[axis] for axis in denser}
        new += configurations(others)
        denser[name].append(midpoints[name])
    return new[:missing]


def _midpoint(values: Sequence[Any]) -> float | int | None:
    """Give the midpoint of the widest gap, on a log scale if two values are positive."""
    if not _numeric(values):
        return None
    positive = sorted(value for value in values if value > 0)
    geometric = len(positive) > 1
    ordered = positive if geometric else sorted(values)
    best, widest = None, 0.0
    for low, high in itertools.pairwise(ordered):
        width = math.log(high / low) if geometric else high - low
        middle = math.sqrt(low) * math.sqrt(high) if geometric else (low + high) / 2.0
        if all(isinstance(value, int) for value in values):
            middle = round(middle)
        if low < middle < high and width > widest * (1.0 + 1e-9):
            best, widest = middle, width
    return best
