"""`cluster_updates`: update one cluster of nodes after another, in place of all nodes at once.

In each time step the network does `sweeps` cluster updates `h_C <- h_C + eta (F_C(h) - h_C)`.  A
policy chooses the cluster, for every sample by itself:

- `hist`, as in the reference report: the cluster with most nodes in the highest bin of the
  residuals' histogram; `max`: the one with the largest residual;
- `q`: the one that a table learned on `ringsolve` values most, frozen during training;
- `random` and `roundrobin`, which look at no residual: the controls.

With K clusters, `sweeps` updates move as many nodes as `sweeps / K` synchronous sweeps; equal
sweeps and equal node updates are two different comparisons.

With `of = "hidden_units"` the nodes are the units of a recurrent model and `F` is its time step: in
each time step only the units of the chosen clusters move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Le, Lt

from jaxbench import graphs
from jaxbench.base import Context, Intervention, JaxbenchError, Model
from jaxbench.interventions.cluster_measures import (
    discrepancy,
    eta_law,
    points,
    rival_efforts,
    second_order,
    updates_to_tolerance,
    work,
)
from jaxbench.interventions.cluster_policies import (
    LEVELS,
    SEES_RESIDUALS,
    Policy,
    chooser,
    select,
    turns_of,
)
from jaxbench.interventions.cluster_signatures import SIGNATURES
from jaxbench.interventions.cluster_sweeps import (
    hist,
    residual,
    sweep_cluster,
    sweep_seq,
    sweep_sync,
)
from jaxbench.interventions.gathered_sweeps import make_plan, node_evaluations, sweep_gathered
from jaxbench.interventions.node_networks import Network, hidden_units_of, nodes_of
from jaxbench.interventions.node_partitions import PartitionName, cut_size, make_partition
from jaxbench.interventions.q_learning import learn, solve_environment

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Batch, Key, PyTree

    Choose = Callable[[Float[Array, "*batch nodes"], Array], Int[Array, "*batch"]]

__all__ = [
    "build",
    "cut_size",
    "discrepancy",
    "hist",
    "learn",
    "make_partition",
    "residual",
    "second_order",
    "select",
    "solve_environment",
    "sweep_cluster",
    "sweep_gathered",
    "sweep_seq",
    "sweep_sync",
    "updates_to_tolerance",
]

SOLVE_NODES = 16
SOLVE_KAPPA = 1.0
SOLVE_ETA = 0.5
MOST_Q_CLUSTERS = 8
LENGTH = 32
"""Cluster updates of an episode."""

COSTLY = (
    "A policy that looks at residuals has to compute them: an update of one cluster by a mask "
    "costs as much as a whole synchronous sweep, and by gathering still the cluster, its halo and "
    "one full evaluation a time step."
)
FROZEN = (
    "The policy 'q' is learned on ringsolve, a linear problem on a ring of 16 nodes, and then "
    "frozen; it is not learned on the network that trains."
)


def build(
    *,
    policy: Policy = "hist",
    clusters: Annotated[int, Ge(1)] = 4,
    sweeps: Annotated[int, Ge(1)] | None = None,
    eta: Annotated[float, Gt(0), Le(1)] | None = None,
    partition: PartitionName | list[list[int]] = "contiguous",
    partition_seed: Annotated[int, Ge(0)] = 0,
    bins: Annotated[int, Ge(2)] = 4,
    of: Literal["nodes", "hidden_units"] = "nodes",
    implementation: Literal["mask", "gathered"] = "mask",
    episodes: Annotated[int, Ge(1)] = 2000,
    tolerance: Annotated[float, Gt(0), Lt(1)] = 0.1,
) -> Intervention:
    """Update one cluster of nodes after another, in place of all nodes at once.

    Args:
        policy: who is next.
        clusters: how many, K.
        sweeps: cluster updates in a time step; if not given, as many as the model has sweeps.
        eta: how far a node goes towards its new value; if not given, as the model has it.
        partition: how nodes fall into clusters, by name or as one list of nodes a cluster.
        partition_seed: of the random partition.
        bins: of the residuals' histogram.
        of: what a node is: a node of the model's graph, or a hidden unit of a recurrent model.
        implementation: `mask` computes all nodes and moves some; `gathered` computes the cluster
            and its halo only, with the same result.
        episodes: of Q-learning, for `q`, on a ring partitioned by the same name (lists of nodes say
            nothing of another graph: contiguous).
        tolerance: share of the residuals' norm down to which node updates are counted.

    Raises:
        JaxbenchError: options that do not go together.
    """
    static = dict(locals())
    if policy == "q" and clusters > MOST_Q_CLUSTERS:
        raise JaxbenchError(
            f"the policy 'q' has a table of {LEVELS}^clusters states, but there are {clusters} "
            f"clusters; use {MOST_Q_CLUSTERS} or fewer, or another policy"
        )
    if of == "hidden_units" and implementation == "gathered":
        raise JaxbenchError(
            "hidden units read all other units, so there is no halo to gather; use "
            "implementation = 'mask'"
        )

    def network(model: Model) -> Network:
        nodes, count = nodes_of(model) if of == "nodes" else hidden_units_of(model)
        labels = make_partition(partition, clusters, count, nodes.neighbours, partition_seed)
        return Network(nodes, labels, clusters, sweeps or nodes.sweeps, eta or nodes.damping)

    def prepare(key: Key) -> PyTree:
        if policy != "q":
            return ()
        ring = graphs.ring(max(SOLVE_NODES, clusters))
        kind = partition if isinstance(partition, str) else "contiguous"
        labels = make_partition(kind, clusters, len(ring), ring, partition_seed)
        task = solve_environment(
            ring, labels, clusters, kappa=SOLVE_KAPPA, eta=eta or SOLVE_ETA, bins=bins
        )
        return {"table": jax.jit(partial(learn, task, episodes=episodes, length=LENGTH))(key)}

    def choose_among(net: Network, ctx: Context | None) -> Choose:
        table = ctx.consts["table"] if policy == "q" and ctx is not None else None
        return chooser(policy, net.partition, clusters, bins, table)

    def wrap_model(model: Model) -> Model:
        net = network(model)
        nodes = net.nodes
        plan = None
        if implementation == "gathered":
            plan = make_plan(nodes.neighbours, net.partition, clusters)

        def apply(
            params: PyTree,
            inputs: Float[Array, "batch time features"],
            *,
            ctx: Context | None = None,
            state: Any = None,
            key: Any = None,
        ) -> tuple[Array, dict[str, Array]]:
            choose = choose_among(net, ctx)
            if key is None:
                key = jax.random.key(0) if ctx is None else ctx.key
            batch, time = inputs.shape[:2]
            turns = turns_of(policy, clusters, (time, net.sweeps, batch), key)

            def advance(hidden: Array, now: tuple[Array, Array]) -> tuple[Array, Any]:
                at, turns = now
                drive = nodes.drive(params, at)

                def update(hidden: Array) -> Array:
                    return nodes.update(params, hidden, drive)

                if plan is None:
                    hidden, chosen = sweep_cluster(
                        update, hidden, choose, turns, net.partition, net.eta
                    )
                else:
                    rule = partial(nodes.rule, params)
                    hidden, chosen = sweep_gathered(
                        rule, hidden, drive, choose, turns, plan, net.eta, policy in SEES_RESIDUALS
                    )
                return hidden, (hidden, chosen)

            start = nodes.initial_hidden(params, (batch,))
            _, (states, chosen) = jax.lax.scan(advance, start, (inputs.swapaxes(0, 1), turns))
            states = states.swapaxes(0, 1)
            return nodes.readout(params, states), {
                "hidden": states if of == "nodes" else states[..., 0],
                "clusters": chosen.transpose(2, 0, 1),
            }

        return dataclasses.replace(model, apply=apply)

    def measure(ctx: Context, params: PyTree, state: PyTree, test: Batch) -> dict[str, Any]:
        net = network(ctx.model)
        nodes = net.nodes
        _, seen = ctx.model.apply(params, test.inputs, ctx=ctx, state=state)
        states = seen["hidden"] if of == "nodes" else seen["hidden"][..., None]
        before, now = points(states, nodes.initial_hidden(params, states.shape[:1]), test.inputs)
        drive = nodes.drive(params, now)

        def update(hidden: Array) -> Array:
            return nodes.update(params, hidden, drive)

        def update_thrice(hidden: Array) -> Array:
            return nodes.update(params, hidden, nodes.drive(params, jnp.concatenate([now] * 3)))

        efforts = rival_efforts(
            net,
            update_thrice,
            jnp.concatenate([before] * 3),
            policy,
            choose_among(net, ctx),
            tolerance,
            ctx.key,
        )
        counts: dict[str, float] = {"node_evaluations": net.sweeps * len(net.partition)}
        if implementation == "gathered":
            plan = make_plan(nodes.neighbours, net.partition, clusters)
            evaluations = node_evaluations(plan, net.sweeps, policy in SEES_RESIDUALS)
            counts["node_evaluations"] = evaluations
        if nodes.neighbours is not None:
            counts["cut_edges"] = cut_size(nodes.neighbours, net.partition)
        return {
            **eta_law(update, before, net.partition, clusters),
            **efforts,
            **work(net, seen["clusters"], before.dtype),
            **{name: jnp.asarray(value, before.dtype) for name, value in counts.items()},
        }

    return Intervention(
        name="cluster_updates",
        summary="update one cluster of nodes after another, chosen by residuals",
        static=static,
        requires=frozenset({"message_passing" if of == "nodes" else "recurrent"}),
        limitations=(COSTLY,) * (policy in SEES_RESIDUALS) + (FROZEN,) * (policy == "q"),
        prepare=prepare,
        wrap_model=wrap_model,
        measure=measure,
        surgery_static=("tolerance",),
        signatures=SIGNATURES,
    )
