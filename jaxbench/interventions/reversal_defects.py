"""How well states are made again by an inverse, and what that does to a gradient."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError
from jaxbench.interventions.reversible_scan import choose
from jaxbench.interventions.state_inverses import Step

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

    from jaxbench.base import PyTree, Scalar

SMALL = 1e-8


class Defects(NamedTuple):
    """Relative errors `|h^ - h| / (|h| + 1e-8)` of the states before each step [time, *batch].

    The first is 0: the first state is given, so that it is never made again.

    Attributes:
        step: of a state made from the true state after it.
        segment: of a state made from the next checkpoint, through all states between.
    """

    step: Array
    segment: Array


class ReversalError(NamedTuple):
    """Rounding errors of a reversal after 1, 2, ... steps back [steps, *batch].

    Attributes:
        error: `|h^ - h| / |h|` in this precision.
        predicted: `u |P| |h_T| / |h|`, with u the unit roundoff and |P| the Frobenius norm of the
            product of the inverse's Jacobians, which is at most `sqrt(n)` times its largest gain.
    """

    error: Array
    predicted: Array


def defects(
    step: Step,
    inverse: Step,
    params: PyTree,
    hidden: Float[Array, "*batch n"],
    inputs: Float[Array, "time *batch features"],
    flags: Bool[Array, " time"],
) -> Defects:
    """Measure how far states made again lie from the true ones.

    Args:
        step: the recurrence.
        inverse: `(params, hidden after, input) -> hidden before`.
        params: of both.
        hidden: the first state.
        inputs: of each step.
        flags: which states are kept, for the segment defect.
    """
    before, after = states(step, params, hidden, inputs)
    one = jax.vmap(partial(inverse, params))(after, inputs)

    def back(later: Array, at: Any) -> tuple[Array, Array]:
        now, flag, true = at
        made = inverse(params, later, now)
        return choose(flag, true, made), relative_error(choose(flag, true, made), true)

    _, segment = jax.lax.scan(back, after[-1], (inputs, flags, before), reverse=True)
    return Defects(_without_first(relative_error(one, before)), _without_first(segment))


def states(
    step: Step, params: PyTree, hidden: Array, inputs: Array
) -> tuple[Float[Array, "time *batch n"], Float[Array, "time *batch n"]]:
    """The states before and after each step."""

    def advance(hidden: Array, now: Array) -> tuple[Array, tuple[Array, Array]]:
        later = step(params, hidden, now)
        return later, (hidden, later)

    return jax.lax.scan(advance, hidden, inputs)[1]


def mean_defect(values: Float[Array, " time *batch"]) -> Scalar:
    """The mean over samples and over all states but the first."""
    return jnp.mean(values[1:])


def reversal_error(
    step: Step,
    inverse: Step,
    params: PyTree,
    hidden: Float[Array, "*batch n"],
    inputs: Float[Array, "time *batch features"],
    steps: int,
) -> ReversalError:
    """Reverse the last `steps` steps of a sequence, and predict the error of each state made again.

    Rounding of relative size u at the end is enlarged by `P = J_t^-1 ... J_T^-1`, the product of
    the inverse's Jacobians at the true states: `|h^_t - h_t| ~ u |P| |h_T|`.

    Raises:
        JaxbenchError: as many steps as the sequence has, or more: the first state is given.
    """
    if not 1 <= steps < len(inputs):
        raise JaxbenchError(
            f"the last {steps} of {len(inputs)} steps cannot be reversed without the first state; "
            f"expected 1 to {len(inputs) - 1}"
        )
    before, after = states(step, params, hidden, inputs)
    n, last = after.shape[-1], after[-1]
    identity = jnp.eye(n, dtype=last.dtype).reshape(n, *[1] * (last.ndim - 1), n)
    basis = jnp.broadcast_to(identity, (n, *last.shape))

    def back(carry: Any, at: Any) -> tuple[Any, Any]:
        made, basis, log_gain = carry
        now, earlier, later = at
        made = inverse(params, made, now)

        def undo(state: Array) -> Array:
            return inverse(params, state, now)

        basis = jax.vmap(lambda tangent: jax.jvp(undo, (later,), (tangent,))[1])(basis)
        norm = jnp.sqrt(jnp.sum(basis**2, axis=(0, -1)))
        log_gain = log_gain + jnp.log(norm)
        basis = basis / norm[None, ..., None]
        size = _norm(earlier)
        rounding = 0.5 * jnp.finfo(made.dtype).eps
        predicted = rounding * jnp.exp(log_gain) * _norm(last) / size
        return (made, basis, log_gain), (_norm(made - earlier) / size, predicted)

    tail = jax.tree.map(lambda leaf: leaf[-steps:], (inputs, before, after))
    start = (last, basis, jnp.zeros(last.shape[:-1], last.dtype))
    _, (error, predicted) = jax.lax.scan(back, start, tail, reverse=True)
    return ReversalError(error[::-1], predicted[::-1])


def controller(
    interval: Int[Array, ""], defect: Scalar, threshold: Scalar | float, longest: int
) -> Int[Array, ""]:
    """Choose the next interval: half of it where `D > tau`, twice where `D < tau / 2`.

    `k <- max(1, k // 2)`, `k <- min(longest, 2 k)`; a defect that is not finite counts as large.

    Raises:
        JaxbenchError: a threshold below 0 (where it is a number), or a longest interval below 1.
    """
    if isinstance(threshold, int | float) and not threshold >= 0:
        raise JaxbenchError(f"the threshold of the defect must be 0 or more, got {threshold}")
    if longest < 1:
        raise JaxbenchError(f"the longest interval must be at least 1, got {longest}")
    shorter = jnp.maximum(1, interval // 2)
    longer = jnp.minimum(longest, 2 * interval)
    kept = jnp.where(defect < 0.5 * threshold, longer, interval)
    return jnp.where(defect <= threshold, kept, shorter)


def gradient_disagreement(one: PyTree, other: PyTree) -> Scalar:
    """`1 - cos` of the angle between two gradients, `|a/|a| - b/|b||^2 / 2`.

    In this form it is exact far below the precision of the cosine itself.
    """
    a, b = (
        jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])
        for tree in (one, other)
    )
    return 0.5 * jnp.sum((a / _norm(a) - b / _norm(b)) ** 2)


def relative_error(
    made: Float[Array, "*batch n"], true: Float[Array, "*batch n"]
) -> Float[Array, "*batch"]:
    """`|h^ - h| / (|h| + 1e-8)` over the last axis."""
    return _norm(made - true) / (_norm(true) + SMALL)


def _without_first(values: Float[Array, " time *batch"]) -> Float[Array, " time *batch"]:
    return values.at[0].set(0)


def _norm(vector: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    return jnp.sqrt(jnp.sum(vector * vector, axis=-1))
