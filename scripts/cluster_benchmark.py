"""What `scripts/benchmark clusters` measures: time, node updates and the share of peak FLOP/s.

Times are the fastest of several interleaved repeats, since other processes can only slow them down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench import graphs
from jaxbench.base import JaxbenchError
from jaxbench.interventions.cluster_measures import second_order, updates_to_tolerance
from jaxbench.interventions.cluster_policies import chooser, turns_of
from jaxbench.interventions.cluster_sweeps import sweep_cluster, sweep_sync
from jaxbench.interventions.gathered_sweeps import make_plan, node_evaluations, sweep_gathered
from jaxbench.interventions.node_partitions import cut_size, make_partition
from jaxbench.models import ring_mp

PEAK_SIZES = (128, 256, 512, 1024)
BATCH = 32
SYNC_SWEEPS = 3
TOLERANCE = 0.01
BUDGET = 60
POLICIES = ("hist", "max", "random", "roundrobin")
PARTITIONS = ("contiguous", "strided", "random", "spectral", "red_black")


def fastest(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Time each call in turn, again and again; give each one's shortest time (s)."""
    for call in calls.values():
        jax.block_until_ready(call())
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def peak_flops(repeats: int) -> float:
    """Measure the FLOP/s of square products in float32 on one device, the best of some sizes."""
    matrices = {size: jnp.ones((size, size)) for size in PEAK_SIZES}
    product = jax.jit(jnp.dot)
    calls = {str(size): partial(product, each, each) for size, each in matrices.items()}
    seconds = fastest(calls, repeats)
    return max(2 * size**3 / seconds[str(size)] for size in PEAK_SIZES)


def time_sweeps(
    graph: graphs.GraphName, nodes: int, clusters: int, width: int, repeats: int, peak: float
) -> list[dict[str, Any]]:
    """Time equal node updates of a network of nodes, all at once and cluster by cluster.

    Three synchronous sweeps stand against 3 K updates of one of K contiguous clusters each.
    """
    model = ring_mp.build(outputs=2, graph=graph, nodes=nodes, width=width)
    net = model.message_passing
    assert net is not None
    params = model.init(jax.random.key(0), jnp.zeros((1, 1, 3)))
    hidden = jax.random.normal(jax.random.key(1), (BATCH, nodes, width))
    drive = net.drive(params, jax.random.normal(jax.random.key(2), (BATCH, 3)))
    partition = make_partition("contiguous", clusters, nodes)
    plan = make_plan(net.neighbours, partition, clusters)
    updates = SYNC_SWEEPS * clusters

    def update(hidden: jax.Array) -> jax.Array:
        return net.update(params, hidden, drive)

    def synchronous(hidden: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(
            0, SYNC_SWEEPS, lambda _, h: sweep_sync(update, h, net.damping), hidden
        )

    def by_cluster(policy: Any, gathered: bool, hidden: jax.Array) -> jax.Array:
        choose = chooser(policy, partition, clusters, 4)
        turns = turns_of(policy, clusters, (updates, BATCH), jax.random.key(3))
        if not gathered:
            return sweep_cluster(update, hidden, choose, turns, partition, net.damping)[0]
        rule = partial(net.rule, params)
        sees = policy == "hist"
        return sweep_gathered(rule, hidden, drive, choose, turns, plan, net.damping, sees)[0]

    ways: dict[str, tuple[Callable[..., Any], int]] = {
        "synchronous": (synchronous, SYNC_SWEEPS * nodes),
        "hist, mask": (partial(by_cluster, "hist", False), updates * nodes),
        "hist, gathered": (
            partial(by_cluster, "hist", True), node_evaluations(plan, updates, True),
        ),
        "roundrobin, gathered": (
            partial(by_cluster, "roundrobin", True), node_evaluations(plan, updates, False),
        ),
    }  # fmt: skip
    compiled = {name: jax.jit(way) for name, (way, _) in ways.items()}
    calls = {name: partial(way, hidden) for name, way in compiled.items()}
    seconds = fastest(calls, repeats)
    each = 2 * params["cell"]["hidden"].size * BATCH
    return [
        {
            "graph": graph,
            "nodes": nodes,
            "clusters": clusters,
            "width": width,
            "way": name,
            "node_updates": SYNC_SWEEPS * nodes,
            "node_evaluations": evaluations,
            "seconds": seconds[name],
            "times_synchronous": seconds[name] / seconds["synchronous"],
            "flops": each * evaluations,
            "share_of_peak": each * evaluations / seconds[name] / peak,
        }
        for name, (_, evaluations) in ways.items()
    ]


def solve_effort(
    graph: graphs.GraphName, nodes: int, clusters: int, kind: Any, kappa: float = 1.0
) -> dict[str, Any]:
    """Count node updates that each policy needs on ringsolve, from 0, to a residual of 1 %.

    `updates` are node updates over nodes, so that 1 is the work of one synchronous sweep; a policy
    that runs out of its budget has `reached` below 1.
    """
    neighbours = graphs.make_graph(graph, nodes)
    row = {"graph": graph, "nodes": nodes, "clusters": clusters, "partition": kind}
    try:
        partition = make_partition(kind, clusters, nodes, neighbours)
    except JaxbenchError as error:
        return {**row, "left_out": str(error)}
    M, scale = (jnp.asarray(each, jnp.float32) for each in graphs.jacobi_map(neighbours, kappa))
    f = jax.random.normal(jax.random.key(0), (BATCH, nodes))
    offset = (f * scale[None, :])[..., None]

    def update(u: jax.Array) -> jax.Array:
        return jnp.einsum("ij,...jw->...iw", M, u) + offset

    @partial(jax.jit, static_argnums=0)
    def effort(policy: Any) -> Any:
        choose = chooser(policy, partition, clusters, 4)
        turns = turns_of(policy, clusters, (BUDGET * clusters, BATCH), jax.random.key(1))
        return updates_to_tolerance(
            update, jnp.zeros_like(offset), choose, turns, partition, clusters, 0.5, TOLERANCE
        )

    found = {policy: effort(policy) for policy in POLICIES}
    coefficient = second_order(update, jnp.zeros_like(offset), partition, clusters)
    return {
        **row,
        "cut_edges": cut_size(neighbours, partition),
        "eta_squared_coefficient": float(jnp.abs(coefficient).max()),
        "updates": {p: float(np.mean(e.node_updates)) / nodes for p, e in found.items()},
        "reached": {p: float(np.mean(e.reached)) for p, e in found.items()},
    }


def measure(
    sizes: Sequence[int], clusters: int, width: int, repeats: int, say: Callable[[Any], None]
) -> dict[str, Any]:
    """Measure everything, telling `say` each row."""
    peak = peak_flops(repeats)
    say({"peak_flops": peak})

    def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            say(row)
        return rows

    compared = min(sizes, key=lambda nodes: abs(nodes - 64))  # where partitions are compared
    names: tuple[graphs.GraphName, ...] = ("ring", "torus", "random_regular")
    sweeps = [
        row
        for graph in names
        for nodes in sizes
        for row in told(time_sweeps(graph, nodes, clusters, width, repeats, peak))
    ]
    solves = [
        told([solve_effort(graph, nodes, clusters, kind)])[0]
        for graph in names
        for nodes in sizes
        for kind in (PARTITIONS if nodes == compared else PARTITIONS[:1])
    ]
    return {"peak_flops": peak, "sweeps": sweeps, "ringsolve": solves}
