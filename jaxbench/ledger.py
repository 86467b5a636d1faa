"""The ledger of looks: how often a track's baseline was compared with, and what that costs.

Whoever tries twenty ideas against one baseline finds one that is "significant" at 0.05 by luck.
Every comparison is therefore written down, one JSON line each, in the folder of all results.
Controls are not: a comparison with one can only weaken a claim, so that no luck is gained by it.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxbench.config import Config

LEDGER = "ledger.jsonl"

Identity = tuple[str, str, str, str, str, str]


class LedgerError(JaxbenchError):
    """The ledger could not be read or written although everything before went well."""

    exit_code = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """One comparison of an idea with a baseline.

    Attributes:
        study, run_id: whose it is.
        date: when it was made, UTC, ISO 8601.
        track: the track's name.
        baseline: digest of what identifies the baseline arm; see `baseline_digest`.
        idea: the arm that was compared with it.
        n: number of pairs.
        p: its p-value before correction; the anytime-valid one where seeds were added on demand.
        endpoint: what was compared; empty for the score.
        baseline_arm: the baseline's name where others of the study have its digest, or empty: such
            arms differ in their grids only.
    """

    study: str
    run_id: str
    date: str
    track: str
    baseline: str
    idea: str
    n: int
    p: float
    endpoint: str = ""
    baseline_arm: str = ""

    @property
    def identity(self) -> Identity:
        """What makes it the same look as another: made again, it does not count again."""
        arms = self.baseline, self.baseline_arm, self.idea
        return self.run_id, self.track, *arms, self.endpoint

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind: Any = {"n": int, "p": int | float}.get(field.name, str)
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = {int: "an integer", str: "text"}.get(kind, "a number")
                raise JaxbenchError(f"a look's {field.name} is {value!r}; expected {wanted}")
        if not 0.0 <= self.p <= 1.0 or self.n < 0:
            raise JaxbenchError(f"a look has n = {self.n}, p = {self.p}; expected 0 <= p <= 1")


class Standing(NamedTuple):
    """What became of one look among all at the same baseline on the same track.

    Attributes:
        looks: how many there have been.
        p_corrected: its p-value after Holm's correction for all of them; None if it is not there.
    """

    looks: int
    p_corrected: float | None


def now() -> str:
    """Give the date for a look, in UTC to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def baseline_digest(identity: Mapping[str, Any]) -> str:
    """Fingerprint what identifies a baseline arm: equal values in any order give equal digests.

    Args:
        identity: what its scores depend on, as strict JSON: track options, model, intervention,
            fixed values, training.  Neither its grid, which changes with parity, nor its seeds.

    Raises:
        JaxbenchError: a value has no form in strict JSON.
    """
    try:
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise JaxbenchError(f"a baseline's identity must be strict JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


def enter(out: str | os.PathLike[str], config: Config, report: Mapping[str, Any]) -> dict[str, Any]:
    """Record a finished study's primary and secondary comparisons, and say in its report so.

    Args:
        out: the folder of all results.
        config: the study.
        report: as `run_study` made it.

    Returns:
        The report, with `bench_report.ledger` and, where there were looks before, a sentence on
        them among its limitations.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    from jaxbench.reporting import sentences

    bench, date = report["bench_report"], now()
    compared = [each for each in bench["comparisons"] if each["role"] != "control"]
    names = {each["baseline_arm"] for each in compared}
    digests = {name: baseline_digest(config.identity_of(name)) for name in names}
    shared = collections.Counter(digests.values())
    looks = [
        Look(
            study=bench["study"],
            run_id=bench["run_id"],
            date=date,
            track=bench["track"],
            baseline=digests[each["baseline_arm"]],
            idea=each["idea_arm"],
            n=each["n_pairs"],
            p=each["sequential"]["p_values"][-1] if each.get("sequential") else each["p_value"],
            endpoint=each.get("endpoint") or "",
            baseline_arm=each["baseline_arm"] if shared[digests[each["baseline_arm"]]] > 1 else "",
        )
        for each in compared
    ]
    for look in looks:
        record(out, look)
    entries = []
    for each, look in zip(compared, looks, strict=True):
        all_looks, corrected = standing(out, look)
        own = len({other.identity for other in looks if other.baseline == look.baseline})
        said = {name: each.get(name) for name in ("idea_arm", "baseline_arm", "role", "endpoint")}
        numbers = {"looks": all_looks, "looks_of_this_study": own, "p": look.p}
        entries.append(
            {**said, "baseline_digest": look.baseline, **numbers, "p_corrected": corrected}
        )
    ledger = {"file": LEDGER, "date": date, "comparisons": entries}
    limits = sentences.looks(ledger, bench["track"], bench["protocol"]["alpha"])
    return {
        **report,
        "limitations": " ".join([report["limitations"], *limits]),
        "bench_report": {**bench, "ledger": ledger},
    }


def record(out: str | os.PathLike[str], look: Look) -> None:
    """Write a look down, unless it stands there already.

    The file is locked from reading its end to the write, so that processes that record at once
    keep their lines whole and count a look once.

    Args:
        out: the folder of all results; it is made where missing.
        look: the comparison.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    path = Path(out) / LEDGER
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # closing the file gives it back
            if any(_same(each, look) for each in read(out)):
                return
            end = os.lseek(handle, 0, os.SEEK_END)
            torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
            line = json.dumps(dataclasses.asdict(look), allow_nan=False) + "\n"
            os.write(handle, ("\n" * torn + line).encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be written: {error.strerror}") from error


def read(out: str | os.PathLike[str]) -> list[Look]:
    """List all looks in the order in which they were first made, each once, as last written.

    A line that is no look, such as one torn by a crash, is passed over.

    Raises:
        LedgerError: the ledger is there and cannot be read.
    """
    path = Path(out) / LEDGER
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be read: {error.strerror}") from error
    found: dict[Identity, Look] = {}
    for line in lines:
        look = _look(line)
        if look is not None:
            found[look.identity] = look
    return list(found.values())


def standing(out: str | os.PathLike[str], look: Look) -> Standing:
    """Say how many looks there have been at a look's baseline on its track, and correct its p.

    Args:
        out: the folder of all results.
        look: the one whose corrected p-value is wanted.

    Raises:
        LedgerError: the ledger is there and cannot be read.
    """
    from jaxbench.judging import holm

    family = [
        each for each in read(out) if (each.track, each.baseline) == (look.track, look.baseline)
    ]
    corrected = dict(
        zip([each.identity for each in family], holm([each.p for each in family]), strict=True)
    )
    return Standing(len(family), corrected.get(look.identity))


def _same(one: Look, other: Look) -> bool:
    """Tell whether two looks say the same, whenever they were made."""
    return dataclasses.replace(one, date=other.date, study=other.study) == other


def _look(line: bytes) -> Look | None:
    """Read a line; None where it is no look."""
    try:
        entry = json.loads(line)
        fields = {field.name for field in dataclasses.fields(Look)} & entry.keys()
        return Look(**{name: entry[name] for name in fields})
    except (ValueError, TypeError, AttributeError, RecursionError, JaxbenchError):
        return None
