"""What is in a study's folder of results, and whether to run, to continue, or to show it.

A folder has a report (the study is finished), or checkpoints (it was interrupted), or neither.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxbench import storage
from jaxbench.base import JaxbenchError
from jaxbench.devices import HOST_DEVICES

if TYPE_CHECKING:
    from jaxbench.config import Config
    from jaxbench.training.checkpoints import Checkpoints
    from jaxbench.training.processes import Processes


class ResumeError(JaxbenchError):
    """A study that cannot be continued, or begun where it was interrupted; the text says why."""


class InterruptedStudy(KeyboardInterrupt):
    """An interruption, with the words that say how to continue."""


def finished(folder: Path) -> dict[str, Any] | None:
    """Give the report of a study that is finished, or None; what a crash left beside it goes.

    The page is written last, so a report without one is not finished; nor are the reports under
    version control in a clone, whose pages are not, so that there a study is run the first time.

    Raises:
        JaxbenchError: there is a report, and it cannot be read.
    """
    from jaxbench.training.checkpoint_folder import FOLDER, remove_folder

    if not (folder / storage.REPORT).exists():
        return None
    try:
        report = storage.read_report(folder)
    except JaxbenchError as error:
        raise JaxbenchError(f"{error}; --force runs the study again") from error
    if not (folder / storage.PAGE).exists():
        return None
    if (folder / FOLDER).exists():
        remove_folder(folder / FOLDER)
    return report


def open_checkpoints(
    folder: Path,
    config: Config,
    *,
    every: int | None = None,
    width: int | None = None,
    resume: bool = False,
    force: bool = False,
    process: int | None = None,
) -> Checkpoints | None:
    """Open a study's checkpoints as the command asks; None where it asks for none.

    Args:
        folder: the study's folder of results.
        config: the study.
        every: epochs between checkpoints; as before if None, or 1.
        width: of blocks, if it was forced.
        resume: whether to continue from what is there.
        force: whether to begin anew, whatever is there.
        process: which one of several that train together this is; None if there is one.

    Raises:
        ResumeError: the study was interrupted and the command does not say what to do about it;
            or nothing is there of this config, but of another one.
        CheckpointError: what is there is another study's, or another process is at work on it.
    """
    from jaxbench.training.checkpoint_folder import FOLDER, read_about, remove_folder
    from jaxbench.training.checkpoints import PROCESS, Checkpoints

    place = folder / FOLDER
    before = read_about(place)
    if before is None and process is not None:  # on another disk than process 0's
        before = read_about(place / f"{PROCESS}{process}")
    if force and place.exists():
        remove_folder(place)
        before = None
    if before is not None and not resume:
        raise ResumeError(
            f"this study was interrupted, and its checkpoints are in {place}: --resume continues "
            f"it, --force begins anew"
        )
    if before is None and resume:
        refuse_others(folder, config)
    if every is None and not resume:
        return None
    every = every or (before or {}).get("every", 1)
    return Checkpoints(place, about(config, width), every, process)


def refuse_others(folder: Path, config: Config) -> None:
    """Refuse to resume what was never begun where the same study was, with another config.

    Raises:
        ResumeError: naming what differs.
    """
    from jaxbench.training.checkpoint_folder import FOLDER, differing, read_about

    others = [
        (place, said)
        for place in sorted(folder.parent.glob(f"*/{FOLDER}"))
        if (said := read_about(place)) is not None
    ]
    if not others:
        return
    place, said = others[-1]
    differences = differing({"": said.get("config", {})}, {"": without_prose(config)})
    raise ResumeError(
        f"there is no checkpoint of this config, only one of another in {place}: "
        f"{'; '.join(differences) or 'its Python files differ'}. Resume with the same options, "
        f"or leave out --resume to begin"
    )


def about(config: Config, width: int | None) -> dict[str, Any]:
    """Say what decides the numbers of a study: config, code, versions, devices, width."""
    import jax

    from jaxbench.config import digest

    flags = os.environ.get("XLA_FLAGS", "").split()
    return {
        "config": without_prose(config),
        "config_digest": digest(config),
        "width": width,
        **made_by(),
        "xla_flags": [flag for flag in flags if HOST_DEVICES not in flag],
        "devices": sorted({device.device_kind for device in jax.devices()}),
    }


def made_by() -> dict[str, Any]:
    """Say what decides a study's numbers beside its config and devices: code and versions."""
    from jaxbench.reporting.provenance import precision, versions

    return {"code": source_digest(), "versions": versions(), "precision": precision()}


def agree(processes: Processes, configs: Sequence[Config], **options: Any) -> None:
    """Make sure that all processes of a study carry out the same, before any of them trains.

    Args:
        processes: those of the study.
        configs: the studies that this one was told to carry out.
        options: of the command, that the configs do not know.

    Raises:
        JaxbenchError: another process was told something else, or has other files or versions.
    """
    from jaxbench.training.checkpoint_folder import flat

    if processes.count == 1:
        return
    said: dict[str, Any] = {f"--{name}".replace("_", "-"): each for name, each in options.items()}
    for config in configs:
        said |= flat({config.name: without_prose(config), "files of the config": config.sources})
    processes.agree({**said, **flat(made_by())})


def without_prose(config: Config) -> dict[str, Any]:
    """Give the part of a config that decides its digest."""
    return {k: v for k, v in config.as_run().items() if k not in ("title", "description")}


def source_digest(folder: Path = Path(__file__).parent) -> str:
    """Fingerprint jaxbench's own code, so that no study is half of one version."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(path.relative_to(folder).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


@contextlib.contextmanager
def resumable(
    config: Config, checkpoints: Checkpoints | None, options: Mapping[str, Any]
) -> Iterator[None]:
    """Say how to continue a study that ends before its time, if it can be continued.

    Args:
        config: the study.
        checkpoints: of it, if any are written.
        options: those of the command that the config does not know.

    Raises:
        InterruptedStudy: in place of an interruption.
    """
    try:
        yield
    except BaseException as error:
        if checkpoints is None or isinstance(error, JaxbenchError):
            raise
        if not checkpoints.any:
            checkpoints.remove()
            raise
        words = f"continue with {command_to_resume(config, options)}"
        if isinstance(error, KeyboardInterrupt):
            raise InterruptedStudy(f"interrupted: {words}") from error
        print(words, file=sys.stderr)
        raise


def command_to_resume(config: Config, options: Mapping[str, Any]) -> str:
    """Give the command that continues a study: what was run, with these options, and --resume."""
    words = []
    for name, value in options.items():
        if value:
            words += [name] if value is True else [name, str(value)]
    return f"{config.how_to_run()} {shlex.join([*words, '--resume'])}"


def not_again(folder: Path, report: Mapping[str, Any], keep_params: bool) -> str:
    """Say that a study is finished, and was therefore not run again."""
    from jaxbench.trained_params import FOLDER

    made_with = report.get("bench_report", {}).get("provenance", {}).get("versions", {})
    lacks = ""
    if keep_params and not (folder / FOLDER).exists():
        lacks = ", and kept no parameters"
    return (
        f"\nreport: {folder / storage.REPORT}: this study was run before, with jaxbench "
        f"{made_with.get('jaxbench', 'of an unknown version')}{lacks}; --force runs it again"
    )
