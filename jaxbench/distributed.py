"""One study on several hosts: `jax.distributed`, from its start to a clear end.

Every host starts the same command.  TPU VMs, Slurm, Open MPI and Kubernetes say themselves who is
who; elsewhere options or the environment do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxbench.training.processes import Processes

START_TIMEOUT = 120
"""Seconds that a process waits for all others to start."""
PEER_TIMEOUT = 30
"""Seconds without a sign of life, by default, after which a process is taken for dead."""
GRACE = 3
"""Seconds by which process 0 outlives the others where all of them fail."""
WATCH = """
import sys
said = sys.stdin.buffer.read()
if not said.endswith(b"ended"):
    sys.stderr.write(sys.argv[2 if said.startswith(b"joined") else 1])
"""
"""Waits until the process that started it ends, and says why where that one could not."""


watches: list[subprocess.Popen[bytes]] = []
"""The processes that run `WATCH` for this one."""


class StartError(JaxbenchError):
    """`jax.distributed` could not be started."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class Place:
    """Which of a study's processes this one is; what is None, the cluster is asked.

    Attributes:
        coordinator: host and port at which process 0 listens.
        processes: how many there are.
        process: which this one is, from 0.
        timeout: seconds without a sign of life after which a process is taken for dead.
    """

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None
    timeout: int = PEER_TIMEOUT


@contextlib.contextmanager
def joined(place: Place | None) -> Iterator[Processes]:
    """Join the other processes of a study, and leave when all are done; alone if there is no place.

    A process that dies ends the others: at once where they wait for its results, else after the
    timeout.  jax's service then aborts them, as it does where not all start in time, so that the
    last word is another process's: `WATCH`.

    Raises:
        JaxbenchError: no cluster was found, or jax cannot join it.
    """
    if place is None:
        from jaxbench.training.processes import ALONE

        yield ALONE
        return
    alone = (
        f"error: not all processes of the study joined within {START_TIMEOUT} s: start every one, "
        f"with the same --coordinator, which all must reach\n"
    )
    left = (
        f"error: the study ended without a report, because another of its processes died or gave "
        f"no sign of life for {place.timeout} s, or because this one was killed: start all again, "
        f"with --resume if they wrote checkpoints\n"
    )
    command = [sys.executable, "-I", "-S", "-c", WATCH, alone, left]
    watch = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    watches.append(watch)  # after a failure it watches until our own words are out
    start(place)
    assert watch.stdin is not None
    watch.stdin.write(b"joined")
    watch.stdin.flush()
    from jaxbench.training import processes

    yield processes.current()
    import jax

    jax.distributed.shutdown()
    end_watch()


def start(place: Place) -> None:
    """Start `jax.distributed`, before anything asks jax for its devices."""
    import jax

    try:
        jax.distributed.initialize(
            place.coordinator,
            place.processes,
            place.process,
            initialization_timeout=START_TIMEOUT,
            heartbeat_timeout_seconds=place.timeout,
        )
    except ValueError as error:
        raise JaxbenchError(
            f"no cluster was found ({error}): give --coordinator, --processes and --process-id"
        ) from error
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise StartError(f"jax.distributed could not be started: {reason}") from error


def waits_for_others() -> bool:
    """Whether an ordinary end of this process would wait for the study's other processes."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def end_watch() -> None:
    """Say that this process ends in order, and has said why if it failed."""
    while watches:
        watches.pop().communicate(b"ended")


def let_others_end() -> None:
    """Wait a little in the process that the others are connected to, if they are to end as well.

    They have learned of the failure at the same time, and jax aborts those that are still there
    when process 0 has gone.
    """
    if waits_for_others() and sys.modules["jax"].process_index() == 0:
        time.sleep(GRACE)
