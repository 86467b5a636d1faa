"""All comparisons of a study: their differences relative to the baseline, with corrected p."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.reporting.html.drawing import (
    IDEA,
    INK,
    MUTED,
    Drawing,
    Table,
    canvas,
    label,
)
from jaxbench.reporting.html.quantities import MISSING, interval, number, percent, signed
from jaxbench.reporting.terminal import named


def draw(bench: Mapping[str, Any]) -> Drawing | None:
    """Draw the comparisons, where there are several; those without a mean are in the table only."""
    listed = bench["comparisons"]
    heading, names = named_on_page(listed)
    drawn = [
        (each, name, scale)
        for each, name in zip(listed, names, strict=True)
        if (scale := _scale(each)) is not None
    ]
    if len(listed) < 2 or not drawn:
        return None
    figure, axes = canvas(7.0, 0.9 + 0.34 * len(drawn))
    axes.axvline(0.0, color=INK, linewidth=0.8, zorder=1)
    for row, (each, _, scale) in enumerate(drawn):
        primary, control = each["role"] == "primary", each["role"] == "control"
        colour = IDEA if primary else MUTED
        ends = (each.get("intervals") or {}).get("t")
        if ends:
            low, high = (ends[end] * scale for end in ("low", "high"))
            axes.plot([low, high], [row, row], color=colour, linewidth=2.2 if primary else 1.4)
        axes.plot(
            each["delta_mean"] * scale, row, "D" if primary else "o", color=colour,
            markersize=6 if primary else 5, markerfacecolor="none" if control else colour,
        )  # fmt: skip
        p = each["p_value"] if control else each["p_corrected"]
        axes.annotate(
            f"p = {number(p, digits=2)}", (1.01, row), xycoords=("axes fraction", "data"),
            va="center", fontsize=8.0, color=INK if primary else MUTED, annotation_clip=False,
        )  # fmt: skip
    axes.set_yticks(range(len(drawn)), [label(name) for _, name, _ in drawn])
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{label(heading.removesuffix(' at'))}, in % of the baseline's mean")
    family = sum(each["role"] != "control" for each in listed)
    left_out = len(listed) - len(drawn)
    return Drawing(
        name="comparisons",
        title="Differences relative to the baseline",
        caption=(
            f"Mean differences with t intervals, in percent of the baseline's mean. The diamond is "
            f"the primary comparison; open circles are controls. p is corrected by Holm's rule for "
            f"the {family} primary and secondary comparisons; a control's is not."
            + (
                f" {left_out} without a mean difference stand in the table only."
                if left_out
                else ""
            )
        ),
        alternative="; ".join(
            f"{name}: {signed(each['delta_mean'])}, {each['outcome']}"
            for each, name in zip(listed, names, strict=True)
        ),
        figure=figure,
        table=table(listed, bench),
        wide=True,
    )


def named_on_page(listed: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Name the comparisons as the terminal does, with a true minus sign."""
    heading, names = named(listed)
    return heading.replace(" - ", " \u2212 "), [name.replace(" - ", " \u2212 ") for name in names]


def _scale(each: Mapping[str, Any]) -> float | None:
    """Give what turns a difference into percent of the baseline's mean; None where it has none."""
    mean = (each.get("baseline") or {}).get("mean")
    if each["delta_mean"] is None or not mean:
        return None
    return float(100.0 / abs(mean))


def table(listed: Sequence[Mapping[str, Any]], bench: Mapping[str, Any]) -> Table:
    """Give all comparisons, one row each, with what became of each idea's explanation."""
    heading, names = named_on_page(listed)
    family = sum(each["role"] != "control" for each in listed)
    rows = []
    for each, name in zip(listed, names, strict=True):
        own = bench if each["role"] == "primary" else each
        rows.append(
            [
                name,
                each["role"],
                signed(each["delta_mean"]),
                interval((each.get("intervals") or {}).get("t")),
                percent((each.get("effects") or {}).get("relative_change")),
                f"{each['idea_wins']}/{each['n_pairs']}",
                number(each["p_value"]),
                MISSING if each["role"] == "control" else number(each["p_corrected"]),
                each["outcome"],
                (own.get("mechanism_signature") or {}).get("state", MISSING),
            ]
        )
    return Table(
        f"All comparisons; p corrected (Holm) for the {family} primary and secondary ones",
        (heading, "role", "difference", "interval", "relative", "wins", "p", "p corrected",
         "outcome", "mechanism"),
        rows,
    )  # fmt: skip
