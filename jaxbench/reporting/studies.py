"""Many studies side by side: one row each, their p-values corrected as one family, leaderboards."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxbench import storage
from jaxbench.base import JaxbenchError
from jaxbench.counted import counted
from jaxbench.judging import holm
from jaxbench.reporting.schema import check_report
from jaxbench.reporting.terminal import COLOURS, add_row, make_table, number, section


@dataclasses.dataclass(frozen=True)
class Study:
    """The primary comparison of a study.

    Attributes:
        path: of the report, from the folder that was looked through, with forward slashes.
        page: of its page, likewise; None where there is none.
        study, title, run_id: whose it is.
        track, track_options, model: what was trained on what.
        idea, baseline: the interventions of both arms.
        metric, unit, direction: of the score.
        endpoint: what is compared instead of the score, or empty.
        n: number of pairs.
        wins: of them, those that the idea wins.
        idea_mean, idea_std, baseline_mean: the scores; None where a run diverged.
        delta: mean difference, idea minus baseline.
        low, high: its t interval.
        gain: relative improvement over the baseline: positive is better whatever the direction.
        p: before correction; the anytime-valid one where seeds were added on demand.
        p_family: after Holm's correction for all studies in the folder.
        outcome, practical, system, mechanism, mechanism_ok, confidence: the verdict.
        significant: whether `p_family` is at most the study's own alpha.
        seconds: wall time of the whole study.
        date: when it was made, as its ledger says, or empty.
    """

    path: str
    page: str | None
    study: str
    title: str
    run_id: str
    track: str
    track_options: Mapping[str, Any]
    model: str
    idea: str
    baseline: str
    metric: str
    unit: str
    direction: str
    endpoint: str
    n: int
    wins: int
    idea_mean: float | None
    idea_std: float | None
    baseline_mean: float | None
    delta: float | None
    low: float | None
    high: float | None
    gain: float | None
    p: float
    p_family: float
    outcome: str
    practical: str
    system: str
    mechanism: str
    mechanism_ok: int
    confidence: int
    significant: bool
    seconds: float | None
    date: str


@dataclasses.dataclass(frozen=True)
class Leaderboard:
    """Ideas on one track, the best improvement over its own tuned baseline first.

    Attributes:
        track, track_options, metric, unit, direction: what all of them were scored by.
        studies: in order; those whose runs diverged, and so have no mean, come last.
    """

    track: str
    track_options: Mapping[str, Any]
    metric: str
    unit: str
    direction: str
    studies: Sequence[Study]


@dataclasses.dataclass(frozen=True)
class Studies:
    """What a folder holds.

    Attributes:
        folder: which.
        studies: by study and run.
        skipped: {path: why} of files called report.json that are no reports of jaxbench.
    """

    folder: str
    studies: Sequence[Study]
    skipped: Mapping[str, str]

    @property
    def leaderboards(self) -> list[Leaderboard]:
        """One for each track with its options and score."""
        groups: dict[tuple[str, ...], list[Study]] = {}
        for each in self.studies:
            options = json.dumps(each.track_options, sort_keys=True)
            key = (each.track, options, each.endpoint or each.metric, each.direction)
            groups.setdefault(key, []).append(each)
        return [
            Leaderboard(
                track, json.loads(options), metric, group[0].unit, direction,
                sorted(group, key=lambda s: (s.gain is None, -(s.gain or 0.0), s.path)),
            )
            for (track, options, metric, direction), group in sorted(groups.items())
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        return {
            "folder": self.folder,
            "family_size": len(self.studies),
            "studies": [dataclasses.asdict(each) for each in self.studies],
            "leaderboards": [
                {
                    "track": board.track,
                    "track_options": dict(board.track_options),
                    "metric": board.metric,
                    "direction": board.direction,
                    "reports": [each.path for each in board.studies],
                }
                for board in self.leaderboards
            ],
            "skipped": dict(self.skipped),
        }


def collect(folder: str | os.PathLike[str]) -> Studies:
    """Read every report in a folder, and correct their primary p-values as one family.

    Raises:
        JaxbenchError: it is no folder, or holds no report.
    """
    root = Path(folder)
    if not root.is_dir():
        raise JaxbenchError(f"{folder} is no folder; expected one with reports, such as results")
    found, skipped = [], {}
    for file in sorted(root.rglob(storage.REPORT)):
        try:
            report = storage.read_report(file)
            check_report(report)
        except JaxbenchError as error:
            skipped[file.relative_to(root).as_posix()] = str(error)
        else:
            found.append(row_of(root, file, report))
    if not found:
        what = f"; skipped: {', '.join(skipped)}" if skipped else ""
        raise JaxbenchError(f"{folder} holds no {storage.REPORT} of jaxbench{what}")
    corrected = holm([each.p for each, _ in found])
    studies = [
        dataclasses.replace(each, p_family=p, significant=p <= alpha)
        for (each, alpha), p in zip(found, corrected, strict=True)
    ]
    return Studies(str(folder), studies, skipped)


def row_of(root: Path, file: Path, report: Mapping[str, Any]) -> tuple[Study, float]:
    """Read a report's primary comparison, and its alpha."""
    bench = report["bench_report"]
    judged, metric = bench["comparison"], bench["metric"]
    primary: Mapping[str, Any] = next(
        (c for c in bench["comparisons"] if c["role"] == "primary"), {}
    )
    ends = (judged.get("intervals") or {}).get("t") or {}
    relative = (judged.get("effects") or {}).get("relative_change")
    steps, endpoint = judged.get("sequential"), primary.get("endpoint") or ""
    page = file.with_name(storage.PAGE)
    sides = {side: judged.get(side) or bench[side]["full"] for side in ("idea", "baseline")}
    direction = judged.get("direction") or metric["direction"]
    study = Study(
        path=file.relative_to(root).as_posix(),
        page=page.relative_to(root).as_posix() if page.is_file() else None,
        study=bench["study"],
        title=bench["title"],
        run_id=bench["run_id"],
        track=bench["track"],
        track_options=bench["track_options"],
        model=bench["model"],
        idea=bench["idea"]["intervention"],
        baseline=bench["baseline"]["intervention"],
        metric=metric["name"],
        unit=(primary.get("endpoint_unit") or "") if endpoint else metric["unit"],
        direction=direction,
        endpoint=endpoint,
        n=judged["n_pairs"],
        wins=judged["idea_wins"],
        idea_mean=sides["idea"].get("mean"),
        idea_std=sides["idea"].get("std"),
        baseline_mean=sides["baseline"].get("mean"),
        delta=judged["delta_mean"],
        low=ends.get("low"),
        high=ends.get("high"),
        gain=None if relative is None else relative * (1 if direction == "higher" else -1),
        p=steps["p_values"][-1] if steps else judged["p_value"],
        p_family=1.0,
        outcome=judged["outcome"],
        practical=report["practical_verdict"],
        system=report["system_verdict"],
        mechanism=bench["mechanism_signature"]["state"],
        mechanism_ok=report["mechanism_ok"],
        confidence=report["confidence"],
        significant=False,
        seconds=(bench.get("cost") or {}).get("seconds"),
        date=(bench.get("ledger") or {}).get("date", ""),
    )
    return study, bench["protocol"]["alpha"]


