"""Multiplicative noise on the weights of a recurrence, and how far it drives the hidden state.

Each group of weights is multiplied by `1 + sigma w_g`, with one standard normal `w_g` a group and
time step.  To first order the noisy state leaves the clean one by
`delta' = J delta + sigma sum_g w_g (B_g delta + b_g)`, with `J = dF/dh`, `B_g = dJ/dW_g [W_g]` and
`b_g = dF/dW_g [W_g]` of the step `F`, so that its second moment obeys
`P' = J P J^T + sigma^2 sum_g (B_g P B_g^T + b_g b_g^T)`.  `predicted_growth` follows that lift,
`monte_carlo_growth` the noisy network itself.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError
from jaxbench.interventions.mean_square import check_sigma, lift_apply

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree
    from jaxbench.interventions.mean_square import Sigma

Step = Callable[[Any, Any, Any], Any]
Groups = Mapping[str, str | Sequence[str] | Callable[[str], bool]]

BLOCK_PATHS = 32
"""Noise paths that are run at once: few enough for one core's cache."""

GRU_GROUPS: dict[str, list[str]] = {
    "hr": ["*hr/kernel"],
    "hz": ["*hz/kernel"],
    "hn": ["*hn/kernel"],
    "input": ["*i[rzn]/kernel"],
}


# --------------------------------------------------------------------------------------------------
# Groups of weights
# --------------------------------------------------------------------------------------------------


def group_members(params: PyTree, groups: Groups) -> list[tuple[int, ...]]:
    """The numbers of the groups that each leaf of `params` belongs to, in the order of leaves.

    Args:
        params: the parameters, any pytree.
        groups: {name: which leaves}: a glob of the leaf's path, such as `*hr/kernel`, several of
            them, or a function of the path.

    Raises:
        JaxbenchError: no group at all, or one without a leaf.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    if not groups:
        raise JaxbenchError("weight noise needs at least one group of weights, but there is none")
    for name, wanted in groups.items():
        if not any(_has(wanted, path) for path in paths):
            raise JaxbenchError(
                f"the group {name!r} ({wanted}) matches no leaf of the parameters; name it by a "
                f"glob of these paths: {', '.join(paths)}"
            )
    return [tuple(i for i, w in enumerate(groups.values()) if _has(w, path)) for path in paths]


def _has(wanted: str | Sequence[str] | Callable[[str], bool], path: str) -> bool:
    """Whether a leaf's path belongs to a group."""
    if callable(wanted):
        return wanted(path)
    patterns = [wanted] if isinstance(wanted, str) else wanted
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def perturb(
    params: PyTree, members: Sequence[tuple[int, ...]], noise: Float[Array, " groups"]
) -> PyTree:
    """The parameters with each group scaled, `W_g (1 + noise_g)`; `members` by `group_members`."""
    leaves, structure = jax.tree.flatten(params)
    scaled = [
        leaf * (1 + sum(noise[i] for i in numbers)) if numbers else leaf
        for leaf, numbers in zip(leaves, members, strict=True)
    ]
    return jax.tree.unflatten(structure, scaled)


def scale_noise(
    sigma: Sigma, noise: Float[Array, "*shape groups"]
) -> Float[Array, "*shape groups"]:
    """Standard normal noise scaled by the standard deviation of all groups, or of each."""
    return (jnp.broadcast_to(sigma, noise.shape) if jnp.ndim(sigma) else sigma) * noise


# --------------------------------------------------------------------------------------------------
# One step to first order
# --------------------------------------------------------------------------------------------------


class FirstOrder(NamedTuple):
    """A time step to first order in the hidden state and in the noise.

    Attributes:
        hidden: `F`, the next hidden state [n].
        J: `dF/dh` [n, n].
        B: `dJ/dW_g [W_g]` [groups, n, n].
        b: `dF/dW_g [W_g]` [groups, n].
    """

    hidden: Any
    J: Any
    B: Any
    b: Any


