"""Sweeps over the nodes of a network, all at once or cluster by cluster, and their residuals.

A sweep moves nodes towards their new values, `h_C <- h_C + eta (F_C(h) - h_C)` for the nodes of a
cluster `C`.  States are [*batch, nodes, width]; every sample has a cluster of its own, and no
gradient goes through its choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.interventions.node_partitions import Partition

    Hidden = Float[Array, "*batch nodes width"]
    Update = Callable[[Hidden], Hidden]
    Clusters = Int[Array, "*batch"]

# --------------------------------------------------------------------------------------------------
# Residuals and their histograms
# --------------------------------------------------------------------------------------------------


def residual(new: Hidden, hidden: Hidden) -> Float[Array, "*batch nodes"]:
    """How far each node is from its new value, `r_i = |F_i(h) - h_i|_2`, without gradient."""
    apart = jax.lax.stop_gradient(new - hidden)
    return jnp.sqrt(jnp.sum(apart**2, axis=-1))


def indicator(
    partition: Partition, clusters: int, dtype: jnp.dtype
) -> Float[Array, "nodes clusters"]:
    """1 where a node belongs to a cluster, else 0."""
    return jnp.asarray(partition[:, None] == np.arange(clusters), dtype)


def hist(
    residuals: Float[Array, "*batch nodes"], partition: Partition, clusters: int, bins: int
) -> Float[Array, "*batch clusters bins"]:
    """Count each cluster's nodes in equal bins from 0 to the sample's largest residual.

    Edges are `linspace(0, max r, bins + 1)`; a residual on an edge belongs to the bin above it.
    Where all residuals are 0 the nodes are in the lowest bin.
    """
    largest = jnp.max(residuals, axis=-1, keepdims=True)
    inner = [largest * (edge / bins) for edge in range(1, bins)]
    above = [(residuals >= edge) & (largest > 0) for edge in inner]
    reached = [jnp.ones_like(residuals), *(each.astype(residuals.dtype) for each in above)]
    beyond = [*reached[1:], jnp.zeros_like(residuals)]
    in_bin = jnp.stack([a - b for a, b in zip(reached, beyond, strict=True)], axis=-1)
    owned = indicator(partition, clusters, residuals.dtype)
    return jnp.einsum("...nb,nc->...cb", in_bin, owned)


def cluster_means(
    residuals: Float[Array, "*batch nodes"], partition: Partition, clusters: int
) -> Float[Array, "*batch clusters"]:
    """The mean residual of each cluster."""
    owned = indicator(partition, clusters, residuals.dtype)
    return residuals @ (owned / jnp.sum(owned, axis=0, keepdims=True))


# --------------------------------------------------------------------------------------------------
# Sweeps
# --------------------------------------------------------------------------------------------------


def move(
    hidden: Hidden, new: Hidden, cluster: Clusters, partition: Partition, eta: Array | float
) -> Hidden:
    """Move the nodes of one cluster a sample towards their new values; the others stay."""
    nodes = hidden.shape[:-1]
    labels = jnp.broadcast_to(jnp.asarray(partition, jnp.int32), nodes)
    mine = (labels == jnp.broadcast_to(cluster[..., None], nodes))[..., None]
    return hidden + jnp.where(jnp.broadcast_to(mine, hidden.shape), eta * (new - hidden), 0)


def sweep_sync(update: Update, hidden: Hidden, eta: Array | float) -> Hidden:
    """Move all nodes at once, a damped Jacobi sweep, `h <- h + eta (F(h) - h)`."""
    return hidden + eta * (update(hidden) - hidden)


def sweep_seq(
    update: Update,
    hidden: Hidden,
    partition: Partition,
    clusters: int,
    eta: Array | float,
    order: Sequence[int] | None = None,
) -> Hidden:
    """Move the clusters one after another, a damped block Gauss-Seidel sweep.

    Args:
        update: `F`.
        hidden: the states.
        partition: cluster of each node.
        clusters: how many.
        eta: how far a node goes towards its new value.
        order: of the clusters; by their numbers if not given.
    """
    turns = jnp.asarray(range(clusters) if order is None else order, jnp.int32)

    def advance(hidden: Array, cluster: Array) -> tuple[Array, None]:
        each = jnp.broadcast_to(cluster, hidden.shape[:-2])
        return move(hidden, update(hidden), each, partition, eta), None

    return jax.lax.scan(advance, hidden, turns)[0]


def sweep_cluster(
    update: Update,
    hidden: Hidden,
    choose: Callable[[Float[Array, "*batch nodes"], Array], Clusters],
    turns: Int[Array, " updates *batch"],
    partition: Partition,
    eta: Array | float,
) -> tuple[Hidden, Int[Array, " updates *batch"]]:
    """Do cluster updates in turn, each of the cluster that a policy chooses, by a mask.

    `F` is computed for all nodes, which is what the residuals need, and moves those of one cluster.

    Args:
        update: `F`.
        hidden: the states.
        choose: `(residuals, turn) -> cluster` a sample.
        turns: what the policy gets as its turn in each update.
        partition: cluster of each node.
        eta: how far a node goes towards its new value.

    Returns:
        the states, and the clusters that were chosen.
    """

    def advance(hidden: Array, turn: Array) -> tuple[Array, Array]:
        new = update(hidden)
        cluster = choose(residual(new, hidden), turn)
        return move(hidden, new, cluster, partition, eta), cluster

    return jax.lax.scan(advance, hidden, turns)
