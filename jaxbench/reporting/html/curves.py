"""Learning curves of both arms: the median over seeds and the quartiles, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbench.reporting.html.drawing import (
    BASELINE,
    IDEA,
    RULE,
    Drawing,
    Table,
    canvas,
    label,
    logarithmic,
    spans_decades,
)
from jaxbench.reporting.html.quantities import MISSING, number, words

LOSS = "train_loss"
SIDES = (("baseline", BASELINE, 2.6), ("idea", IDEA, 1.3))
QUARTILES = (25.0, 50.0, 75.0)


def quartiles(runs: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Give the lower quartile, median and upper quartile over runs, [3, epochs]; NaN for none.

    Runs that diverged are counted as long as they have values.
    """
    values = np.array([[np.nan if v is None else v for v in run] for run in runs], dtype=np.float64)
    found = np.full((3, values.shape[1]), np.nan)
    some = np.isfinite(values).any(axis=0)
    values[~np.isfinite(values)] = np.nan
    found[:, some] = np.nanpercentile(values[:, some], QUARTILES, axis=0)
    return found


def of_arms(bench: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Give both arms' curves by name, those that are tables of numbers, the loss first."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for side, _, _ in SIDES:
        for name, runs in (bench[side].get("curves") or {}).items():
            scalar = runs and all(isinstance(run, Sequence) and run for run in runs)
            if scalar and all(v is None or isinstance(v, int | float) for run in runs for v in run):
                found.setdefault(name, {})[side] = quartiles(runs)
    return dict(sorted(found.items(), key=lambda item: (item[0] != LOSS, item[0])))


def draw(bench: Mapping[str, Any]) -> list[Drawing]:
    """Draw the training loss, and what else was logged in a figure of small panels."""
    curves = of_arms(bench)
    rest = {name: sides for name, sides in curves.items() if name != LOSS}
    figures = []
    if LOSS in curves:
        figures.append(
            _figure("curves", "Learning curves", {LOSS: curves[LOSS]}, 1, "Training loss")
        )
    if rest:
        what = ", ".join(words(name) for name in rest)
        figures.append(_figure("logs", "What else was logged", rest, min(2, len(rest)), what))
    return figures


def _figure(
    name: str, title: str, curves: Mapping[str, Mapping[str, np.ndarray]], columns: int, what: str
) -> Drawing:
    rows = -(-len(curves) // columns)
    height = 3.0 if columns == 1 else 2.1 * rows
    figure, grid = canvas(
        4.4 if columns == 1 else 7.0, height, nrows=rows, ncols=columns, squeeze=False
    )
    panels = list(grid.flat)
    for spare in panels[len(curves) :]:
        spare.set_visible(False)
    for place, (panel, (curve, sides)) in enumerate(zip(panels, curves.items(), strict=False)):
        _panel(panel, sides)
        panel.set_ylabel(label(words(curve)))
        if place >= len(curves) - columns:
            panel.set_xlabel("epoch")
    panels[0].legend(loc="best")
    last = {
        f"{words(curve)}, {side}": number(float(found[1, -1]), digits=3)
        for curve, sides in curves.items()
        for side, found in sides.items()
        if np.isfinite(found[1, -1])
    }
    ends = "; ".join(f"{key} {value}" for key, value in last.items())
    return Drawing(
        name=name,
        title=title,
        caption=(
            "Lines are medians over the evaluation seeds, bands reach from the lower to the upper "
            "quartile. Grey and thick: baseline. Blue: idea."
        ),
        alternative=f"{what}, by epoch. Medians after the last epoch: {ends}.",
        figure=figure,
        table=_table(curves),
        wide=columns > 1,
    )


def _panel(panel: Any, sides: Mapping[str, np.ndarray]) -> None:
    """Draw both arms in a panel, the idea on top."""
    finite = [v for found in sides.values() for v in found.ravel() if np.isfinite(v)]
    for side, colour, width in SIDES:
        if side in sides:
            low, middle, high = sides[side]
            epochs = np.arange(1, middle.size + 1)
            panel.fill_between(epochs, low, high, color=colour, alpha=0.22, linewidth=0)
            dot = "o" if middle.size == 1 else None
            panel.plot(epochs, middle, color=colour, linewidth=width, label=side, marker=dot)
    if spans_decades(finite):
        logarithmic(panel, "y", finite)
    panel.grid(axis="y", linewidth=0.5, color=RULE)
    panel.locator_params(axis="x", integer=True)


def _table(curves: Mapping[str, Mapping[str, np.ndarray]]) -> Table:
    """Give median and quartiles, one row an epoch."""
    keys = [(curve, side) for curve, sides in curves.items() for side in sides]
    epochs = max(curves[curve][side].shape[1] for curve, side in keys)
    rows = [
        [str(epoch + 1), *(_cell(curves[curve][side], epoch) for curve, side in keys)]
        for epoch in range(epochs)
    ]
    columns = ("epoch", *(f"{words(curve)}, {side}" for curve, side in keys))
    return Table("Median (lower to upper quartile) over seeds", columns, rows)


def _cell(found: np.ndarray, epoch: int) -> str:
    if epoch >= found.shape[1] or not np.isfinite(found[1, epoch]):
        return MISSING
    low, middle, high = (number(float(value), digits=3) for value in found[:, epoch])
    return f"{middle} ({low} to {high})"
