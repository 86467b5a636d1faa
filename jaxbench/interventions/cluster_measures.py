"""What `cluster_updates` measures of a trained network: two sweeps compared, and updates needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.interventions.cluster_policies import Policy, turns_of
from jaxbench.interventions.cluster_sweeps import move, residual, sweep_seq, sweep_sync

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

    from jaxbench.base import Key
    from jaxbench.interventions.cluster_sweeps import Clusters, Hidden, Update
    from jaxbench.interventions.node_networks import Network
    from jaxbench.interventions.node_partitions import Partition

MEASURED_SEQUENCES = 8
MEASURED_TIMES = 5
BUDGET = 16
"""Updates that each cluster may have, on average, on the way to the tolerance."""
ETAS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


def discrepancy(
    update: Update, hidden: Hidden, partition: Partition, clusters: int, eta: Array | float
) -> Hidden:
    """Sequential less synchronous, `x_GS - x_J`, after one damped sweep from the same states.

    For `F(x) = M x + b` it is `eta ((I - eta L)^-1 - I) (F(x) - x)` with `L` the part of `M` that
    lies strictly below the block diagonal: `eta^2 L Fhat + eta^3 L^2 Fhat + ...`, a polynomial.
    """
    return sweep_seq(update, hidden, partition, clusters, eta) - sweep_sync(update, hidden, eta)


def second_order(update: Update, hidden: Hidden, partition: Partition, clusters: int) -> Hidden:
    """The discrepancy's leading coefficient, `sum_{b < c(i)} J_ib Fhat_b`, by one jvp a cluster.

    `Fhat = F(h) - h`, and `J` is the Jacobian of `F`; the discrepancy is `eta^2` times it, up to
    terms in `eta^3`.
    """
    labels = jnp.broadcast_to(jnp.asarray(partition)[:, None], hidden.shape[-2:])
    labels = jnp.broadcast_to(labels, hidden.shape)
    moved = update(hidden) - hidden

    def of_cluster(total: Array, cluster: Array) -> tuple[Array, None]:
        tangent = jnp.where(labels < cluster, moved, 0)
        _, along = jax.jvp(update, (hidden,), (tangent,))
        return total + jnp.where(labels == cluster, along, 0), None

    return jax.lax.scan(of_cluster, jnp.zeros_like(hidden), jnp.arange(1, clusters))[0]


def eta_law(
    update: Update, hidden: Hidden, partition: Partition, clusters: int
) -> dict[str, Array]:
    """Measure the largest discrepancy at each damping; predict its coefficient without a fit."""
    moved = update(hidden) - hidden

    def largest(eta: Array) -> Array:
        sequential = sweep_seq(update, hidden, partition, clusters, eta)
        return jnp.max(jnp.abs(sequential - (hidden + eta * moved)))

    etas = jnp.asarray(ETAS, hidden.dtype)
    return {
        "eta": etas,
        "observed": jax.lax.map(largest, etas),
        "predicted_coefficient": jnp.max(
            jnp.abs(second_order(update, hidden, partition, clusters))
        ),
    }


class Effort(NamedTuple):
    """What it took to bring each sample's residuals down.

    Attributes:
        node_updates: until the tolerance was met, or in the whole budget where it was not.
        reached: whether it was met.
    """

    node_updates: Float[Array, "*batch"]
    reached: Bool[Array, "*batch"]


def updates_to_tolerance(
    update: Update,
    hidden: Hidden,
    choose: Callable[[Float[Array, "*batch nodes"], Array], Clusters],
    turns: Int[Array, " updates *batch"],
    partition: Partition,
    clusters: int,
    eta: float,
    tolerance: float,
) -> Effort:
    """Count node updates until `|r|_2 <= tolerance |r at the start|_2`.

    Args:
        update: `F`.
        hidden: the states at the start.
        choose: `(residuals, turn) -> cluster`.
        turns: of each update of the budget.
        partition: cluster of each node.
        clusters: how many.
        eta: how far a node goes towards its new value.
        tolerance: share of the first residuals' norm.
    """
    sizes = jnp.asarray(np.bincount(partition, minlength=clusters), hidden.dtype)

    def norm(residuals: Array) -> Array:
        return jnp.sqrt(jnp.sum(residuals**2, axis=-1))

    def advance(carry: tuple[Array, Effort], turn: Array) -> tuple[tuple[Array, Effort], None]:
        hidden, effort = carry
        new = update(hidden)
        residuals = residual(new, hidden)
        reached = effort.reached | (norm(residuals) <= limit)
        cluster = choose(residuals, turn)
        used = jnp.where(reached, 0, sizes[cluster])
        hidden = move(hidden, new, cluster, partition, eta)
        return (hidden, Effort(effort.node_updates + used, reached)), None

    first = norm(residual(update(hidden), hidden))
    limit = tolerance * first
    start = Effort(jnp.zeros_like(first), jnp.zeros(first.shape, bool))
    (hidden, effort), _ = jax.lax.scan(advance, (hidden, start), turns)
    last = norm(residual(update(hidden), hidden)) <= limit
    return Effort(effort.node_updates, effort.reached | last)


def rival_efforts(
    net: Network,
    update: Update,
    hidden: Float[Array, "3*points nodes width"],
    policy: Policy,
    choose: Callable[[Float[Array, "3*points nodes"], Array], Clusters],
    tolerance: float,
    key: Key,
) -> dict[str, Array]:
    """Mean node updates of a policy, in turn and at random down to the tolerance; shares reached.

    The three run side by side, each on its third of the states.
    """
    size = len(hidden) // 3
    budget = (BUDGET * net.clusters, size)
    rivals: tuple[Policy, ...] = (policy, "roundrobin", "random")
    turns = jnp.concatenate([turns_of(by, net.clusters, budget, key) for by in rivals], axis=1)
    own = jnp.arange(3 * size) < size

    def choose_each(residuals: Array, turn: Array) -> Array:
        return jnp.where(own, choose(residuals, turn), turn)

    found = updates_to_tolerance(
        update, hidden, choose_each, turns, net.partition, net.clusters, net.eta, tolerance
    )
    means = jnp.stack([found.node_updates, found.reached.astype(hidden.dtype)]).reshape(2, 3, size)
    means = jnp.mean(means, axis=-1)
    return {
        f"{what}_{name}": means[row, column]
        for row, what in enumerate(("updates", "reached"))
        for column, name in enumerate(("policy", "in_turn", "random"))
    }


def work(net: Network, chosen: Int[Array, "*updates"], dtype: jnp.dtype) -> dict[str, Array]:
    """What a time step moves, in nodes, beside the synchronous model, and which clusters."""
    nodes = len(net.partition)
    sizes = jnp.asarray(np.bincount(net.partition, minlength=net.clusters), dtype)
    share = jnp.mean(
        jax.nn.one_hot(chosen, net.clusters, dtype=dtype), axis=tuple(range(chosen.ndim))
    )
    return {
        "share_of_updates": share,
        "node_updates": net.sweeps * (share @ sizes),
        "node_updates_synchronous": jnp.asarray(net.nodes.sweeps * nodes, dtype),
    }


def points(
    states: Float[Array, "batch time nodes width"],
    start: Float[Array, "batch nodes width"],
    inputs: Float[Array, "batch time features"],
) -> tuple[Float[Array, "points nodes width"], Float[Array, "points features"]]:
    """Take states before evenly spread steps of evenly spread samples, and the steps' inputs."""
    batch, time = inputs.shape[:2]
    samples = np.linspace(0, batch - 1, MEASURED_SEQUENCES).astype(int)[:, None]
    times = np.linspace(0, time - 1, MEASURED_TIMES).astype(int)[None, :]
    before = jnp.concatenate([start[:, None], states[:, :-1]], axis=1)[samples, times]
    now = inputs[samples, times]
    return before.reshape(-1, *before.shape[2:]), now.reshape(-1, now.shape[-1])
