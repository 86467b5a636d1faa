"""Networks whose nodes fall into clusters: the nodes of a graph, or a recurrence's hidden units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jaxbench.base import JaxbenchError, MessagePassing, Model, Recurrence

if TYPE_CHECKING:
    from jaxtyping import Array

    from jaxbench.base import PyTree
    from jaxbench.interventions.node_partitions import Partition


class Network(NamedTuple):
    """What is updated cluster by cluster.

    Attributes:
        nodes: of the model, and how they update.
        partition: cluster of each node.
        clusters: how many.
        sweeps: cluster updates in a time step.
        eta: how far a node goes towards its new value.
    """

    nodes: MessagePassing
    partition: Partition
    clusters: int
    sweeps: int
    eta: float


def units_as_nodes(recurrence: Recurrence) -> MessagePassing:
    """Take hidden units for nodes of width 1, each a neighbour of all others."""

    def no_rule(*args: Any) -> Any:
        raise JaxbenchError(
            "hidden units have no local rule to gather for; use implementation = 'mask'"
        )

    def step(params: PyTree, hidden: Array, inputs: Array) -> Array:
        return recurrence.step(params, hidden[..., 0], inputs)[..., None]

    return MessagePassing(
        neighbours=None,
        sweeps=1,
        damping=1.0,
        initial_hidden=lambda params, shape: recurrence.initial_hidden(params, shape)[..., None],
        drive=lambda params, inputs: inputs,
        update=step,
        rule=no_rule,
        readout=lambda params, hidden: recurrence.readout(params, hidden[..., 0]),
    )


def nodes_of(model: Model) -> tuple[MessagePassing, int]:
    """Give a model's nodes and their number.

    Raises:
        JaxbenchError: it has none.
    """
    if model.message_passing is None:
        raise JaxbenchError(
            f"cluster_updates of nodes needs a model on a graph, such as ring_mp, but "
            f"{model.name!r} has no nodes; use of = 'hidden_units' for a recurrent model"
        )
    return model.message_passing, len(model.message_passing.neighbours)


def hidden_units_of(model: Model) -> tuple[MessagePassing, int]:
    """Give a model's hidden units as nodes, and their number.

    Raises:
        JaxbenchError: it has none.
    """
    if model.recurrence is None or len(model.unit_layers) != 1:
        raise JaxbenchError(
            f"cluster_updates of hidden units needs a recurrent model with one layer of units, "
            f"such as rnn_small, but {model.name!r} is none"
        )
    return units_as_nodes(model.recurrence), model.unit_layers[0].size
