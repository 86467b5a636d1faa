"""Checkpoints: what a study's runs have come to, on disk, so that a study survives being killed.

A study is deterministic, so it resumes by being carried out again: whatever the engine has already
found is read instead of computed.  A *record* is what one block of runs has come to, an orbax
checkpoint of its own; its name says of which runs.  There are as many records as finished blocks,
each with scores, curves and the parameters that are still needed, and one of the block that is
training, with the state after its last epoch that was due.  Orbax is imported when first used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxbench.training.checkpoint_folder import (
    CheckpointError,
    check_about,
    read_about,
    remove_folder,
    write_about,
)

LOCK = "process-lock"
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
        folder: where they are; made when something is written, and held for this process alone.
        about: what decides the numbers (config, versions, devices), as strict JSON.
        every: epochs from one checkpoint of a block's state to the next.

    Attributes:
        resumed: how often the study was continued.
        restored: how many trained runs were read instead of trained, this time.

    Raises:
        CheckpointError: those in the folder are another study's, or another process is at work.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], every: int) -> None:
        self.folder = folder
        self.every = every
        self.restored = 0
        self.resumed = 0
        self.about = {**json.loads(json.dumps(about)), "format": FORMAT}
        self._lock: int | None = None
        self._records: list[Record] = []
        before = read_about(folder)
        if before is not None:
            check_about(folder, before, self.about)
            self._hold()
            self._read_index()
            self.resumed = before["resumed"] + 1
            self._write_about()

    @property
    def any(self) -> bool:
        """Whether there is something to continue from."""
        return bool(self._records)

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
        from orbax.checkpoint import v1 as ocp

        arrays, table = packed(rows)
        name = hashlib.sha256(json.dumps([kind, done, *keys]).encode()).hexdigest()[:24]
        path = self.folder.absolute() / f"{kind}-{name}"
        record = Record(path, kind, tuple(keys), done, table)
        try:
            self._begin()
            ocp.save(
                path,
                arrays,
                custom_metadata={
                    "kind": kind,
                    "keys": list(keys),
                    "done": done,
                    "table": table,
                },
                overwrite=True,
            )
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
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Remove everything, at once for whoever looks."""
        self._records = []
        if self._lock is not None:
            remove_folder(self.folder)
        self.close()

    def _places(self, kind: str, keys: Sequence[str]) -> list[tuple[Record, int]] | None:
        """Find the record and row of each run."""
        places = {
            key: (record, row)
            for record in self._records
            if record.kind == kind
            for row, key in enumerate(record.keys)
        }
        return [places[key] for key in keys] if all(key in places for key in keys) else None

    def _sweep(self, before: Sequence[Record]) -> None:
        """Remove from disk what is no record any more."""
        for path in {each.path for each in before} - {each.path for each in self._records}:
            remove_folder(path)

    def _begin(self) -> None:
        """Make the folder, and write down what decides the numbers."""
        if self._lock is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._hold()
        self._write_about()

    def _write_about(self) -> None:
        counted = {"every": self.every, "resumed": self.resumed}
        write_about(self.folder, {**self.about, **counted})

    def _hold(self) -> None:
        """Keep other processes out until this one ends, however it ends."""
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            self._lock = None
            raise CheckpointError(
                f"another process is at work on this study in {self.folder}; wait for it, or "
                f"choose another --out"
            ) from error

    def _read_index(self) -> None:
        """List the records, passing over what a killed process left unfinished."""
        from orbax.checkpoint import v1 as ocp

        for path in sorted(self.folder.absolute().iterdir()):
            if not path.is_dir():
                continue
            try:
                said = ocp.metadata(path).custom_metadata
                record = Record(
                    path, said["kind"], tuple(said["keys"]), said["done"], said["table"]
                )
            except Exception:  # whatever orbax says of half a checkpoint
                shutil.rmtree(path, ignore_errors=True)
                continue
            if not path.name.startswith("."):  # as those do that were being removed
                self._records.append(record)
        self._records.sort(key=lambda each: each.done)


def read_rows(record: Record) -> list[Row] | None:
    """Read a record's rows; None where they cannot be read, so that they are computed again."""
    from orbax.checkpoint import v1 as ocp

    try:
        arrays = ocp.load(record.path)
        return unpacked(arrays, record.table, len(record.keys))
    except Exception:  # whatever orbax says of a checkpoint whose files were lost
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
