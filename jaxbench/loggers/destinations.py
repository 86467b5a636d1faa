"""Where studies are logged: `mlflow[:URI]` or `tensorboard[:FOLDER]`.

Nothing of a logger is imported until it is asked for, and everything that can be refused is refused
by `connect`, before anything is trained.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jaxbench import storage
from jaxbench.base import JaxbenchError
from jaxbench.nearest import nearest

MODULES = {"mlflow": "mlflow_store", "tensorboard": "event_files"}
"""Kinds of loggers, each also the name of the extra that installs it, and where its class is."""


class LoggerError(JaxbenchError):
    """A study was judged but could not be logged.

    Attributes:
        report: of the study, where a program called `run_study`.
    """

    exit_code = 1
    report: Mapping[str, Any] | None = None


class StudyLogger(Protocol):
    """Something that takes judged studies."""

    def log(self, report: Mapping[str, Any], files: Path) -> str:
        """Log a study, in place of what was logged of it before, and say where it is.

        Args:
            report: of the study.
            files: a folder with the study's report, page and figures.
        """


def split(destination: str) -> tuple[str, str | None]:
    """Split `mlflow:URI` into its kind and its place, None where it names none.

    Raises:
        JaxbenchError: there is no such kind of logger.
    """
    kind, colon, place = destination.partition(":")
    if kind not in MODULES or (colon and not place):
        raise JaxbenchError(
            f"expected mlflow, mlflow:URI, tensorboard or tensorboard:FOLDER, not {destination!r}"
            f"{nearest(kind, MODULES) if kind not in MODULES else ''}"
        )
    return kind, place or None


def connect(destinations: str | Sequence[str]) -> list[StudyLogger]:
    """Open every destination, each once.

    Raises:
        JaxbenchError: a package is missing, with the command that installs it; a store does not
            answer; a folder cannot be written.
    """
    asked = [destinations] if isinstance(destinations, str) else destinations
    return [_opened(*split(each)) for each in dict.fromkeys(asked)]


def _opened(kind: str, place: str | None) -> StudyLogger:
    module = importlib.import_module(f"jaxbench.loggers.{MODULES[kind]}")
    with without_warnings():
        opened: StudyLogger = module.connect(place)
    return opened


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Keep the loggers' own warnings, which are no business of the user's, to themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def needed(module: str, kind: str) -> Any:
    """Import a module of an optional package.

    Raises:
        JaxbenchError: it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise JaxbenchError(
            f"--log-to {kind} needs a package that is not installed ({error}): "
            f"pip install 'jaxbench[{kind}]'"
        ) from error


def log(loggers: Sequence[StudyLogger], report: Mapping[str, Any]) -> list[str]:
    """Log a judged study everywhere, with its report, page and figures, and say where it is.

    Raises:
        LoggerError: it could not be, with what the first logger that failed said.
    """
    if not loggers:
        return []
    import tempfile

    with tempfile.TemporaryDirectory(prefix="jaxbench-") as folder:
        write_files(report, Path(folder))
        places = []
        for each in loggers:
            try:
                with without_warnings():
                    places.append(each.log(report, Path(folder)))
            except Exception as error:
                text = " ".join(f"{type(error).__name__}: {error}".split())
                raise LoggerError(f"the study is judged but could not be logged: {text}") from error
        return places


def write_files(report: Mapping[str, Any], folder: Path) -> None:
    """Write `report.json`, `report.html` and `figures/*.png` of a report."""
    from jaxbench.reporting.html import drawing, page

    file = folder / storage.REPORT
    storage.write_json(file, report)
    page.write(report, file)
    (folder / "figures").mkdir()
    for some in page.figures(report).values():
        for each in some:
            drawing.save(each, folder / "figures", ["png"])
