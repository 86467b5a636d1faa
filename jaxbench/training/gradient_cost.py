"""What the gradient of a recurrence costs, by how its states are kept: memory and time.

Training in a study may stand in for a scan that frees its states (`reversal_checkpointing` emulates
it, so that every run can have an interval of its own), and then says nothing about memory.  Here
the scan itself is compiled, with the loss of a step taken inside it, for the study's sequences and
for longer ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError, Model
from jaxbench.training.timing import time_in_turn

if TYPE_CHECKING:
    from jaxbench.base import MakeScan

MULTIPLES = (1, 5, 25)
"""Of the study's sequence length: 80 to 2000 steps where it has 80."""

BATCH = 32
SECONDS = 0.5
"""For the repeats of all methods at one length; each is called three times at least."""


@dataclasses.dataclass(frozen=True)
class GradientCost:
    """One way to keep states, at one sequence length.

    Attributes:
        method: its name.
        length: time steps.
        batch: sequences at a time.
        temporary_bytes: XLA's temporary memory; None where the backend does not tell.
        memory_ratio: that over the first method's.
        seconds: the median of a gradient's times.
        time_ratio: that over the first method's.
        repeats: of each method, called in turn.
    """

    method: str
    length: int
    batch: int
    temporary_bytes: int | None
    memory_ratio: float | None
    seconds: float
    time_ratio: float
    repeats: int


def gradient_costs(
    model: Model,
    scans: Mapping[str, MakeScan],
    length: int,
    features: int,
    *,
    batch: int = BATCH,
    seconds: float = SECONDS,
) -> list[GradientCost]:
    """Compile each method's gradient of the mean squared output, and time them in turn.

    Args:
        model: a recurrent one.
        scans: `{name: (emit) -> scan}`, the reference first.
        length: time steps.
        features: of an input.
        batch: sequences at a time.
        seconds: for the repeats of all methods.

    Raises:
        JaxbenchError: a model without a recurrence.
    """
    recurrence = model.recurrence
    if recurrence is None:
        raise JaxbenchError(f"{model.name!r} has no recurrence, whose gradient could be measured")
    device = jax.local_devices()[0]
    inputs = jax.random.normal(jax.random.key(0), (length, batch, features))
    params = model.init(jax.random.key(1), inputs[:1].swapaxes(0, 1))
    params, inputs = jax.device_put((params, inputs), device)

    def squared_output(params: Any, hidden: Any, now: Any) -> Any:
        del now
        return jnp.mean(recurrence.readout(params, hidden) ** 2)

    def compiled(make_scan: MakeScan) -> jax.stages.Compiled:
        scan = make_scan(squared_output)

        def loss(params: Any, inputs: Any) -> Any:
            _, losses = scan(params, recurrence.initial_hidden(params, (batch,)), inputs)
            return jnp.mean(losses)

        return jax.jit(jax.grad(loss)).lower(params, inputs).compile()

    gradients = [compiled(make_scan) for make_scan in scans.values()]
    calls = [lambda each=each: each(params, inputs) for each in gradients]
    medians, repeats = time_in_turn(calls, seconds)
    needed = [_temporary_bytes(each) for each in gradients]
    return [
        GradientCost(
            method=name,
            length=length,
            batch=batch,
            temporary_bytes=used,
            memory_ratio=used / needed[0] if used is not None and needed[0] else None,
            seconds=taken,
            time_ratio=taken / medians[0],
            repeats=repeats,
        )
        for name, used, taken in zip(scans, needed, medians, strict=True)
    ]


def _temporary_bytes(compiled: jax.stages.Compiled) -> int | None:
    return getattr(compiled.memory_analysis(), "temp_size_in_bytes", None)
