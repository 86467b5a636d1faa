"""What a group of parameters is worth to the loss, once all other parameters are refitted.

With the Jacobian `A` of `n` outputs by all parameters, `F = 2 A^T A / n + level I` is the mean
squared error's damped Fisher matrix.  Setting the parameters `theta_G` of a group to 0 costs

    theta_G^T ([F^-1]_GG)^-1 theta_G / 2

to second order where the others may make up for it (Hassibi & Stork 1993, for several parameters at
once).  `([F^-1]_GG)^-1` is the Schur complement of the others, `F_GG - F_GR F_RR^-1 F_RG`, which
Woodbury's identity turns into a system of `n` equations instead of one a parameter:

    level I + 2/n A_G^T (I + 2 / (n level) A_R A_R^T)^-1 A_G

Both terms are positive, so that nothing cancels in single precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError, UnitLayer
from jaxbench.interventions.hidden_units import units_of
from jaxbench.interventions.leaf_paths import leaf_at, path_of, path_text
from jaxbench.interventions.unit_scores import Forward, check_batch

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Batch, PyTree, Scalar


def flatten(params: PyTree) -> Float[Array, " P"]:
    """All parameters in one vector, leaf after leaf."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])


def group_entries(params: PyTree, layer: UnitLayer) -> Int[np.ndarray, "groups entries"]:
    """Where each group's parameters lie in `flatten(params)`; short groups end with -1.

    Args:
        params: any parameter pytree.
        layer: the groups.

    Raises:
        JaxbenchError: a parameter in two groups, or a leaf that is not there.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    sizes = [int(np.prod(leaf.shape)) for _, leaf in leaves]
    begins = dict(
        zip((path_of(path) for path, _ in leaves), np.cumsum([0, *sizes]).tolist(), strict=False)
    )
    owners = np.full(sum(sizes), -1)
    for piece in layer.slices:
        shape, units = leaf_at(params, piece.leaf).shape, units_of(piece, layer)
        numbers = begins[piece.leaf] + np.arange(int(np.prod(shape))).reshape(shape)
        along = np.moveaxis(numbers, piece.axis, 0)[piece.start : piece.start + len(units)]
        if (owners[along] >= 0).any():
            raise JaxbenchError(
                f"two groups of {layer.name!r} share parameters of {path_text(piece.leaf)!r}; "
                "score groups that have none in common, or score hidden units by their masks"
            )
        owners[along.reshape(len(units), -1)] = np.array(units)[:, None]
    members = [np.flatnonzero(owners == group) for group in range(layer.size)]
    longest = max(map(len, members))
    return np.stack(
        [np.pad(each, (0, longest - len(each)), constant_values=-1) for each in members]
    )


def output_jacobian(
    forward: Forward, params: PyTree, batch: Batch, rows: int
) -> Float[Array, "n P"]:
    """The derivatives of about `rows` outputs by all parameters, evenly from every sample.

    Args:
        forward: the network.
        params: its parameters, any pytree.
        batch: the samples.
        rows: how many outputs; at least one a sample is taken, and at most all of them.

    Raises:
        JaxbenchError: a batch without samples.
    """
    check_batch(batch)
    samples = len(batch.targets)
    outputs = batch.targets.size // samples
    taken = min(outputs, max(1, rows // samples))
    places = np.linspace(0, outputs - 1, taken).round().astype(int)

    def of_sample(inputs: Array) -> Array:
        def chosen(params: PyTree) -> Array:
            return forward(params, inputs[None]).ravel()[places]

        leaves = jax.tree.leaves(jax.jacrev(chosen)(params))
        return jnp.concatenate([leaf.reshape(taken, -1) for leaf in leaves], axis=1)

    by_sample = jax.lax.map(of_sample, batch.inputs)
    return by_sample.reshape(samples * taken, -1)


def group_information(
    A: Float[Array, "n P"],
    theta: Float[Array, " P"],
    entries: Int[np.ndarray, "groups entries"],
    ridge: float | Scalar,
) -> Float[Array, " groups"]:
    """What removing each group costs once all other parameters are refitted.

    Args:
        A: of `output_jacobian`.
        theta: of `flatten`.
        entries: of `group_entries`.
        ridge: the damping, `level = ridge tr(2 A^T A / n) / min(n, P)`: a share of the mean of
            those eigenvalues that can be other than 0.
    """
    rows, total = A.shape
    scale = 2 / rows
    level = ridge * scale * jnp.sum(A**2) / min(rows, total) + jnp.finfo(A.dtype).tiny
    everything = A @ A.T
    identity = jnp.eye(rows, dtype=A.dtype)

    def cost(group: Array) -> Scalar:
        there = (group >= 0).astype(A.dtype)
        columns, weights = A[:, group] * there[None, :], theta[group] * there
        system = identity + scale / level * (everything - columns @ columns.T)
        effect = columns @ weights
        explained = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(system), effect)
        return (level * weights @ weights + scale * effect @ explained) / 2

    return jax.lax.map(cost, jnp.asarray(entries))


def parameter_information(
    forward: Forward,
    params: PyTree,
    layer: UnitLayer,
    batch: Batch,
    *,
    ridge: float | Scalar = 1e-3,
    rows: int = 512,
) -> Float[Array, " groups"]:
    """What removing each group of parameters costs, for any network.

    Args:
        forward: the network.
        params: its parameters, any pytree.
        layer: the groups, which share no parameter.
        batch: the samples.
        ridge: of `group_information`.
        rows: of `output_jacobian`.

    Raises:
        JaxbenchError: a batch without samples, a parameter in two groups, or a leaf that is not
            there.
    """
    entries = group_entries(params, layer)
    A = output_jacobian(forward, params, batch, rows)
    return group_information(A, flatten(params), entries, ridge)
