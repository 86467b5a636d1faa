"""What a report logs: settings, metrics, text, and one entry for each evaluation run."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SCORE = "test_score"
LABELS = ("practical_verdict", "system_verdict", "mechanism_ok", "worked", "how_to_run")
"""Fields of a report that are logged as text."""
COMPARED = (
    "delta_mean", "p_value", "p_corrected", "mde_80", "idea_wins", "n_pairs", "mechanism_ok",
)  # fmt: skip
"""Numbers of a comparison that are logged."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One evaluation run.

    Attributes:
        arm: its arm.
        seed: its evaluation seed.
        settings: of the arm's chosen configuration, fixed values and options, by dotted name.
        metrics: its test score, and what was measured on it, where these are numbers.
        curves: what was logged each epoch; None where it is no number.
        diverged_at: the step at which it diverged.
    """

    arm: str
    seed: int
    settings: dict[str, Any]
    metrics: dict[str, float]
    curves: dict[str, list[float | None]]
    diverged_at: int | None


def settings(report: Mapping[str, Any]) -> dict[str, Any]:
    """Give the config as run by dotted name, without title and description."""
    config = report["bench_report"]["config"]
    return flattened({k: v for k, v in config.items() if k not in ("title", "description")})


def labels(report: Mapping[str, Any]) -> dict[str, str]:
    """Give what a study is and what came out, as text."""
    bench = report["bench_report"]
    found = {name: str(report[name]) for name in LABELS if name in report}
    found |= {name: str(bench[name]) for name in ("study", "run_id", "track", "model")}
    found["outcome"] = str(bench["comparison"]["outcome"])
    found["mechanism"] = str(bench["mechanism_signature"]["state"])
    return found


def metrics(report: Mapping[str, Any]) -> dict[str, float]:
    """Give the numbers of the whole study: of the primary comparison, others, arms, references."""
    bench = report["bench_report"]
    found: dict[str, Any] = {"confidence": report["confidence"]}
    found |= {name: bench["comparison"].get(name) for name in COMPARED}
    for each in bench.get("comparisons") or ():
        if each.get("role") == "primary":
            continue
        place = f"{each['idea_arm']}_against_{each['baseline_arm']}"
        if each.get("endpoint"):
            place += f".{each['endpoint']}"
        found |= {f"{place}.{name}": each.get(name) for name in COMPARED}
    for name, arm in bench["arms"].items():
        found[f"{name}.{SCORE}.mean"] = arm["full"]["mean"]
        found[f"{name}.{SCORE}.std"] = arm["full"]["std"]
    for name, reference in (bench.get("references") or {}).items():
        found[f"reference.{name}"] = (reference or {}).get("mean")
    return numbers(found)


def entries(report: Mapping[str, Any]) -> Iterator[Entry]:
    """Give every evaluation run of every arm, arm by arm."""
    bench = report["bench_report"]
    for name, arm in bench["arms"].items():
        full = arm["full"]
        seeds = bench["protocol"]["evaluation_seeds"]
        diverged = {each["seed"]: each["step"] for each in full.get("diverged") or ()}
        chosen = flattened({**(arm.get("fixed") or {}), **arm["best_cfg"]})
        chosen |= flattened({"option": arm.get("static") or {}})
        chosen["intervention"] = arm["intervention"]
        for place, (seed, score) in enumerate(zip(seeds, full["per_seed"], strict=False)):
            measured = {
                key: values[place]
                for key, values in (arm.get("measured") or {}).items()
                if isinstance(values, Sequence) and len(values) == len(full["per_seed"])
            }
            yield Entry(
                arm=name,
                seed=seed,
                settings=chosen,
                metrics=numbers({SCORE: score, **measured}),
                curves=_curves(arm.get("curves") or {}, place),
                diverged_at=diverged.get(seed),
            )


def _curves(curves: Mapping[str, Any], place: int) -> dict[str, list[float | None]]:
    """Give the curves of one run, those that are one number an epoch."""
    found = {}
    for name, runs in curves.items():
        values = runs[place] if place < len(runs) else None
        if isinstance(values, list) and all(v is None or _is_number(v) for v in values):
            found[name] = values
    return found


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Keep what is a finite number; a label that is true or false is 1 or 0."""
    return {name: float(value) for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def flattened(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Name nested values by their dotted path; a list is written as JSON."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            found |= flattened(value, f"{name}.")
        elif isinstance(value, list | tuple):
            found[name] = json.dumps(value)
        elif value is not None:
            found[name] = value
    return found
