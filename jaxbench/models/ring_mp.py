"""`ring_mp`: a recurrent network of nodes that pass messages to their neighbours.

In each time step every node does `sweeps` synchronous updates `h <- h + eta (F - h)` with
`F_i = tanh(W_s h_i + sum_k W_k h_k + W_x x_t + b_i)` over its neighbours `k`; a linear head reads
all nodes.  On a ring and a torus each direction has a matrix of its own; on a random regular graph,
whose neighbours have no order, one matrix acts on their mean.

All nodes share their matrices, and differ by their bias and by their place in the head.  The
matrices lie in one kernel and the states of a node's surroundings side by side, so that a sweep is
one product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Le
from flax import linen as nn

from jaxbench import graphs
from jaxbench.base import JaxbenchError, MessagePassing, Model
from jaxbench.graphs import GraphName

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

BIAS_DEVIATION = 0.5
UNROLLED_SWEEPS = 4
"""Sweeps without a loop around them, which XLA:CPU does a third faster."""


def shifted(
    graph: GraphName, neighbours: graphs.Neighbours, hidden: Float[Array, "*batch nodes width"]
) -> list[Float[Array, "*batch nodes width"]]:
    """Give what each node sees of its surroundings: one array a direction, or their mean.

    On rings and grids, shifting is much faster than gathering, forwards and backwards.
    """
    if graph == "ring":
        return [jnp.roll(hidden, shift, axis=-2) for shift in (1, -1)]
    if graph == "torus":
        *batch, nodes, width = hidden.shape
        grid = hidden.reshape(*batch, *graphs.torus_shape(nodes), width)
        moved = [jnp.roll(grid, shift, axis) for axis in (-2, -3) for shift in (1, -1)]
        return [each.reshape(hidden.shape) for each in moved]
    return [jnp.mean(hidden[..., neighbours, :], axis=-2)]


def cell_rule(
    kernel: Float[Array, "surroundings width"],
    surroundings: Float[Array, "*batch surroundings"],
    drive: Float[Array, "*batch width"],
) -> Float[Array, "*batch width"]:
    """The new value of nodes, `F = tanh(W [own, surroundings] + drive)`.

    The product is one of two matrices, whose gradient XLA:CPU computes in half the time.
    """
    rows = surroundings.reshape(-1, kernel.shape[0])
    return jnp.tanh((rows @ kernel).reshape(drive.shape) + drive)


def build(
    *,
    outputs: int,
    graph: GraphName = "ring",
    nodes: Annotated[int, Ge(3), Le(1024)] = 16,
    width: Annotated[int, Ge(1)] = 8,
    degree: Annotated[int, Ge(2)] = 4,
    graph_seed: Annotated[int, Ge(0)] = 0,
    sweeps: Annotated[int, Ge(1)] = 3,
    eta: Annotated[float, Gt(0), Le(1)] = 0.5,
    local: bool = False,
) -> Model:
    """Build a network of nodes over inputs [batch, time, features].

    Its intermediates are `hidden` [batch, time, nodes, width], the states after each time step.

    Args:
        outputs: width of the outputs, given by the track.
        graph: `ring`, `torus` or `random_regular`.
        nodes: of the graph.
        width: of a node's state.
        degree: of the random regular graph.
        graph_seed: of the random regular graph.
        sweeps: synchronous updates in a time step.
        eta: how far an update goes towards the new value; 1 replaces the old one.
        local: whether node `i` sees the `i`-th part of the input only and gives the `i`-th part of
            the output, by a head that all nodes share; else every node sees the whole input, and
            the head reads all nodes.

    Raises:
        JaxbenchError: there is no such graph, or `local` outputs do not divide among the nodes.
    """
    options = {name: value for name, value in locals().items() if name != "outputs"}
    neighbours = graphs.make_graph(graph, nodes, degree, graph_seed)
    ordered = graph != "random_regular"
    surroundings = (1 + neighbours.shape[1]) * width if ordered else 2 * width
    if local and outputs % nodes:
        raise JaxbenchError(
            f"with local = true each of {nodes} nodes gives the same share of the outputs, but the "
            f"track has {outputs}; make the model's nodes as many as the track's"
        )
    read, written = (width, outputs // nodes) if local else (nodes * width, outputs)

    def seen_by_a_node(features: int) -> int:
        if local and features % nodes:
            raise JaxbenchError(
                f"with local = true each of {nodes} nodes sees the same share of the inputs, but "
                f"the track has {features}; make the model's nodes as many as the track's"
            )
        return features // nodes if local else features

    def init(key: Key, inputs: Float[Array, "batch time features"]) -> PyTree:
        keys = jax.random.split(key, 4)
        draw = nn.initializers.lecun_normal()
        features = seen_by_a_node(inputs.shape[-1])
        return {
            "cell": {
                "hidden": draw(keys[0], (surroundings, width), float),
                "input": draw(keys[1], (features, width), float),
                "bias": BIAS_DEVIATION * jax.random.normal(keys[2], (nodes, width)),
            },
            "head": {
                "kernel": draw(keys[3], (read, written), float),
                "bias": jnp.zeros(written),
            },
        }

    def initial_hidden(params: PyTree, batch_shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*batch_shape, nodes, width), params["cell"]["bias"].dtype)

    def drive(params: PyTree, inputs: Array) -> Array:
        cell = params["cell"]
        *batch, features = inputs.shape
        if local:
            seen = inputs.reshape(*batch, nodes, seen_by_a_node(features)) @ cell["input"]
        else:
            seen = (inputs @ cell["input"])[..., None, :]
        shape = (*batch, nodes, width)
        return jnp.broadcast_to(seen, shape) + jnp.broadcast_to(cell["bias"], shape)

    def update(params: PyTree, hidden: Array, drive: Array) -> Array:
        parts = [hidden, *shifted(graph, neighbours, hidden)]
        return cell_rule(params["cell"]["hidden"], jnp.concatenate(parts, axis=-1), drive)

    def rule(params: PyTree, own: Array, around: Array, drive: Array) -> Array:
        if ordered:
            seen = around.reshape(*own.shape[:-1], surroundings - width)
        else:
            seen = jnp.mean(around, axis=-2)
        return cell_rule(params["cell"]["hidden"], jnp.concatenate([own, seen], axis=-1), drive)

    def readout(params: PyTree, hidden: Array) -> Array:
        head = params["head"]
        flat = hidden if local else hidden.reshape(*hidden.shape[:-2], read)
        out = flat @ head["kernel"]
        out = out + jnp.broadcast_to(head["bias"], out.shape)
        return out.reshape(*hidden.shape[:-2], outputs)

    def apply(
        params: PyTree,
        inputs: Float[Array, "batch time features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key

        def advance(hidden: Array, at: Array) -> tuple[Array, Array]:
            driven = drive(params, at)

            def sweep(hidden: Array, _: None) -> tuple[Array, None]:
                return hidden + eta * (update(params, hidden, driven) - hidden), None

            unroll = min(sweeps, UNROLLED_SWEEPS)
            hidden, _ = jax.lax.scan(sweep, hidden, None, length=sweeps, unroll=unroll)
            return hidden, hidden

        # Sweeps are cheaper to do again than to keep: what they keep is beyond the caches.
        advance_again = jax.checkpoint(advance, prevent_cse=False)
        start = initial_hidden(params, inputs.shape[:1])
        _, states = jax.lax.scan(advance_again, start, inputs.swapaxes(0, 1))
        states = states.swapaxes(0, 1)
        return readout(params, states), {"hidden": states}

    def flops(input_shape: tuple[int, ...]) -> float:
        time, features = input_shape
        sweep = 2 * nodes * surroundings * width
        seen = 2 * features * width
        head = 2 * read * written * (nodes if local else 1)
        return float(time * (sweeps * sweep + seen + head))

    return Model(
        name="ring_mp",
        summary="a recurrent network of nodes that pass messages to their neighbours",
        options=options,
        reads="sequences [samples, steps, features]",
        features=frozenset({"message_passing"}),
        init=init,
        apply=apply,
        flops=flops,
        message_passing=MessagePassing(
            neighbours, sweeps, eta, initial_hidden, drive, update, rule, readout
        ),
    )
