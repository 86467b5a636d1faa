"""Sweeps against linear algebra: what is exact for `F(x) = M x + b`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench import graphs
from jaxbench.interventions import cluster_measures, cluster_policies, cluster_sweeps
from jaxbench.interventions.node_partitions import make_partition

ETA = 0.3


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def linear(nodes=6, seed=0):
    """A random linear update of states [nodes, 1], its matrix, and where to start."""
    rng = np.random.default_rng(seed)
    M, b, x = (
        rng.normal(size=(nodes, nodes)) / nodes,
        rng.normal(size=nodes),
        rng.normal(size=nodes),
    )

    def update(hidden):
        return (jnp.asarray(M) @ hidden[..., 0] + b)[..., None]

    return update, M, M @ x + b - x, x


def below_blocks(M, partition):
    """The part of `M` that lies strictly below the block diagonal."""
    return np.where(partition[:, None] > partition[None, :], M, 0)


def discrepancy(update, x, partition, clusters, eta):
    found = cluster_measures.discrepancy(update, jnp.asarray(x)[:, None], partition, clusters, eta)
    return np.asarray(found[:, 0])


@pytest.mark.parametrize("eta", [0.05, 0.8])
def test_two_linear_clusters_differ_by_exactly_eta_squared_m21_f1(eta):
    update, M, moved, x = linear()
    expected = np.zeros(6)
    expected[3:] = eta**2 * M[3:, :3] @ moved[:3]
    found = discrepancy(update, x, np.repeat([0, 1], 3), 2, eta)
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize("kind", ["contiguous", "random"])
def test_k_linear_clusters_differ_by_a_finite_polynomial(kind):
    """`eta^2 L Fhat + eta^3 L^2 Fhat + ...` ends, because `L^K = 0`; it is the resolvent's."""
    update, M, moved, x = linear(12)
    partition = make_partition(kind, 4, 12)
    L = below_blocks(M, partition)
    polynomial = sum(ETA ** (n + 1) * np.linalg.matrix_power(L, n) @ moved for n in (1, 2, 3))
    found = discrepancy(update, x, partition, 4, ETA)
    np.testing.assert_allclose(found, polynomial, atol=1e-15)
    resolvent = ETA * (np.linalg.inv(np.eye(12) - ETA * L) - np.eye(12)) @ moved
    np.testing.assert_allclose(found, resolvent, atol=1e-15)


def test_the_leading_coefficient_is_exact_and_needs_no_fit():
    update, M, moved, x = linear(12)
    partition = make_partition("strided", 4, 12)
    found = cluster_measures.second_order(update, jnp.asarray(x)[:, None], partition, 4)
    np.testing.assert_allclose(found[:, 0], below_blocks(M, partition) @ moved, atol=1e-14)


def test_the_discrepancy_of_a_curved_update_tends_to_its_leading_term():
    update, _, _, x = linear(12)

    def curved(hidden):
        return jnp.tanh(2 * update(hidden))

    partition = make_partition("contiguous", 4, 12)
    start = jnp.asarray(x)[:, None]
    leading = cluster_measures.second_order(curved, start, partition, 4)[:, 0]
    errors = [
        np.abs(discrepancy(curved, x, partition, 4, eta) / eta**2 - leading).max()
        for eta in (0.02, 0.01)
    ]
    assert errors[0] < 0.05 * np.abs(leading).max()
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1), "what is left is of third order"


def test_one_cluster_is_the_synchronous_sweep():
    update, _, _, x = linear()
    start = jnp.asarray(x)[:, None]
    whole = np.zeros(6, int)
    expected = cluster_sweeps.sweep_sync(update, start, ETA)
    assert (cluster_sweeps.sweep_seq(update, start, whole, 1, ETA) == expected).all()
    for policy in ("hist", "max", "roundrobin", "random"):
        choose = cluster_policies.chooser(policy, whole, 1, 4)
        turns = cluster_policies.turns_of(policy, 1, (1, 1), jax.random.key(0))[:, 0]
        found, chosen = cluster_sweeps.sweep_cluster(update, start, choose, turns, whole, ETA)
        assert (found == expected).all()
        assert chosen.tolist() == [0]


def test_all_clusters_in_turn_are_a_block_gauss_seidel_sweep():
    update, M, _, x = linear(12)
    partition = make_partition("random", 4, 12)
    start = jnp.asarray(x)[:, None]
    turns = jnp.arange(4, dtype=jnp.int32)
    choose = cluster_policies.chooser("roundrobin", partition, 4, 4)
    found, _ = cluster_sweeps.sweep_cluster(update, start, choose, turns, partition, 1.0)
    sequential = cluster_sweeps.sweep_seq(update, start, partition, 4, 1.0)
    assert (found == sequential).all()
    offset = np.asarray(update(jnp.zeros((12, 1))))[:, 0]
    lower = below_blocks(M, partition)
    exact = np.linalg.solve(np.eye(12) - lower, (M - lower) @ x + offset)
    np.testing.assert_allclose(found[:, 0], exact, atol=1e-14)