def local_jacobian(
    step: Step, params: PyTree, hidden: Float[Array, " n"], inputs: Float[Array, " features"]
) -> Float[Array, "n n"]:
    """The Jacobian of one time step, `J = dF/dh`, at this hidden state and input.

    Args:
        step: `F`, `(params, hidden [n], input [features]) -> hidden [n]`.
        params: its parameters, any pytree.
        hidden: the state before the step.
        inputs: the step's input.
    """
    return jax.jacfwd(step, argnums=1)(params, hidden, inputs)


def noise_operators(
    step: Step,
    params: PyTree,
    hidden: Float[Array, " n"],
    inputs: Float[Array, " features"],
    groups: Groups,
) -> tuple[Float[Array, "groups n n"], Float[Array, "groups n"]]:
    """What one unit of each group's noise adds: `B_g = dJ/dW_g [W_g]` and `b_g = dF/dW_g [W_g]`.

    Arguments as for `local_jacobian`; `groups` as for `group_members`, with its errors.
    """
    order = first_order(step, params, hidden, inputs, groups)
    return order.B, order.b


def first_order(
    step: Step,
    params: PyTree,
    hidden: Float[Array, " n"],
    inputs: Float[Array, " features"],
    groups: Groups,
) -> FirstOrder:
    """The next hidden state, its Jacobian and the noise operators, in one forward-mode pass.

    Arguments as for `noise_operators`.
    """
    members = group_members(params, groups)

    def noisy(noise: Array, hidden: Array) -> Array:
        return step(perturb(params, members, noise), hidden, inputs)

    def columns(hidden: Array) -> tuple[Array, Array]:
        quiet = jnp.zeros(len(groups), hidden.dtype)
        both = jnp.column_stack([noisy(quiet, hidden), jax.jacfwd(noisy)(quiet, hidden)])
        return both, both

    slopes, values = jax.jacfwd(columns, has_aux=True)(hidden)
    slopes = jnp.moveaxis(slopes, 1, 0)
    return FirstOrder(values[:, 0], slopes[0], slopes[1:], values[:, 1:].T)


# --------------------------------------------------------------------------------------------------
# Along a trajectory
# --------------------------------------------------------------------------------------------------


class Prediction(NamedTuple):
    """What the first order in the noise predicts along a trajectory.

    Attributes:
        deviation: `E |noisy - clean|^2` after each step [sigmas, time].
        injected: the noise injected so far, `sum_{s<t,g} sigma_g^2 |b_{g,s}|^2`, which the
            deviation were if it neither grew nor shrank [sigmas, time].
        orders: the `FirstOrder` of each step [time, ...].
    """

    deviation: Any
    injected: Any
    orders: Any


def predicted_growth(
    step: Step,
    params: PyTree,
    start: Float[Array, " n"],
    inputs: Float[Array, "time features"],
    groups: Groups,
    sigmas: Float[Array, " sigmas"] | Float[Array, "sigmas groups"],
) -> Prediction:
    """Predict `E |noisy - clean|^2` after each step, `tr P_t` of the lift from `P_0 = 0`.

    Args:
        step: `(params, hidden [n], input [features]) -> hidden [n]`.
        params: its parameters, any pytree.
        start: the first hidden state, which has no noise.
        inputs: of every time step.
        groups: which weights share a noise, as for `group_members`.
        sigmas: standard deviations of the noise, of all groups or of each.
    """
    check_sigma(sigmas)
    sigmas = jnp.asarray(sigmas, start.dtype)

    def advance(carry: tuple[Array, Array], at: Array) -> tuple[Any, Any]:
        hidden, moments = carry
        order = first_order(step, params, hidden, at, groups)
        source = order.b.T @ order.b

        def later(sigma: Array, moment: Array) -> Array:
            moved = lift_apply(order.J, order.B, sigma, moment)
            if sigma.ndim == 0:
                return moved + sigma**2 * source
            scaled = sigma[:, None] * order.b
            return moved + scaled.T @ scaled

        moments = jax.vmap(later)(sigmas, moments)
        traces = jnp.trace(moments, axis1=1, axis2=2)
        if sigmas.ndim == 1:
            injected = sigmas**2 * jnp.trace(source)
        else:
            injected = sigmas**2 @ jnp.sum(order.b**2, axis=1)
        return (order.hidden, moments), (traces, injected, order)

    nothing = jnp.zeros((len(sigmas), start.size, start.size), start.dtype)
    _, (traces, fresh, orders) = jax.lax.scan(advance, (start, nothing), inputs)
    return Prediction(traces.T, jnp.cumsum(fresh, axis=0).T, orders)


