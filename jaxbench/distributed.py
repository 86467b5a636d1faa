"""One study on several hosts: `jax.distributed`, from its start to a clear end.

Every host starts the same command.  TPU VMs, Slurm, Open MPI and Kubernetes say themselves who is
who; elsewhere options or the environment do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxbench.training.processes import Processes

START_TIMEOUT = 120
"""Seconds that a process waits for all others to start."""
PEER_TIMEOUT = 30
"""Seconds without a sign of life, by default, after which a process is taken for dead."""
WATCH = "import sys; sys.stdin.buffer.read() == b'ended' or sys.stderr.write(sys.argv[1])"
"""Waits until the process that started it ends; says what to think of it if that came suddenly."""


class StartError(JaxbenchError):
    """The processes of a study did not find each other."""

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
    timeout.  jax's service then aborts them, so the last word is another process's: `WATCH`.

    Raises:
        JaxbenchError: no cluster was found, or the others did not start in time.
    """
    if place is None:
        from jaxbench.training.processes import ALONE

        yield ALONE
        return
    last_words = (
        "error: the study ended without a report, because another of its processes died or gave no "
        f"sign of life for {place.timeout} s, or because this one was killed\n"
    )
    command = [sys.executable, "-I", "-S", "-c", WATCH, last_words]
    watch = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        start(place)
        from jaxbench.training import processes

        yield processes.current()
        import jax

        jax.distributed.shutdown()
    finally:
        watch.communicate(b"ended")


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
        raise StartError(
            f"the processes did not find each other within {START_TIMEOUT} s: {reason}"
        ) from error


def waits_for_others() -> bool:
    """Whether an ordinary end of this process would wait for the study's other processes."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()
