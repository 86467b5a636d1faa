"""Checkpoints: what a study's runs have come to, on disk, so that a study survives being killed.

A study is deterministic, so it resumes by being carried out again: whatever the engine has already
found is read instead of computed.  A *record* is what one block of runs has come to, written by
`record_files`; its name says of which runs.  There are as many records as finished blocks, each
with scores, curves and the parameters that are still needed, and one of the block that is training,
with the state after its last epoch that was due.

Processes that train together have a folder each, inside the study's, with the records of their own
runs.  Whoever resumes reads those of all, as far as they lie on its disk, so that it may be another
number of processes, or one; several processes do not read what one wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxbench.training import record_files
from jaxbench.training.checkpoint_folder import (
    CheckpointError,
    check_about,
    read_about,
    remove_folder,
    write_about,
)

LOCK = "lock"
PROCESS = "process-"
"""Begins the name of the folder of one of several processes."""
FORMAT = 2
"""Of the records; another one cannot be read."""

PROGRESS, TRUNK, TRAINED, MEASURED = "progress", "trunk", "trained", "measured"

Row = dict[str, np.ndarray]
"""What one run has come to, by name."""


class UnwritableError(CheckpointError):
    """A checkpoint that could not be written although everything before went well."""

    exit_code = 1


class Record(NamedTuple):
    """One record on disk: of which runs, after how many epochs, and how its arrays lie."""

    path: Path
    kind: str
    keys: tuple[str, ...]
    done: int
    table: list[dict[str, Any]]


class Checkpoints:
    """The checkpoints of one study.

    Args:
        study: where they are; made when something is written, and held for this process alone.
        about: what decides the numbers (config, versions, devices), as strict JSON.
        every: epochs from one checkpoint of a block's state to the next.
        process: which one of several that train together this is; None if there is one.

    Attributes:
        folder: where this process writes.
        resumed: how often the study was continued.
        restored: how many trained runs were read instead of trained, this time.

    Raises:
        CheckpointError: those in the folder are another study's, or another process is at work.
    """

    def __init__(
        self, study: Path, about: Mapping[str, Any], every: int, process: int | None = None
    ) -> None:
        self.study = study
        self.folder = study if process is None else study / f"{PROCESS}{process}"
        self.every = every
        self.process = process
        self.restored = 0
        self.resumed = 0
        self.about = {**json.loads(json.dumps(about)), "format": FORMAT}
        self._locks: list[int] = []
        self._records: list[Record] = []
        self._others: list[Record] = []
        before = read_about(self.folder) or read_about(study)
        if before is not None:
            check_about(study, before, self.about)
            self._hold()
            self._records = found_in(self.folder)
            self._others = [
                record
                for folder in sorted(study.absolute().glob(f"{PROCESS}*"))
                if folder != self.folder.absolute()
                for record in found_in(folder, remove=False)
            ]
            self.resumed = before["resumed"] + 1
            self._write_about()

    @property
    def any(self) -> bool:
        """Whether there is something to continue from."""
        return bool(self._records or self._others)

    def due(self, done: int) -> bool:
        """Whether a block's state is to be written after so many epochs."""
        return done % self.every == 0

    def find(self, kind: str, keys: Sequence[str]) -> list[Row] | None:
        """Give what these runs came to, or None unless all of them are there and can be read."""
        found = self._places(kind, keys)
        if found is None:
            return None
        loaded: dict[Path, list[Row]] = {}
        for record, _ in found:
            if record.path not in loaded:
                rows = read_rows(record)
                if rows is None:
                    return None
                loaded[record.path] = rows
        return [loaded[record.path][row] for record, row in found]

    def progress(self, keys: Sequence[str]) -> tuple[int, list[Row]] | None:
        """Give the state of a block in training, and after how many epochs; None if there is none.

        It is one block's only if all runs stopped after the same epoch.
        """
        found = self._places(PROGRESS, keys)
        if found is None or len({record.done for record, _ in found}) > 1:
            return None
        rows = self.find(PROGRESS, keys)
        return None if rows is None else (found[0][0].done, rows)

    def write(self, kind: str, keys: Sequence[str], rows: Sequence[Row], done: int = 0) -> None:
        """Write a record, as one step: it is there as a whole or not at all.

        Older states of blocks in training are then no longer needed.

        Raises:
            UnwritableError: the disk refuses.
        """
        arrays, table = packed(rows)
        name = hashlib.sha256(json.dumps([kind, done, *keys]).encode()).hexdigest()[:24]
        alone = self.process is None
        path = self.folder.absolute() / f"{kind}-{name}{'' if alone else record_files.SUFFIX}"
        record = Record(path, kind, tuple(keys), done, table)
        said = {"kind": kind, "keys": list(keys), "done": done, "table": table}
        try:
            self._begin()
            (record_files.save_orbax if alone else record_files.save_numpy)(path, arrays, said)
        except (OSError, ValueError) as error:  # tensorstore's errors are of the second kind
            raise UnwritableError(
                f"a checkpoint cannot be written to {self.folder}: {error}"
            ) from error
        before = self._records
        self._records = [each for each in before if each.kind != PROGRESS and each.path != path] + [
            record
        ]
        self._sweep(before)

    def drop(self, kind: str) -> None:
        """Remove records of a kind that is no longer needed."""
        before = self._records
        self._records = [each for each in before if each.kind != kind]
        self._sweep(before)

    def close(self) -> None:
        """Leave the folder to other processes."""
        while self._locks:
            os.close(self._locks.pop())

    def remove(self) -> None:
        """Remove everything, at once for whoever looks; of several processes, process 0 does."""
        self._records, self._others = [], []
        if self._locks:
            remove_folder(self.folder if self.process else self.study)
            if self.process:
                with contextlib.suppress(OSError):  # on a disk of its own nothing else is in it
                    self.study.rmdir()
        self.close()

    def _places(self, kind: str, keys: Sequence[str]) -> list[tuple[Record, int]] | None:
        """Find the record and row of each run."""
        places = {
            key: (record, row)
            for record in (*self._others, *self._records)
            if record.kind == kind
            for row, key in enumerate(record.keys)
        }
        return [places[key] for key in keys] if all(key in places for key in keys) else None

    def _sweep(self, before: Sequence[Record]) -> None:
        """Remove from disk what is no record any more."""
        for path in {each.path for each in before} - {each.path for each in self._records}:
            remove_record(path)

    def _begin(self) -> None:
        """Make the folder, and write down what decides the numbers."""
        if self._locks:
            return
        self._hold()
        self._write_about()

    def _write_about(self) -> None:
        counted = {"every": self.every, "resumed": self.resumed}
        for folder in self._own_folders():
            write_about(folder, {**self.about, **counted})

    def _own_folders(self) -> list[Path]:
        """Where this process writes: of several, the first stands for all in the study's folder."""
        return [self.folder] if self.process else list(dict.fromkeys([self.study, self.folder]))

    def _hold(self) -> None:
        """Keep other processes out until this one ends, however it ends."""
        for folder in self._own_folders():
            folder.mkdir(parents=True, exist_ok=True)
            self._locks.append(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644))
            try:
                fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self.close()
                raise CheckpointError(
                    f"another process is at work on this study in {folder}; wait for it, or "
                    f"choose another --out"
                ) from error


