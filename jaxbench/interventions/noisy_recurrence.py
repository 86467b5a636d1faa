"""Runs of a recurrence whose weights are noisy, anew at every time step, and their score."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxbench.base import Batch, JaxbenchError, Recurrence
from jaxbench.interventions.mean_square import check_sigma
from jaxbench.interventions.weight_noise import Groups, group_members, perturb, scale_noise

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree, Scalar
    from jaxbench.interventions.mean_square import Sigma


def run_clean(
    recurrence: Recurrence, params: PyTree, inputs: Float[Array, "samples time features"]
) -> Float[Array, "samples time n"]:
    """The hidden states after each step."""

    def advance(hidden: Array, now: Array) -> tuple[Array, Array]:
        hidden = recurrence.step(params, hidden, now)
        return hidden, hidden

    start = recurrence.initial_hidden(params, inputs.shape[:1])
    return jax.lax.scan(advance, start, inputs.swapaxes(0, 1))[1].swapaxes(0, 1)


def run_noisy(
    recurrence: Recurrence,
    params: PyTree,
    inputs: Float[Array, "samples time features"],
    groups: Groups,
    sigma: Sigma,
    key: Key,
) -> Float[Array, "samples time n"]:
    """The hidden states after each step with weights `W_g (1 + sigma_g w_g)`.

    Each sample has its own standard normal `w_g`, drawn anew at each of its time steps.

    Args:
        recurrence: of the model.
        params: its parameters.
        inputs: of each sample.
        groups: which weights share a noise, as for `group_members`.
        sigma: standard deviation of the noise, one for all or one for each group.
        key: of the noise.

    Raises:
        JaxbenchError: a negative sigma, or a group that matches no leaf.
    """
    check_sigma(sigma)
    members = group_members(params, groups)
    start = recurrence.initial_hidden(params, inputs.shape[:1])
    size = (inputs.shape[1], inputs.shape[0], len(groups))
    noise = scale_noise(sigma, jax.random.normal(key, size, start.dtype))
    ones = jax.tree.map(lambda leaf: jnp.ones((), start.dtype), params)

    def scale_leaves(params: PyTree, gains: PyTree, hidden: Array, now: Array) -> Array:
        return recurrence.step(jax.tree.map(jnp.multiply, params, gains), hidden, now)

    move = jax.vmap(recurrence.scaled_step or scale_leaves, (None, 0, 0, 0))

    def advance(hidden: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        noise, now = at
        gains = jax.vmap(lambda each: perturb(ones, members, each))(noise)
        hidden = move(params, gains, hidden, now)
        return hidden, hidden

    _, states = jax.lax.scan(advance, start, (noise, inputs.swapaxes(0, 1)))
    return states.swapaxes(0, 1)


def score_under_noise(
    score: Callable[[Any, Any], Scalar],
    recurrence: Recurrence,
    params: PyTree,
    test: Batch,
    groups: Groups,
    sigma: Sigma,
    key: Key,
    draws: int,
) -> Scalar:
    """The mean score of `draws` noisy runs over all test samples; the readout has no noise.

    Arguments as for `run_noisy`; `score` is the track's.
    """

    def of(key: Key) -> Scalar:
        hidden = run_noisy(recurrence, params, test.inputs, groups, sigma, key)
        return score(recurrence.readout(params, hidden), test.targets)

    if draws < 1:
        raise JaxbenchError(f"a score under noise needs at least one draw, but came {draws}")
    return jnp.mean(jax.lax.map(of, jax.random.split(key, draws)))
