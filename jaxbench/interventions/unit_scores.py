"""What a hidden unit is worth to the loss: sensitivities, their Fisher matrix, and scores of it.

All units' ports are multiplied by a mask `m`, 1 in the network as it is.  With `S = d outputs / dm`
and the residuals `e = outputs - targets`, the mean squared error is to second order
`L(1 + d) = L(1) + g d + d F d / 2`, `g = 2 S^T e / M` and `F = 2 S^T S / M` (Gauss and Newton's
approximation: the Fisher information of Gaussian residuals).  Removing unit `j` is `d_j = -1`; what
it costs depends on whether the other units may make up for it:

- `marginal`: they stay, `F_jj / 2` (optimal brain damage, LeCun et al. 1990);
- `conditional`: they are refitted, `(F_jj - F_jr F_rr^-1 F_rj) / 2 = 1 / (2 [F^-1]_jj)` (optimal
  brain surgeon, Hassibi & Stork 1993), which is 0 for a redundant unit, however active it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError, UnitLayer
from jaxbench.interventions.hidden_units import check_keep, fold

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Batch, PyTree, Scalar

Forward = Callable[[Any, Any], Any]
"""A network: `(params, inputs) -> outputs`."""

TANGENTS = 8
"""Columns of the Jacobian that are computed at once: more take more memory and no less time."""

# --------------------------------------------------------------------------------------------------
# Sensitivities
# --------------------------------------------------------------------------------------------------


def mask_jacobian(
    forward: Forward,
    params: PyTree,
    layer: UnitLayer,
    batch: Batch,
    mask: Float[Array, " units"] | None = None,
) -> tuple[Float[Array, "M units"], Float[Array, " M"]]:
    """The outputs' derivatives by the units' masks, `S = d outputs / dm`, and the residuals.

    One forward-mode pass a unit through `fold`, so that any network that is differentiable by its
    parameters will do.

    Args:
        forward: the network.
        params: its parameters, any pytree.
        layer: the units.
        batch: inputs and targets; `M` is the number of target values.
        mask: where the derivative is taken; 1 if None.

    Raises:
        JaxbenchError: a batch without samples; otherwise as for `fold`.
    """
    check_batch(batch)
    real = jnp.result_type(batch.targets)
    at = jnp.ones(layer.size, real) if mask is None else mask

    def outputs(mask: Array) -> Array:
        return forward(fold(params, layer, mask), batch.inputs).ravel()

    def column(direction: Array) -> Array:
        return jax.jvp(outputs, (at,), (direction,))[1]

    columns = jax.lax.map(column, jnp.eye(layer.size, dtype=real), batch_size=TANGENTS)
    return columns.T, outputs(at) - batch.targets.ravel()


def check_batch(batch: Batch) -> None:
    """Refuse a batch without samples."""
    if batch.targets.size == 0:
        raise JaxbenchError(
            f"the batch has targets of shape {list(batch.targets.shape)}, but sensitivities need "
            "at least one sample"
        )


def fisher(
    S: Float[Array, "M units"], e: Float[Array, " M"]
) -> tuple[Float[Array, "units units"], Float[Array, " units"]]:
    """The mean squared error's Fisher matrix `2 S^T S / M` and gradient `2 S^T e / M`."""
    return 2 * (S.T @ S) / e.size, 2 * (S.T @ e) / e.size


def damped(F: Float[Array, "units units"], ridge: float | Scalar) -> Float[Array, "units units"]:
    """`F + ridge (tr F / units) I`: dead units and exact copies make `F` itself singular."""
    level = ridge * jnp.trace(F) / len(F)
    return F + level * jnp.eye(len(F), dtype=F.dtype)


