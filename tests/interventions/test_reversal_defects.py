"""Inverses of a step, their defects, the controller, and the first-order laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.interventions import reversal_checkpointing as rc
from jaxbench.interventions import reversal_defects as rd
from jaxbench.interventions.state_inverses import inverse_of, solve
from jaxbench.models import leapfrog_small, rev_gru_small, rnn_small

FEATURES = 3


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def trajectory(model, time=6, batch=2, scale=1.0):
    """A model's own initial parameters, a first state that is not 0, and inputs."""
    rng = np.random.default_rng(1)
    real = jnp.zeros(()).dtype
    inputs = jnp.asarray(scale * rng.normal(size=(time, batch, FEATURES)), real)
    params = jax.jit(model.init)(jax.random.key(0), inputs.swapaxes(0, 1))
    start = jnp.asarray(rng.normal(size=(batch, model.options["hidden"])), real)
    return params, start, inputs


# Inverses -----------------------------------------------------------------------------------------


def test_solve_is_numpys(float64) -> None:
    """A matrix whose first pivot is 0 needs its rows exchanged."""
    rng = np.random.default_rng(0)
    matrices, right = rng.normal(size=(4, 5, 5)), rng.normal(size=(4, 5))
    matrices[0, 0, 0] = 0
    found = jax.jit(jax.vmap(solve))(matrices, right)
    np.testing.assert_allclose(
        found, np.linalg.solve(matrices, right[..., None])[..., 0], rtol=1e-9
    )


def test_reflect_is_exact_for_a_uniform_motion(float64) -> None:
    step = lambda params, hidden, now: hidden + params  # noqa: E731
    after = jnp.array([[3.0, 5.0]])
    np.testing.assert_array_equal(rc.reflect(step)(2.0, after, None), after - 2)


def test_the_fixed_point_is_exact_where_the_gates_do_not_read_the_state(float64) -> None:
    """Then one iteration is the division; a gate below z_min divides by z_min."""
    gates = lambda params, hidden, now: (params, jnp.array([2.0, 2.0]))  # noqa: E731
    update, before = jnp.array([0.5, 0.01]), jnp.array([1.0, -1.0])
    after = (1 - update) * 2.0 + update * before
    found = rc.fixed_point(gates, z_min=0.1)(update, after, None)
    np.testing.assert_allclose(found, [1.0, -0.1], rtol=1e-12)


def test_newton_solves_the_step_and_beats_one_fixed_point(float64) -> None:
    model = rnn_small.build(outputs=2, hidden=4)
    params, start, inputs = trajectory(model, time=1)
    start, recurrence, now = 0.3 * start, model.recurrence, inputs[0]
    after = recurrence.step(params, start, now)
    newton = jax.jit(inverse_of(recurrence, "newton", iterations=8))(params, after, now)
    rough = jax.jit(inverse_of(recurrence, "fixedpoint"))(params, after, now)
    gap = lambda made: jnp.abs(made - start).max()  # noqa: E731
    assert gap(newton) < 1e-8 < gap(rough)


def test_newton_never_makes_the_residual_worse() -> None:
    """Where the Jacobian is singular, it stays where it is."""
    step = lambda params, hidden, now: jnp.tanh(0 * hidden)  # noqa: E731
    after = jnp.array([[0.3, -0.2]])
    found = jax.jit(rc.newton(step))((), after, jnp.zeros((1, 1)))
    np.testing.assert_array_equal(found, after)


# Cells that are reversible ------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_leapfrog_reverses_80_steps_to_rounding(precision) -> None:
    """Within one relative spacing of floats for each step."""
    with jax.enable_x64(precision == "float64"):
        model = leapfrog_small.build(outputs=2, hidden=8, rank=3)
        params, start, inputs = trajectory(model, time=80)
        found = full_reversal(model, params, start, inputs)
        assert inputs.dtype == precision
        assert found.max() < 80 * np.finfo(precision).eps


def full_reversal(model, params, start, inputs):
    """The segment defect of every state, made again from the last one alone."""
    step, inverse = model.recurrence.step, model.recurrence.inverse

    @jax.jit
    def measure(params, start, inputs):
        return rc.defects(step, inverse, params, start, inputs, jnp.zeros(len(inputs), bool))

    return measure(params, start, inputs).segment


def test_the_reversible_gru_loses_bits_by_its_least_gate(float64) -> None:
    """In float64, 20 steps back; each step may enlarge the error by 1 / z_min, and some gain."""
    gaps = {}
    for z_min in (0.9, 0.2):
        model = rev_gru_small.build(outputs=2, hidden=8, z_min=z_min)
        gaps[z_min] = full_reversal(model, *trajectory(model, time=20)).max()
    assert gaps[0.9] < 1e-12
    assert gaps[0.9] < gaps[0.2] < 1e-4


@pytest.mark.parametrize(("z_min", "least_growth"), [(0.9, 1.0), (0.5, 3.0)])
def test_rounding_grows_as_the_product_of_the_jacobians(z_min, least_growth) -> None:
    """In float32, within a factor of 10 at each number of steps while errors are small."""
    model = rev_gru_small.build(outputs=2, hidden=8, z_min=z_min)
    params, start, inputs = trajectory(model, time=24, batch=8)
    step, inverse = model.recurrence.step, model.recurrence.inverse

    @jax.jit
    def measure(params, start, inputs):
        return rd.reversal_error(step, inverse, params, start, inputs, 20)

    found = measure(params, start, inputs)
    error, predicted = (np.sqrt(np.mean(np.square(each), axis=1)) for each in found)
    small = (error < 0.1) & (predicted < 0.1)
    assert small.sum() >= 10
    assert np.abs(np.log10(error / predicted))[small].max() < 1
    assert predicted[small].max() > least_growth * predicted[0]


