"""The mean-square growth of a recurrence along its trajectories, and the hinge on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import Context, JaxbenchError, Recurrence
from jaxbench.interventions.mean_square import (
    check_sigma,
    irregular,
    rho_power,
    top_singular_vectors,
)
from jaxbench.interventions.weight_noise import Groups, Step, first_order

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import PyTree, Scalar
    from jaxbench.interventions.mean_square import Sigma

MEASURED_SEQUENCES = 16
MEASURED_TIMES = 10
MEASURED_POWER_STEPS = 100


def penalty(rho: Float[Array, "*points"]) -> Scalar:
    """The hinge `mean relu(rho - 1)^2` of the growths at some points: 0 where all are stable."""
    return jnp.mean(jax.nn.relu(rho - 1) ** 2)


def rho_norm_along(
    step: Step,
    params: PyTree,
    hidden: Float[Array, "points n"],
    inputs: Float[Array, "points features"],
    sigma: Scalar | float,
    steps: int = 10,
    start: Float[Array, "points n"] | None = None,
) -> Float[Array, " points"]:
    """`rho_norm` of the step's Jacobian at each point, `(1 + sigma^2) (u^T J v)^2`, matrix-free.

    The step is linearised once at all points, so that each product with `J` or `J^T` is one batched
    product, and no Jacobian is built.

    Args:
        step: `(params, hidden [n], input [features]) -> hidden [n]`.
        params: its parameters, any pytree.
        hidden: the states before the step.
        inputs: the step's inputs.
        sigma: standard deviation of the noise.
        steps: of the power iteration, from below.
        start: its first vectors.  In training they must be drawn anew each step: a network learns
            to keep `J`'s largest direction orthogonal to a fixed one, where few steps miss it.

    Raises:
        JaxbenchError: a negative sigma.
    """
    check_sigma(sigma)

    def advance(params: PyTree, hidden: Array) -> Array:
        return jax.vmap(step, (None, 0, 0))(params, hidden, inputs)

    if start is None:
        start = jnp.broadcast_to(irregular(hidden.shape[-1], hidden.dtype), hidden.shape)
    frozen_params, frozen = jax.lax.stop_gradient((params, hidden))
    _, forward = jax.linearize(partial(advance, frozen_params), frozen)
    transpose = jax.linear_transpose(forward, frozen)
    left, right = top_singular_vectors(forward, lambda u: transpose(u)[0], start, steps)
    _, stretched = jax.jvp(partial(advance, params), (hidden,), (right,))
    return (1 + sigma**2) * jnp.sum(left * stretched, axis=-1) ** 2


def rho_power_along(
    step: Step,
    params: PyTree,
    hidden: Float[Array, "points n"],
    inputs: Float[Array, "points features"],
    sigma: Sigma,
    groups: Groups,
    steps: int = 20,
) -> Float[Array, " points"]:
    """`rho_power` of the lift at each point, of the step's Jacobian and the groups' noise.

    Arguments as for `rho_norm_along`, but sigma may be one for each group; `groups` as for
    `group_members`.
    """

    def at(hidden: Array, inputs: Array) -> Array:
        order = first_order(step, params, hidden, inputs, groups)
        return rho_power(order.J, order.B, sigma, steps)

    return jax.vmap(at)(hidden, inputs)


def recurrence_of(ctx: Context) -> Recurrence:
    """The recurrence of the model that trains, or an error that says that it has none."""
    if ctx.model.recurrence is None:
        raise JaxbenchError(
            f"a recurrent model is needed here, but {ctx.model.name!r} has no recurrence"
        )
    return ctx.model.recurrence


def trajectory_points(
    recurrence: Recurrence,
    params: PyTree,
    inputs: Float[Array, "batch time features"],
    hidden: Float[Array, "batch time n"],
    samples: Int[Array | np.ndarray, "samples 1"],
    times: Int[Array | np.ndarray, "samples times"],
) -> tuple[Float[Array, "points n"], Float[Array, "points features"]]:
    """The hidden states before the steps `times` of these `samples`, and the steps' inputs."""
    first = recurrence.initial_hidden(params, times.shape)
    before = jnp.where((times > 0)[..., None], hidden[samples, jnp.maximum(times - 1, 0)], first)
    now = inputs[samples, times]
    return before.reshape(-1, before.shape[-1]), now.reshape(-1, now.shape[-1])


def measure_growth(
    recurrence: Recurrence,
    params: PyTree,
    inputs: Float[Array, "samples time features"],
    hidden: Float[Array, "samples time n"],
    rho_along: Callable[..., Float[Array, " points"]],
) -> dict[str, Any]:
    """Measure `rho_hat` on evenly spread points of trajectories, and the states' own growth.

    `active_fraction` is the share of the points where the hinge is active, `rho > 1`.

    Args:
        recurrence: of the model.
        params: its parameters.
        inputs: of the sequences.
        hidden: the states after each step.
        rho_along: `(params, hidden [points, n], inputs [points, features]) -> rho [points]`.
    """
    at_samples = np.linspace(0, hidden.shape[0] - 1, MEASURED_SEQUENCES).astype(int)[:, None]
    at_times = np.linspace(0, hidden.shape[1] - 1, MEASURED_TIMES).astype(int)[None, :]
    at_times = np.repeat(at_times, MEASURED_SEQUENCES, axis=0)
    where = trajectory_points(recurrence, params, inputs, hidden, at_samples, at_times)
    rho = rho_along(params, *where)
    energy = jnp.mean(jnp.sum(hidden**2, axis=-1), axis=0)
    rho_hat, growth = jnp.mean(rho), jnp.sum(energy[1:]) / jnp.sum(energy[:-1])
    return {
        "rho_hat": rho_hat,
        "state_growth": growth,
        "relative_error": jnp.abs(rho_hat - growth) / rho_hat,
        "active_fraction": jnp.mean(rho > 1, dtype=rho.dtype),
    }
