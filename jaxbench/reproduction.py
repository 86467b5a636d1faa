"""A report run again from its own config: what became of its scores and labels, and of the rest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxbench import config
from jaxbench.base import JaxbenchError, Progress
from jaxbench.config import Config
from jaxbench.registry import is_path
from jaxbench.reporting.agreement import Agreement, agreements


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A report and what came when it was run again.

    Attributes:
        report: the new one.
        found: one entry a comparison of the old one.
        surroundings: what of its provenance is another now: {what: (then, now)}.
    """

    report: Mapping[str, Any]
    found: Sequence[Agreement]
    surroundings: Mapping[str, tuple[Any, Any]]

    @property
    def agrees(self) -> bool:
        """Whether every comparison agrees."""
        return all(each.agrees for each in self.found)

    @property
    def exact(self) -> bool:
        """Whether every score is the same to the bit."""
        return all(each.exact for each in self.found)

    @property
    def summary(self) -> str:
        """One sentence."""
        if self.exact and self.agrees:
            return "Every score is the same to the bit, and every label is the same."
        if self.agrees:
            return "Every label is the same; scores differ by less than the paired spread allows."
        lost = sum(not each.agrees for each in self.found)
        return f"{lost} of {len(self.found)} comparisons do not agree."

    def to_dict(self) -> dict[str, Any]:
        """Give everything but the new report as strict JSON."""
        from jaxbench.judging import strict_json

        found = [
            {**dataclasses.asdict(each), "exact": each.exact, "agrees": each.agrees}
            for each in self.found
        ]
        numbers: dict[str, Any] = strict_json(
            {
                "agrees": self.agrees,
                "exact": self.exact,
                "summary": self.summary,
                "comparisons": found,
                "surroundings": {key: list(pair) for key, pair in self.surroundings.items()},
                "run_id": self.report["bench_report"]["run_id"],
            }
        )
        return numbers


def config_as_run(report: Mapping[str, Any], folder: str | os.PathLike[str] = ".") -> Config:
    """Load the config that a report was made with.

    Args:
        report: as `report.json` has it.
        folder: where the Python files lie that its config names by path.

    Raises:
        JaxbenchError: it is no report of jaxbench, or its config does not load any more.
    """
    bench = report.get("bench_report")
    document = bench.get("config") if isinstance(bench, Mapping) else None
    if not isinstance(document, Mapping):
        raise JaxbenchError(
            "the report has no bench_report.config, so that it cannot be run again; expected a "
            "report.json that `jaxbench run` wrote"
        )
    absent = files_not_in(document, Path(folder))
    if absent:
        raise JaxbenchError(
            f"the report's config names {', '.join(absent)}, which {Path(folder).resolve()} has "
            "not; run this in the folder of the study's config, or name that with --folder"
        )
    return config.from_run(document, Path(folder))


def files_not_in(document: Mapping[str, Any], folder: Path) -> list[str]:
    """List the Python files that a config names as components and that cannot be found.

    Args:
        document: a config as run.
        folder: to which they are relative; the working directory is next.
    """
    arms = [each for each in _table(document, "arms").values() if isinstance(each, Mapping)]
    choices = [_table(each, key) for each in (document, *arms) for key in ("track", "model")]
    names = [each.get("name") for each in choices] + [each.get("intervention") for each in arms]
    paths = [name for name in dict.fromkeys(names) if isinstance(name, str) and is_path(name)]
    return [
        name
        for name in paths
        if not any((each / Path(name).expanduser()).is_file() for each in (folder, Path()))
    ]


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def run_again(
    report: Mapping[str, Any],
    folder: str | os.PathLike[str] = ".",
    *,
    progress: Progress | None = None,
) -> Reproduction:
    """Run a report's config again and compare.

    Args:
        report: as `report.json` has it.
        folder: where the Python files lie that its config names by path.
        progress: whom to tell how far it is.

    Raises:
        JaxbenchError: as `config_as_run`, or the study fails.
    """
    loaded = config_as_run(report, folder)
    from jaxbench.study import run_study

    new = run_study(loaded, progress=progress or Progress())
    return Reproduction(new, agreements(report, new), surroundings(report, new))


def surroundings(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name what is another now of the provenance: versions, devices, flags, sources, data."""

    def gathered(report: Mapping[str, Any]) -> dict[str, Any]:
        bench = report["bench_report"]
        pairing = bench.get("pairing") or {}
        flat = flattened(bench.get("provenance") or {})
        return {**flat, **flattened({"digests": pairing.get("digests")})}

    before, after = gathered(then), gathered(now)
    return {
        name: (before[name], after[name])
        for name in before.keys() & after.keys()
        if before[name] != after[name]
    }


def flattened(value: Any, name: str = "") -> dict[str, Any]:
    """Name every value of nested tables by its dotted key."""
    if not isinstance(value, Mapping) or not value:
        return {name: value}
    return {
        key: inner
        for part, below in value.items()
        for key, inner in flattened(below, f"{name}.{part}" if name else part).items()
    }


def lines(found: Sequence[Agreement]) -> list[str]:
    """Write one row a comparison under a heading, and every label that changed."""
    header = ("comparison", "scores", "drift / spread", "p then", "p now", "agrees")
    rows: list[tuple[str, ...]] = [header]
    for each in found:
        scores = "exact" if each.exact else f"within {each.relative:.2g}"
        drift = "-" if each.drift == 0 else f"{each.drift:.2g}"
        p_values = [f"{p:.4g}" for p in each.p_values]
        rows.append((each.names, scores, drift, *p_values, "yes" if each.agrees else "NO"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    table = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    changed = [
        f"{each.names}: {what} was {then}, is {now}"
        for each in found
        for what, (then, now) in each.changed.items()
    ]
    return table + changed