def conditioning(S: Float[Array, "M units"]) -> tuple[Scalar, Scalar]:
    """The condition number of `F` and the collinearity index of the units.

    `(s_max / s_min)^2` of `S`, and `1 / s_min` of `S` with columns of length 1: how far the units
    can make up for one another (Brun et al. 2001; 1 if they cannot at all).  Both are taken from
    `S` itself, because `F` squares the rounding error, and are bounded by the numbers' precision.
    """
    lengths = jnp.linalg.norm(S, axis=0, keepdims=True)
    rounding = jnp.finfo(S.dtype).eps

    def extremes(S: Array) -> tuple[Array, Array]:
        values = jnp.linalg.svd(jnp.linalg.qr(S, mode="r"), compute_uv=False)
        return values[0], jnp.maximum(values[-1], rounding * values[0])

    largest, smallest = extremes(S)
    _, least = extremes(S / jnp.where(lengths > 0, lengths, 1))
    tiny = jnp.finfo(S.dtype).tiny
    return (largest / jnp.maximum(smallest, tiny)) ** 2, 1 / jnp.maximum(least, rounding)


# --------------------------------------------------------------------------------------------------
# Scores
# --------------------------------------------------------------------------------------------------


def marginal(F: Float[Array, "units units"]) -> Float[Array, " units"]:
    """What removing each unit costs while the others stay, `F_jj / 2`, where `g = 0`."""
    return jnp.diagonal(F) / 2


def ablation(F: Float[Array, "units units"], g: Float[Array, " units"]) -> Float[Array, " units"]:
    """What removing each unit costs while the others stay, `-g_j + F_jj / 2`."""
    return marginal(F) - g


def conditional(F: Float[Array, "units units"], ridge: float | Scalar) -> Float[Array, " units"]:
    """What removing each unit costs once the others are refitted, `1 / (2 [F_ridge^-1]_jj)`.

    A unit that carries nothing gets the ridge's own share, `ridge tr F / (2 units)`.
    """
    return 1 / (2 * jnp.diagonal(inverse(damped(F, ridge))))


def refitted_ablation(
    F: Float[Array, "units units"], g: Float[Array, " units"], ridge: float | Scalar
) -> Float[Array, " units"]:
    """What removing each unit costs once the others are refitted, where the gradient is not 0.

    `(1 + u_j)^2 / (2 [F^-1]_jj) - g F^-1 g / 2` with the Newton step `u = -F^-1 g`: what the refit
    gains of the gradient counts too, so that it may be negative.
    """
    inverted = inverse(damped(F, ridge))
    step = -inverted @ g
    return (1 + step) ** 2 / (2 * jnp.diagonal(inverted)) + g @ step / 2


def taylor(g: Float[Array, " units"]) -> Float[Array, " units"]:
    """The first-order effect of removing each unit, `|g_j|` (Molchanov et al. 2017)."""
    return jnp.abs(g)


def inverse(F: Float[Array, "units units"]) -> Float[Array, "units units"]:
    """The inverse of a positive definite matrix, by Cholesky."""
    factor = jax.scipy.linalg.cho_factor(F)
    return jax.scipy.linalg.cho_solve(factor, jnp.eye(len(F), dtype=F.dtype))


class Removal(NamedTuple):
    """Units removed one after another.

    Attributes:
        mask: 1 for those that stay [units].
        delta: the change of all masks, -1 for the removed, the compensation for the others [units].
        step: the step at which each was removed, counted from 0; `units` for those that stay.
    """

    mask: Float[Array, " units"]
    delta: Float[Array, " units"]
    step: Int[Array, " units"]


