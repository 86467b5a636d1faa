"""Tuning curves: how each arm's configurations scored, which was chosen, and whether at an edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.counted import counted
from jaxbench.reporting.html.drawing import (
    BASELINE,
    IDEA,
    INK,
    RULE,
    Drawing,
    Table,
    canvas,
    label,
    logarithmic,
    quantity_label,
    spans_decades,
)
from jaxbench.reporting.html.quantities import number, words

FEW_ARMS = 4
SIDES = (("baseline", BASELINE, "s"), ("idea", IDEA, "o"))


def draw(bench: Mapping[str, Any]) -> Drawing | None:
    """Draw both arms' grids, one panel a hyperparameter that varied; None where none did."""
    arms = {side: bench[side] for side, _, _ in SIDES}
    varied = varied_in(arms)
    curves = {
        (side, name): best_at(arms[side]["sweep"], name, bench["metric"]["direction"])
        for side in arms
        for name in varied
    }
    if not any(curves.values()):
        return None
    panels = len(varied)
    figure, grid = canvas(
        4.4 if panels == 1 else 7.0, 3.0 * ((panels + 1) // 2), squeeze=False,
        nrows=(panels + 1) // 2, ncols=min(panels, 2), sharey=True,
    )  # fmt: skip
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    means = [mean for points in curves.values() for _, mean, _ in points]
    for panel, name in zip(axes, varied, strict=False):
        for side, colour, marker in SIDES:
            points = curves[side, name]
            if points:
                _curve(panel, points, colour, marker, side)
                _chosen(panel, arms[side], name, marker)
        values = sorted({v for side in arms for v, _, _ in curves[side, name]})
        if spans_decades(values) or (len(values) > 1 and values[0] > 0):
            panel.set_xscale("log")
            panel.minorticks_off()
        panel.set_xticks(values, [number(value, digits=3) for value in values])
        panel.set_xlabel(label(words(name)) + _at_edges(arms, name))
        panel.grid(axis="y", linewidth=0.5, color=RULE)
    if spans_decades(means):
        logarithmic(axes[0], "y", means)
    split = bench["protocol"]["selected_on"]
    axes[0].set_ylabel(
        quantity_label(f"{split} {bench['metric']['name']}", bench["metric"]["unit"])
    )
    axes[0].legend(loc="best")
    chosen = "; ".join(f"{side} {chosen_text(arm)}" for side, arm in arms.items())
    seeds = len(arms["baseline"]["sweep"][0]["per_seed"])
    return Drawing(
        name="tuning",
        title="Tuning of both arms",
        caption=(
            f"Mean {split} score over {counted(seeds, 'seed')} "
            f"\u00b1 one standard deviation, at the best setting of the other hyperparameters. "
            f"Ringed: chosen. A chosen value at the edge of its grid means that the grid does not "
            f"bracket the optimum. {_parity(bench)}"
        ),
        alternative=f"Chosen: {chosen}.",
        figure=figure,
        table=table(bench, list(arms), "Every configuration that the two arms tried"),
        wide=panels > 1,
    )


def _parity(bench: Mapping[str, Any]) -> str:
    """Say how many trials each arm had, where the arms are few."""
    parity = bench["protocol"]["parity"]
    return str(parity.get("statement", "")) if len(parity["trials"]) <= FEW_ARMS else ""


def varied_in(arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """List the hyperparameters that took several numbers in some arm."""
    names = dict.fromkeys(
        k for arm in arms.values() for trial in arm["sweep"] for k in trial["cfg"]
    )
    seen = {
        name: {
            value
            for arm in arms.values()
            for trial in arm["sweep"]
            if isinstance(value := trial["cfg"].get(name), int | float)
        }
        for name in names
    }
    return [name for name, values in seen.items() if len(values) > 1]


def best_at(
    sweep: Sequence[Mapping[str, Any]], name: str, direction: str
) -> list[tuple[float, float, float]]:
    """Give for each value of a hyperparameter the best mean over the others, and its deviation."""
    sign = 1 if direction == "higher" else -1
    best: dict[float, Mapping[str, Any]] = {}
    for trial in sweep:
        value = trial["cfg"].get(name)
        if value is None or trial["mean"] is None:
            continue
        if value not in best or sign * (trial["mean"] - best[value]["mean"]) > 0:
            best[value] = trial
    return [(v, best[v]["mean"], best[v].get("std") or 0.0) for v in sorted(best)]


def _curve(
    panel: Any, points: Sequence[tuple[float, float, float]], colour: str, marker: str, name: str
) -> None:
    values, means, deviations = zip(*points, strict=True)
    panel.errorbar(
        values, means, yerr=deviations, color=colour, marker=marker, markersize=4.5,
        capsize=2.5, elinewidth=0.9, label=name,
    )  # fmt: skip


def _chosen(panel: Any, arm: Mapping[str, Any], name: str, marker: str) -> None:
    """Ring the chosen configuration."""
    trial = next((each for each in arm["sweep"] if each["selected"]), None)
    if trial is None or trial["mean"] is None or name not in trial["cfg"]:
        return
    panel.plot(
        trial["cfg"][name], trial["mean"], marker=marker, markersize=11, markerfacecolor="none",
        markeredgecolor=INK, markeredgewidth=1.1, linestyle="none",
    )  # fmt: skip


def _at_edges(arms: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Say, in a line of its own, which arms chose which edge of a hyperparameter's grid."""
    sides = {side: arm["edge_of_grid"].get(name) for side, arm in arms.items()}
    found = [
        f"{edge}: {', '.join(side for side in sides if sides[side] == edge)}"
        for edge in ("low", "high")
        if edge in sides.values()
    ]
    return f"\nchosen at the edge, {'; '.join(found)}" if found else ""


def chosen_text(arm: Mapping[str, Any]) -> str:
    """Say what an arm chose, and at which edges of its grid."""
    chosen = ", ".join(f"{words(name)} {number(v)}" for name, v in arm["best_cfg"].items())
    edges = [
        f"{words(name)} at the {side} edge" for name, side in arm["edge_of_grid"].items() if side
    ]
    return chosen + (f" ({', '.join(edges)} of its grid)" if edges else "")


def table(bench: Mapping[str, Any], arms: Sequence[str], caption: str) -> Table:
    """Give every configuration that some arms tried, with the chosen ones and their edges."""
    given = {
        name: bench[name] if name in ("baseline", "idea") else bench["arms"][name] for name in arms
    }
    keys = list(dict.fromkeys(k for arm in given.values() for t in arm["sweep"] for k in t["cfg"]))
    rows = [
        [
            name,
            *(number(trial["cfg"].get(key)) for key in keys),
            number(trial["mean"], missing="diverged"),
            number(trial.get("std")),
            number(_lost(trial)),
            "chosen" if trial["selected"] else "",
            _edges(arm) if trial["selected"] else "",
        ]
        for name, arm in given.items()
        for trial in arm["sweep"]
    ]
    score = f"{bench['protocol']['selected_on']} {bench['metric']['name']}"
    columns = ("arm", *map(words, keys), score, "standard deviation", "diverged", "chosen", "edge")
    return Table(caption, columns, rows)


def chosen_table(bench: Mapping[str, Any]) -> Table:
    """Give what every arm chose."""
    rows = [
        [
            name,
            arm["intervention"],
            chosen_text(arm),
            number(arm["full"]["mean"], missing="diverged"),
            number(arm["full"]["std"]),
            f"{len(arm['full']['diverged'])} of {arm['full']['n']}",
        ]
        for name, arm in bench["arms"].items()
    ]
    score = f"test {bench['metric']['name']}"
    columns = ("arm", "intervention", "chosen", score, "standard deviation", "diverged")
    return Table("Every arm: what was chosen and how it scored", columns, rows)


def _edges(arm: Mapping[str, Any]) -> str:
    return ", ".join(f"{side} {words(name)}" for name, side in arm["edge_of_grid"].items() if side)


def _lost(trial: Mapping[str, Any]) -> Any:
    """Count a trial's diverged runs."""
    lost = trial.get("diverged")
    return len(lost) if isinstance(lost, Sequence) else lost or 0
