"""Partitions against their definitions, and what is wrong with bad ones."""

import numpy as np
import pytest

from jaxbench import graphs
from jaxbench.base import JaxbenchError
from jaxbench.interventions import node_partitions
from jaxbench.interventions.node_partitions import cut_size, make_partition

KINDS = ("contiguous", "strided", "random", "spectral", "red_black")
RING, TORUS = graphs.ring(16), graphs.torus(64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clusters", [1, 2, 4, 6, 16])
def test_every_cluster_has_its_share_of_the_nodes(kind, clusters):
    if kind == "red_black" and clusters == 1:
        clusters = 8
    partition = make_partition(kind, clusters, 16, RING)
    sizes = np.bincount(partition, minlength=clusters)
    assert sizes.sum() == 16
    assert sizes.max() - sizes.min() <= 1


def test_cut_edges_on_a_ring():
    """Four arcs cut 4 edges, every fourth node all 16, two colours all 16."""
    cut = {kind: cut_size(RING, make_partition(kind, 4, 16, RING)) for kind in KINDS}
    assert (cut["contiguous"], cut["spectral"]) == (4, 4)
    assert (cut["strided"], cut["red_black"]) == (16, 16)
    assert 4 < cut["random"] <= 16


def test_spectral_halves_of_a_thin_torus_cut_it_across():
    """Of a torus of 3 x 14, two cuts of 3 edges each are the cheapest; along it one costs 14."""
    thin = graphs.torus(42)
    assert graphs.torus_shape(42) == (6, 7)
    square = make_partition("spectral", 2, 42, thin)
    assert cut_size(thin, square) < cut_size(thin, make_partition("random", 2, 42))
    thin = graphs.torus(39)
    assert graphs.torus_shape(39) == (3, 13)
    assert cut_size(thin, make_partition("spectral", 2, 39, thin)) <= 8, "one step in each cut"


def test_spectral_finds_the_bridge_between_two_cliques():
    """Two complete graphs of 4 nodes, each less one edge, joined by two edges."""
    clique = [(a, b) for a in range(4) for b in range(a) if (a, b) != (3, 2)]
    edges = [(a + first, b + first) for first in (0, 4) for a, b in clique] + [(7, 3), (6, 2)]
    neighbours = np.array(
        [sorted(b if a == n else a for a, b in edges if n in (a, b)) for n in range(8)]
    )
    partition = make_partition("spectral", 2, 8, neighbours)
    assert cut_size(neighbours, partition) == 2
    assert len({*partition[:4].tolist()}) == 1


@pytest.mark.parametrize(("graph", "nodes"), [(RING, 16), (TORUS, 64)])
def test_red_black_clusters_have_no_edge_inside(graph, nodes):
    partition = make_partition("red_black", 4, nodes, graph)
    assert not (partition[graph] == partition[:, None]).any()


def test_lists_of_nodes_are_taken_as_they_are():
    assert make_partition([[3, 0], [1, 2]], 2, 4).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("kind", "clusters", "words"),
    [
        ([[0, 1], [3]], 2, "misses 2"),
        ([[0, 1, 2], [2, 3]], 2, "names twice 2"),
        ([[0, 1, 2], [3, 4]], 2, "do not exist: 4"),
        ([[0, 1, 2, 3], []], 2, "empty clusters: 1"),
        ([[0, 1, 2, 3]], 2, "1 lists of nodes, but there are 2"),
        ("contiguous", 5, "5 clusters of 4 nodes"),
        ("spectral", 2, "needs a graph"),
        ("red_black", 2, "needs a graph"),
    ],
)
def test_bad_partitions_say_what_is_wrong(kind, clusters, words):
    with pytest.raises(JaxbenchError, match=words):
        make_partition(kind, clusters, 4)


@pytest.mark.parametrize("kind", ["spectral", "red_black"])
def test_partitions_that_follow_edges_need_a_connected_graph(kind):
    halves = np.concatenate([graphs.ring(4), graphs.ring(4) + 4])
    with pytest.raises(JaxbenchError, match="connected graph, but 4 of 8 nodes"):
        make_partition(kind, 2, 8, halves)
    assert make_partition("contiguous", 2, 8, halves).tolist() == [0] * 4 + [1] * 4


def test_red_black_needs_two_colours_and_an_even_number_of_clusters():
    with pytest.raises(JaxbenchError, match="odd length"):
        make_partition("red_black", 2, 7, graphs.ring(7))
    with pytest.raises(JaxbenchError, match="3 is odd; use 4"):
        make_partition("red_black", 3, 16, RING)


def test_members_and_halos():
    partition = make_partition("contiguous", 4, 16, RING)
    assert node_partitions.members(partition, 4)[1].tolist() == [4, 5, 6, 7]
    halo = node_partitions.closed_neighbourhoods(RING, partition, 4)
    assert halo[1].tolist() == [3, 4, 5, 6, 7, 8]
    assert sorted(halo[0].tolist()) == [0, 1, 2, 3, 4, 15]
    with pytest.raises(JaxbenchError, match="equal size, but they have 6, 5, 5"):
        node_partitions.members(make_partition("contiguous", 3, 16), 3)


def test_shorter_halos_are_padded_by_their_own_nodes():
    uneven = make_partition([[0], [1, 2, 3, 4, 5]], 2, 6)
    halo = node_partitions.closed_neighbourhoods(graphs.ring(6), uneven, 2)
    assert sorted(set(halo[0].tolist())) == [0, 1, 5]
    assert sorted(halo[1].tolist()) == [0, 1, 2, 3, 4, 5]
