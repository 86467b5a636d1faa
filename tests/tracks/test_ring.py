"""`ring` is `dynamics` in other sizes; `ringsolve` has an exact answer."""

import functools

import jax
import numpy as np
import pytest

from jaxbench import graphs
from jaxbench.tracks import dynamics, ring, ringsolve

SIZES = {"train_size": 30, "validation_size": 10, "test_size": 20}


@functools.cache
def generated(track, **options):
    splits = jax.jit(track.build(**options).generate)(jax.random.key(0))
    return jax.tree.map(np.asarray, splits)


def test_ring_has_the_data_of_dynamics_seed_for_seed():
    sizes = {"train_size": 6, "validation_size": 2, "test_size": 3, "preset": "quick"}
    mine, theirs = generated(ring, **sizes), generated(dynamics, **sizes)
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)
    references = ring.build(**sizes).references(mine)
    assert references == dynamics.build(**sizes).references(theirs)


def test_ring_has_the_sizes_of_the_reference_report():
    shapes = jax.eval_shape(ring.build().generate, jax.random.key(0))
    assert shapes.train.inputs.shape == (400, 80, 3)
    assert shapes.test.targets.shape == (100, 80, 2)
    assert ring.build(**ring.build().options).options == ring.build().options


@pytest.mark.parametrize("graph", ["ring", "torus", "random_regular"])
def test_targets_of_ringsolve_solve_the_equation(graph):
    track = ringsolve.build(graph=graph, kappa=2.0, **SIZES)
    splits = generated(ringsolve, graph=graph, kappa=2.0, **SIZES)
    matrix = graphs.screened_laplacian(graphs.make_graph(graph, 16), 2.0)
    f, u = splits.test.inputs[:, 0], splits.test.targets[:, 0]
    assert u.shape == (20, 16)
    np.testing.assert_allclose(u @ matrix.T, f, atol=1e-5)
    assert track.score(splits.test.targets, splits.test.targets) == 0


def test_scores_of_ringsolve_are_residuals_of_the_answer():
    track = ringsolve.build(**SIZES)
    splits = generated(ringsolve, **SIZES)
    f, u = splits.test.inputs, splits.test.targets
    np.testing.assert_allclose(track.score(np.zeros_like(u), u), (f**2).mean(), rtol=1e-5)
    matrix = graphs.screened_laplacian(graphs.ring(16), 1.0)
    guess = np.random.default_rng(0).normal(size=u.shape).astype(np.float32)
    np.testing.assert_allclose(track.loss(guess, u), ((guess @ matrix - f) ** 2).mean(), rtol=1e-5)


def test_constant_loss_is_that_of_the_best_constant():
    track = ringsolve.build(**SIZES)
    u = generated(ringsolve, **SIZES).train.targets
    best = float(track.constant_loss(u))
    mean = np.broadcast_to(u.mean(axis=0, keepdims=True), u.shape)
    np.testing.assert_allclose(best, track.loss(mean, u), rtol=1e-6)
    assert best < track.loss(mean + np.float32(0.1), u)


def test_references_of_ringsolve():
    splits = generated(ringsolve, **SIZES)
    references = ringsolve.build(**SIZES).references(splits)
    assert list(references) == [
        "constant", "identity", "linear", "jacobi_3_sweeps", "gauss_seidel_3_sweeps", "solve",
    ]  # fmt: skip
    assert references["solve"] < 1e-25
    assert references["linear"] < 1e-10, "the answer is linear in f"
    assert references["gauss_seidel_3_sweeps"] < references["jacobi_3_sweeps"] < 1
    f = np.asarray(splits.test.inputs[:, 0], float)
    matrix = graphs.screened_laplacian(graphs.ring(16), 1.0)
    np.testing.assert_allclose(references["identity"], ((f @ matrix - f) ** 2).mean())


def test_jacobi_and_gauss_seidel_are_the_textbooks():
    """`(D + L)^-1 (f - U u)` for Gauss-Seidel and `D^-1 (f - (L + U) u)` for Jacobi."""
    neighbours = graphs.random_regular(8, 3, 0)
    A = graphs.screened_laplacian(neighbours, 1.5)
    f = np.random.default_rng(0).normal(size=(2, 8))
    D, lower = np.diag(np.diag(A)), np.tril(A)
    jacobi, seidel = np.zeros((2, 8)), np.zeros((2, 8))
    for _ in range(3):
        jacobi = np.linalg.solve(D, (f - jacobi @ (A - D)).T).T
        seidel = np.linalg.solve(lower, (f - seidel @ (A - lower).T).T).T
    np.testing.assert_allclose(ringsolve.jacobi(neighbours, 1.5, f, 3), jacobi, atol=1e-13)
    np.testing.assert_allclose(ringsolve.gauss_seidel(neighbours, 1.5, f, 3), seidel, atol=1e-13)


@pytest.mark.parametrize(("graph", "nodes"), [("torus", 64), ("random_regular", 1024)])
def test_large_graphs_have_an_exact_answer_too(graph, nodes):
    sizes = {"train_size": 4, "validation_size": 1, "test_size": 2}
    splits = generated(ringsolve, graph=graph, nodes=nodes, **sizes)
    matrix = graphs.screened_laplacian(graphs.make_graph(graph, nodes), 1.0)
    np.testing.assert_allclose(
        splits.train.targets[:, 0] @ matrix, splits.train.inputs[:, 0], atol=2e-5
    )
