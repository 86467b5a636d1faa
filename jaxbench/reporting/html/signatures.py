"""The mechanism signature: prediction against measurement, beside its null and its controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.reporting.html.drawing import (
    IDEA,
    INK,
    MUTED,
    RULE,
    Drawing,
    Table,
    canvas,
    label,
    logarithmic,
    spans_decades,
)
from jaxbench.reporting.html.quantities import MISSING, number, words

UNTESTABLE = "untestable"


def findings(signature: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Give what a signature found on the idea, with the null's prediction, and on controls."""
    found = {"idea": signature.get("subject"), "null": signature.get("null")}
    found |= {f"control: {name}": each for name, each in (signature.get("controls") or {}).items()}
    return {name: each for name, each in found.items() if each}


def state(signature: Mapping[str, Any]) -> str:
    """Say what became of a signature."""
    if signature["state"] is not None:
        return str(signature["state"])
    held = "held" if signature.get("confirmed_legacy") else "did not hold"
    return f"the reference reports' rule, which {held} and decides nothing"


def own_reason(signature: Mapping[str, Any]) -> str | None:
    """Give the reason for a signature's state where it says more than the idea's finding does."""
    reason = signature.get("reason")
    return None if reason == (signature.get("subject") or {}).get("reason") else reason


def table(signature: Mapping[str, Any]) -> Table:
    """Give what was found on each set of runs, with the reasons."""
    rows = [
        [
            f"null: {signature.get('null_name') or 'none named'}" if name == "null" else name,
            number(each.get("passed"), missing=UNTESTABLE),
            number(each.get("error")),
            each.get("reason", ""),
        ]
        for name, each in findings(signature).items()
    ]
    return Table("What was tested", ("tested on", "passes", "error", "because"), rows)


def draw(mechanism: Mapping[str, Any]) -> list[Drawing]:
    """Draw the errors of all signatures, and the points of those that have any."""
    listed = mechanism.get("signatures") or []
    figures = [] if (errors := _errors(listed)) is None else [errors]
    for place, signature in enumerate(listed):
        drawing = _points(signature, place)
        if drawing is not None:
            figures.append(drawing)
    return figures


def _errors(listed: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Draw the size of each prediction's error, on the idea, by the null and on the controls."""
    rows: list[tuple[str, str, float, bool | None]] = []
    for signature in listed:
        if signature["state"] is not None:
            for name, each in findings(signature).items():
                error = each.get("error")
                if isinstance(error, int | float) and math.isfinite(error):
                    rows.append((signature["name"], name, float(error), each.get("passed")))
    if not rows:
        return None
    figure, axes = canvas(7.0, 0.8 + 0.27 * len(rows))
    positive = [error for _, _, error, _ in rows if error > 0]
    left = 0.0
    if spans_decades(positive):
        logarithmic(axes, "x", positive)
        left = min(positive) / 10.0
    for row, (_, name, error, passed) in enumerate(rows):
        colour = IDEA if name == "idea" else MUTED
        axes.plot([left, max(left, error)], [row, row], color=RULE, linewidth=1.2, zorder=1)
        axes.plot(
            max(left, error), row, "o", markersize=6.5, color=colour, zorder=2,
            markerfacecolor=colour if passed else "none", markeredgewidth=1.3,
            clip_on=False,
        )  # fmt: skip
        if error == 0:
            axes.annotate("0", (left, row), (8, 0), textcoords="offset points", va="center")
    names = [f"{label(words(of))}: {name}" if name == "idea" else name for of, name, _, _ in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=left)
    axes.tick_params(axis="y", length=0, pad=8, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("error of the prediction, in the signature's own measure")
    data = [
        [of, name, number(error), number(passed, missing=UNTESTABLE)]
        for of, name, error, passed in rows
    ]
    return Drawing(
        name="signature-errors",
        title="Errors of the predictions",
        caption=(
            "Filled: the prediction passes its rule. Open: it fails, or cannot be tested. A "
            "signature is confirmed where the idea's own is filled and everything under it is "
            "open, with at most half of the null's error."
        ),
        alternative="; ".join(
            f"{words(of)}, {name}: error {number(error, digits=3)}, "
            f"{'passes' if passed else 'does not pass'}"
            for of, name, error, passed in rows
        ),
        figure=figure,
        table=Table("Errors", ("signature", "tested on", "error", "passes"), data),
        wide=True,
    )


def _points(signature: Mapping[str, Any], place: int) -> Drawing | None:
    """Draw measurements against predictions, one panel for the idea, the null and each control."""
    compared = signature.get("points")
    if not compared:
        return None
    panels = compared["panels"]
    figure, grid = canvas(
        3.6 if len(panels) == 1 else 7.0, 2.9, ncols=len(panels), sharey=True, squeeze=False
    )
    for axes, (name, of) in zip(grid.flat, panels.items(), strict=True):
        axes.plot(
            of["predicted"], of["measured"], "o", color=IDEA if name == "idea" else MUTED,
            markersize=2.8, alpha=0.6, markeredgewidth=0,
        )  # fmt: skip
        if compared["equal"]:
            middle = sum(of["measured"]) / len(of["measured"])
            axes.axline((middle, middle), slope=1.0, color=INK, linewidth=0.8, zorder=1)
        axes.set_title(label(name), loc="left", color=INK)
        axes.locator_params(axis="x", nbins=4)
    figure.supxlabel(label(f"predicted: {words(compared['predicted'])}", 60), color=MUTED, size=8.5)
    grid.flat[0].set_ylabel(label(f"measured: {words(compared['measured'])}"))
    rows = [
        [name, number(one), number(other)]
        for name, of in panels.items()
        for one, other in zip(of["predicted"], of["measured"], strict=True)
    ]
    counts = ", ".join(f"{len(of['measured'])} of {of['of']} {name}" for name, of in panels.items())
    return Drawing(
        name=f"signature-points-{place}",
        title=f"{words(signature['name'])}: prediction against measurement",
        caption=(
            f"A dot is a prediction and its measurement (drawn, evenly thinned out: {counts}). "
            + ("On the line the two are equal. " if compared["equal"] else "")
            + "The null has the same measurements with a simpler prediction."
        ),
        alternative=f"Measured against predicted values. {signature.get('reason', '')}",
        figure=figure,
        table=Table("Points", ("of", "predicted", "measured"), rows),
        wide=len(panels) > 1,
    )


def values_table(signature: Mapping[str, Any]) -> Table | None:
    """Give the numbers behind a signature that are scalars, one column for each set of runs."""
    found = findings(signature)
    keys = dict.fromkeys(
        key
        for each in found.values()
        for key, value in (each.get("values") or {}).items()
        if value is None or isinstance(value, int | float | str)
    )
    if not keys:
        return None
    rows = [
        [words(key), *(_scalar((each.get("values") or {}).get(key)) for each in found.values())]
        for key in keys
    ]
    return Table("Numbers behind it", ("quantity", *found), rows)


def _scalar(value: Any) -> str:
    return number(value) if value is None or isinstance(value, int | float | str) else MISSING
