"""Cluster updates that compute what they need only: the cluster's nodes and the halo around them.

The same numbers as `cluster_sweeps.sweep_cluster`, which computes every node and masks.  An update
gathers the states of one cluster and of its neighbours, and moves the cluster.  A policy that looks
at residuals needs those that the update moved: of the cluster and of the nodes next to it.  They
are kept from update to update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.interventions.cluster_sweeps import residual
from jaxbench.interventions.node_partitions import closed_neighbourhoods, members

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.graphs import Neighbours
    from jaxbench.interventions.node_partitions import Partition

Rule = Callable[["Array", "Array", "Array"], "Array"]


class Plan(NamedTuple):
    """Which nodes an update of each cluster reads and moves.

    Attributes:
        members: each cluster's nodes [clusters, size].
        near: those whose residual it changes [clusters, near], repeated where there are fewer.
        neighbours: of each node [nodes, degree].
    """

    members: Int[np.ndarray, "clusters size"]
    near: Int[np.ndarray, "clusters near"]
    neighbours: Int[np.ndarray, "nodes degree"]


def make_plan(neighbours: Neighbours, partition: Partition, clusters: int) -> Plan:
    """List the nodes of each cluster's update.

    Raises:
        JaxbenchError: clusters of different sizes.
    """
    return Plan(
        members(partition, clusters),
        closed_neighbourhoods(neighbours, partition, clusters),
        np.asarray(neighbours),
    )


def node_evaluations(plan: Plan, updates: int, sees_residuals: bool) -> int:
    """Count how often a node's new value is computed in a time step of so many cluster updates."""
    each = plan.members.shape[1] + (plan.near.shape[1] if sees_residuals else 0)
    return updates * each + (len(plan.neighbours) if sees_residuals else 0)


def sweep_gathered(
    rule: Rule,
    hidden: Float[Array, "batch nodes width"],
    drive: Float[Array, "batch nodes width"],
    choose: Callable[[Float[Array, " nodes"], Array], Int[Array, ""]],
    turns: Int[Array, " updates batch"],
    plan: Plan,
    eta: float,
    sees_residuals: bool = True,
) -> tuple[Float[Array, "batch nodes width"], Int[Array, " updates batch"]]:
    """Do cluster updates in turn, computing the chosen cluster and its halo only.

    Args:
        rule: `(own, around, drive) -> F` of any nodes, as of `MessagePassing`.
        hidden: the states.
        drive: what does not depend on them.
        choose: `(residuals, turn) -> cluster` for one sample.
        turns: what the policy gets as its turn in each update.
        plan: which nodes each cluster's update needs.
        eta: how far a node goes towards its new value.
        sees_residuals: whether `choose` reads the residuals; if not it gets zeros.

    Returns:
        the states, and the clusters that were chosen.
    """
    all_members, all_near, neighbours = (jnp.asarray(each, jnp.int32) for each in plan)

    def new_values(hidden: Array, drive: Array, nodes: Array) -> Array:
        return rule(hidden[nodes], hidden[neighbours[nodes]], drive[nodes])

    def one_sample(hidden: Array, drive: Array, turns: Array) -> tuple[Array, Array]:
        every = jnp.arange(len(neighbours))
        still = jax.lax.stop_gradient

        def residuals_of(hidden: Array, nodes: Array) -> Array:
            return residual(new_values(still(hidden), still(drive), nodes), still(hidden)[nodes])

        def advance(carry: tuple[Array, Array], turn: Array) -> tuple[tuple[Array, Array], Array]:
            hidden, residuals = carry
            cluster = choose(residuals, turn)
            nodes = all_members[cluster]
            moved = eta * (new_values(hidden, drive, nodes) - hidden[nodes])
            hidden = hidden.at[nodes].add(moved, unique_indices=True)
            if sees_residuals:
                near = all_near[cluster]
                residuals = residuals.at[near].set(residuals_of(hidden, near))
            return (hidden, residuals), cluster

        zeros = jnp.zeros(hidden.shape[:1], hidden.dtype)
        residuals = residuals_of(hidden, every) if sees_residuals else zeros
        (hidden, _), chosen = jax.lax.scan(advance, (hidden, residuals), turns)
        return hidden, chosen

    return jax.vmap(one_sample, (0, 0, 1), (0, 1))(hidden, drive, turns)