def greedy_obs(F: Float[Array, "units units"], keep: int, ridge: float | Scalar = 0.0) -> Removal:
    """Remove the cheapest unit and refit the others, until `keep` are left (Hassibi & Stork 1993).

    Each step removes the least `m_j^2 / (2 [F^-1]_jj)` among the units left, adds
    `-m_j F^-1_:j / [F^-1]_jj` to the masks `m`, and takes unit `j` out of the inverse by
    `F^-1 -= F^-1_:j F^-1_j: / [F^-1]_jj`.

    Args:
        F: the Fisher matrix; the loss is `d F d / 2`.
        keep: how many units stay.
        ridge: of `damped`.

    Raises:
        JaxbenchError: `keep` is not in 1..units.
    """
    units = len(F)
    check_keep(keep, units)

    def remove(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, values, step = carry
        active = step == units
        diagonal = jnp.where(active, jnp.diagonal(left), 1)
        unit = jnp.argmin(jnp.where(active, values**2 / diagonal, jnp.inf))
        column = left[:, unit] / diagonal[unit]
        values = jnp.where(active, values - values[unit] * column, 0).at[unit].set(0)
        left = left - column[:, None] * left[None, unit, :]
        return left, values, step.at[unit].set(number)

    start = inverse(damped(F, ridge)), jnp.ones(units, F.dtype), jnp.full(units, units)
    _, values, step = jax.lax.fori_loop(0, units - keep, remove, start)
    return Removal((step == units).astype(F.dtype), values - 1, step)


# --------------------------------------------------------------------------------------------------
# Refitting the units that stay
# --------------------------------------------------------------------------------------------------


def newton_step(
    F: Float[Array, "units units"],
    gradient: Float[Array, " units"],
    free: Float[Array, " units"],
    ridge: float | Scalar,
) -> Float[Array, " units"]:
    """The damped Gauss-Newton step of the free masks, `-(F_ridge)_rr^-1 gradient_r`; 0 elsewhere.

    Args:
        F: the Fisher matrix.
        gradient: of the loss at the masks as they are.
        free: 1 for the masks `r` that may move, 0 for the others.
        ridge: of `damped`.
    """
    pairs = free[:, None] * free[None, :]
    system = pairs * damped(F, ridge) + jnp.diag(1 - free)
    factor = jax.scipy.linalg.cho_factor(system)
    return -free * jax.scipy.linalg.cho_solve(factor, free * gradient)


def compensation(
    F: Float[Array, "units units"], mask: Float[Array, " units"], ridge: float | Scalar
) -> Float[Array, " units"]:
    """How the masks of the units that stay change to make up for the others, `F_rr^-1 F_rp 1`.

    For one removed unit it is the surgeon's `-F^-1_:j / [F^-1]_jj` (Hassibi & Stork 1993).
    """
    removed = 1 - mask
    return newton_step(F, -damped(F, ridge) @ removed, mask, ridge)


def refit(
    loss: Callable[[Float[Array, " units"]], Scalar],
    F: Float[Array, "units units"],
    mask: Float[Array, " units"],
    ridge: float | Scalar,
    steps: int,
) -> Float[Array, " units"]:
    """Least-squares refit of the masks that are not 0, by damped Gauss-Newton steps.

    A step that does not lower the loss is taken back and its ridge raised six times; after one that
    does, the ridge falls to a quarter (Levenberg 1944, Marquardt 1963).  Undamped steps blow up,
    because a recurrent network's loss is far from quadratic in the masks.

    Args:
        loss: `(mask) -> mean squared error` on the data of the refit.
        F: the Fisher matrix at mask 1, kept for all steps; the gradient is exact.
        mask: where to start, 0 for the removed units, which stay so.
        ridge: the least damping; the first step has 30 times as much.
        steps: how many to try.
    """
    free = (mask != 0).astype(mask.dtype)
    value_and_gradient = jax.value_and_grad(loss)

    def attempt(_: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        mask, value, gradient, level = carry
        moved = mask + newton_step(F, gradient, free, level)
        at_moved = value_and_gradient(moved)
        better = at_moved[0] < value
        kept = jax.tree.map(
            lambda new, old: jnp.where(better, new, old),
            (moved, *at_moved),
            (mask, value, gradient),
        )
        return *kept, jnp.where(better, jnp.maximum(level / 4, ridge), 6 * level)

    start = mask, *value_and_gradient(mask), jnp.asarray(30 * ridge, mask.dtype)
    return jax.lax.fori_loop(0, steps, attempt, start)[0]


def masked_loss(
    forward: Forward, params: PyTree, layer: UnitLayer, batch: Batch
) -> Callable[[Float[Array, " units"]], Scalar]:
    """The mean squared error on a batch as a function of the units' masks.

    Raises:
        JaxbenchError: a batch without samples.
    """
    check_batch(batch)

    def loss(mask: Array) -> Scalar:
        outputs = forward(fold(params, layer, mask), batch.inputs)
        return jnp.mean((outputs - batch.targets) ** 2)

    return loss
