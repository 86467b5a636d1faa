"""One idea on every track that fits it: which studies those are, and why the others are not.

A track fits where the study's config, with the table `[tracks.LABEL]` of its file laid over it,
passes every check; one without a table is tried with the study's own model and the track's
defaults.  Each is a study of its own, with its own report; the p-values of their primary
comparisons are corrected together (`jaxbench.reporting.track_table`).
"""

from __future__ import annotations

import copy
import dataclasses
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
    document = configs.read(study)
    for_tracks = [(key, value) for key, value in changes if key.startswith("tracks.")]
    others = [(key, value) for key, value in changes if not key.startswith("tracks.")]
    own = configs.load(study, others, quick=quick and "quick" in document)
    given = [*for_tracks, *others]
    return [
        on_one(study, document, own, label, given, seeds=seeds, quick=quick)
        for label in labels_of(document, wanted)
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
    asked = wanted.split(",") if isinstance(wanted, str) else list(wanted)
    asked = list(dict.fromkeys(label.strip() for label in asked))
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
    """Say whether a study can be run on one track."""
    has_table = label in (document.get(TRACKS) or {})
    if is_refused(document, label):
        return OnTrack(label, "refused", str(document[TRACKS][label]["refused"]))
    lacking = why_unavailable(document, own, label, changes)
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
        return OnTrack(label, "refused", studies.in_words(error))
    track = registry.load("tracks", config.track.name, config.base_folder)
    built = track.make(config.track.options)
    return OnTrack(label, "fits", justification(built, parts_of(config, built)), config)


def why_unavailable(
    document: Mapping[str, Any], own: Config, label: str, changes: Sequence[tuple[str, str]]
) -> str | None:
    """Say what the user has to install or to bring for a track; None where it can be built."""
    changed = copy.deepcopy(dict(document))
    for key, value in changes:
        if key.startswith(("tracks.", "track.")):
            place = toml_text.parse_key(key)
            on = place if place[0] == "tracks" else ("tracks", label, *place)
            assignment = [(on, toml_text.parse_value(value))]
            changed = config_check.changed_document(changed, {}, assignment)
    options = dict(config_tracks.on_track(changed, label)["track"])
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
) -> TrackTable:
    """Run the studies on the tracks that fit, one after another in this process.

    Reports and pages are written as each is done, and at last the joint table, to
    `OUT/tracks/<name>.json`; of several processes, process 0 writes.

    Args:
        name: of the study.
        found: all tracks that were asked for.
        out: the folder of all results.
        force: run those again whose reports are there.
        progress: whom to tell.
        processes: those that run every study together.
    """
    from jaxbench.reporting.html import page

    fitting = [each for each in found if each.kind == "fits"]
    reports: dict[str, tuple[Mapping[str, Any], Path]] = {}
    errors: dict[str, str] = {}
    running = studies.run_here(
        [each.study for each in fitting], out, force=force, progress=progress, processes=processes
    )
    for number, (each, outcome) in enumerate(zip(fitting, running, strict=True), 1):
        if outcome.report is not None and outcome.path is not None:
            reports[each.label] = outcome.report, outcome.path.relative_to(out)
            if outcome.seconds:
                page.write(outcome.report, outcome.path)
        if outcome.error is not None:
            errors[each.label] = outcome.error
        progress.stage(sweep_table.sentence(outcome, number, len(fitting)))
    table = track_table.make(name, found, reports, errors)
    if processes.first:
        path = Path(out) / TRACKS / f"{name}.json"
        storage.write_text(path, strict_json.dumps(table.to_dict()))
    return table