class Deviation(NamedTuple):
    """Mean-square deviations of noisy runs from the clean one, after each time step [time].

    Attributes:
        hidden: `E |noisy - clean|^2` of the hidden state, the mean over paths and sequences.
        standard_error: of `hidden`, over paths.
        output: `E (readout(noisy) - readout(clean))^2`, the mean over outputs too.
    """

    hidden: Any
    standard_error: Any
    output: Any


def monte_carlo_growth(
    step: Step,
    params: PyTree,
    start: Float[Array, "sequences n"],
    inputs: Float[Array, "sequences time features"],
    groups: Groups,
    sigma: Sigma,
    key: Key,
    paths: int,
    readout: Callable[[Any, Any], Any] = lambda params, hidden: hidden,
    scaled_step: Callable[[Any, Any, Any, Any], Any] | None = None,
) -> Deviation:
    """Run the recurrence with noisy weights beside the clean one, on the same inputs.

    A path's noise is shared by all sequences, so that its products are batched; paths are
    independent.

    Args:
        step: `(params, hidden [n], input [features]) -> hidden [n]`.
        params: its parameters, any pytree.
        start: the first hidden state of each sequence, which has no noise.
        inputs: of every sequence.
        groups: which weights share a noise, as for `group_members`.
        sigma: standard deviation of the noise, one for all or one for each group.
        key: of the noise.
        paths: how many noise paths.
        readout: `(params, hidden [n]) -> output`, without noise.
        scaled_step: `(params, gains, hidden [n], input [features]) -> hidden [n]`, the step with
            each leaf multiplied by its scalar in `gains`, if there is a faster way than to scale
            the leaves: without one, every path multiplies by weights of its own.

    Raises:
        JaxbenchError: a negative sigma, or a group that matches no leaf.
    """
    check_sigma(sigma)
    members = group_members(params, groups)
    length, blocks = inputs.shape[1], -(-paths // BLOCK_PATHS)
    size = -(-paths // blocks)
    noise = scale_noise(sigma, jax.random.normal(key, (length, paths, len(groups)), start.dtype))
    noise = jnp.pad(noise, ((0, 0), (0, blocks * size - paths), (0, 0)))
    noise = jnp.moveaxis(noise.reshape(length, blocks, size, len(groups)), 1, 0)
    ones = jax.tree.map(lambda leaf: jnp.ones((), start.dtype), params)

    def scale_leaves(params: PyTree, gains: PyTree, hidden: Array, now: Array) -> Array:
        return step(jax.tree.map(jnp.multiply, params, gains), hidden, now)

    move = jax.vmap(scaled_step or scale_leaves, (None, None, 0, 0))

    def advance(hidden: Array, at: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        noise, now = at
        gains = jax.vmap(lambda each: perturb(ones, members, each))(noise)
        hidden = jax.vmap(move, (None, 0, 0, None))(params, gains, hidden, now)
        output = jax.vmap(jax.vmap(readout, (None, 0)), (None, 0))(params, hidden)
        moved = jnp.mean(jnp.sum((hidden[1:] - hidden[:1]) ** 2, axis=-1), axis=1)
        return hidden, (moved, jnp.mean((output[1:] - output[:1]) ** 2, axis=(1, 2)))

    def run_block(noise: Float[Array, "time size groups"]) -> tuple[Array, Array]:
        noise = jnp.pad(noise, ((0, 0), (1, 0), (0, 0)))  # path 0 is the clean run
        everyone = jnp.broadcast_to(start, (size + 1, *start.shape))
        return jax.lax.scan(advance, everyone, (noise, inputs.swapaxes(0, 1)))[1]

    moved, output = (
        jnp.moveaxis(each, 0, 1).reshape(length, -1)[:, :paths]
        for each in jax.lax.map(run_block, noise)
    )
    return Deviation(moved.mean(axis=1), moved.std(axis=1) / paths**0.5, output.mean(axis=1))