def test_the_jacobians_product_is_exact_for_a_linear_step(float64) -> None:
    """For `h' = 2 h` the inverse halves: n steps back `|P| = sqrt(2) 2^-n`, and `|h|` falls too."""
    step = lambda params, hidden, now: 2.0 * hidden  # noqa: E731
    inverse = lambda params, hidden, now: 0.5 * hidden  # noqa: E731
    start = jnp.array([[3.0, 4.0]])
    found = rd.reversal_error(step, inverse, (), start, jnp.zeros((5, 1, 1)), 4)
    np.testing.assert_array_equal(found.error, 0)
    np.testing.assert_allclose(found.predicted, 2.0**-53 * np.sqrt(2) * np.ones((4, 1)), rtol=1e-12)


# Defects ------------------------------------------------------------------------------------------


def test_defects_of_an_inverse_that_is_off_by_a_factor(float64) -> None:
    """With the step `h' = h` and an inverse that multiplies by 1.5, all is known."""
    step = lambda params, hidden, now: hidden  # noqa: E731
    inverse = lambda params, hidden, now: 1.5 * hidden  # noqa: E731
    start, inputs = jnp.array([[3.0, 4.0]]), jnp.zeros((6, 1, 1))
    found = rc.defects(step, inverse, (), start, inputs, rc.checkpoint_flags(6, 3))
    expected = [0, 1.5**2 - 1, 0.5, 0, 1.5**2 - 1, 0.5]  # states 0 and 3 are kept, and the last
    expected[2], expected[1] = 1.5 - 1, 1.5**2 - 1
    np.testing.assert_allclose(
        found.segment[:, 0], [0, 1.25, 0.5, 0, 2.375 - 1.125, 0.5], atol=1e-7
    )
    np.testing.assert_allclose(found.step[:, 0], [0, *[0.5] * 5], atol=1e-7)
    assert rd.mean_defect(found.step) == pytest.approx(0.5, abs=1e-7)


def test_the_first_state_is_given_and_has_no_defect() -> None:
    """Relative to a first state of 0 any error would be without bounds."""
    model = rnn_small.build(outputs=2, hidden=4)
    params, start, inputs = trajectory(model)
    step = model.recurrence.step

    @jax.jit
    def measure(params, start, inputs):
        flags = rc.checkpoint_flags(len(inputs), 2)
        return rc.defects(step, rc.reflect(step), params, start, inputs, flags)

    found = measure(params, 0 * start, inputs)
    assert (found.step[0] == 0).all()
    assert (found.step[1:] > 0).all()
    assert (found.step[1:] < 10).all()


def test_the_disagreement_of_gradients_is_exact_below_the_precision_of_the_cosine() -> None:
    one = {"a": jnp.array([3.0, 4.0])}
    turned = {"a": jnp.array([3.0, 4.0]) + 1e-5 * jnp.array([-4.0, 3.0])}
    assert rd.gradient_disagreement(one, turned) == pytest.approx(0.5e-10, rel=0.05)
    opposite = {"a": -2.0 * one["a"]}
    assert rd.gradient_disagreement(one, opposite) == pytest.approx(2.0)


# The controller -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "defect", "expected"),
    [
        (8, 0.09, 4),
        (8, 0.08, 8),
        (8, 0.04, 8),
        (8, 0.039, 16),
        (1, 9.0, 1),
        (32, 0.0, 32),
        (20, 0.0, 32),
        (8, np.nan, 4),
        (8, np.inf, 4),
    ],
)
def test_the_controller_halves_keeps_and_doubles(interval, defect, expected) -> None:
    found = rc.controller(jnp.int32(interval), jnp.float32(defect), jnp.float32(0.08), 32)
    assert (int(found), found.dtype) == (expected, jnp.int32)


# Errors -------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused() -> None:
    gru = rnn_small.build(outputs=2, hidden=4)
    leapfrog = leapfrog_small.build(outputs=2, hidden=4)
    with pytest.raises(JaxbenchError, match=r"rnn_small has no exact inverse.*'reflect'"):
        inverse_of(gru.recurrence, "exact", model="rnn_small")
    with pytest.raises(JaxbenchError, match="leapfrog_small has no update gates"):
        inverse_of(leapfrog.recurrence, "fixedpoint", model="leapfrog_small")
    with pytest.raises(JaxbenchError, match="one of exact, reflect, fixedpoint, newton"):
        inverse_of(gru.recurrence, "mirror")
    for z_min in (0.0, -0.1, 1.1, np.nan):
        with pytest.raises(JaxbenchError, match=r"z_min must lie in \(0, 1\]"):
            inverse_of(gru.recurrence, "fixedpoint", z_min)
    with pytest.raises(JaxbenchError, match="iterations must be at least 1, got 0"):
        inverse_of(gru.recurrence, "newton", iterations=0)
    with pytest.raises(JaxbenchError, match="must be 0 or more, got -1"):
        rc.controller(jnp.int32(8), jnp.float32(0.1), -1.0, 32)
    with pytest.raises(JaxbenchError, match="longest interval must be at least 1"):
        rc.controller(jnp.int32(8), jnp.float32(0.1), 0.1, 0)
    step = gru.recurrence.step
    with pytest.raises(JaxbenchError, match="last 6 of 6 steps cannot be reversed"):
        rd.reversal_error(step, step, (), jnp.zeros((1, 4)), jnp.zeros((6, 1, 3)), 6)
