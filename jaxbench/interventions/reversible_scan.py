"""Recurrences whose backward pass does without most of the states.

A recurrence `h_{t+1} = F(h_t, x_t)`, with an output `y_t = emit(h_{t+1}, x_t)` at each step, needs
every `h_t` in its backward pass.  Here a state is kept every `interval` steps, and the others are
made again on the way back: by an inverse of the step (`reverse`), or forwards from the checkpoint
before (`recompute`, exact).

- `rev_scan` frees the states: its memory grows with `T / interval`;
- `emulated_scan` keeps them all and gives the same gradient for checkpoints that are data of a run,
  so that runs with different intervals are one program under `vmap`;
- `dense_scan` is plain backpropagation through time.

To keep the states out of memory altogether, let `emit` give the step's loss: outputs that are
states are as many as the states themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError
from jaxbench.interventions.state_inverses import Step

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Int

    from jaxbench.base import PyTree

Emit = Callable[[Any, Any, Any], Any]
"""`(params, hidden after the step, input) -> output`."""
Scan = Callable[..., tuple[Any, Any]]
"""`(params, hidden, inputs [time, ...]) -> (last hidden, outputs [time, ...])`."""
Mode = Literal["reverse", "recompute"]


def emit_hidden(params: PyTree, hidden: Any, inputs: Any) -> Any:
    """Give the state itself, the default output."""
    del params, inputs
    return hidden


def checkpoint_flags(length: int, interval: int | Int[Array, ""]) -> Bool[Array, " time"]:
    """Which states are kept, `h_t` for every t that `interval` divides [length]."""
    return jnp.arange(length, dtype=jnp.int32) % interval == 0


def checkpoint_count(length: int, interval: int | Int[Array, ""]) -> Any:
    """States that are kept, the last one among them: `ceil(T / interval) + 1`."""
    return -(-length // interval) + 1


def dense_scan(step: Step, emit: Emit = emit_hidden) -> Scan:
    """Make a plain scan, differentiated by backpropagation through time."""
    advance = _advance(step, emit)

    def scan(params: PyTree, hidden: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(partial(advance, params), hidden, inputs)

    return scan


def rev_scan(
    step: Step,
    inverse: Step | None = None,
    *,
    interval: int,
    mode: Mode = "reverse",
    emit: Emit = emit_hidden,
) -> Scan:
    """Make a scan that keeps a state every `interval` steps for its backward pass, and the last.

    In mode `reverse` a state made again serves the gradient at its step and the next
    reconstruction, up to the next checkpoint (MacKay et al. 2018; Gruslys et al. 2016 for
    `recompute`).  For an exact inverse, or interval 1, the gradient is that of `dense_scan`.

    Args:
        step: the recurrence.
        inverse: `(params, hidden after, input) -> hidden before`; only `recompute` does without.
        interval: steps from one checkpoint to the next.
        mode: how states between checkpoints are made again.
        emit: the output of a step.

    Raises:
        JaxbenchError: `reverse` without an inverse, an unknown mode, an interval below 1; when it
            is called: an interval longer than the sequence.
    """
    if mode not in get_args(Mode):
        raise JaxbenchError(f"mode must be one of {', '.join(get_args(Mode))}; got {mode!r}")
    if mode == "reverse" and inverse is None:
        raise JaxbenchError(
            "mode = 'reverse' needs an inverse of the step; give one (see state_inverses) or use "
            "mode = 'recompute'"
        )
    advance = _advance(step, emit)

    @jax.custom_vjp
    def scan(params: PyTree, hidden: Any, inputs: Any) -> tuple[Any, Any]:
        check_interval(interval, _length(inputs))
        return jax.lax.scan(partial(advance, params), hidden, inputs)

    def forward(params: PyTree, hidden: Any, inputs: Any) -> Any:
        length = _length(inputs)
        check_interval(interval, length)
        count = -(-length // interval)
        kept = jax.tree.map(lambda leaf: jnp.zeros((count + 1, *leaf.shape), leaf.dtype), hidden)

        def save(carry: Any, at: Any) -> Any:
            (hidden, kept), (time, now) = carry, at
            place = jnp.where(time % interval == 0, time // interval, count)  # else to the spare
            kept = jax.tree.map(lambda all_, one: all_.at[place].set(one), kept, hidden)
            hidden, output = advance(params, hidden, now)
            return (hidden, kept), output

        times = jnp.arange(length)
        (last, kept), outputs = jax.lax.scan(save, (hidden, kept), (times, inputs))
        kept = jax.tree.map(lambda leaf: leaf[:count], kept)
        return (last, outputs), (params, inputs, kept, last)

    def reverse(saved: Any, cotangents: Any) -> Any:
        params, inputs, kept, last = saved
        assert inverse is not None

        def restore(time: Array, later: Any, now: Any) -> Any:
            return jax.lax.cond(
                time % interval == 0,
                lambda: jax.tree.map(lambda leaf: leaf[time // interval], kept),
                lambda: inverse(params, later, now),
            )

        times = jnp.arange(_length(inputs))
        return _pull_back(advance, restore, params, times, inputs, last, cotangents)

    def recompute(saved: Any, cotangents: Any) -> Any:
        params, inputs, kept, _ = saved
        from_last, from_outputs = cotangents
        length = _length(inputs)
        count = -(-length // interval)

        def at(tree: Any, time: Array) -> Any:
            return jax.tree.map(lambda leaf: leaf[jnp.minimum(time, length - 1)], tree)

        def segment(carry: Any, where: tuple[Array, Any]) -> Any:
            number, start = where
            times = number * interval + jnp.arange(interval)

            def again(hidden: Any, time: Array) -> tuple[Any, Any]:
                return step(params, hidden, at(inputs, time)), hidden

            def back(carry: Any, each: tuple[Array, Any]) -> tuple[Any, Any]:
                (time, hidden), (from_hidden, from_params) = each, carry
                now, from_output = at(inputs, time), at(from_outputs, time)

                def inside() -> Any:
                    _, pull = jax.vjp(advance, params, hidden, now)
                    of_params, of_hidden, of_now = pull((from_hidden, from_output))
                    return (of_hidden, _add(from_params, of_params)), of_now

                nothing = jax.tree.map(jnp.zeros_like, now)
                return jax.lax.cond(time < length, inside, lambda: (carry, nothing))

            _, states = jax.lax.scan(again, start, times)
            return jax.lax.scan(back, carry, (times, states), reverse=True)

        zero = jax.tree.map(jnp.zeros_like, params)
        (of_hidden, of_params), of_inputs = jax.lax.scan(
            segment, (from_last, zero), (jnp.arange(count), kept), reverse=True
        )
        of_inputs = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:length], of_inputs)
        return of_params, of_hidden, of_inputs

    scan.defvjp(forward, reverse if mode == "reverse" else recompute)
    return scan


def emulated_scan(step: Step, inverse: Step, emit: Emit = emit_hidden) -> Scan:
    """Make a scan with the gradient of `rev_scan` in mode `reverse`, whatever states are kept.

    It is called with a further argument, `flags` [time]: `flags[t]` says that `h_t`, the state
    before step t, counts as kept.  It stores all states and selects, so that it saves no memory;
    with all flags set the gradient is that of `dense_scan`.
    """
    advance = _advance(step, emit)

    @jax.custom_vjp
    def scan(params: PyTree, hidden: Any, inputs: Any, flags: Array) -> tuple[Any, Any]:
        del flags
        return jax.lax.scan(partial(advance, params), hidden, inputs)

    def forward(params: PyTree, hidden: Any, inputs: Any, flags: Array) -> Any:
        def save(hidden: Any, now: Any) -> Any:
            later, output = advance(params, hidden, now)
            return later, (output, hidden)

        last, (outputs, states) = jax.lax.scan(save, hidden, inputs)
        return (last, outputs), (params, inputs, flags, states, last)

    def backward(saved: Any, cotangents: Any) -> Any:
        params, inputs, flags, states, last = saved

        def restore(at: tuple[Array, Any], later: Any, now: Any) -> Any:
            flag, stored = at
            return choose(flag, stored, inverse(params, later, now))

        return (
            *_pull_back(advance, restore, params, (flags, states), inputs, last, cotangents),
            None,
        )

    scan.defvjp(forward, backward)
    return scan


def choose(flag: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """Select between two trees of equal form."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), yes, no)


