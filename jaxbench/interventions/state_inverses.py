"""Inverses of a recurrent step that is not built to be reversed: the state before it, roughly.

With the step `h' = F(h, x)`, each function here makes an `inverse(params, h', x) -> h`.  A cell
that is reversible by construction brings its own (`Recurrence.inverse`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError, Recurrence

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import PyTree

Step = Callable[[Any, Any, Any], Any]
"""`(params, hidden [*batch, n], input [*batch, features]) -> hidden [*batch, n]`."""
Gates = Callable[[Any, Any, Any], tuple[Any, Any]]
InverseKind = Literal["exact", "reflect", "fixedpoint", "newton"]
NEWTON_ITERATIONS = 4
DAMPINGS = (0.0, 0.125, 0.25, 0.5, 1.0)


def reflect(step: Step) -> Step:
    """Take one more step and mirror it: `h = 2 h' - F(h', x)`.

    Its error is the second difference of the trajectory, where the input is the same in both steps.
    """

    def inverse(params: PyTree, after: Array, inputs: Any) -> Array:
        return 2 * after - step(params, after, inputs)

    return inverse


def fixed_point(gates: Gates, z_min: float = 0.1, iterations: int = 1) -> Step:
    """Solve the gated step for its state, `h <- (h' - (1 - z(h)) n(h)) / max(z(h), z_min)`.

    It starts at `h'`.  On trained cells with nearly closed gates more iterations diverge.

    Args:
        gates: `(params, hidden, input) -> (z, n)` of the cell.
        z_min: the least divisor, in (0, 1].
        iterations: how often, at least 1.

    Raises:
        JaxbenchError: a `z_min` or a number of iterations out of range.
    """
    if not 0 < z_min <= 1:
        raise JaxbenchError(f"z_min must lie in (0, 1], got {z_min!r}; 0.1 is a usual choice")
    _check_iterations(iterations)

    def inverse(params: PyTree, after: Array, inputs: Any) -> Array:
        before = after
        for _ in range(iterations):
            update, candidate = gates(params, before, inputs)
            before = (after - (1 - update) * candidate) / jnp.maximum(update, z_min)
        return before

    return inverse


def newton(step: Step, iterations: int = NEWTON_ITERATIONS) -> Step:
    """Solve `F(h, x) = h'` by damped Newton steps from `h'`: `h <- h - a J(h)^-1 (F(h, x) - h')`.

    Of the step sizes `a` in 1, 1/2, 1/4, 1/8 and 0 the one with the least residual is taken, so
    that no step makes it worse.  The hidden axis is the last one, and each sample is solved by
    itself.

    Raises:
        JaxbenchError: a number of iterations below 1.
    """
    _check_iterations(iterations)

    def one(params: PyTree, after: Array, inputs: Array) -> Array:
        def advance(hidden: Array) -> Array:
            return step(params, hidden, inputs)

        def improve(before: Array, _: None) -> tuple[Array, None]:
            full = solve(jax.jacfwd(advance)(before), advance(before) - after)
            full = jnp.where(jnp.isfinite(full), full, 0)
            tried = before[None, :] - jnp.array(DAMPINGS, after.dtype)[:, None] * full[None, :]
            residual = jnp.sum((jax.vmap(advance)(tried) - after[None, :]) ** 2, axis=-1)
            best = jnp.argmin(jnp.where(jnp.isfinite(residual), residual, jnp.inf))
            return tried[best], None

        return jax.lax.scan(improve, after, None, length=iterations)[0]

    def inverse(params: PyTree, after: Array, inputs: Array) -> Array:
        flat = after.reshape(-1, after.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
        return jax.vmap(one, (None, 0, 0))(params, *flat).reshape(after.shape)

    return inverse


def solve(matrix: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve `matrix x = right` by Gauss-Jordan elimination with row pivots.

    It calls no LAPACK, of which XLA:CPU cannot run batches on several devices at once.
    """
    rows = jnp.arange(len(right))

    def eliminate(at: Array, augmented: Array) -> Array:
        size = jnp.where(rows >= at, jnp.abs(augmented[:, at]), -1.0)
        pivot = jnp.argmax(size)
        swapped = jnp.where(rows == at, pivot, jnp.where(rows == pivot, at, rows))
        augmented = augmented[swapped]
        row = augmented[at] / augmented[at, at]
        others = augmented - augmented[:, at][:, None] * row[None, :]
        return jnp.where((rows == at)[:, None], row[None, :], others)

    augmented = jnp.concatenate([matrix, right[:, None]], axis=1)
    return jax.lax.fori_loop(0, len(right), eliminate, augmented)[:, -1]


def inverse_of(
    recurrence: Recurrence,
    kind: InverseKind,
    z_min: float = 0.1,
    iterations: int | None = None,
    model: str = "this model",
) -> Step:
    """Choose how a recurrence's step is undone.

    Args:
        recurrence: of the model.
        kind: `exact`, the cell's own; else one of the approximations in this file.
        z_min: of `fixedpoint`.
        iterations: of `fixedpoint` (1 if not given) and `newton` (4).
        model: its name, for errors.

    Raises:
        JaxbenchError: a cell that has not what this kind needs, or values out of range.
    """
    if kind == "exact":
        if recurrence.inverse is None:
            raise JaxbenchError(
                f"{model} has no exact inverse, which inverse = 'exact' needs; choose 'reflect' or "
                f"'newton', a reversible model, or mode = 'recompute'"
            )
        return recurrence.inverse
    if kind == "reflect":
        return reflect(recurrence.step)
    if kind == "newton":
        return newton(recurrence.step, NEWTON_ITERATIONS if iterations is None else iterations)
    if kind == "fixedpoint":
        if recurrence.gates is None:
            raise JaxbenchError(
                f"{model} has no update gates, which inverse = 'fixedpoint' needs; choose "
                f"'reflect' or 'newton'"
            )
        return fixed_point(recurrence.gates, z_min, 1 if iterations is None else iterations)
    raise JaxbenchError(f"inverse must be one of {', '.join(get_args(InverseKind))}; got {kind!r}")


def _check_iterations(iterations: int) -> None:
    if iterations < 1:
        raise JaxbenchError(f"iterations must be at least 1, got {iterations}")
