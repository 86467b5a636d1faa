"""What became of the studies of a sweep, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxbench.counted import counted
from jaxbench.reporting import strict_json
from jaxbench.reporting.terminal import COLOURS, number

if TYPE_CHECKING:
    from jaxbench.studies import Outcome

STATES = {
    "done": "",
    "skipped": "report was there",
    "failed": "FAILED",
    "refused": "config refused",
}


def render(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print a table of verdicts, then what failed and why."""
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for name in ("study", "run id", "in practice", "mechanism", "difference", "p", "time", ""):
        right = name in ("difference", "p", "time")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for outcome in outcomes:
        row = outcome.to_dict()
        verdict = row["practical_verdict"] or "-"
        mechanism = {True: "shown", False: "not shown", None: "-"}[row["mechanism_ok"]]
        seconds = f"{outcome.seconds:.0f} s" if outcome.state == "done" else "-"
        table.add_row(
            Text(outcome.study),
            Text(outcome.run_id or "-"),
            Text(verdict, style=COLOURS.get(verdict, "")),
            mechanism,
            number(row["delta_mean"], signed=True),
            number(row["p_value"]),
            seconds,
            Text(STATES[outcome.state], style="red" if outcome.error else ""),
        )
    console.print(table)
    for outcome in outcomes:
        if outcome.error is not None:
            console.print(Text(f"{outcome.study}: {outcome.error}", style="red"), soft_wrap=True)
    console.print(Text(summary(outcomes)))


def summary(outcomes: Sequence[Outcome]) -> str:
    """Count what became of the studies, in words."""
    counts = {state: sum(each.state == state for each in outcomes) for state in STATES}
    words = {
        "done": "run",
        "skipped": "not run again, because their reports were there",
        "failed": "failed",
        "refused": "refused for their config",
    }
    said = [f"{counts[state]} {words[state]}" for state in STATES if counts[state]]
    return f"{counted(len(outcomes), 'study', 'studies')}: {', '.join(said) or 'none to run'}"


def sentence(outcome: Outcome, place: int, total: int) -> str:
    """Say in a line what became of a study."""
    what = outcome.error or f"{(outcome.report or {}).get('practical_verdict')} in practice"
    where = f" on {outcome.node}" if outcome.node else ""
    return f"{place}/{total} {outcome.study}: {outcome.state}{where}, {what}"


def print_json(outcomes: Sequence[Outcome], shard: tuple[int, int] | None) -> None:
    """Print strict JSON on stdout: what became of each study."""
    document: dict[str, Any] = {
        "studies": [outcome.to_dict() for outcome in outcomes],
        "shard": None if shard is None else {"index": shard[0], "count": shard[1]},
    }
    click.echo(strict_json.dumps(document), nl=False)
