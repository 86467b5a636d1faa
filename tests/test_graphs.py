"""Graphs against their definitions, and what is solved on them."""

import numpy as np
import pytest

from jaxbench import graphs
from jaxbench.base import JaxbenchError


@pytest.mark.parametrize("nodes", [16, 36, 1024])
@pytest.mark.parametrize("name", ["ring", "torus", "random_regular"])
def test_graphs_are_simple_symmetric_regular_and_connected(name, nodes):
    neighbours = graphs.make_graph(name, nodes)
    edges = graphs.adjacency(neighbours)
    assert (edges == edges.T).all()
    assert (edges.sum(axis=1) == neighbours.shape[1]).all(), "no neighbour stands twice"
    assert not np.diag(edges).any()
    assert graphs.is_connected(neighbours)


def test_neighbours_are_in_the_order_of_their_directions():
    assert graphs.ring(5)[[0, 3]].tolist() == [[4, 1], [2, 4]]
    assert graphs.torus_shape(12) == (3, 4)
    # 0 1 2 3 / 4 5 6 7 / 8 9 10 11
    assert graphs.torus(12)[5].tolist() == [4, 6, 1, 9]
    assert graphs.torus(12)[0].tolist() == [3, 1, 8, 4]


def test_random_regular_graphs_follow_their_seed():
    first, again, other = (graphs.random_regular(20, 3, seed) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_eigenvalues_of_a_ring_are_known():
    """`2 - 2 cos(2 pi k / N)`."""
    values = np.linalg.eigvalsh(graphs.laplacian(graphs.ring(12)))
    exact = np.sort(2 - 2 * np.cos(2 * np.pi * np.arange(12) / 12))
    np.testing.assert_allclose(values, exact, atol=1e-12)


def test_jacobis_iteration_has_the_solution_as_its_fixed_point():
    neighbours = graphs.random_regular(14, 3, 0)
    M, scale = graphs.jacobi_map(neighbours, 0.7)
    f = np.random.default_rng(0).normal(size=14)
    u = np.linalg.solve(graphs.screened_laplacian(neighbours, 0.7), f)
    np.testing.assert_allclose(M @ u + scale * f, u, atol=1e-13)
    assert (np.diag(M) == 0).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graphs.ring(2), "at least 3 nodes"),
        (lambda: graphs.torus(14), "no such product"),
        (lambda: graphs.random_regular(5, 3, 0), "even number of edge ends"),
        (lambda: graphs.random_regular(4, 4, 0), "degree from 2 to nodes - 1"),
    ],
)
def test_graphs_that_do_not_exist_are_refused(make, words):
    with pytest.raises(JaxbenchError, match=words):
        make()


def test_a_graph_in_two_parts_is_found_and_refused():
    halves = np.concatenate([graphs.ring(4), graphs.ring(3) + 4], axis=0)
    assert not graphs.is_connected(halves)
    with pytest.raises(JaxbenchError, match="3 of 7 nodes cannot be reached"):
        graphs.check_connected(halves, "this")
