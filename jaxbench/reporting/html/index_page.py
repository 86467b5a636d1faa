"""Many studies as one self-contained HTML page, whose rows are filtered and sorted in place.

Without scripts the page shows everything, unsorted.  It fetches nothing.
"""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path
from typing import Any

from jaxbench.reporting.html.page import environment
from jaxbench.reporting.html.quantities import (
    MISSING,
    duration,
    interval,
    number,
    percent,
    signed,
    words,
)
from jaxbench.reporting.studies import Leaderboard, Studies, Study

COLUMNS = (
    ("study", "text"), ("outcome", "text"), ("gain", "number"), ("p", "number"),
    ("p corrected", "number"), ("mechanism", "text"), ("track", "text"), ("model", "text"),
    ("n", "number"), ("difference", "number"), ("interval", "number"), ("confidence", "number"),
    ("time", "number"),
)  # fmt: skip
FILTERS = ("track", "model", "outcome", "mechanism")


def render(studies: Studies, beside: Path) -> str:
    """Write the page of many studies.

    Args:
        studies: what a folder holds.
        beside: the folder where the page will lie, from which its links lead.
    """
    rows = [_row(each, Path(studies.folder), beside) for each in studies.studies]
    return environment().get_template("index.html").render(
        rows=rows,
        columns=COLUMNS,
        choices={name: sorted({row["of"][name] for row in rows}) for name in FILTERS},
        boards=[_board(board, Path(studies.folder), beside) for board in studies.leaderboards],
        skipped=studies.skipped,
        count=len(rows),
        significant=sum(each.significant for each in studies.studies),
    )  # fmt: skip


def link(study: Study, folder: Path, beside: Path) -> str:
    """Give the address of a study's page, or of its report where it has none."""
    path = os.path.relpath(folder / (study.page or study.path), beside or ".")
    return urllib.parse.quote(Path(path).as_posix())


def _row(study: Study, folder: Path, beside: Path) -> dict[str, Any]:
    """Write a row's cells: what they show, and by what they are sorted."""
    ends = {"low": study.low, "high": study.high}
    known = study.delta is not None
    shown = interval(ends) if known and study.low is not None else MISSING
    cells: list[tuple[str, Any]] = [
        (study.outcome, study.outcome),
        (percent(study.gain), study.gain),
        (number(study.p, digits=3), study.p),
        (number(study.p_family, digits=3), study.p_family),
        (study.mechanism, study.mechanism),
        (study.track, study.track),
        (study.model, study.model),
        (number(study.n), study.n),
        (signed(study.delta), study.delta),
        (shown, study.low),
        (f"{study.confidence} of 10", study.confidence),
        (duration(study.seconds), study.seconds),
    ]
    return {
        "name": study.study,
        "title": study.title,
        "run_id": study.run_id,
        "link": link(study, folder, beside),
        "cells": [{"shown": text, "value": "" if key is None else key} for text, key in cells],
        "of": {name: getattr(study, name) for name in FILTERS},
    }


def _board(board: Leaderboard, folder: Path, beside: Path) -> dict[str, Any]:
    """Write a leaderboard."""
    options = ", ".join(f"{words(k)} {number(v)}" for k, v in board.track_options.items())
    return {
        "track": board.track,
        "options": options,
        "score": f"{board.metric}{f' ({board.unit})' if board.unit else ''}",
        "direction": board.direction,
        "rows": [
            {
                "idea": each.idea,
                "study": each.study,
                "link": link(each, folder, beside),
                "cells": [
                    each.model,
                    number(each.n),
                    f"{number(each.idea_mean)} \u00b1 {number(each.idea_std)}",
                    number(each.baseline_mean),
                    percent(each.gain),
                    number(each.p_family, digits=3),
                    each.outcome,
                    each.mechanism,
                ],
            }
            for each in board.studies
        ],
    }
