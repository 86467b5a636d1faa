"""Reference backward passes that make states again forwards: segments, and Revolve's schedule.

Both give the gradient of plain backpropagation through time, and call no inverse.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.interventions.reversible_scan import (
    Emit,
    Scan,
    check_interval,
    emit_hidden,
)
from jaxbench.interventions.state_inverses import Step

if TYPE_CHECKING:
    from jaxtyping import Array

    from jaxbench.base import PyTree

ADVANCE, STORE, RESTORE, REVERSE = range(4)


class Action(NamedTuple):
    """One action of a schedule.

    Attributes:
        kind: ADVANCE does the step `time`; STORE keeps the state before it in `slot`; RESTORE takes
            that state from `slot`; REVERSE does the step's part of the gradient.
        time: a step, counted from 0.
        slot: where a state is kept; 0 where none is.
    """

    kind: int
    time: int
    slot: int


# --------------------------------------------------------------------------------------------------
# Segments
# --------------------------------------------------------------------------------------------------


def segment_scan(step: Step, *, segment: int | None = None, emit: Emit = emit_hidden) -> Scan:
    """Make a scan over segments under `jax.checkpoint`, each made again as a whole on the way back.

    Args:
        step: the recurrence.
        segment: steps of a segment; about `sqrt(T)` if not given, which keeps `2 sqrt(T)` states at
            a time (Chen et al. 2016, section 3).
        emit: the output of a step.

    Raises:
        JaxbenchError: when it is called, a segment longer than the sequence.
    """

    def advance(params: PyTree, hidden: Any, now: Any) -> tuple[Any, Any]:
        hidden = step(params, hidden, now)
        return hidden, emit(params, hidden, now)

    @jax.checkpoint
    def along(params: PyTree, hidden: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(partial(advance, params), hidden, inputs)

    def scan(params: PyTree, hidden: Any, inputs: Any) -> tuple[Any, Any]:
        length = len(jax.tree.leaves(inputs)[0])
        each = math.isqrt(length) if segment is None else segment
        check_interval(each, length)
        count = length // each
        whole = jax.tree.map(
            lambda leaf: leaf[: count * each].reshape(count, each, *leaf.shape[1:]), inputs
        )
        hidden, outputs = jax.lax.scan(partial(along, params), hidden, whole)
        outputs = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)
        if count * each == length:
            return hidden, outputs
        rest = jax.tree.map(lambda leaf: leaf[count * each :], inputs)
        hidden, more = along(params, hidden, rest)
        return hidden, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), outputs, more)

    return scan


# --------------------------------------------------------------------------------------------------
# Revolve
# --------------------------------------------------------------------------------------------------


def repetitions(steps: int, snapshots: int) -> int:
    """The least r with `C(snapshots + r, snapshots) >= steps`: how often a step is done at most.

    Griewank & Walther 2000, proposition 1.

    Raises:
        JaxbenchError: no steps, or no snapshot.
    """
    if steps < 1 or snapshots < 1:
        raise JaxbenchError(
            f"a schedule needs at least one step and one snapshot; got {steps} and {snapshots}"
        )
    r = 0
    while math.comb(snapshots + r, snapshots) < steps:
        r += 1
    return r


def fewest_advances(steps: int, snapshots: int) -> int:
    """Forward steps of an optimal schedule, `r l - C(s + r, r - 1)`, for l steps and s snapshots.

    Griewank & Walther 2000, proposition 1; the steps inside REVERSE are not counted.
    """
    r = repetitions(steps, snapshots)
    return r * steps - (math.comb(snapshots + r, r - 1) if r else 0)


def revolve(steps: int, snapshots: int) -> list[Action]:
    """Write down an optimal schedule that reverses `steps` steps with `snapshots` kept states.

    The first state counts as a snapshot, in slot 0.

    Raises:
        JaxbenchError: no steps, or no snapshot.
    """
    repetitions(steps, snapshots)
    return [Action(STORE, 0, 0), *_reversed(0, steps, 0, snapshots)]


def _reversed(begin: int, end: int, slot: int, snapshots: int) -> Iterator[Action]:
    """Reverse the steps from `begin` to `end`, whose first state is current and kept in `slot`.

    `snapshots` counts the slots from `slot` on.
    """
    while end > begin + 1 and snapshots > 1:
        middle = begin + first_part(end - begin, snapshots)
        yield from (Action(ADVANCE, time, 0) for time in range(begin, middle))
        yield Action(STORE, middle, slot + 1)
        yield from _reversed(middle, end, slot + 1, snapshots - 1)
        yield Action(RESTORE, begin, slot)
        end = middle
    for last in reversed(range(begin, end)):
        yield from (Action(ADVANCE, time, 0) for time in range(begin, last))
        yield Action(REVERSE, last, 0)
        if last > begin:
            yield Action(RESTORE, begin, slot)


def first_part(steps: int, snapshots: int) -> int:
    """How many steps to advance before the next snapshot is taken, so that both parts are optimal.

    With `beta(s, r) = C(s + r, s)`, the second part of the split must be in
    `[beta(s - 1, r - 1), beta(s - 1, r)]` and the first in `[beta(s, r - 2), beta(s, r - 1)]`.
    """
    r = repetitions(steps, snapshots)
    second = math.comb(snapshots + r - 2, snapshots - 1)
    return max(1, min(math.comb(snapshots + r - 1, snapshots), steps - second))


@functools.lru_cache(maxsize=32)
def _table(steps: int, snapshots: int) -> np.ndarray:
    return np.array(revolve(steps, snapshots), np.int32)


def revolve_scan(step: Step, *, snapshots: int, emit: Emit = emit_hidden) -> Scan:
    """Make a scan whose backward pass executes Revolve's schedule with `snapshots` kept states.

    The forward pass keeps nothing but the first state; the backward pass goes through the actions
    one by one.

    Args:
        step: the recurrence.
        snapshots: states kept at a time, the first one among them.
        emit: the output of a step.

    Raises:
        JaxbenchError: no snapshot.
    """
    repetitions(1, snapshots)

    def advance(params: PyTree, hidden: Any, now: Any) -> tuple[Any, Any]:
        hidden = step(params, hidden, now)
        return hidden, emit(params, hidden, now)

    @jax.custom_vjp
    def scan(params: PyTree, hidden: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(partial(advance, params), hidden, inputs)

    def forward(params: PyTree, hidden: Any, inputs: Any) -> Any:
        return scan(params, hidden, inputs), (params, hidden, inputs)

    def backward(saved: Any, cotangents: Any) -> Any:
        params, first, inputs = saved
        from_last, from_outputs = cotangents

        def act(carry: Any, action: Array) -> tuple[Any, None]:
            current, kept, from_hidden, from_params, of_inputs = carry
            kind, time, slot = action[0], action[1], action[2]
            now = jax.tree.map(lambda leaf: leaf[time], inputs)

            def forwards() -> Any:
                return step(params, current, now), *carry[1:]

            def store() -> Any:
                put = jax.tree.map(lambda all_, one: all_.at[slot].set(one), kept, current)
                return current, put, *carry[2:]

            def restore() -> Any:
                return jax.tree.map(lambda leaf: leaf[slot], kept), *carry[1:]

            def reverse() -> Any:
                _, pull = jax.vjp(advance, params, current, now)
                from_output = jax.tree.map(lambda leaf: leaf[time], from_outputs)
                of_params, of_hidden, of_now = pull((from_hidden, from_output))
                put = jax.tree.map(lambda all_, one: all_.at[time].set(one), of_inputs, of_now)
                return current, kept, of_hidden, jax.tree.map(jnp.add, from_params, of_params), put

            return jax.lax.switch(kind, (forwards, store, restore, reverse)), None

        kept = jax.tree.map(lambda leaf: jnp.zeros((snapshots, *leaf.shape), leaf.dtype), first)
        zero = jax.tree.map(jnp.zeros_like, (params, inputs))
        table = jnp.asarray(_table(len(jax.tree.leaves(inputs)[0]), snapshots))
        (_, _, of_hidden, of_params, of_inputs), _ = jax.lax.scan(
            act, (first, kept, from_last, *zero), table
        )
        return of_params, of_hidden, of_inputs

    scan.defvjp(forward, backward)
    return scan
