"""Processes that carry out one study together: which trains what, and how results meet.

Every process carries out the whole study and takes the same decisions, because it is given every
result: it trains its share of the runs on its own devices, and then all exchange what they found.
The programs are those of one process, without communication in them, so a run's bits are too.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxbench.base import JaxbenchError

T = TypeVar("T")
SMALLEST_MESSAGE = 1024
"""Bytes; longer messages are padded to powers of two, so that few programs gather them."""


class ProcessError(JaxbenchError):
    """Another process of this study failed, or is not at the same place of it."""

    exit_code = 1

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a study, as one of them sees them.

    Attributes:
        index: which one this is; process 0 writes the report.
        devices: how many devices each process has.
    """

    index: int = 0
    devices: tuple[int, ...] = (1,)

    @property
    def count(self) -> int:
        """How many processes there are."""
        return len(self.devices)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes the report."""
        return self.index == 0

    def share(self, units: Sequence[Hashable]) -> list[bool]:
        """Say which items are this process's; those of an equal unit stay together.

        Units are dealt out to the devices of all processes in turn: to every process's first
        device, then to every second one, and so on, so that process 0 always has one of them.
        """
        rounds = itertools.zip_longest(*([process] * n for process, n in enumerate(self.devices)))
        turns = [process for turn in rounds for process in turn if process is not None]
        owners: dict[Hashable, int] = {}
        for unit in units:
            owners.setdefault(unit, turns[len(owners) % len(turns)])
        return [owners[unit] == self.index for unit in units]

    def together(self, compute: Callable[[], T]) -> list[T]:
        """Compute something in each process and give what all found, in the order of processes.

        Raises:
            Exception: whatever `compute` raised here.
            ProcessError: it failed in another process, with that one's words; or another process
                is dead or at another place of the study.
        """
        if self.count == 1:
            return [compute()]
        failure: Exception | None = None
        value: Any = None
        try:
            value = compute()
        except Exception as error:
            failure = error
            value = f"{type(error).__name__}: {error}", getattr(error, "exit_code", 1)
        step = next(EXCHANGES)
        answers = [
            pickle.loads(answer)
            for answer in gather(self.index, pickle.dumps((step, failure is None, value)))
        ]
        if failure is not None:
            raise failure
        for process, (its_step, succeeded, answer) in enumerate(answers):
            if not succeeded:
                words, code = answer
                raise ProcessError(f"process {process} failed: {words}", code)
            if its_step != step:
                raise ProcessError(
                    f"process {process} is at another place of the study than process "
                    f"{self.index}; start every process with the same command and files"
                )
        return [answer for _, _, answer in answers]

    def agree(self, said: Mapping[str, Any]) -> None:
        """Make sure that all processes carry out the same, before any of them trains.

        Args:
            said: what decides the numbers, under names that a user knows.

        Raises:
            JaxbenchError: another process was told something else; it names what.
        """
        first, *others = self.together(lambda: dict(said))
        for process, other in enumerate(others, 1):
            names = [name for name in {**first, **other} if first.get(name) != other.get(name)]
            if names:
                raise JaxbenchError(
                    f"process {process} was told something else than process 0: "
                    f"{', '.join(names)}; start every process with the same command, files and "
                    f"versions"
                )


ALONE = Processes()
"""One process, which is all there is."""

EXCHANGES = itertools.count()
"""Numbers the exchanges of this process."""


def current() -> Processes:
    """The processes that jax knows: this one alone, unless `jax.distributed` was started."""
    owners = collections.Counter(device.process_index for device in jax.devices())
    return Processes(
        jax.process_index(), tuple(owners[process] for process in range(jax.process_count()))
    )


def gather(index: int, message: bytes) -> list[bytes]:
    """Give every process's message to every process, by way of one device of each.

    Raises:
        ProcessError: another process is dead or cannot be reached.
    """
    sizes = gather_rows(index, np.array([len(message)], np.int32))[:, 0]
    padded = np.zeros(max(SMALLEST_MESSAGE, 1 << (int(sizes.max()) - 1).bit_length()), np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    rows = gather_rows(index, padded)
    return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]


def gather_rows(index: int, row: np.ndarray) -> np.ndarray:
    """Stack the processes' rows [processes, length].

    `multihost_utils.process_allgather` would want equally many devices in every process.
    """
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[process] for process in sorted(firsts)]), ("processes",))
    own = jax.device_put(row[None], firsts[index])
    rows = jax.make_array_from_single_device_arrays(
        (len(firsts), len(row)), NamedSharding(mesh, P("processes")), [own]
    )
    try:
        everywhere = jax.jit(identity, out_shardings=NamedSharding(mesh, P()))(rows)
        return np.asarray(everywhere.addressable_data(0))
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter from numpy's reading
        reason = " ".join(str(error).split())
        raise ProcessError(
            f"another process of this study died or cannot be reached, so the study ends: start "
            f"all again, with --resume if they wrote checkpoints ({reason})"
        ) from error


def identity(rows: jax.Array) -> jax.Array:
    """The same again, wherever its sharding puts it."""
    return rows
