"""One idea on many tracks: a row each, their primary comparisons corrected as one family."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxbench.counted import counted
from jaxbench.judging import holm
from jaxbench.reporting.studies import Study, row_of
from jaxbench.reporting.terminal import COLOURS, add_row, make_table, number, section

if TYPE_CHECKING:
    from rich.console import Console

    from jaxbench.track_runs import OnTrack


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of an idea on one track.

    Attributes:
        label: of the track.
        state: `judged`; `failed`; or why there is no study: `refused`, `unavailable`.
        reason: why the track fits, why not, or what to do.
        error: what failed, if anything did, such as training, or the ledger of a judged study.
        result: its primary comparison; `p_family` is corrected over the tracks, its `outcome` is
            that of the study alone.
    """

    label: str
    state: str
    reason: str
    error: str | None = None
    result: Study | None = None

    @property
    def outcome(self) -> str:
        """The outcome by the corrected p: a difference that is not significant is undecided."""
        assert self.result is not None
        decided = self.result.significant or self.result.outcome not in ("better", "worse")
        return self.result.outcome if decided else "inconclusive"

    def to_dict(self) -> dict[str, Any]:
        """Give it as strict JSON."""
        said = {} if self.result is None else {"outcome": self.outcome}
        return {**dataclasses.asdict(self), **said}


@dataclasses.dataclass(frozen=True)
class TrackTable:
    """One idea on many tracks.

    Attributes:
        study: whose idea it is.
        rows: one a track.
    """

    study: str
    rows: Sequence[Row]

    @property
    def judged(self) -> list[Row]:
        """The rows with a report."""
        return [row for row in self.rows if row.result is not None]

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        return {
            "study": self.study,
            "family_size": len(self.judged),
            "seconds": sum(row.result.seconds or 0.0 for row in self.judged if row.result),
            "tracks": [row.to_dict() for row in self.rows],
        }


def make(
    study: str,
    found: Sequence[OnTrack],
    reports: Mapping[str, tuple[Mapping[str, Any], Path]],
    errors: Mapping[str, str],
) -> TrackTable:
    """Put the reports of an idea's tracks together, and correct their p-values by Holm's rule.

    Args:
        study: whose idea it is.
        found: every track that was asked for.
        reports: of the tracks that were run, with their paths relative to the folder of results.
        errors: of those that failed.
    """
    results: dict[str, tuple[Study, float]] = {
        label: row_of(path.parent, path, report) for label, (report, path) in reports.items()
    }
    corrected = dict(zip(results, holm([each.p for each, _ in results.values()]), strict=True))
    rows = []
    for each in found:
        if each.label in results:
            result, alpha = results[each.label]
            p = corrected[each.label]
            result = dataclasses.replace(
                result, path=reports[each.label][1].as_posix(), page=None,
                p_family=p, significant=p <= alpha,
            )  # fmt: skip
            rows.append(Row(each.label, "judged", each.reason, errors.get(each.label), result))
        elif each.label in errors:
            rows.append(Row(each.label, "failed", each.reason, errors[each.label]))
        elif each.kind != "fits":
            rows.append(Row(each.label, each.kind, each.reason))
    return TrackTable(study, rows)


def render(table: TrackTable, console: Console) -> None:
    """Print a row a track, then why the others have none."""
    count = len(table.judged)
    lines = make_table(
        "track", "score", "difference", "95 % interval", f"p of {count}", "outcome", "mechanism"
    )
    for row in table.judged:
        assert row.result is not None
        each = row.result
        cells = [
            row.label, f"{each.metric}, {each.direction}",
            number(each.delta, signed=True), f"{number(each.low)} to {number(each.high)}",
            number(each.p_family), row.outcome, each.mechanism,
        ]  # fmt: skip
        add_row(lines, cells, COLOURS.get(row.outcome, ""))
    section(f"{table.study} on {counted(count, 'track')}", console, lines)
    console.print(
        f"p of {count}: Holm's correction over the tracks' primary comparisons, by which the "
        f"outcomes are."
    )
    words = {"refused": "does not fit", "unavailable": "needs something", "failed": "failed"}
    others = make_table("track", "", "because")
    for row in table.rows:
        if row.result is None:
            add_row(others, [row.label, words[row.state], row.error or row.reason])
    if len(table.judged) < len(table.rows):
        section("not run", console, others)
    for row in table.judged:
        if row.error:
            console.print(f"{row.label}: {row.error}", style="red")