def render(studies: Studies, console: Console) -> None:
    """Print all studies, and each track's ideas in order."""
    count = len(studies.studies)
    table = make_table(
        "study", "track", "n", "gain %", "p", f"p of {count}", "outcome", "mechanism"
    )
    for each in studies.studies:
        row = [each.study, each.track, number(each.n), _gain(each), number(each.p)]
        cells = [*row, number(each.p_family), each.outcome, each.mechanism]
        add_row(table, cells, COLOURS.get(each.outcome, ""))
    section(f"{counted(count, 'study', 'studies')} in {studies.folder}", console, table)
    of_all = f"for the primary comparisons of all {count} studies"
    console.print(
        f"gain: improvement of the mean over the tuned baseline; p of {count}: Holm's correction "
        f"{'for the one study' if count == 1 else of_all}."
    )
    for board in studies.leaderboards:
        table = make_table("", "idea", "study", "model", "score", "baseline", "gain %", "outcome")
        for rank, each in enumerate(board.studies, start=1):
            names = [str(rank), each.idea, f"{each.study} (n = {each.n})", each.model]
            scores = [number(each.idea_mean), number(each.baseline_mean), _gain(each)]
            add_row(table, [*names, *scores, each.outcome], COLOURS.get(each.outcome, ""))
        section(f"{board.track}: {board.metric}, {board.direction} is better", console, table)
    for path, why in studies.skipped.items():
        console.print(f"skipped {path}: {why}", style="yellow")


def _gain(study: Study) -> str:
    return "-" if study.gain is None else f"{100 * study.gain:+.3g}"
