"""Columns that are added to a low-rank force: same function, gradient outside the span."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import cpu_layout, leapfrog_recipe, train

from jaxbench.interventions import rank_enrichment as re
from jaxbench.models import leapfrog_small
from jaxbench.training.runs import Run

MODEL = leapfrog_small.build(outputs=2, hidden=8, rank=2, max_rank=4)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def setting():
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(3, 5, 3)))
    params = jax.jit(MODEL.init)(jax.random.key(0), inputs)
    return params, inputs, jnp.asarray(rng.normal(size=(3, 5, 2)))


def test_enrichment_preserves_the_function_exactly(float64) -> None:
    params, inputs, _ = setting()
    direction = jnp.array([0.5, -0.5, 0.5, 0.5])
    richer = re.enrich(params, direction)
    apply = jax.jit(MODEL.apply)
    np.testing.assert_array_equal(apply(richer, inputs)[0], apply(params, inputs)[0])
    force = richer["force"]
    np.testing.assert_array_equal(force["active"], [1, 1, 1, 0])
    np.testing.assert_array_equal(force["V"][:, 2], direction)
    assert (force["U"][:, 2] == 0).all()
    full = re.enrich(re.enrich(richer, direction), -direction)
    np.testing.assert_array_equal(full["force"]["active"], 1)
    np.testing.assert_array_equal(full["force"]["V"][:, 3], direction)


def test_the_operator_gradient_is_that_of_an_operator_added_to_the_force(float64) -> None:
    """By central differences in one direction `A`; and the value is the loss."""
    params, inputs, targets = setting()

    def loss(params):
        return jnp.mean((MODEL.apply(params, inputs)[0] - targets) ** 2)

    value, gradient = jax.jit(lambda params: re.operator_gradient(loss, params))(params)
    added = np.random.default_rng(1).normal(size=(4, 4))

    @jax.jit
    def at(size):
        whole = jnp.diag(params["force"]["K"]) - size * added
        return loss({**params, "force": {**params["force"], "K": whole}})

    slope = (at(1e-5) - at(-1e-5)) / 2e-5
    assert jnp.sum(gradient * added) == pytest.approx(float(slope), rel=1e-7)
    assert value == pytest.approx(float(at(0.0)), rel=1e-12)


def test_the_residual_is_orthogonal_to_the_active_columns(float64) -> None:
    """Also where columns are dependent or 0; without columns it is the whole gradient."""
    rng = np.random.default_rng(2)
    gradient, columns = rng.normal(size=(5, 5)), rng.normal(size=(5, 4))
    columns[:, 2] = 2 * columns[:, 0]
    columns[:, 3] = 0
    rest, share = jax.jit(re.residual)(gradient, columns)
    basis, _ = np.linalg.qr(columns[:, :2])
    np.testing.assert_allclose(rest, gradient - basis @ basis.T @ gradient, atol=1e-12)
    assert share == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(gradient))
    assert re.residual(gradient, np.zeros((5, 4)))[1] == 1


def test_training_adds_columns_until_there_are_no_more() -> None:
    """A loss that never falls by 100 % stalls every epoch; with a threshold of 1 nothing grows."""
    recipe = leapfrog_recipe(re.build(), epochs=3)
    hyper = {"learning_rate": 0.01, "threshold": 0.0, "improvement": 1.0}
    runs = [Run("arm", 0, {**hyper, "threshold": tau}, 0, recipe) for tau in (0.0, 1.0)]
    growing, still = train(runs, cpu_layout(2))
    np.testing.assert_array_equal(growing.curves["rank"], [3, 4, 4])
    np.testing.assert_array_equal(still.curves["rank"], [2, 2, 2])
    assert (growing.curves["residual_share"] <= 1).all()
    assert (growing.params["force"]["U"][:, 2] != 0).all()  # it has learned since
    np.testing.assert_array_equal(growing.params["force"]["active"], 1)


def test_the_control_grows_along_a_random_direction_of_its_own_each_time() -> None:
    """With a learning rate of 0 the columns stay where they were put: unit vectors, all different.

    Those along the residual are equal, because a column with U = 0 leaves the span as it was.
    """
    hyper = {"learning_rate": 0.0, "threshold": 0.0, "improvement": 1.0}

    def added(direction):
        recipe = leapfrog_recipe(re.build(direction=direction), epochs=2)
        (run,) = train([Run("arm", 0, hyper, 0, recipe)], cpu_layout(1))
        return run.params["force"]["V"][:, 2:].T

    drawn, followed = added("random"), added("residual")
    for columns in (drawn, followed):
        np.testing.assert_allclose(np.linalg.norm(columns, axis=1), 1, rtol=1e-6)
    assert abs(drawn[0] @ drawn[1]) < 0.999
    np.testing.assert_allclose(abs(followed[0] @ followed[1]), 1, rtol=1e-5)
    assert (abs(drawn @ followed[0]) < 0.999).all()
