"""A report as tables for people: colours on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 100
MANY_ARMS = 4
COLOURS = {
    "helps": "green", "better": "green", "worked": "green", "confirmed": "green",
    "harms": "red", "worse": "red", "failed": "red", "refuted": "red",
}  # fmt: skip


def console_for(stream: TextIO) -> Console:
    """Make a console that takes no text for markup; off a terminal it is 100 columns wide."""
    plain = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(
        file=stream, markup=False, emoji=False, highlight=False,
        width=PLAIN_WIDTH if plain else None,
    )  # fmt: skip


def number(value: Any, *, signed: bool = False, missing: str = "-") -> str:
    """Write a number with four significant digits, and None as `missing`."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) < 10**7:
        return f"{value:+d}" if signed else str(value)
    if isinstance(value, int | float):
        return f"{value:+.4g}" if signed else f"{value:.4g}"
    return str(value)


def render(report: Mapping[str, Any], console: Console) -> None:
    """Print a report: the verdict first, then what it rests on."""
    bench = report["bench_report"]
    headline(report, console)
    tuning(bench, console)
    pairs(bench, console)
    comparison(bench, console)
    sequence(bench, console)
    others(bench, console)
    looks(bench.get("ledger"), console)
    references(bench, console)
    signatures(bench.get("mechanism_signature", {}), console)
    measured(bench, console)
    cost(bench, console)
    compact(bench, console)
    gradients(bench, console)
    section("Limitations", console)
    console.print(Text(report["limitations"]))
    section("Again", console)
    console.print(Text(report["how_to_run"]), soft_wrap=True)


# --------------------------------------------------------------------------------------------------
# Sections
# --------------------------------------------------------------------------------------------------


def headline(report: Mapping[str, Any], console: Console) -> None:
    """Print the title, the verdict in one sentence, and the labels."""
    bench = report["bench_report"]
    practical = report["practical_verdict"]
    console.print(Text(bench.get("title") or bench["study"], style="bold"))
    console.print(Text(report["verdict"], style=COLOURS.get(practical, "yellow")))
    labels = {
        "in practice": practical,
        "mechanism": "shown" if report["mechanism_ok"] else "not shown",
        "both together": report["system_verdict"],
        "confidence in the outcome": f"{report['confidence']} of 10",
    }
    console.print(Text("; ".join(f"{name}: {value}" for name, value in labels.items())))


def tuning(bench: Mapping[str, Any], console: Console) -> None:
    """Print every configuration that each arm tried, with the chosen ones and their edges.

    They are sorted by their values; those that parity added say so.  Of more than four arms, only
    what was chosen.
    """
    arms = bench["arms"]
    split = bench["protocol"]["selected_on"]
    tried = [trial["cfg"] for arm in arms.values() for trial in arm["sweep"]]
    varied = [name for name in _keys(tried) if len({repr(c.get(name)) for c in tried}) > 1]
    varied = varied or _keys(tried)
    table = make_table(
        "arm", *varied, f"{split} {bench['metric']['name']}", "std", "diverged", "", "edge"
    )
    filled = bench["protocol"]["parity"].get("added") or {}
    for name, arm in arms.items():
        sides = arm.get("edge_of_grid", {}).items()
        edges = ", ".join(f"{side} {key}" for key, side in sides if side)
        for trial in sorted(arm["sweep"], key=lambda trial: _order(trial["cfg"], varied)):
            chosen = trial["selected"]
            if len(arms) > MANY_ARMS and not chosen:
                continue
            added = "added" if trial["cfg"] in filled.get(name, ()) else ""
            notes = ", ".join(filter(None, ("chosen" if chosen else "", added)))
            marks = [notes, edges if chosen else ""]
            cells = [number(trial["cfg"].get(key)) for key in varied]
            lost = trial.get("diverged")
            lost = len(lost) if isinstance(lost, Sequence) else lost or 0
            row = [name, *cells, number(trial["mean"]), number(trial.get("std")), number(lost)]
            add_row(table, [*row, *marks], "bold" if chosen else "")
    section("Tuning", console, table)
    if any(filled.values()):
        console.print(
            Text("added: not asked for in the config, so that every arm tries equally many.")
        )
    if bench["protocol"].get("asymmetric"):
        console.print(Text("The arms were selected by different rules (protocol v1).", "yellow"))


