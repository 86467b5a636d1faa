"""One idea on every track that fits it: which studies those are, and why the others are not.

A track fits where the study's config, with the table `[tracks.LABEL]` of its file laid over it,
passes every check; one without a table is tried with the study's own model and the track's
defaults.  Each is a study of its own, with its own report; the p-values of their primary
comparisons are corrected together (`jaxbench.reporting.track_table`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxbench import config as configs
from jaxbench import config_check, config_tracks, registry, storage, studies, toml_text
from jaxbench.base import JaxbenchError, Progress
from jaxbench.config import Config, ConfigError
from jaxbench.config_tracks import TRACKS
from jaxbench.reporting import strict_json, sweep_table, track_table
from jaxbench.reporting.progress import OutOfTimeError
from jaxbench.reporting.track_table import TrackTable
from jaxbench.track_fit import fit_of, justification, parts_of
from jaxbench.training.processes import ALONE, Processes

ALL = "all"
Kind = Literal["fits", "refused", "unavailable"]


@dataclasses.dataclass(frozen=True)
class OnTrack:
    """A study on one track.

    Attributes:
        label: of the track: its name, or that of a table `[tracks.LABEL]`.
        kind: whether it `fits`; is `refused`; or is `unavailable`, because the user has to install
            a package or to bring data.
        reason: why it fits, why not, or what to do.
        config: of the study, where it fits.
    """

    label: str
    kind: Kind
    reason: str
    config: Config | None = None

    @property
    def study(self) -> studies.Study:
        """The study to run."""
        assert self.config is not None
        return studies.Study(self.config.name, self.config)


def find(
    study: str | os.PathLike[str],
    wanted: str | Sequence[str] = ALL,
    changes: Sequence[tuple[str, str]] = (),
    *,
    seeds: int | None = None,
    quick: bool = False,
) -> list[OnTrack]:
    """Say of each track whether a study could be run on it, with its config.

    Args:
        study: a name or a path of a TOML file.
        wanted: `all`, or labels, as a sequence or with commas between them.
        changes: set in every config; `tracks.LABEL.` begins what is set for one track.
        seeds: evaluation seeds of every study.
        quick: whether to lay the file's `[quick]` table over it.

    Raises:
        ConfigError: the file cannot be read, its own study is refused, or a label is unknown.
    """
    if not isinstance(study, str | os.PathLike):
        raise JaxbenchError(f"expected the name or path of a study, got {study!r}")
    document = configs.read(study)
    of_tracks, others = config_check.split_changes(changes)
    if any(key.replace(" ", "") == "track.name" for key, _ in others):
        raise ConfigError("track.name is what --tracks sets; name the tracks there")
    own = configs.load(study, others, quick=quick and "quick" in document)
    document = config_check.changed_document(document, {}, of_tracks)
    labels = labels_of(document, wanted)
    for place, _ in of_tracks:
        label = str(place[1])
        if label not in labels:
            raise ConfigError(
                f"{toml_text.dotted(place)}: the track {label!r} is not among those that are asked "
                f"for{registry.nearest(label, labels)} ({', '.join(labels)})"
            )
    return [
        on_one(study, document, own, label, changes, seeds=seeds, quick=quick) for label in labels
    ]


def labels_of(document: Mapping[str, Any], wanted: str | Sequence[str]) -> list[str]:
    """List the labels that are asked for, each once.

    Raises:
        ConfigError: one is neither a track nor a table's.
    """
    own = config_tracks.labels(document)
    named = {config_tracks.track_name(config_tracks.on_track(document, each))
             for each in own if not is_refused(document, each)}  # fmt: skip
    every = [*own, *(name for name in registry.available("tracks") if name not in {*named, *own})]
    if wanted == ALL:
        return every
    asked = wanted.split(",") if isinstance(wanted, str) else wanted
    if not (isinstance(asked, list | tuple) and all(isinstance(each, str) for each in asked)):
        raise ConfigError(f"expected names of tracks, or {ALL!r}, got {wanted!r}")
    asked = list(dict.fromkeys(label.strip() for label in asked if label.strip()))
    if not asked:
        raise ConfigError(f"no track is named; expected {ALL}, or some of {', '.join(every)}")
    known = list(dict.fromkeys([*every, *registry.available("tracks")]))
    for label in asked:
        if label not in known:
            raise ConfigError(
                f"no track {label!r}{registry.nearest(label, known)} ({', '.join(known)}; or all)"
            )
    return asked


def is_refused(document: Mapping[str, Any], label: str) -> bool:
    """Whether the study's file refuses a track."""
    return "refused" in (document.get(TRACKS) or {}).get(label, {})