def check_interval(interval: int, length: int) -> None:
    """Refuse an interval that a sequence of this length cannot have."""
    if not 1 <= interval <= length:
        raise JaxbenchError(
            f"an interval of {interval} steps between checkpoints does not fit a sequence of "
            f"{length} steps; expected 1 to {length}"
        )


def _advance(step: Step, emit: Emit) -> Callable[[PyTree, Any, Any], tuple[Any, Any]]:
    def advance(params: PyTree, hidden: Any, now: Any) -> tuple[Any, Any]:
        hidden = step(params, hidden, now)
        return hidden, emit(params, hidden, now)

    return advance


def _pull_back(
    advance: Callable[..., Any],
    restore: Callable[[Any, Any, Any], Any],
    params: PyTree,
    places: Any,
    inputs: Any,
    last: Any,
    cotangents: tuple[Any, Any],
) -> tuple[Any, Any, Any]:
    """Go back from the last state; `restore(place, later, input)` gives the state before a step.

    Returns the cotangents of the parameters, the first state and the inputs.
    """
    from_last, from_outputs = cotangents

    def back(carry: Any, at: Any) -> tuple[Any, Any]:
        later, from_hidden, from_params = carry
        place, now, from_output = at
        hidden = restore(place, later, now)
        _, pull = jax.vjp(advance, params, hidden, now)
        of_params, of_hidden, of_now = pull((from_hidden, from_output))
        return (hidden, of_hidden, _add(from_params, of_params)), of_now

    carry = (last, from_last, jax.tree.map(jnp.zeros_like, params))
    carry, of_inputs = jax.lax.scan(back, carry, (places, inputs, from_outputs), reverse=True)
    _, of_hidden, of_params = carry
    return of_params, of_hidden, of_inputs


def _add(one: PyTree, other: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, one, other)


def _length(inputs: Any) -> int:
    return int(jax.tree.leaves(inputs)[0].shape[0])
