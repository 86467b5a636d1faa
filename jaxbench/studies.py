"""Many studies: found, split into shards, run one after another, each kept as it finishes."""

from __future__ import annotations

import dataclasses
import fnmatch
import glob
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxbench import config as configs
from jaxbench import interrupted, ledger, storage
from jaxbench.base import JaxbenchError, Progress
from jaxbench.config import Config, ConfigError
from jaxbench.reporting.progress import OutOfTimeError
from jaxbench.training.processes import ALONE, ProcessError, Processes

State = Literal["done", "skipped", "failed", "refused"]
GLOB = "*?["


@dataclasses.dataclass(frozen=True)
class Study:
    """A study that was asked for.

    Attributes:
        name: of the study, or of the file whose config is refused.
        config: as it will be run; None if it is refused.
        error: why it is refused.
    """

    name: str
    config: Config | None = None
    error: str | None = None

    @property
    def run_id(self) -> str | None:
        """The name of its folder, which follows from the config as run."""
        return None if self.config is None else storage.run_id(configs.digest(self.config))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a study.

    Attributes:
        study: its name.
        run_id: of its report; None where its config was refused.
        state: `done`, `skipped` (its report was there already), `failed`, or `refused`.
        seconds: that it took here.
        path: of its report, if there is one.
        report: that report.
        error: why it failed; a report may be there all the same.
        node: where it ran, if not here.
    """

    study: str
    run_id: str | None
    state: State
    seconds: float = 0.0
    path: Path | None = None
    report: Mapping[str, Any] | None = None
    error: str | None = None
    node: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give it as strict JSON: the report's labels, not the report."""
        names = ("practical_verdict", "system_verdict", "mechanism_ok", "confidence", "verdict")
        labels = {name: (self.report or {}).get(name) for name in names}
        comparison = self.report["bench_report"]["comparison"] if self.report else {}
        numbers = {name: comparison.get(name) for name in ("delta_mean", "p_value")}
        return {
            "study": self.study,
            "run_id": self.run_id,
            "state": self.state,
            **labels,
            **numbers,
            "seconds": self.seconds,
            "report": None if self.path is None else str(self.path),
            "error": self.error,
            "node": self.node,
        }


@dataclasses.dataclass(frozen=True)
class Kept:
    """A report as it was entered in the ledger and written, and what went wrong in that."""

    report: dict[str, Any]
    path: Path | None
    problem: JaxbenchError | None


def find(
    patterns: Iterable[str],
    changes: Sequence[tuple[str, str]] = (),
    *,
    seeds: int | None = None,
    quick: bool = False,
) -> list[Study]:
    """Load the studies that names, files and globs stand for, each once, in the order given.

    Args:
        patterns: a glob stands for files, or else for studies that come with jaxbench, sorted.
        changes: set in every study's config, as for `config.load`.
        seeds: evaluation seeds of every study.
        quick: whether to lay each file's `[quick]` table over it.

    Raises:
        ConfigError: a pattern stands for nothing.
    """
    found: dict[tuple[str, str | None], Study] = {}
    for name in (name for pattern in patterns for name in expand(pattern)):
        try:
            config = configs.load(name, changes, seeds=seeds, quick=quick)
            study = Study(config.name, config)
        except ConfigError as error:
            study = Study(name, error=in_words(error))
        found.setdefault((study.name, study.run_id), study)
    return list(found.values())


def expand(pattern: str) -> list[str]:
    """Give the names and paths that a pattern stands for.

    Raises:
        ConfigError: it stands for nothing.
    """
    if not any(sign in pattern for sign in GLOB):
        configs.locate(pattern)
        return [pattern]
    paths = glob.glob(str(Path(pattern).expanduser()), recursive=True)
    named = sorted(path for path in paths if path.endswith(".toml")) or fnmatch.filter(
        configs.available(), pattern
    )
    if not named:
        raise ConfigError(f"{pattern} matches no .toml file and no study's name")
    return named


