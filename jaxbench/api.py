"""Studies from Python: `jaxbench.run_study(...)` is what `jaxbench run` does, without its files."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxbench import config as configs
from jaxbench.config import Config
from jaxbench.reporting.document import Report

if TYPE_CHECKING:
    from jaxbench.base import Progress
    from jaxbench.reporting.track_table import TrackTable


def load_config(
    study: Config | str | os.PathLike[str] | Mapping[str, Any],
    *,
    quick: bool = False,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Config:
    """Load and check a study's config.

    Args:
        study: the name of a study, the path of a TOML file, or the same as a dict; paths in a dict
            are relative to the working directory.
        quick: lay the study's `quick` table over it.
        seeds: evaluation seeds, in place of `protocol.seeds`.
        changes: {dotted key: value}, set last, such as `{"training.epochs": 3}`.

    Raises:
        JaxbenchError: with everything that is wrong and its place.
    """
    if isinstance(study, Config):
        if quick or seeds is not None or changes:
            return load_config(study.as_run(), quick=quick, seeds=seeds, changes=changes)
        return study
    from jaxbench import toml_text

    assignments = [(key, toml_text.inline(value)) for key, value in (changes or {}).items()]
    if not isinstance(study, Mapping):
        return configs.load(study, assignments, seeds=seeds, quick=quick)
    from jaxbench import config_check

    if seeds is not None:
        assignments.append(("protocol.seeds", str(seeds)))
    document = {"name": "study", **copy.deepcopy(dict(study))}
    origin = configs.Origin(Path.cwd())
    return config_check.resolve(
        document, assignments, quick=quick, label="the config", origin=origin
    )


def run_study(
    study: Config | str | os.PathLike[str] | Mapping[str, Any],
    *,
    quick: bool = False,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | bool = False,
    max_seconds: float | None = None,
    log_to: str | Sequence[str] = (),
) -> Report:
    """Train, judge and report a study.

    Nothing is written but what `log_to` asks for; `Report.save` writes the report.  jax is started
    with one host device a core, unless it runs already.

    Args:
        study: as for `load_config`.
        quick: lay the study's `quick` table over it.
        seeds: evaluation seeds, in place of `protocol.seeds`.
        changes: {dotted key: value}, set last, such as `{"training.epochs": 3}`.
        progress: whom to tell how far it is; True for stderr.
        max_seconds: give up if it takes longer, which is checked between epochs.
        log_to: where the judged study is logged: `"mlflow"`, `"mlflow:URI"`, `"tensorboard"`,
            `"tensorboard:FOLDER"`, or several of them.

    Raises:
        JaxbenchError: the study cannot be run as configured, a hook of it failed, it took longer
            than `max_seconds`, or a logger is not installed or does not answer.
        LoggerError: the study was judged but could not be logged; its `report` is the report.
    """
    from jaxbench import devices
    from jaxbench.loggers import destinations

    devices.configure()
    loaded = load_config(study, quick=quick, seeds=seeds, changes=changes)
    loggers = destinations.connect(log_to)
    from jaxbench.study import run_study as run

    with _reporter(progress, max_seconds) as reporter:
        report = Report(run(loaded, progress=reporter))
    try:
        destinations.log(loggers, report.document)
    except destinations.LoggerError as error:
        error.report = report
        raise
    return report


def run_tracks(
    study: str | os.PathLike[str],
    tracks: str | Sequence[str] = "all",
    *,
    out: str | os.PathLike[str] = "results",
    quick: bool = False,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: Progress | bool = False,
    max_seconds: float | None = None,
) -> TrackTable:
    """Try a study's idea on every track that fits it: what `jaxbench run STUDY --tracks` does.

    Each track's report is written below `out`, and the joint table, which is returned, to
    `OUT/tracks/<study>/<id>.json`.

    Args:
        study: the name of a study, or the path of a TOML file.
        tracks: `all`, or names of tracks or of the file's tables `[tracks.LABEL]`.
        out: the folder for results; studies whose reports are there are not run again.
        quick: lay the study's `quick` table over each track's.
        seeds: evaluation seeds, in place of `protocol.seeds`.
        changes: {dotted key: value}, set last; `tracks.LABEL.` begins what is for one track.
        force: run all studies again.
        progress: whom to tell how far it is; True for stderr.
        max_seconds: give up if it takes longer, which is checked between epochs.

    Raises:
        JaxbenchError: a file or a name is wrong; a study that fails is told of in the table.
    """
    from jaxbench import devices, toml_text

    devices.configure()
    from jaxbench import track_runs

    assignments = [(key, toml_text.inline(value)) for key, value in (changes or {}).items()]
    found = track_runs.find(study, tracks, assignments, seeds=seeds, quick=quick)
    name = str(configs.read(study)["name"])
    with _reporter(progress, max_seconds) as reporter:
        run = track_runs.run(name, found, os.fspath(out), force=force, progress=reporter)
        return run[0]


@contextlib.contextmanager
def _reporter(progress: Progress | bool, max_seconds: float | None) -> Iterator[Progress]:
    """Give whom to tell how far a study is: the caller's own, or ours, bounded in time."""
    from jaxbench import base
    from jaxbench.reporting import progress as progresses

    if isinstance(progress, base.Progress):
        yield progresses.Budget(progress, max_seconds) if max_seconds else progress
    else:
        with progresses.make(quiet=not progress, max_seconds=max_seconds) as reporter:
            yield reporter
