"""Noise on groups of weights: its operators, and the deviations that it makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.interventions import weight_noise as wn
from jaxbench.models import rnn_small

HIDDEN, FEATURES, TIME = 4, 3, 6
MODEL = rnn_small.build(outputs=2, hidden=HIDDEN)
LINEAR_GROUPS = {"recurrent": "recurrent", "input": ["in*"]}


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def gru(float64):
    """Make a GRU's step, parameters of which none is zero, a hidden state and an input."""
    del float64
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), np.zeros((1, 1, FEATURES)))
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shapes)
    step = MODEL.recurrence.step
    return (
        step,
        params,
        jnp.asarray(rng.normal(size=HIDDEN)),
        jnp.asarray(rng.normal(size=FEATURES)),
    )


def linear_step(params, hidden, inputs):
    """`h' = W h + U x`: the lift is exact for it."""
    return params["recurrent"] @ hidden + params["input"] @ inputs


def linear_setting(sequences: int = 1):
    """A linear recurrence of three dimensions that remembers for a few steps."""
    rng = np.random.default_rng(3)
    params = {
        "recurrent": jnp.asarray(rng.normal(size=(3, 3)) * 0.5),
        "input": jnp.asarray(rng.normal(size=(3, FEATURES))),
    }
    inputs = jnp.asarray(rng.normal(size=(sequences, TIME, FEATURES)))
    return params, jnp.asarray(rng.normal(size=(sequences, 3))), inputs


def difference(function, size: int, step: float = 1e-6) -> np.ndarray:
    """Central finite differences of a function of a vector, its last axis the vector's."""
    each = np.eye(size) * step
    return np.stack([(function(one) - function(-one)) / (2 * step) for one in each], axis=-1)


# Groups -------------------------------------------------------------------------------------------


def test_the_groups_of_a_gru(gru) -> None:
    _, params, _, _ = gru
    numbers = wn.group_members(params, wn.GRU_GROUPS)
    paths = [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]
    ]
    found = {path: own for path, own in zip(paths, numbers, strict=True) if own}
    assert found == {
        "GRUCell_0/hr/kernel": (0,),
        "GRUCell_0/hz/kernel": (1,),
        "GRUCell_0/hn/kernel": (2,),
        "GRUCell_0/ir/kernel": (3,),
        "GRUCell_0/iz/kernel": (3,),
        "GRUCell_0/in/kernel": (3,),
    }


def test_a_group_may_be_a_function_of_the_path_and_groups_may_overlap() -> None:
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    members = wn.group_members(params, {"all": "*", "second": lambda path: path == "b"})
    assert members == [(0,), (0, 1)]
    moved = wn.perturb(params, members, jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(moved["a"], 1.5)
    np.testing.assert_allclose(moved["b"], 2.5)


def test_a_group_without_a_leaf_is_refused_with_the_paths_that_there_are() -> None:
    with pytest.raises(JaxbenchError, match=r"'hz' .* matches no leaf.*: hr/kernel, out"):
        wn.group_members({"hr": {"kernel": 1.0}, "out": 2.0}, {"hr": "hr*", "hz": "hz/kernel"})
    with pytest.raises(JaxbenchError, match="at least one group"):
        wn.group_members({"a": 1.0}, {})


# One step -----------------------------------------------------------------------------------------


def test_the_jacobian_is_that_of_finite_differences_and_of_the_closed_form(gru) -> None:
    step, params, hidden, inputs = gru
    J = wn.local_jacobian(step, params, hidden, inputs)
    slopes = difference(lambda d: np.asarray(step(params, hidden + d, inputs)), HIDDEN)
    np.testing.assert_allclose(J, slopes, atol=1e-8)

    cell = params["GRUCell_0"]
    R, Z, N = (cell[name]["kernel"].T for name in ("hr", "hz", "hn"))
    from_input = {g: inputs @ cell[f"i{g}"]["kernel"] + cell[f"i{g}"]["bias"] for g in "rzn"}
    inner = N @ hidden + cell["hn"]["bias"]
    r = jax.nn.sigmoid(from_input["r"] + R @ hidden)
    z = jax.nn.sigmoid(from_input["z"] + Z @ hidden)
    n = jnp.tanh(from_input["n"] + r * inner)
    candidate = jnp.diag((1 - z) * (1 - n**2)) @ (
        jnp.diag(r) @ N + jnp.diag(inner * r * (1 - r)) @ R
    )
    closed = jnp.diag(z) + candidate + jnp.diag((hidden - n) * z * (1 - z)) @ Z
    np.testing.assert_allclose(J, closed, rtol=1e-10, atol=1e-12)


def test_the_noise_operators_are_those_of_finite_differences(gru) -> None:
    step, params, hidden, inputs = gru
    members = wn.group_members(params, wn.GRU_GROUPS)
    operators = jax.jit(lambda p, h, x: wn.noise_operators(step, p, h, x, wn.GRU_GROUPS))
    B, b = operators(params, hidden, inputs)
    assert B.shape == (4, HIDDEN, HIDDEN)

    def noisy(noise):
        return wn.perturb(params, members, jnp.asarray(noise))

    moved = difference(lambda d: np.asarray(step(noisy(d), hidden, inputs)), 4)
    np.testing.assert_allclose(b.T, moved, atol=1e-8)
    jacobian = jax.jit(lambda noise: wn.local_jacobian(step, noisy(noise), hidden, inputs))
    moved = difference(lambda d: np.asarray(jacobian(d)), 4)
    np.testing.assert_allclose(jnp.moveaxis(B, 0, -1), moved, atol=1e-8)


def test_the_first_order_of_a_linear_step(float64) -> None:
    del float64
    params, start, inputs = linear_setting()
    hidden, now = start[0], inputs[0, 0]
    order = jax.jit(lambda p, h, x: wn.first_order(linear_step, p, h, x, LINEAR_GROUPS))(
        params, hidden, now
    )
    W, U = params["recurrent"], params["input"]
    np.testing.assert_allclose(order.hidden, W @ hidden + U @ now)
    np.testing.assert_allclose(order.J, W)
    np.testing.assert_allclose(order.B, jnp.stack([W, jnp.zeros((3, 3))]))
    np.testing.assert_allclose(order.b, jnp.stack([W @ hidden, U @ now]))


# Along a trajectory -------------------------------------------------------------------------------


def test_the_lift_predicts_a_linear_recurrence_exactly(float64) -> None:
    """Within four standard errors of 20,000 noisy paths, at every step, for large noise too."""
    del float64
    params, start, inputs = linear_setting(sequences=3)
    sigma = 0.4
    predicted, _, _ = jax.vmap(
        lambda start, inputs: wn.predicted_growth(
            linear_step, params, start, inputs, LINEAR_GROUPS, jnp.array([sigma])
        )
    )(start, inputs)
    measured = wn.monte_carlo_growth(
        linear_step, params, start, inputs, LINEAR_GROUPS, sigma, jax.random.key(0), 20_000
    )
    expected = predicted.mean(axis=0)[0]
    assert (np.abs(measured.hidden - expected) < 4 * measured.standard_error).all()
    assert (measured.standard_error < 0.03 * expected).all()


def test_an_isometry_keeps_what_is_injected(float64) -> None:
    """Noise on the input only, `B = 0`: the null of growth 1 holds exactly."""
    del float64
    params, start, inputs = linear_setting()
    turn = jnp.asarray(np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0])
    params = {**params, "recurrent": turn}
    predicted, injected, _ = wn.predicted_growth(
        linear_step, params, start[0], inputs[0], {"input": "input"}, jnp.array([0.1, 0.3])
    )
    np.testing.assert_allclose(predicted, injected, rtol=1e-10)
    np.testing.assert_allclose(injected[1], 9 * injected[0], rtol=1e-10)


