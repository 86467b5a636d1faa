"""Who is next: policies that choose the cluster of the next update, for every sample by itself.

`hist` and `max` follow the residuals, as in residual belief propagation (Elidan, McGraw and Koller
2006; in many at once, Van der Merwe, Joseph and Gopalakrishnan 2019), `q` a learned table, `random`
and `roundrobin` nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.interventions.cluster_sweeps import cluster_means, hist

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Key
    from jaxbench.interventions.cluster_sweeps import Clusters
    from jaxbench.interventions.node_partitions import Partition

Policy = Literal["hist", "max", "q", "random", "roundrobin"]
SEES_RESIDUALS = ("hist", "max", "q")
LEVELS = 3
"""In how many levels `q` sees how much of a cluster is in the highest bin."""


def select(
    counts: Float[Array, "*batch clusters bins"], means: Float[Array, "*batch clusters"]
) -> Clusters:
    """Take the cluster with most nodes in the highest bin, then the highest mean residual.

    Equal ones give the lowest number.
    """
    high = counts[..., -1]
    first = high == jnp.max(high, axis=-1, keepdims=True)
    return jnp.argmax(jnp.where(first, means, -jnp.inf), axis=-1).astype(jnp.int32)


def select_hist(
    residuals: Float[Array, "*batch nodes"], partition: Partition, clusters: int, bins: int
) -> Clusters:
    """`select` by the histograms and means of these residuals."""
    return select(
        hist(residuals, partition, clusters, bins), cluster_means(residuals, partition, clusters)
    )


def select_max(
    residuals: Float[Array, "*batch nodes"], partition: Partition, clusters: int
) -> Clusters:
    """Take the cluster of the node with the largest residual; equal ones give the lowest number."""
    owned = jnp.asarray(partition == np.arange(clusters)[:, None])
    shape = (*residuals.shape[:-1], clusters, residuals.shape[-1])
    own = jnp.where(
        jnp.broadcast_to(owned, shape), jnp.broadcast_to(residuals[..., None, :], shape), -jnp.inf
    )
    return jnp.argmax(jnp.max(own, axis=-1), axis=-1).astype(jnp.int32)


def high_fraction_state(
    counts: Float[Array, "*batch clusters bins"], levels: int = LEVELS
) -> Int[Array, "*batch"]:
    """Number the states by how much of each cluster is in the highest bin, in `levels` levels.

    Level 0 is none of its nodes; the others cut (0, 1] into equal parts, so that three levels are
    none, up to half, and more.  The first cluster is the most significant digit.
    """
    fraction = counts[..., -1] / jnp.sum(counts, axis=-1)
    level = jnp.ceil(fraction * (levels - 1)).astype(jnp.int32)
    clusters = counts.shape[-2]
    weights = jnp.asarray(levels ** np.arange(clusters - 1, -1, -1), jnp.int32)
    return level @ weights


def select_q(
    table: Float[Array, "states clusters"],
    residuals: Float[Array, "*batch nodes"],
    partition: Partition,
    clusters: int,
    bins: int,
) -> Clusters:
    """Take the cluster that a learned table values most in the present state."""
    state = high_fraction_state(hist(residuals, partition, clusters, bins))
    return jnp.argmax(table[state], axis=-1).astype(jnp.int32)


def turns_of(
    policy: Policy, clusters: int, shape: tuple[int, ...], key: Key
) -> Int[Array, "*steps samples"]:
    """Give what a policy gets as its turn in each update, [*steps, samples].

    For `roundrobin` the clusters in turn, for `random` clusters drawn alike, else nothing (0).
    """
    if policy == "random":
        return jax.random.randint(key, shape, 0, clusters, jnp.int32)
    if policy == "roundrobin":
        turns = np.arange(np.prod(shape[:-1])).reshape(*shape[:-1], 1) % clusters
        return jnp.broadcast_to(jnp.asarray(turns, jnp.int32), shape)
    return jnp.zeros(shape, jnp.int32)


def chooser(
    policy: Policy, partition: Partition, clusters: int, bins: int, table: Array | None = None
) -> Callable[[Float[Array, "*batch nodes"], Array], Int[Array, "*batch"]]:
    """Make a policy a function `(residuals, turn) -> cluster`.

    Args:
        policy: its name.
        partition: cluster of each node.
        clusters: how many.
        bins: of the residuals' histogram.
        table: of action values, for `q`.

    Raises:
        JaxbenchError: `q` without its table.
    """
    if policy == "hist":
        return lambda residuals, turn: select_hist(residuals, partition, clusters, bins)
    if policy == "max":
        return lambda residuals, turn: select_max(residuals, partition, clusters)
    if policy == "q":
        if table is None:
            raise JaxbenchError(
                "the policy 'q' needs its table of action values; it is in `ctx.consts`"
            )
        return lambda residuals, turn: select_q(table, residuals, partition, clusters, bins)
    return lambda residuals, turn: turn
