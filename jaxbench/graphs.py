"""Graphs of equal degree as arrays of neighbours [nodes, degree], and what is solved on them.

A ring's neighbours are in the order left, right; a torus' left, right, above, below; those of a
random regular graph have no meaningful order.  Numpy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Neighbours = Int[np.ndarray, "nodes degree"]

GraphName = Literal["ring", "torus", "random_regular"]
ATTEMPTS = 100


def ring(nodes: int) -> Neighbours:
    """Give each node the one before and the one after it.

    Raises:
        JaxbenchError: fewer than three nodes, which would be neighbours twice.
    """
    if nodes < 3:
        raise JaxbenchError(f"a ring has at least 3 nodes, but {nodes} were asked for")
    here = np.arange(nodes)
    return np.stack([(here - 1) % nodes, (here + 1) % nodes], axis=1)


def torus_shape(nodes: int) -> tuple[int, int]:
    """Give rows and columns of the torus that is nearest to a square.

    Raises:
        JaxbenchError: the nodes are not the product of two numbers of at least 3.
    """
    rows = [n for n in range(3, int(nodes**0.5) + 1) if nodes % n == 0]
    if not rows:
        raise JaxbenchError(
            f"a torus needs rows x columns nodes with at least 3 of each, but {nodes} is no such "
            f"product; {3 * max(3, round(nodes / 3))} is"
        )
    return rows[-1], nodes // rows[-1]


def torus(nodes: int) -> Neighbours:
    """Give each node of a grid that closes on itself the nodes left, right, above and below it."""
    rows, columns = torus_shape(nodes)
    grid = np.arange(nodes).reshape(rows, columns)
    shifted = [np.roll(grid, shift, axis) for axis in (1, 0) for shift in (1, -1)]
    return np.stack([each.ravel() for each in shifted], axis=1)


def random_regular(nodes: int, degree: int, seed: int) -> Neighbours:
    """Draw a connected graph in which every node has `degree` neighbours.

    The ends of edges are paired at random; pairs that would be loops or double edges are broken up
    and paired again (Steger and Wormald 1999), from the start where that leads nowhere.

    Raises:
        JaxbenchError: no such graph exists.
    """
    if not 2 <= degree < nodes or nodes * degree % 2:
        raise JaxbenchError(
            f"a connected regular graph needs a degree from 2 to nodes - 1 and an even number of "
            f"edge ends, but {nodes} nodes of degree {degree} were asked for"
        )
    rng = np.random.default_rng(seed)
    for _ in range(ATTEMPTS):
        edges = pair_ends(rng, nodes, degree)
        if edges is not None:
            ends = np.array([*edges, *((b, a) for a, b in edges)])
            neighbours = ends[np.lexsort(ends.T[::-1]), 1].reshape(nodes, degree)
            if is_connected(neighbours):
                return neighbours
    raise JaxbenchError(
        f"{ATTEMPTS} draws gave no connected graph of {nodes} nodes and degree {degree}; "
        f"use a degree of at least 3, or a ring"
    )


def pair_ends(rng: np.random.Generator, nodes: int, degree: int) -> set[tuple[int, int]] | None:
    """Pair `degree` ends a node into edges without loops or doubles; None at a dead end."""
    edges: set[tuple[int, int]] = set()
    ends = np.repeat(np.arange(nodes), degree).tolist()
    while ends:
        rng.shuffle(ends)
        left: list[int] = []
        before = len(edges)
        for a, b in zip(ends[::2], ends[1::2], strict=True):
            edge = (min(a, b), max(a, b))
            if a == b or edge in edges:
                left += [a, b]
            else:
                edges.add(edge)
        if len(edges) == before and not any_suitable(set(left), edges):
            return None
        ends = left
    return edges


def any_suitable(nodes: set[int], edges: set[tuple[int, int]]) -> bool:
    """Tell whether two of these nodes could still be joined."""
    return any(a < b and (a, b) not in edges for a in nodes for b in nodes)


def make_graph(name: GraphName, nodes: int, degree: int = 4, seed: int = 0) -> Neighbours:
    """Make a graph by name; `degree` and `seed` are those of the random regular graph."""
    if name == "ring":
        return ring(nodes)
    return torus(nodes) if name == "torus" else random_regular(nodes, degree, seed)


def adjacency(neighbours: Neighbours) -> Float[np.ndarray, "nodes nodes"]:
    """Give the matrix with 1 where two nodes are neighbours, else 0."""
    matrix = np.zeros((len(neighbours), len(neighbours)))
    np.put_along_axis(matrix, neighbours, 1.0, axis=1)
    return matrix


def laplacian(neighbours: Neighbours) -> Float[np.ndarray, "nodes nodes"]:
    """Give `L = D - A`, with the degrees on the diagonal."""
    edges = adjacency(neighbours)
    return np.diag(edges.sum(axis=1)) - edges


def is_connected(neighbours: Neighbours) -> bool:
    """Tell whether every node can be reached from the first one."""
    return bool(reached(neighbours).all())


def reached(neighbours: Neighbours) -> Bool[np.ndarray, " nodes"]:
    """Tell which nodes can be reached from the first one."""
    seen = np.zeros(len(neighbours), bool)
    seen[0] = True
    front = np.array([0])
    while front.size:
        found = np.unique(neighbours[front])
        front = found[~seen[found]]
        seen[front] = True
    return seen


def check_connected(neighbours: Neighbours, what: str) -> None:
    """Refuse a graph that falls into parts, for `what` needs a connected one.

    Raises:
        JaxbenchError: with the number of nodes that cannot be reached.
    """
    missed = int((~reached(neighbours)).sum())
    if missed:
        raise JaxbenchError(
            f"{what} needs a connected graph, but {missed} of {len(neighbours)} nodes cannot be "
            f"reached from node 0; join the parts"
        )


def screened_laplacian(neighbours: Neighbours, kappa: float) -> Float[np.ndarray, "nodes nodes"]:
    """Give `A = I + kappa L`, positive definite for `kappa >= 0`."""
    return np.eye(len(neighbours)) + kappa * laplacian(neighbours)


def jacobi_map(
    neighbours: Neighbours, kappa: float
) -> tuple[Float[np.ndarray, "nodes nodes"], Float[np.ndarray, " nodes"]]:
    """Give Jacobi's iteration `u <- M u + scale f`, whose fixed point solves `(I + kappa L) u = f`.

    With `D` the diagonal of `A = I + kappa L`: `M = I - D^-1 A` and `scale = 1 / D` (Golub and Van
    Loan, Matrix Computations, section 11.2).
    """
    matrix = screened_laplacian(neighbours, kappa)
    diagonal = np.diag(matrix)
    return np.eye(len(matrix)) - matrix / diagonal[:, None], 1 / diagonal