def found_in(folder: Path, remove: bool = True) -> list[Record]:
    """List a folder's records, passing over what a killed process left unfinished, or removing it.

    Names with a dot are of records that are being written or removed.
    """
    found = []
    for path in sorted(folder.absolute().iterdir()):
        if not record_files.is_record(path) or path.name.startswith(PROCESS):
            continue
        try:
            said = record_files.read_said(path)
            record = Record(path, said["kind"], tuple(said["keys"]), said["done"], said["table"])
        except Exception:  # whatever orbax or numpy say of half a checkpoint
            if remove:
                remove_record(path)
            continue
        if not path.name.startswith("."):
            found.append(record)
    return sorted(found, key=lambda each: each.done)


def remove_record(path: Path) -> None:
    """Remove a record, whichever form it has."""
    if path.is_dir():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def read_rows(record: Record) -> list[Row] | None:
    """Read a record's rows; None where they cannot be read, so that they are computed again."""
    try:
        arrays = record_files.read_arrays(record.path)
        return unpacked(arrays, record.table, len(record.keys))
    except Exception:  # whatever orbax or numpy say of a checkpoint whose files were lost
        return None


# Rows as arrays -----------------------------------------------------------------------------------


def packed(rows: Sequence[Row]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Stack what rows have in common: few arrays, and a table of what they are.

    Quantities may be missing from rows, and differ in shape.  Arrays without elements, which
    orbax does not write, are in the table alone.
    """
    groups: dict[tuple[str, tuple[int, ...], str], list[int]] = {}
    for number, row in enumerate(rows):
        for name, value in row.items():
            groups.setdefault((name, value.shape, str(value.dtype)), []).append(number)
    arrays: dict[str, np.ndarray] = {}
    table: list[dict[str, Any]] = []
    for (name, shape, dtype), members in groups.items():
        label = f"array{len(table)}"
        table.append({"name": name, "rows": members, "shape": list(shape), "dtype": dtype})
        stacked = np.stack([rows[number][name] for number in members])
        if stacked.size:
            arrays[label] = stacked
    return arrays or {"nothing": np.zeros(1)}, table


def unpacked(
    arrays: Mapping[str, np.ndarray], table: Sequence[Mapping[str, Any]], count: int
) -> list[Row]:
    """Undo `packed`."""
    rows: list[Row] = [{} for _ in range(count)]
    for place, each in enumerate(table):
        shape = (len(each["rows"]), *each["shape"])
        stacked = arrays.get(f"array{place}", np.zeros(shape, np.dtype(each["dtype"])))
        if stacked.shape != shape or str(stacked.dtype) != each["dtype"]:
            raise CheckpointError(f"{each['name']} is {stacked.dtype} {stacked.shape}")
        for number, value in zip(each["rows"], stacked, strict=True):
            rows[number][each["name"]] = np.asarray(value)
    return rows
