"""Rounded weights, and the two predictions of how far they drive the hidden state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.interventions.mean_square import elementwise_lift_apply
from jaxbench.interventions.noisy_recurrence import run_clean
from jaxbench.interventions.quantisation import predicted_rounding, quantisation_step, quantise
from jaxbench.models import rnn_small

MODEL = rnn_small.build(outputs=2, hidden=5)
LINEAR = {"recurrent": ["W"], "others": ["U"]}


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def gru(seed: int):
    """Parameters of which none is zero."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), jnp.zeros((1, 2, 3)))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)


def linear(params, hidden, now):
    return params["W"] @ hidden + params["U"] @ now


def linear_setting(n: int = 3, time: int = 6):
    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(n, n)) / n, "U": rng.normal(size=(n, 2))}
    return jax.tree.map(jnp.asarray, params), jnp.asarray(rng.normal(size=(time, 2)))


# Rounding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_move_by_half_a_step_at_most_onto_few_levels(bits: int) -> None:
    params = gru(0)
    rounded = quantise(params, bits)
    for gate in "rzn":
        for side in "ih":
            kernel, moved = (
                tree["GRUCell_0"][f"{side}{gate}"]["kernel"] for tree in (params, rounded)
            )
            step = float(quantisation_step(kernel, bits))
            assert step * (2 ** (bits - 1) - 1) == pytest.approx(float(jnp.abs(kernel).max()))
            assert float(jnp.abs(moved - kernel).max()) <= step / 2 * (1 + 1e-4)
            levels = np.asarray(moved) / step
            np.testing.assert_allclose(levels, np.round(levels), atol=1e-3)
            assert len(np.unique(np.round(levels))) <= 2**bits - 1
    for name in ("hn", "in"):
        biases = [tree["GRUCell_0"][name]["bias"] for tree in (params, rounded)]
        np.testing.assert_array_equal(*biases)
    np.testing.assert_array_equal(params["Dense_0"]["kernel"], rounded["Dense_0"]["kernel"])


def test_rounding_twice_is_rounding_once() -> None:
    once = quantise(gru(1), 4)
    twice = quantise(once, 4)
    for left, right in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)


def test_a_kernel_of_zeros_stays() -> None:
    rounded = quantise({"W": jnp.zeros((2, 2))}, 4, ["W"])
    assert (rounded["W"] == 0).all()


def test_errors_have_the_variance_of_a_uniform_distribution() -> None:
    kernel = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (300, 300)), jnp.float32)
    error = np.asarray(quantise({"W": kernel}, 6, ["W"])["W"] - kernel, np.float64)
    step = float(quantisation_step(kernel, 6))
    assert error.var() == pytest.approx(step**2 / 12, rel=0.03)  # 90,000 errors: 0.3 %


@pytest.mark.parametrize("bits", [1, 0, -3])
def test_fewer_than_two_bits_are_refused(bits: int) -> None:
    with pytest.raises(JaxbenchError, match=f"at least 2 bits, but came bits = {bits}"):
        quantise(gru(0), bits)
    params, inputs = linear_setting()
    with pytest.raises(JaxbenchError, match="at least 2 bits"):
        predicted_rounding(linear, params, jnp.zeros(3), inputs, [bits], **LINEAR)


def test_kernels_that_are_not_there_are_refused() -> None:
    with pytest.raises(JaxbenchError, match=r"matches no leaf .*: U, W"):
        quantise(linear_setting()[0], 4)


# Predictions --------------------------------------------------------------------------------------


def test_redrawn_errors_follow_the_lift_with_one_noise_an_element(float64) -> None:
    """Of a linear network, `P' = W P W^T + diag((S * S)(diag P + h^2)) + s_u^2 |x|^2 I`."""
    params, inputs = linear_setting()
    found = predicted_rounding(linear, params, jnp.zeros(3), inputs, [4, 8], **LINEAR).redrawn
    params, inputs = jax.tree.map(np.asarray, (params, inputs))
    lift = jax.jit(elementwise_lift_apply)
    for row, bits in enumerate([4, 8]):
        s_w, s_u = (float(quantisation_step(params[k], bits)) / 12**0.5 for k in ("W", "U"))
        P, h = np.zeros((3, 3)), np.zeros(3)
        S = jnp.full((3, 3), s_w)
        for time, now in enumerate(inputs):
            moved = lift(params["W"], S, P)
            P = moved + np.eye(3) * (s_w**2 * (h @ h) + s_u**2 * (now @ now))
            h = linear(params, h, now)
            assert float(found[row, time]) == pytest.approx(np.trace(P), rel=1e-10)


def test_constant_errors_add_up_with_the_whole_trajectorys_slopes(float64) -> None:
    """`E|delta_t|^2 = sum s^2 |dh_t/dW_ij|^2`, by differentiating the unrolled network."""
    params, inputs = linear_setting()

    def final(params):
        hidden = jnp.zeros(3)
        for now in inputs:
            hidden = jnp.tanh(linear(params, hidden, now))
        return hidden

    def step(params, hidden, now):
        return jnp.tanh(linear(params, hidden, now))

    slopes = jax.jacfwd(final)(params)
    expected = sum(
        float(quantisation_step(params[name], 5)) ** 2 / 12 * float((slopes[name] ** 2).sum())
        for name in ("W", "U")
    )
    found = predicted_rounding(step, params, jnp.zeros(3), inputs, [5], **LINEAR).constant
    assert float(found[0, -1]) == pytest.approx(expected, rel=1e-10)


def test_errors_that_stay_drive_a_steady_state_further_than_redrawn_ones(float64) -> None:
    """Of `h' = a h + x` with constant `x`, only `a` rounded: (1 + a) / (1 - a) times as far."""
    a = 0.8
    params = {"W": jnp.array([[a]])}

    def step(params, hidden, now):
        return params["W"] @ hidden + now

    inputs = jnp.ones((200, 1))
    both = predicted_rounding(step, params, jnp.zeros(1), inputs, [12], recurrent=["W"], others=[])
    s, h = a / (2**11 - 1) / 12**0.5, 1 / (1 - a)
    assert float(both.constant[0, -1]) == pytest.approx(s**2 * h**2 / (1 - a) ** 2, rel=1e-9)
    assert float(both.redrawn[0, -1]) == pytest.approx(s**2 * h**2 / (1 - a**2), rel=1e-5)


def test_quantised_networks_move_as_constant_errors_predict() -> None:
    """Over random GRUs at 8 bits under a constant input, where redrawn errors average out."""
    inputs = jnp.ones((1, 30, 3), jnp.float32)
    nets = [jax.tree.map(lambda leaf: 0.4 * leaf, gru(seed)) for seed in range(64)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *nets)

    @jax.jit
    @jax.vmap
    def compare(params):
        clean = run_clean(MODEL.recurrence, params, inputs)
        moved = run_clean(MODEL.recurrence, quantise(params, 8), inputs)
        predicted = predicted_rounding(MODEL.recurrence.step, params, jnp.zeros(5), inputs[0], [8])
        return jnp.sum((moved - clean)[0, -1] ** 2), jax.tree.map(lambda p: p[0, -1], predicted)

    measured, predicted = compare(stacked)
    ratio = measured / predicted.constant
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / 8
    assert ratio.std() / 8 < 0.2
    assert float(jnp.mean(measured / predicted.redrawn)) > 1.5
