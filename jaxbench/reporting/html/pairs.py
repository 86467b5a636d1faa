"""Paired slopes: each seed's two scores joined by a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxbench.counted import counted
from jaxbench.reporting.html.drawing import (
    BASELINE,
    IDEA,
    INK,
    MUTED,
    RULE,
    Drawing,
    Table,
    canvas,
    label,
    logarithmic,
    quantity_label,
    spans_decades,
)
from jaxbench.reporting.html.quantities import number, signed


def draw(bench: Mapping[str, Any]) -> Drawing | None:
    """Draw the primary comparison's pairs; seeds with a diverged run are only in the table."""
    judged, metric = bench["comparison"], bench["metric"]
    seeds = bench["protocol"]["evaluation_seeds"]
    arms = [bench[side]["full"] for side in ("baseline", "idea")]
    rows = list(zip(seeds, *(arm["per_seed"] for arm in arms), strict=False))
    drawn = [(one, other) for _, one, other in rows if one is not None and other is not None]
    if not drawn:
        return None
    better = 1 if metric["direction"] == "higher" else -1
    figure, axes = canvas(4.4, 3.4)
    for one, other in drawn:
        won = better * (other - one) > 0
        axes.plot(
            [0, 1], [one, other], color=IDEA if won else MUTED,
            linestyle="-" if won else (0, (4, 2)), linewidth=1.1, alpha=0.85,
            marker="o", markersize=3.2, zorder=2,
        )  # fmt: skip
    for place, arm, colour in ((-0.16, arms[0], BASELINE), (1.16, arms[1], IDEA)):
        if arm["mean"] is not None:
            axes.plot(
                place, arm["mean"], marker="D", markersize=5.5, color=colour,
                markeredgecolor=INK, markeredgewidth=0.6, zorder=3,
            )  # fmt: skip
    if spans_decades([score for pair in drawn for score in pair]):
        logarithmic(axes, "y", [score for pair in drawn for score in pair])
    names = [label(judged.get(f"{side}_arm") or side) for side in ("baseline", "idea")]
    axes.set_xticks([0, 1], names)
    axes.set_xlim(-0.45, 1.45)
    axes.set_ylabel(quantity_label(f"test {metric['name']}", metric["unit"]))
    axes.tick_params(axis="x", length=0, labelcolor=INK)
    axes.grid(axis="y", linewidth=0.5, color=RULE)
    axes.set_axisbelow(True)
    lost = len(rows) - len(drawn)
    are = "is" if lost == 1 else "are"
    left_out = f" {counted(lost, 'seed')} on which a run diverged {are} left out." if lost else ""
    return Drawing(
        name="pairs",
        title="Scores of each seed",
        caption=(
            "A line joins the two arms' test scores on one seed: same data, same initial weights "
            "where the arms share them. Solid: the idea is better. Dashed: it is not. Diamonds are "
            "means." + left_out
        ),
        alternative=(
            f"Lines from baseline to idea for {counted(len(drawn), 'seed')}; the idea is better on "
            f"{judged['idea_wins']} of {judged['n_pairs']}. Means: baseline "
            f"{number(arms[0]['mean'])}, idea {number(arms[1]['mean'])}; "
            f"{metric['direction']} is better."
        ),
        figure=figure,
        table=table(bench),
    )


def table(bench: Mapping[str, Any]) -> Table:
    """Give the scores of both arms, seed by seed, with their means and deviations."""
    arms = [bench[side]["full"] for side in ("baseline", "idea")]
    rows = [
        [
            str(seed),
            *(number(score, missing="diverged") for score in scores),
            signed(difference),
        ]
        for seed, *scores, difference in zip(
            bench["protocol"]["evaluation_seeds"],
            *(arm["per_seed"] for arm in arms),
            bench["comparison"]["per_seed_diffs"],
            strict=False,
        )
    ]
    delta = signed(bench["comparison"]["delta_mean"])
    rows.append(["mean", *(number(arm["mean"]) for arm in arms), delta])
    rows.append(["standard deviation", *(number(arm["std"]) for arm in arms), ""])
    metric = bench["metric"]
    unit = f" ({metric['unit']})" if metric["unit"] else ""
    return Table(
        f"Test {metric['name']}{unit} of each seed; {bench['metric_direction']}",
        ("seed", "baseline", "idea", "idea \u2212 baseline"),
        rows,
    )
