"""Calibration table: measured false-positive rates and power, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from jaxbench.reporting.terminal import add_row, make_table, number, section


def render(result: Mapping[str, Any], console: Console) -> None:
    """Print what was trained, then every rate with its interval, and the time it took."""
    console.print(Text(f"Calibration of {result['track']}", style="bold"))
    console.print(Text(settings(result)))
    false_positives(result, console)
    power(result, console)
    cost = result["cost"]
    console.print()
    console.print(
        Text(
            f"{cost['runs']} trainings took {cost['wall_seconds']:.0f} s on {cost['cores']} cores, "
            f"{cost['cpu_seconds']:.0f} s of them at work; the machine's load was "
            f"{cost['load_average']:.1f}."
        )
    )


def settings(result: Mapping[str, Any]) -> str:
    """Say what was trained."""
    training, sizes = result["training"], result["sizes"]
    options = ", ".join(f"{name} {value}" for name, value in result["model_options"].items())
    return (
        f"{result['model']} ({options}), {training['epochs']} epochs of Adam with batches of "
        f"{training['batch_size']}, learning rate {result['learning_rate']:g}, or tuned over "
        f"{', '.join(f'{rate:g}' for rate in result['grid'])} on {sizes['tuning_seeds']} seeds; "
        f"{result['pairs']} pairs a study; alpha {result['alpha']:g}; master seed "
        f"{result['master_seed']}."
    )


def rate(value: Mapping[str, Any] | None) -> list[str]:
    """Write a rate in cells: count, share, interval."""
    if value is None:
        return ["none", "-", "-"]
    counted = f"{value['count']} of {value['trials']}"
    return [counted, f"{100 * value['rate']:.2f} %", interval(value)]


def interval(value: Mapping[str, Any]) -> str:
    """Write an interval in per cent."""
    return f"{100 * value['low']:.3g} to {100 * value['high']:.3g} %"


def false_positives(result: Mapping[str, Any], console: Console) -> None:
    """Print the false-positive rates, and every outcome."""
    table = make_table("A/A studies", "better or worse", "rate", "95 % interval", "equivalent")
    rows = {
        "one learning rate": result["fixed"],
        "tuned": result["tuned"]["all"],
        "  both arms chose the same": result["tuned"]["same_choice"],
        "  they chose differently": result["tuned"]["other"],
    }
    for name, row in rows.items():
        equivalent = number(row["outcomes"]["equivalent"])
        add_row(table, [name, *rate(row["false_positives"]), equivalent])
    steps = result["sequential"]
    for name, watched in (("simulated", steps["simulated"]), ("as trained", steps["measured"])):
        if watched:
            cells = [f"sequences to {steps['max_pairs']} seeds, {name}", *rate(watched["decided"])]
            add_row(table, [*cells, "-"])
    section(
        f"False positives (attainable level at {result['pairs']} pairs: "
        f"{100 * result['attainable_level']:.4g} %)",
        console,
        table,
    )
    chosen = [rate for study in result["scores"]["chosen"] for rate in study]
    counts = ", ".join(f"{rate:g} by {chosen.count(rate)}" for rate in sorted(set(chosen)))
    console.print(Text(f"Of the {len(chosen)} tuned arms the learning rate was {counts}."))
    if result["diverged"]:
        console.print(Text(f"{result['diverged']} of the runs at one learning rate diverged."))
    if result["tuned"]["other"]["false_positives"]:
        console.print(
            Text(
                "Arms that chose different learning rates do differ on the test split: what their "
                "studies find is the luck of tuning, which a study cannot tell from merit."
            )
        )


def power(result: Mapping[str, Any], console: Console) -> None:
    """Print how often a known effect is found, and how many seeds the sequential test takes."""
    steps = result["sequential"]
    table = make_table(
        "effect (paired sd)", f"found with {result['pairs']} pairs", "95 % interval",
        "t test, normal", "sequential", "its mean seeds",
    )  # fmt: skip
    for fixed, watched in zip(result["power"], steps["power"], strict=True):
        add_row(
            table,
            [
                number(fixed["shift"]),
                f"{100 * fixed['power']['rate']:.1f} %",
                interval(fixed["power"]),
                f"{100 * fixed['expected']:.1f} %",
                f"{100 * watched['decided']['rate']:.1f} %",
                f"{watched['mean_seeds']:.1f}",
            ],
        )
    section("Power", console, table)
    effect = result["planted"]
    console.print(
        Text(
            f"A learning rate of {result['planted_learning_rate']:g}, an effect of "
            f"{effect['effect']:+.3g} paired standard deviations, was found in "
            f"{effect['power']['count']} of {effect['power']['trials']} studies "
            f"({interval(effect['power'])})."
        )
    )