def on_one(
    study: str | os.PathLike[str],
    document: Mapping[str, Any],
    own: Config,
    label: str,
    changes: Sequence[tuple[str, str]],
    *,
    seeds: int | None,
    quick: bool,
) -> OnTrack:
    """Say whether a study can be run on one track.

    Args:
        study: a name or a path of a TOML file.
        document: the file, with what is changed in its tables of tracks.
        own: the study on its own track.
        label: of the track.
        changes: set in the study, some of them in the track's table.
        seeds: evaluation seeds.
        quick: whether to lay the file's `[quick]` table over it.

    Raises:
        ConfigError: what is set, or the track's table, is wrong.
    """
    has_table = label in (document.get(TRACKS) or {})
    if is_refused(document, label):
        return OnTrack(label, "refused", str(document[TRACKS][label]["refused"]))
    lacking = why_unavailable(document, own, label, config_check.split_changes(changes)[1])
    if lacking is not None:
        return OnTrack(label, "unavailable", lacking)
    if not has_table and label != own.track.name:
        fit = fit_of(own, label)
        if not fit.fits:
            return OnTrack(
                label,
                "refused",
                f"{fit.reason.rstrip('.')}. A table [tracks.{label}] may name another model.",
            )
    try:
        config = configs.load(study, changes, seeds=seeds, quick=quick, track=label)
    except ConfigError as error:
        raise ConfigError(f"the study cannot be tried on {label}: {error}") from error
    track = registry.load("tracks", config.track.name, config.base_folder)
    built = track.make(config.track.options)
    return OnTrack(label, "fits", justification(built, parts_of(config, built)), config)


def why_unavailable(
    document: Mapping[str, Any], own: Config, label: str, changes: Sequence[tuple[str, str]]
) -> str | None:
    """Say what the user has to install or to bring for a track; None where it can be built."""
    moved = config_tracks.on_track(document, label)
    for key, value in changes:
        place = toml_text.parse_key(key)
        if place[0] == "track":
            assignment = [(place, toml_text.parse_value(value))]
            moved = config_check.changed_document(moved, {}, assignment)
    if not isinstance(moved["track"], dict):
        return None
    options = dict(moved["track"])
    name = options.pop("name", label)
    try:
        component = registry.load("tracks", name, own.base_folder)
        component.make(options)
    except JaxbenchError as error:
        text = studies.in_words(error)
        return f"{text} (options: --set tracks.{label}.track.OPTION=VALUE)"
    except Exception:  # a wrong option, which the config's check explains
        return None
    return None


def run(
    name: str,
    found: Sequence[OnTrack],
    out: str,
    *,
    force: bool = False,
    progress: Progress,
    processes: Processes = ALONE,
) -> tuple[TrackTable, Path | None]:
    """Run the studies on the tracks that fit, one after another in this process.

    Reports and pages are written as each is done, and at last the joint table, to
    `OUT/tracks/<name>/<id>.json`, where the id is that of the studies, so that another family has
    another file; of several processes, process 0 writes.

    Args:
        name: of the study.
        found: all tracks that were asked for.
        out: the folder of all results.
        force: run those again whose reports are there.
        progress: whom to tell.
        processes: those that run every study together.

    Returns:
        The table, and its file: None where there is no study in it.

    Raises:
        JaxbenchError: nothing can be written to `out`.
        OutOfTimeError, KeyboardInterrupt: with what is done; reports that were written stay.
    """
    from jaxbench.reporting.html import page

    fitting = [each for each in found if each.kind == "fits"]
    folder = Path(out) / TRACKS / name
    if processes.first:
        storage.check_writable(out)
        storage.check_writable(folder)
    reports: dict[str, tuple[Mapping[str, Any], Path]] = {}
    errors: dict[str, str] = {}
    running = studies.run_here(
        [each.study for each in fitting], out, force=force, progress=progress, processes=processes
    )
    done = 0
    try:
        for done, (each, outcome) in enumerate(zip(fitting, running, strict=True), 1):
            if outcome.report is not None and outcome.path is not None:
                reports[each.label] = outcome.report, outcome.path.relative_to(out)
                if outcome.seconds:
                    page.write(outcome.report, outcome.path)
            if outcome.error is not None:
                errors[each.label] = outcome.error
            progress.stage(sweep_table.sentence(outcome, done, len(fitting)))
    except (OutOfTimeError, KeyboardInterrupt) as ended:
        why = "out of time" if isinstance(ended, OutOfTimeError) else "interrupted"
        raise type(ended)(
            f"{why}: {done} of {len(fitting)} studies are done and there is no table of them yet; "
            f"the same command goes on with the others"
        ) from ended
    table = track_table.make(name, found, reports, errors)
    if not table.judged or not processes.first:
        return table, None
    family = sorted(str(each.study.run_id) for each in fitting)
    path = folder / f"{storage.run_id(hashlib.sha256(' '.join(family).encode()).hexdigest())}.json"
    storage.write_text(path, strict_json.dumps(table.to_dict()))
    return table, path
