"""Tables of a report's page that stand behind no figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jaxbench.reporting.html.drawing import Table
from jaxbench.reporting.html.quantities import (
    MISSING,
    THIN,
    data_size,
    duration,
    number,
    words,
)

FEW_ARMS = 4


def looks(bench: Mapping[str, Any]) -> Table | None:
    """Give how often each baseline was compared with, and the p-values corrected for that."""
    ledger = bench.get("ledger")
    if not ledger:
        return None
    rows = [
        [
            each["idea_arm"],
            each["baseline_arm"] + (f" by {each['endpoint']}" if each.get("endpoint") else ""),
            number(each["looks"]),
            number(each["p"]),
            number(each["p_corrected"]),
        ]
        for each in ledger["comparisons"]
    ]
    columns = ("idea", "baseline", "looks so far", "p", "p corrected for all looks")
    return Table(f"Looks at the baseline, by {ledger['file']} of the results folder", columns, rows)


def sequence(bench: Mapping[str, Any]) -> Table | None:
    """Give the sequential test at each look, where seeds were added until it decides."""
    used, steps = bench["protocol"].get("sequential"), bench["comparison"].get("sequential")
    if not used or not steps:
        return None
    rows = [
        [str(seeds), *(number(steps[name][seeds - 1]) for name in ("e_values", "p_values"))]
        for seeds in used["looks"]
    ]
    return Table("Seeds until decided", ("seeds", "e-value", "anytime-valid p"), rows)


def measured(bench: Mapping[str, Any]) -> Table | None:
    """Give the mean over seeds of every scalar that was measured of trained networks."""
    arms = {name: arm.get("measured") or {} for name, arm in bench["arms"].items()}
    arms = {name: scalars for name, scalars in arms.items() if scalars}
    keys = dict.fromkeys(key for scalars in arms.values() for key in scalars)
    if not keys:
        return None
    rows = []
    for key in keys:
        known = [[v for v in scalars.get(key, ()) if v is not None] for scalars in arms.values()]
        rows.append([words(key), *(number(sum(v) / len(v) if v else None) for v in known)])
    return Table("Means over the evaluation seeds", ("quantity", *arms), rows)


def references(bench: Mapping[str, Any]) -> Table | None:
    """Give what methods without a network score on the same data, and both arms."""
    scores = bench.get("references") or {}
    if not scores:
        return None
    rows = [
        [name, number(each.get("mean")), number(each.get("std"))] for name, each in scores.items()
    ]
    rows += [
        [f"{side} (trained)", *(number(bench[side]["full"][part]) for part in ("mean", "std"))]
        for side in ("baseline", "idea")
    ]
    metric = bench["metric"]
    unit = f" ({metric['unit']})" if metric["unit"] else ""
    caption = f"Test {metric['name']}{unit} on the same data; {bench['metric_direction']}"
    return Table(caption, ("method", "mean", "standard deviation"), rows)


COSTS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "runs": ("trainings", number),
    "optimizer_steps": ("optimizer steps", number),
    "model_flops": ("floating-point operations", number),
    "compile_seconds": ("time to compile", duration),
    "run_seconds": ("time to run", duration),
    "temporary_bytes": ("temporary memory of a program", data_size),
    "seconds": ("wall time", duration),
    "host_bytes": ("peak memory, host", data_size),
    "device_bytes": ("peak memory, device", data_size),
}
"""Costs in words, and how each is written; what is not listed is written as a number."""


def cost(bench: Mapping[str, Any]) -> Table | None:
    """Give what each arm and the whole study cost; of more than four arms, the primary's two."""
    arms = bench["arms"]
    if len(arms) > FEW_ARMS:
        arms = {side: bench[side] for side in ("baseline", "idea")}
    study = dict(bench.get("cost") or {})
    peak = study.pop("peak_bytes", None) or {}
    study |= {f"{place}_bytes": count for place, count in peak.items()}
    columns = {name: arm.get("cost") or {} for name, arm in arms.items()} | {"whole study": study}
    rows = []
    for key in dict.fromkeys(key for column in columns.values() for key in column):
        values = [column.get(key) for column in columns.values()]
        plain = not any(isinstance(value, Mapping | list) for value in values)
        if plain and any(value is not None for value in values):
            name, written = COSTS.get(key, (words(key), number))
            rows.append([name, *(MISSING if v is None else written(v) for v in values)])
    return Table("Cost", ("", *columns), rows) if rows else None