def test_the_order_of_a_sequential_sweep_can_be_given():
    update, M, moved, x = linear()
    start = jnp.asarray(x)[:, None]
    found = cluster_sweeps.sweep_seq(update, start, np.repeat([0, 1], 3), 2, ETA, order=[1, 0])
    expected = x + ETA * moved
    expected[:3] += ETA**2 * M[:3, 3:] @ moved[3:]
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-15)


@pytest.mark.parametrize("graph", ["ring", "random_regular"])
def test_ringsolve_converges_to_the_solution_under_every_policy(graph):
    neighbours = graphs.make_graph(graph, 16)
    M, scale = graphs.jacobi_map(neighbours, 1.0)
    f = np.random.default_rng(0).normal(size=(3, 16))
    solution = np.linalg.solve(graphs.screened_laplacian(neighbours, 1.0), f.T).T
    partition = make_partition("contiguous", 4, 16)

    def update(u):
        return (u[..., 0] @ M.T + jnp.asarray(scale * f))[..., None]

    @jax.jit
    def solved(key):
        found = []
        for policy in ("hist", "max", "random", "roundrobin"):
            choose = cluster_policies.chooser(policy, partition, 4, 4)
            turns = cluster_policies.turns_of(policy, 4, (1200, 3), key)
            start = jnp.zeros((3, 16, 1))
            found.append(
                cluster_sweeps.sweep_cluster(update, start, choose, turns, partition, 0.5)[0]
            )
        return found

    for u in solved(jax.random.key(0)):
        np.testing.assert_allclose(u[..., 0], solution, atol=1e-9)


@pytest.mark.parametrize("eta", [0.4, 1.0])
def test_damped_jacobi_shrinks_by_the_spectral_radius(eta):
    """The factor is `rho((1 - eta) I + eta M)`: the error is in the end along one eigenvector."""
    neighbours = graphs.random_regular(16, 3, 0)
    M, scale = graphs.jacobi_map(neighbours, 2.0)
    f = np.random.default_rng(1).normal(size=16)
    solution = np.linalg.solve(graphs.screened_laplacian(neighbours, 2.0), f)

    def update(u):
        return (jnp.asarray(M) @ u[:, 0] + scale * f)[:, None]

    @jax.jit
    def error_after(sweeps):
        def sweep(_, u):
            return cluster_sweeps.sweep_sync(update, u, eta)

        u = jax.lax.fori_loop(0, sweeps, sweep, jnp.zeros((16, 1)))
        return jnp.linalg.norm(u[:, 0] - solution)

    radius = np.abs(np.linalg.eigvals((1 - eta) * np.eye(16) + eta * M)).max()
    assert error_after(81) / error_after(80) == pytest.approx(radius, rel=1e-3)


def test_updates_to_tolerance_counts_what_a_plain_loop_counts():
    update, _, _, x = linear(12)
    partition = make_partition([[0], [1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]], 3, 12)
    starts = np.stack([x, 3 * x])

    def loop(x):
        hidden = jnp.asarray(x)[:, None]
        used, clusters = 0, [0, 1, 2] * 40
        first = np.linalg.norm(update(hidden) - hidden)
        for cluster in clusters:
            if np.linalg.norm(update(hidden) - hidden) <= 0.2 * first:
                return used, True
            hidden = cluster_sweeps.move(hidden, update(hidden), jnp.int32(cluster), partition, ETA)
            used += (partition == cluster).sum()
        return used, False

    choose = cluster_policies.chooser("roundrobin", partition, 3, 4)
    turns = cluster_policies.turns_of("roundrobin", 3, (120, 2), jax.random.key(0))
    found = cluster_measures.updates_to_tolerance(
        jax.vmap(update), jnp.asarray(starts)[..., None], choose, turns, partition, 3, ETA, 0.2
    )
    expected = [loop(each) for each in starts]
    assert list(zip(found.node_updates.tolist(), found.reached.tolist(), strict=True)) == expected
    assert all(reached for _, reached in expected)


def test_a_budget_that_does_not_suffice_is_used_up():
    update, _, _, x = linear(12)
    partition = make_partition("contiguous", 3, 12)
    choose = cluster_policies.chooser("roundrobin", partition, 3, 4)
    turns = jnp.asarray([0, 1], jnp.int32)
    found = cluster_measures.updates_to_tolerance(
        update, jnp.asarray(x)[:, None], choose, turns, partition, 3, ETA, 1e-6
    )
    assert (float(found.node_updates), bool(found.reached)) == (8, False)