def pairs(bench: Mapping[str, Any], console: Console) -> None:
    """Print the primary comparison's scores of each seed."""
    metric = bench["metric"]
    unit = f" ({metric['unit']})" if metric["unit"] else ""
    judged = bench["comparison"]
    table = make_table("seed", "baseline", "idea", "idea - baseline")
    baseline, idea = bench["baseline"]["full"], bench["idea"]["full"]
    rows = zip(
        bench["protocol"]["evaluation_seeds"], baseline["per_seed"], idea["per_seed"],
        judged["per_seed_diffs"], strict=False,
    )  # fmt: skip
    for seed, base, other, difference in rows:
        scores = [number(score, missing="diverged") for score in (base, other)]
        add_row(table, [str(seed), *scores, number(difference, signed=True)])
    delta = number(judged["delta_mean"], signed=True)
    means = [number(baseline["mean"]), number(idea["mean"]), delta]
    add_row(table, ["mean", *means], "bold")
    add_row(table, ["std", number(baseline["std"]), number(idea["std"]), ""])
    section(f"Test {metric['name']}{unit}, {bench['metric_direction']}", console, table)


def comparison(bench: Mapping[str, Any], console: Console) -> None:
    """Print what the primary comparison says, number by number."""
    judged = bench["comparison"]
    effects = judged.get("effects") or {}
    intervals = judged.get("intervals") or {}
    tost = judged.get("tost") or {}
    relative = effects.get("relative_change")
    change = f" ({100 * relative:+.3g} % of the baseline)" if relative is not None else ""
    wins = f"{judged['idea_wins']} of {judged['n_pairs']} pairs, {judged.get('ties', 0)} ties"
    kind = "exact" if judged.get("p_value_exact", True) else "Monte Carlo"
    family = judged.get("family_size", 1)
    margin = number(judged.get("margin"))
    steps = judged.get("sequential")
    fixed = ", not valid here" if steps else ""
    rows = {
        "outcome": judged.get("outcome"),
        "difference": number(judged["delta_mean"], signed=True) + change,
        "idea wins": wins,
        "interval (t)": _interval(intervals.get("t")),
        "interval (sign flips)": _interval(intervals.get("sign_flip")),
        "p (anytime-valid, makes the verdict)": number(steps and steps["p_values"][-1]),
        f"p ({kind} {judged.get('test', 'sign flips')}{fixed})": number(judged["p_value"]),
        f"p corrected ({family} in the family)": number(judged.get("p_corrected")),
        "smallest attainable p": number(judged.get("attainable_p")),
        "detectable (half-width)": number(judged.get("mde")),
        "detectable (80 % power)": number(judged.get("mde_80")),
        f"p of equivalence (margin {margin})": number(tost.get("p_value")),
        "label of the first reports": judged["verdict"],
    }
    table = Table(box=SIMPLE, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value not in (None, "-"):
            add_row(table, [name, str(value)], COLOURS.get(str(value), ""))
    section("Comparison", console, table)
    for sentence in judged.get("warnings", ()):
        console.print(Text(f"Note: {sentence}", style="yellow"))


def sequence(bench: Mapping[str, Any], console: Console) -> None:
    """Print the sequential test at each look, where seeds were added until it decides."""
    used, steps = bench["protocol"].get("sequential"), bench["comparison"].get("sequential")
    if not used or not steps:
        return
    table = make_table("seeds", "e-value", "anytime-valid p")
    for seeds in used["looks"]:
        cells = [number(steps[name][seeds - 1]) for name in ("e_values", "p_values")]
        add_row(table, [str(seeds), *cells])
    section("Seeds until decided", console, table)
    console.print(Text(used["statement"]))


def others(bench: Mapping[str, Any], console: Console) -> None:
    """Print all comparisons, where there are several: one row each, with its mechanism's state."""
    listed = bench.get("comparisons", ())
    if len(listed) < 2:
        return
    family = sum(each["role"] != "control" for each in listed)
    arms, names = named(listed)
    table = make_table(
        "role", arms, "difference", "%", "wins", "p", f"p of {family}", "outcome", "mechanism"
    )
    for each, name in zip(listed, names, strict=True):
        change = (each.get("effects") or {}).get("relative_change")
        own = bench if each["role"] == "primary" else each
        outcome = str(each.get("outcome", ""))
        row = [
            each["role"],
            name,
            number(each["delta_mean"], signed=True),
            "-" if change is None else f"{100 * change:+.3g}",
            f"{each['idea_wins']}/{each['n_pairs']}",
            number(each["p_value"]),
            "-" if each["role"] == "control" else number(each.get("p_corrected")),
            outcome,
            (own.get("mechanism_signature") or {}).get("state", "-"),
        ]
        add_row(table, row, COLOURS.get(outcome, ""))
    section("All comparisons", console, table)
    console.print(
        Text(
            f"p of {family}: Holm's correction for the primary and secondary comparisons; a "
            f"control is not among them, and can only weaken the mechanism."
        )
    )


def named(comparisons: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Name each comparison, under a heading: by its arms, or in a sweep by its point alone."""
    pairs = [(str(c.get("idea_arm", "")), str(c.get("baseline_arm", ""))) for c in comparisons]
    parts = [[side.partition(".") for side in pair] for pair in pairs]
    stems = {(idea[0], baseline[0]) for idea, baseline in parts}
    scores_only = not any(each.get("endpoint") for each in comparisons)
    if (
        scores_only
        and len(stems) == 1
        and all(idea[2] and idea[2] == baseline[2] for idea, baseline in parts)
    ):
        ((idea, baseline),) = stems
        return f"{idea} - {baseline} at", [each[0][2] for each in parts]
    by = [f" by {each['endpoint']}" if each.get("endpoint") else "" for each in comparisons]
    return "idea - baseline", [f"{i} - {b}{end}" for (i, b), end in zip(pairs, by, strict=True)]


def looks(ledger: Mapping[str, Any] | None, console: Console) -> None:
    """Print how often each baseline was compared with, and the p-values corrected for that."""
    if not ledger:
        return
    table = make_table("idea", "baseline", "looks so far", "p", "p corrected for all looks")
    for each in ledger["comparisons"]:
        by = f" by {each['endpoint']}" if each.get("endpoint") else ""
        names = [each["idea_arm"], f"{each['baseline_arm']}{by}"]
        add_row(table, [*names, *(number(each[name]) for name in ("looks", "p", "p_corrected"))])
    section(f"Looks at the baseline ({ledger['file']} of the results folder)", console, table)


def references(bench: Mapping[str, Any], console: Console) -> None:
    """Print what methods without a network score on the same data."""
    table = make_table("reference", "mean", "std")
    for name, scores in bench.get("references", {}).items():
        add_row(table, [name, number(scores.get("mean")), number(scores.get("std"))])
    if table.row_count:
        section("Reference scores", console, table)


def signatures(mechanism: Mapping[str, Any], console: Console) -> None:
    """Print each prediction of the explanation against what was measured, null and controls too."""
    for signature in mechanism.get("signatures", ()):
        state = signature["state"]
        if state is None:
            held = "held" if signature.get("confirmed_legacy") else "did not hold"
            state = f"the first reports' rule, which {held} and decides nothing"
        section(f"Signature {signature['name']}: {state}", console)
        for part in ("claim", "formula"):
            console.print(Text(signature.get(part) or "-"))
        if signature.get("reason"):
            console.print(Text(signature["reason"], style=COLOURS.get(state, "")))
        null = {f"null ({signature.get('null_name') or 'none named'})": signature.get("null")}
        controls = {f"control {k}": v for k, v in (signature.get("controls") or {}).items()}
        findings = {"idea": signature.get("subject"), **null, **controls}
        table = make_table("tested on", "passes", "error", "because")
        for name, finding in findings.items():
            if finding:
                passed = number(finding.get("passed"), missing="untestable")
                error = number(finding.get("error"))
                add_row(table, [name, passed, error, finding.get("reason", "")])
        if table.row_count:
            console.print(table)
        if signature.get("skill") is not None:
            console.print(Text(f"Skill against the null: {number(signature['skill'])}"))


def measured(bench: Mapping[str, Any], console: Console) -> None:
    """Print the mean over seeds of every scalar that was measured of trained networks."""
    arms = {name: arm.get("measured") or {} for name, arm in bench["arms"].items()}
    arms = {name: table for name, table in arms.items() if table}
    table = make_table("mean of", *arms)
    for key in _keys(arms.values()):
        known = [[v for v in values.get(key, ()) if v is not None] for values in arms.values()]
        add_row(table, [key, *(number(sum(v) / len(v) if v else None) for v in known)])
    if table.row_count:
        section("Measured", console, table)


def cost(bench: Mapping[str, Any], console: Console) -> None:
    """Print what each arm and the whole study cost; of more than four arms, the study alone."""
    columns = {name: arm.get("cost", {}) for name, arm in bench["arms"].items()}
    if len(columns) > MANY_ARMS:
        columns = {}
    columns["whole study"] = bench.get("cost", {})
    table = make_table("cost", *columns)
    for key in _keys(columns.values()):
        values = [column.get(key) for column in columns.values()]
        if not any(isinstance(value, Mapping | list) for value in values):
            add_row(table, [key.replace("_", " "), *map(number, values)])
    if table.row_count:
        section("Cost", console, table)
        if "compile_wait_seconds" in columns["whole study"]:
            console.print(
                Text(
                    "Compile seconds are the sum over programs, which compile two at a time beside "
                    "training; compile wait seconds are what training stood still for."
                )
            )


def compact(bench: Mapping[str, Any], console: Console) -> None:
    """Print what the smaller network saves, where the idea leaves one."""
    table = make_table("units", "left", "batch", "parameters", "flops", "seconds", "ratio")
    for row in bench.get("cost", {}).get("compact") or ():
        units, left = (", ".join(map(str, row[key].values())) for key in ("units", "units_left"))
        pairs = [f"{number(a)} to {number(b)}" for a, b in (row["parameters"], row["flops"])]
        seconds = " to ".join(map(number, row["seconds"])) if row["seconds"] else row["left_out"]
        add_row(table, [units, left, str(row["batch"]), *pairs, seconds, number(row["ratio"])])
    if table.row_count:
        section("The smaller network against the dense one", console, table)


def gradients(bench: Mapping[str, Any], console: Console) -> None:
    """Print what ways to keep states cost, where the idea is about backward passes."""
    table = make_table("states", "steps", "temporary bytes", "ratio", "seconds", "ratio")
    for row in bench.get("cost", {}).get("gradients") or ():
        costs = ("temporary_bytes", "memory_ratio", "seconds", "time_ratio")
        add_row(table, [row["method"], str(row["length"]), *(number(row[key]) for key in costs)])
    if table.row_count:
        section("A gradient's memory and time, by how states are kept", console, table)


# --------------------------------------------------------------------------------------------------
# Pieces
# --------------------------------------------------------------------------------------------------


def section(title: str, console: Console, table: Table | None = None) -> None:
    """Print a heading, and the table under it."""
    console.print()
    console.print(Text(title, style="bold underline"))
    if table is not None:
        console.print(table)


def make_table(*headings: str) -> Table:
    """Make a table without columns that cut numbers off."""
    table = Table(box=SIMPLE, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    return table


def add_row(table: Table, cells: Iterable[str], style: str = "") -> None:
    """Add a row of text, none of which is markup."""
    table.add_row(*(Text(cell) for cell in cells), style=style or None)


def _keys(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """List every key of the tables once, in order of appearance."""
    return list(dict.fromkeys(key for table in tables for key in table))


def _order(configuration: Mapping[str, Any], names: Iterable[str]) -> list[tuple[int, float, str]]:
    """Give a key that sorts configurations by these hyperparameters, numbers before words."""
    values = [configuration.get(name) for name in names]
    return [
        (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))
        for value in values
    ]


def _interval(interval: Mapping[str, Any] | None) -> str:
    """Write an interval."""
    if not interval:
        return "-"
    if interval["low"] is None and interval["high"] is None:
        return f"too few pairs for a bounded one at {100 * interval['confidence']:.3g} %"
    low, high = (number(interval[end], signed=True, missing="unbounded") for end in ("low", "high"))
    return f"{low} to {high} ({100 * interval['confidence']:.3g} %)"