def shard(studies: Sequence[Study], index: int, count: int) -> list[Study]:
    """Give the studies of one shard of `count`, counted from 1: every `count`-th one.

    The split follows from the list alone, so that shards need not know of each other.
    """
    return list(studies[index - 1 :: count])


def run_here(
    studies: Sequence[Study],
    out: str,
    *,
    force: bool,
    progress: Progress,
    processes: Processes = ALONE,
) -> Iterator[Outcome]:
    """Run studies one after another in this process, and give what became of each at once.

    Programs that studies share are compiled once.  A study that fails stops no other.

    Args:
        studies: what to run.
        out: the folder of all results.
        force: run those again whose reports are there.
        progress: whom to tell.
        processes: those that run every study together.
    """
    from jaxbench.study import run_study

    compiled: dict[Any, Any] = {}

    def run(config: Config) -> dict[str, Any]:
        return run_study(config, progress=progress, compiled=compiled)

    for number, study in enumerate(studies, 1):
        progress.stage(f"study {number} of {len(studies)}: {study.name}")
        yield run_one(study, out, run, force=force, processes=processes)


def run_one(
    study: Study,
    out: str,
    run: Callable[[Config], dict[str, Any]],
    *,
    force: bool = False,
    processes: Processes = ALONE,
) -> Outcome:
    """Run a study unless its report is there, and keep its report; whatever fails is told of.

    Raises:
        ProcessError: another process of the study failed, so that no more can be run together.
    """
    before = settled(study, out, force=force, processes=processes)
    if before is not None:
        return before
    assert study.config is not None
    began = time.perf_counter()
    try:
        report = run(study.config)
        return written(study, out, report, time.perf_counter() - began, processes=processes)
    except (ProcessError, OutOfTimeError):
        raise
    except Exception as error:
        return failed(study, in_words(error), time.perf_counter() - began)


def settled(
    study: Study, out: str, *, force: bool = False, processes: Processes = ALONE
) -> Outcome | None:
    """Say what became of a study that need not be run: refused, or its report is there.

    A report that cannot be read is a failure, so that nothing is written over it unasked.
    """
    if study.config is None:
        return Outcome(study.name, None, "refused", error=study.error)
    identity = study.run_id
    assert identity is not None

    folder = storage.result_folder(out, study.name, identity)

    def look() -> dict[str, Any] | None:
        return interrupted.finished(folder) if processes.first else None

    try:
        report = None if force else processes.together(look)[0]
    except JaxbenchError as error:
        return failed(study, in_words(error))
    if report is None:
        return None
    return Outcome(study.name, identity, "skipped", path=folder / storage.REPORT, report=report)


def written(
    study: Study,
    out: str,
    report: dict[str, Any],
    seconds: float,
    *,
    node: str | None = None,
    processes: Processes = ALONE,
) -> Outcome:
    """Keep a study's new report; only process 0 of several writes."""
    assert study.config is not None
    kept = Kept(report, None, None)
    if processes.first:
        kept = keep(out, study.config, report)
    problem = None if kept.problem is None else str(kept.problem)
    return Outcome(
        study.name, study.run_id, "failed" if problem else "done", seconds,
        kept.path, kept.report, problem, node,
    )  # fmt: skip


def failed(study: Study, error: str, seconds: float = 0.0, node: str | None = None) -> Outcome:
    """Say that a study failed, and why."""
    return Outcome(study.name, study.run_id, "failed", seconds, error=error, node=node)


def in_words(error: Exception) -> str:
    """Write an exception in one line, with its type where it is not one of ours."""
    name = "" if isinstance(error, JaxbenchError) else f"{type(error).__name__}: "
    return name + " ".join(str(error).split())


def keep(out: str, config: Config, report: dict[str, Any]) -> Kept:
    """Enter a finished study in the ledger and write its report, as far as either can be done."""
    problem: JaxbenchError | None = None
    path = None
    try:
        report = ledger.enter(out, config, report)
    except ledger.LedgerError as error:  # what was computed is written and shown all the same
        problem = error
    try:
        path = storage.write_report(out, report)
    except storage.StorageError as error:
        problem = error
    return Kept(report, path, problem)
