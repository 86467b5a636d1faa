"""A study's config on another track: the table `[tracks.LABEL]` laid over the rest of its file.

A file says under `[tracks.chaos]` what differs where its idea is tried on the track `chaos`: the
model, sizes, a grid.  The label is the track's name unless the table's own `track` names one.  What
belongs to the study's own track or model goes where the table names another one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from jaxbench.base import JaxbenchError

TRACKS = "tracks"


class TrackRefusedError(JaxbenchError):
    """A track on which the study's author does not try the idea; the text is the reason."""


def own_track(document: Mapping[str, Any]) -> str:
    """Give the name of the track that a study names for itself, or nothing."""
    return str(track_name(document) or "")


def track_name(table: Mapping[str, Any]) -> Any:
    """Give the name that stands under `track`, if any does."""
    track = table.get("track")
    return track.get("name") if isinstance(track, dict) else None


def labels(document: Mapping[str, Any]) -> list[str]:
    """List the study's own track and those that it has tables for."""
    tables = document.get(TRACKS)
    return list(dict.fromkeys([own_track(document), *(tables if isinstance(tables, dict) else ())]))


def on_track(document: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Give the document of the study on a track, its `quick` table likewise.

    The study's own track without a table is the study as it is.  Elsewhere the study is called
    `STUDY_on_LABEL`.

    Args:
        document: as in the file.
        label: a name among `labels`, or of a track.

    Raises:
        TrackRefusedError: the table says `refused`.
    """
    tables = document.get(TRACKS) or {}
    table = tables.get(label, {}) if isinstance(tables, dict) else {}
    if label not in tables and label == own_track(document):
        return {key: value for key, value in document.items() if key != TRACKS}
    if isinstance(table, dict) and "refused" in table:
        raise TrackRefusedError(str(table["refused"]))
    above = copy.deepcopy(table) if isinstance(table, dict) else {}
    above_quick = above.pop("quick", {})
    above.setdefault("track", {})
    if isinstance(above["track"], dict):
        own = own_track(document) if label == own_track(document) else label
        above["track"].setdefault("name", own)
    left_out = {"quick", TRACKS, "title", "description", *replaced(document, above)}
    moved = copy.deepcopy({k: v for k, v in document.items() if k not in left_out})
    merge(moved, above)
    quick = document.get("quick", {})
    if isinstance(quick, dict):
        quick = copy.deepcopy({k: v for k, v in quick.items() if k not in left_out})
        if isinstance(above_quick, dict):
            merge(quick, above_quick)
    if "comparisons" in above:
        moved, quick = (with_arms_of(above["comparisons"], each) for each in (moved, quick))
    name = str(document.get("name", "study"))
    moved["name"] = f"{name}_on_{label}"
    moved.setdefault("title", f"{name} on {label}")
    return {**moved, "quick": quick} if quick else moved


def replaced(document: Mapping[str, Any], above: Mapping[str, Any]) -> set[str]:
    """Say which of `track` and `model` a table names anew, so that no option of the old one stays.

    The study's `[quick]` table is of its own track and model too.
    """
    both = [(key, document.get(key), above.get(key)) for key in ("track", "model")]
    return {
        key
        for key, old, new in both
        if isinstance(new, dict)
        and "name" in new
        and not (isinstance(old, dict) and old.get("name") == new["name"])
    }


def with_arms_of(comparisons: Any, table: dict[str, Any]) -> dict[str, Any]:
    """Leave out the arms that no comparison uses, where a track has comparisons of its own."""
    if not isinstance(comparisons, list) or not isinstance(table.get("arms"), dict):
        return table
    rows = [row for row in comparisons if isinstance(row, dict)]
    used = {row.get(side) for row in rows for side in ("idea", "baseline")}
    return {**table, "arms": {name: arm for name, arm in table["arms"].items() if name in used}}


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Lay one table over another: tables merge, everything else is replaced."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merge(below[key], value)
        else:
            below[key] = value
