"""Partitions of a graph's nodes into clusters: label `c` of node `i` is `partition[i]`; numpy only.

Sizes differ by one node at most, except where clusters are given one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from jaxbench import graphs
from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from jaxbench.graphs import Neighbours

    Partition = Int[np.ndarray, " nodes"]

PartitionName = Literal["contiguous", "strided", "random", "spectral", "red_black"]
NEEDS_GRAPH = ("spectral", "red_black")


def make_partition(
    kind: PartitionName | Sequence[Sequence[int]],
    clusters: int,
    nodes: int,
    neighbours: Neighbours | None = None,
    seed: int = 0,
) -> Partition:
    """Make a partition by name, or of lists of nodes.

    Args:
        kind: `contiguous` (node numbers in a row), `strided` (every K-th node), `random`,
            `spectral` (halves by the Fiedler vector, again and again), `red_black` (no two nodes of
            a cluster are neighbours), or the clusters themselves.
        clusters: how many, K.
        nodes: of the graph.
        neighbours: the graph; `spectral` and `red_black` need it.
        seed: of the random partition.

    Raises:
        JaxbenchError: more clusters than nodes, lists that miss a node or name one twice, or a
            graph that is missing or does not allow this partition.
    """
    if not 1 <= clusters <= nodes:
        raise JaxbenchError(
            f"{clusters} clusters of {nodes} nodes: there can be from 1 to {nodes}, so that each "
            f"has a node"
        )
    if not isinstance(kind, str):
        return from_lists(kind, clusters, nodes)
    if kind in NEEDS_GRAPH and neighbours is None:
        raise JaxbenchError(
            f"the partition {kind!r} needs a graph, and hidden units have none; use 'contiguous', "
            f"'strided' or 'random'"
        )
    if kind == "strided":
        return np.arange(nodes) % clusters
    rows = contiguous(nodes, clusters)
    if kind == "random":
        return rows[np.random.default_rng(seed).permutation(nodes)]
    if kind == "spectral":
        assert neighbours is not None
        return spectral(neighbours, clusters)
    if kind == "red_black":
        assert neighbours is not None
        return red_black(neighbours, clusters)
    return rows


def contiguous(nodes: int, clusters: int) -> Partition:
    """Cut the nodes in the order of their numbers."""
    return np.arange(nodes) * clusters // nodes


def from_lists(lists: Sequence[Sequence[int]], clusters: int, nodes: int) -> Partition:
    """Label the nodes by the list that names them.

    Raises:
        JaxbenchError: another number of lists than clusters, an empty list, or a node that is
            missed, named twice or does not exist.
    """
    if len(lists) != clusters:
        raise JaxbenchError(
            f"the partition has {len(lists)} lists of nodes, but there are {clusters} clusters; "
            f"make them equal"
        )
    named = [node for each in lists for node in each]
    unknown = sorted({node for node in named if not 0 <= node < nodes})
    missed = sorted(set(range(nodes)) - set(named))
    twice = sorted({node for node in named if named.count(node) > 1})
    empty = [place for place, each in enumerate(lists) if not each]
    problems = [
        f"{what} {', '.join(map(str, which))}"
        for what, which in (
            ("names nodes that do not exist:", unknown),
            ("misses", missed),
            ("names twice", twice),
            ("has empty clusters:", empty),
        )
        if which
    ]
    if problems:
        raise JaxbenchError(
            f"the partition of {nodes} nodes (0 to {nodes - 1}) {' and '.join(problems)}; name "
            f"each node once"
        )
    partition = np.empty(nodes, int)
    for label, each in enumerate(lists):
        partition[list(each)] = label
    return partition


def fiedler_vector(laplacian: Float[np.ndarray, "nodes nodes"]) -> Float[np.ndarray, " nodes"]:
    """Give an eigenvector of the second smallest eigenvalue (Fiedler 1973).

    Where that eigenvalue is multiple, as on a ring, it is the one nearest to the node numbers.
    """
    values, vectors = np.linalg.eigh(laplacian)
    space = vectors[:, np.abs(values - values[1]) <= 1e-9 * max(values[-1], 1.0)]
    ramp = np.arange(len(laplacian)) - (len(laplacian) - 1) / 2
    nearest = space @ (space.T @ ramp)
    return nearest if np.abs(nearest).max() > 1e-6 else space[:, 0]


def spectral(neighbours: Neighbours, clusters: int) -> Partition:
    """Split the nodes in two by their Fiedler vector, and each part again, until there are K.

    Raises:
        JaxbenchError: the graph is not connected.
    """
    graphs.check_connected(neighbours, "the spectral partition")
    edges = graphs.adjacency(neighbours)
    partition = np.zeros(len(edges), int)

    def split(nodes: np.ndarray, first: int, count: int) -> None:
        partition[nodes] = first
        if count == 1:
            return
        within = edges[np.ix_(nodes, nodes)]
        vector = fiedler_vector(np.diag(within.sum(axis=1)) - within)
        ordered = nodes[np.argsort(np.round(vector, 9), kind="stable")]
        half = count // 2
        cut = round(len(nodes) * half / count)
        split(np.sort(ordered[:cut]), first, half)
        split(np.sort(ordered[cut:]), first + half, count - half)

    split(np.arange(len(edges)), 0, clusters)
    return partition


def two_colouring(neighbours: Neighbours) -> Int[np.ndarray, " nodes"]:
    """Colour the nodes 0 and 1 so that neighbours differ.

    Raises:
        JaxbenchError: the graph is not connected, or has a cycle of odd length.
    """
    graphs.check_connected(neighbours, "the red-black partition")
    colours = np.full(len(neighbours), -1)
    colours[0] = 0
    front = [0]
    while front:
        node = front.pop()
        for other in neighbours[node]:
            if colours[other] < 0:
                colours[other] = 1 - colours[node]
                front.append(other)
    if (colours[neighbours] == colours[:, None]).any():
        raise JaxbenchError(
            f"the red-black partition needs a graph without cycles of odd length, and this one of "
            f"{len(neighbours)} nodes has some; use a ring of an even number of nodes, or another "
            f"partition"
        )
    return colours


def red_black(neighbours: Neighbours, clusters: int) -> Partition:
    """Cut the red nodes into K/2 clusters, then the black ones: none has an edge inside.

    Raises:
        JaxbenchError: an odd number of clusters, or as for `two_colouring`.
    """
    if clusters % 2:
        raise JaxbenchError(
            f"the red-black partition cuts each of two colours into equally many clusters, but "
            f"{clusters} is odd; use {clusters + 1} clusters"
        )
    colours = two_colouring(neighbours)
    partition = np.empty(len(neighbours), int)
    for colour in (0, 1):
        nodes = np.flatnonzero(colours == colour)
        partition[nodes] = colour * clusters // 2 + contiguous(len(nodes), clusters // 2)
    return partition


def cut_size(neighbours: Neighbours, partition: Partition) -> int:
    """Count the edges between different clusters."""
    return int((partition[neighbours] != partition[:, None]).sum()) // 2


def members(partition: Partition, clusters: int) -> Int[np.ndarray, "clusters size"]:
    """List the nodes of each cluster in the order of their numbers.

    Raises:
        JaxbenchError: clusters of different sizes.
    """
    sizes = np.bincount(partition, minlength=clusters)
    if len(set(sizes.tolist())) > 1:
        raise JaxbenchError(
            f"gathered updates need clusters of equal size, but they have "
            f"{', '.join(map(str, sizes.tolist()))} nodes; choose a number of clusters that "
            f"divides the nodes, or implementation = 'mask'"
        )
    return np.argsort(partition, kind="stable").reshape(clusters, -1)


def closed_neighbourhoods(
    neighbours: Neighbours, partition: Partition, clusters: int
) -> Int[np.ndarray, "clusters size"]:
    """List each cluster's nodes and their neighbours, which one update of the cluster can move.

    Shorter lists are padded by repeating their first node.
    """
    lists = []
    for label in range(clusters):
        nodes = np.flatnonzero(partition == label)
        lists.append(np.union1d(nodes, neighbours[nodes].ravel()))
    size = max(map(len, lists))
    return np.stack(
        [np.concatenate([each, np.repeat(each[:1], size - len(each))]) for each in lists]
    )
