"""Options of commands that run on several hosts."""

from __future__ import annotations

import functools
import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any

import click

from jaxbench.distributed import PEER_TIMEOUT, Place

LAST_PORT = 65535
OPTIONS = [
    click.option(
        "--distributed", is_flag=True,
        help="Join the other processes of a TPU slice, Slurm, Open MPI or Kubernetes job.",
    ),
    click.option(
        "--coordinator", metavar="HOST:PORT", envvar="JAX_COORDINATOR_ADDRESS", show_envvar=True,
        help="Where process 0 listens, if the cluster does not say.",
    ),
    click.option(
        "--processes", type=click.IntRange(1), envvar="JAX_NUM_PROCESSES", show_envvar=True,
        help="How many processes train the study.",
    ),
    click.option(
        "--process-id", type=click.IntRange(0), envvar="JAX_PROCESS_ID", show_envvar=True,
        help="Which of them this is, from 0; process 0 writes the report.",
    ),
    click.option(
        "--peer-timeout", type=click.IntRange(2), metavar="SECONDS", default=PEER_TIMEOUT,
        show_default=True, help="A process that shows no sign of life for so long ends the study.",
    ),
]  # fmt: skip


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options, and hand it the `place` that they name, or None."""

    @functools.wraps(command)
    def placed(
        *,
        distributed: bool,
        coordinator: str | None,
        processes: int | None,
        process_id: int | None,
        peer_timeout: int,
        **others: Any,
    ) -> Any:
        place = Place(coordinator, processes, process_id, peer_timeout)
        return command(place=checked(place, distributed), **others)

    for option in reversed(OPTIONS):
        placed = option(placed)
    return placed


def is_address(text: str) -> bool:
    """Tell whether a text is HOST:PORT; an IPv6 address stands in brackets."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= LAST_PORT:
        return False
    if not (host.startswith("[") and host.endswith("]")):
        return re.fullmatch(r"[^\s:/\[\]]+", host) is not None
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True


def checked(place: Place, detect: bool) -> Place | None:
    """Refuse a place that is not whole; give None where there is none."""
    named = {
        "--coordinator": place.coordinator,
        "--processes": place.processes,
        "--process-id": place.process,
    }
    missing = [option for option, value in named.items() if value is None]
    if place.coordinator is not None and not is_address(place.coordinator):
        raise click.UsageError(
            f"--coordinator is {place.coordinator!r}; expected HOST:PORT, such as localhost:1234 "
            f"or [::1]:1234, with a port from 1 to {LAST_PORT}"
        )
    last = math.inf if place.processes is None else place.processes - 1
    if place.process is not None and place.process > last:
        raise click.UsageError(f"--process-id is {place.process}; expected 0 to {last}")
    if detect:
        return place
    if len(missing) == len(named):
        return None
    if missing:
        raise click.UsageError(
            f"{', '.join(missing)} missing: give all three of {', '.join(named)}, or --distributed "
            f"where the cluster knows the rest"
        )
    return place