def compact(bench: Mapping[str, Any]) -> Table | None:
    """Give what the smaller network saves, where the idea leaves one."""
    rows = []
    for row in (bench.get("cost") or {}).get("compact") or ():
        units, left = (", ".join(map(str, row[key].values())) for key in ("units", "units_left"))
        pairs = [f"{number(a)} to {number(b)}" for a, b in (row["parameters"], row["flops"])]
        seconds = " to ".join(map(number, row["seconds"])) if row["seconds"] else row["left_out"]
        rows.append([units, left, str(row["batch"]), *pairs, seconds, number(row["ratio"])])
    columns = ("units", "left", "batch", "parameters", "operations", "seconds", "ratio of times")
    return Table("The smaller network against the dense one", columns, rows) if rows else None


def gradients(bench: Mapping[str, Any]) -> Table | None:
    """Give what ways to keep states cost, where the idea is about backward passes."""
    rows = [
        [
            row["method"],
            str(row["length"]),
            data_size(row["temporary_bytes"]),
            number(row["memory_ratio"]),
            number(row["seconds"]),
            number(row["time_ratio"]),
        ]
        for row in (bench.get("cost") or {}).get("gradients") or ()
    ]
    columns = ("states", "steps", "temporary memory", "ratio", "seconds", "ratio of times")
    return (
        Table("A gradient's memory and time, by how states are kept", columns, rows)
        if rows
        else None
    )


def programs(bench: Mapping[str, Any]) -> Table | None:
    """Give the compiled programs, group by group."""
    rows = [
        [
            str(group.get("group", MISSING)),
            program["name"],
            number(program.get("calls")),
            duration(program.get("compile_seconds")),
            duration(program.get("run_seconds")),
            data_size(program.get("temporary_bytes")),
        ]
        for group in bench.get("programs") or ()
        for program in group.get("programs") or ()
    ]
    columns = ("group", "program", "calls", "to compile", "to run", "temporary memory")
    return Table("Compiled programs", columns, rows) if rows else None


def versions(bench: Mapping[str, Any]) -> Table:
    """Give the versions of what decides the numbers."""
    found = bench["provenance"].get("versions") or {}
    return Table("Versions", ("package", "version"), [[str(k), str(v)] for k, v in found.items()])


def provenance(bench: Mapping[str, Any]) -> Table:
    """Give all else that is known of how the report was made."""
    pairing = bench.get("pairing") or {}
    rows = [
        ["study", bench["study"]],
        ["run", bench["run_id"]],
        ["digest of the config", bench.get("config_digest", MISSING)],
        ["track", _named(bench["track"], bench["track_options"])],
        ["model", _named(bench["model"], bench["model_options"])],
        ["tuning seeds", _seeds(bench["protocol"]["tuning_seeds"])],
        ["evaluation seeds", _seeds(bench["protocol"]["evaluation_seeds"])],
        ["rules", bench["protocol"]["rules"]],
        ["arms had the same data", number(pairing.get("same_data"))],
        ["arms began with the same weights", number(pairing.get("same_initial_parameters"))],
    ]
    rows += [
        [words(name), _value(value)]
        for name, value in bench["provenance"].items()
        if name != "versions"
    ]
    if bench.get("ledger"):
        rows.append(["date", bench["ledger"]["date"]])
    for arm, digests in (pairing.get("digests") or {}).items():
        if arm in (bench["comparison"].get("idea_arm"), bench["comparison"].get("baseline_arm")):
            rows += [
                [f"digest of {words(what)}, {arm}", digest] for what, digest in digests.items()
            ]
    return Table("Provenance", ("what", "value"), [[str(k), str(v)] for k, v in rows])


def config_text(bench: Mapping[str, Any]) -> str:
    """Write the config as it was run, as JSON."""
    return json.dumps(bench["config"], indent=2, ensure_ascii=False)


def _named(name: str, options: Mapping[str, Any]) -> str:
    told = ", ".join(f"{words(k)} {_value(v)}" for k, v in options.items())
    return f"{name} ({told})" if told else name


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{words(str(k))} {_value(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return number(value) if value not in ("",) else MISSING


def _seeds(seeds: list[int]) -> str:
    """Write seeds as ranges, such as 0 to 15."""
    if not seeds:
        return "none"
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return f",{THIN}".join(map(str, seeds))
