"""Result folders: `OUT/<study>/<run id>/report.json`, each there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxbench.base import JaxbenchError
from jaxbench.reporting import strict_json

RUN_ID_LENGTH = 12
REPORT = "report.json"
PAGE = "report.html"


class StorageError(JaxbenchError):
    """A result could not be written although everything before went well."""

    exit_code = 1


def run_id(digest: str) -> str:
    """Shorten a config's digest to the name of its folder."""
    return digest[:RUN_ID_LENGTH]


def result_folder(out: str | os.PathLike[str], study: str, identity: str) -> Path:
    """Name the folder of a result; the same config as run always has the same one."""
    return Path(out) / study / identity


def check_writable(
    folder: str | os.PathLike[str], option: str = "--out", what: str = "results"
) -> None:
    """Refuse a folder that could not be made or written to, leaving no trace.

    To be called before training, so that hours are not lost at their end.

    Args:
        folder: to write to.
        option: that names it.
        what: would be written, in words.

    Raises:
        JaxbenchError: with the reason of the operating system.
    """
    path = Path(os.path.abspath(folder))
    there = path
    while not os.path.lexists(there):
        there = there.parent
    try:
        if not there.is_dir():
            raise NotADirectoryError(None, "it is not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        where = str(folder) if there == path else f"{folder} ({there})"
        raise JaxbenchError(
            f"{what} cannot be written to {where}: {error.strerror}; choose another {option}"
        ) from error


def write_report(out: str | os.PathLike[str], report: Mapping[str, Any]) -> Path:
    """Write a report into its folder, as one step: a reader finds all of it or nothing.

    Args:
        out: the folder of all results.
        report: its `bench_report` names the study and the run id.

    Returns:
        The path of `report.json`.

    Raises:
        JaxbenchError: a value has no form in strict JSON.
        StorageError: the folder cannot be written.
    """
    text = strict_json.dumps(report)
    inner = report["bench_report"]
    folder = result_folder(out, inner["study"], inner["run_id"])
    unfinished = folder.parent / f".{folder.name}-{secrets.token_hex(8)}"
    try:
        unfinished.mkdir(parents=True)
        _write_file(unfinished / REPORT, text)
        try:
            os.rename(unfinished, folder)
        except OSError:
            if not folder.is_dir():
                raise
            os.replace(unfinished / REPORT, folder / REPORT)
        _sync_folder(folder)
        _sync_folder(folder.parent)
    except OSError as error:
        raise StorageError(f"the report cannot be written to {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder / REPORT


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write strict JSON into a file, as one step, making its folder where that is missing.

    Raises:
        JaxbenchError: a value has no form in strict JSON.
        StorageError: the file cannot be written.
    """
    write_text(path, strict_json.dumps(document))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text into a file, as one step, making its folder where that is missing.

    Raises:
        StorageError: the file cannot be written.
    """
    file = Path(path)
    unfinished = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_file(unfinished, text)
        os.replace(unfinished, file)
        _sync_folder(file.parent)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # it was never made, or its folder is gone
            unfinished.unlink()


def read_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a report, given its file or its folder.

    Raises:
        JaxbenchError: there is none, or it is no strict JSON.
    """
    file = Path(path)
    file = file / REPORT if file.is_dir() else file
    try:
        report = strict_json.loads(file.read_bytes())
    except OSError as error:
        raise JaxbenchError(f"no report at {file}: {error.strerror}") from error
    except JaxbenchError as error:
        raise JaxbenchError(f"{file} is no report: {error}") from error
    if not isinstance(report, dict):
        raise JaxbenchError(f"{file} is no report: expected an object")
    return report


def _write_file(path: Path, text: str) -> None:
    """Write text and wait until the disk has it."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has a folder's entries, where the system can say so."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