def test_small_noise_moves_a_gru_as_the_lift_predicts(gru) -> None:
    step, params, hidden, _ = gru
    inputs = jnp.asarray(np.random.default_rng(2).normal(size=(1, TIME, FEATURES)))
    sigma = 0.02
    predicted, _, _ = wn.predicted_growth(
        step, params, hidden, inputs[0], wn.GRU_GROUPS, jnp.array([sigma])
    )
    measured = wn.monte_carlo_growth(
        step, params, hidden[None], inputs, wn.GRU_GROUPS, sigma, jax.random.key(0), 5_000
    )
    gap = np.abs(measured.hidden - predicted[0])
    assert (gap < 4 * measured.standard_error + 0.005 * predicted[0]).all()


def test_no_noise_is_no_deviation_and_the_readout_is_compared(float64) -> None:
    del float64
    params, start, inputs = linear_setting()

    def run(sigma):
        return wn.monte_carlo_growth(
            linear_step,
            params,
            start,
            inputs,
            LINEAR_GROUPS,
            sigma,
            jax.random.key(0),
            10,
            lambda params, hidden: 3 * hidden,
        )

    assert (run(0.0).hidden == 0).all()
    noisy = run(0.1)
    np.testing.assert_allclose(noisy.output, 9 * noisy.hidden / 3, rtol=1e-10)


def test_a_negative_sigma_is_refused(float64) -> None:
    del float64
    params, start, inputs = linear_setting()
    with pytest.raises(JaxbenchError, match="at least 0"):
        wn.predicted_growth(
            linear_step, params, start[0], inputs[0], LINEAR_GROUPS, jnp.array([0.1, -0.1])
        )
    with pytest.raises(JaxbenchError, match="at least 0"):
        wn.monte_carlo_growth(
            linear_step, params, start, inputs, LINEAR_GROUPS, -0.1, jax.random.key(0), 2
        )


def test_the_prediction_keeps_the_first_order_of_every_step(gru) -> None:
    """That of step `t` is `first_order` at the clean state before it."""
    step, params, hidden, _ = gru
    inputs = jnp.asarray(np.random.default_rng(3).normal(size=(3, FEATURES)))
    _, _, orders = wn.predicted_growth(
        step, params, hidden, inputs, wn.GRU_GROUPS, jnp.array([0.1])
    )
    for time, now in enumerate(inputs):
        expected = wn.first_order(step, params, hidden, now, wn.GRU_GROUPS)
        for found, wanted in zip(orders, expected, strict=True):
            np.testing.assert_allclose(found[time], wanted, rtol=1e-10, atol=1e-12)
        hidden = expected.hidden
