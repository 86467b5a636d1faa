"""`node_small` against its equation written out in numpy, and against scipy's solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from jaxbench import registry
from jaxbench.base import JaxbenchError
from jaxbench.interventions import hidden_units as hu
from jaxbench.models import node_small
from jaxbench.tracks import dynamics

HIDDEN, TIME, HOLD, STEP = 6, 15, 5, 0.2
MODEL = node_small.build(outputs=2, hidden=HIDDEN, time_step=STEP)


def case(seed=0, batch=4, hidden=HIDDEN, hold=HOLD):
    """Parameters and inputs in float64, the control held for a few steps."""
    rng = np.random.default_rng(seed)
    params = {
        "Dense_0": {"kernel": rng.normal(size=(3, hidden)), "bias": rng.normal(size=hidden)},
        "Dense_1": {"kernel": rng.normal(size=(hidden, 2)) / 2, "bias": rng.normal(size=2) / 2},
    }
    controls = rng.uniform(-1, 1, size=(batch, -(-TIME // hold))).repeat(hold, axis=1)[:, :TIME]
    initial = rng.normal(size=(batch, 1, 2)).repeat(TIME, axis=1)
    return params, np.concatenate([initial, controls[..., None]], axis=-1)


def slope(params, state, control, port=lambda hidden: hidden):
    first, second = params["Dense_0"], params["Dense_1"]
    received = np.concatenate([state, [control]]) @ first["kernel"] + first["bias"]
    return port(np.tanh(received)) @ second["kernel"] + second["bias"]


def by_hand(params, inputs, port=lambda hidden: hidden):
    """Runge and Kutta's steps, sample by sample."""
    outputs = []
    for sample in inputs:
        state, states = sample[0, :2], []
        for control in sample[:, 2]:
            k1 = slope(params, state, control, port)
            k2 = slope(params, state + STEP / 2 * k1, control, port)
            k3 = slope(params, state + STEP / 2 * k2, control, port)
            k4 = slope(params, state + STEP * k3, control, port)
            state = state + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            states.append(state)
        outputs.append(states)
    return np.array(outputs)


def scipy_solution(params, sample, tolerance=1e-6):
    """The states at the ends of the stretches of constant control, and all evaluations."""
    state, states, evaluations = sample[0, :2], [], 0
    begin = 0
    for step in range(1, TIME + 1):
        if step == TIME or sample[step, 2] != sample[begin, 2]:
            control = sample[begin, 2]
            found = solve_ivp(
                lambda t, x, u=control: slope(params, x, u), (0, (step - begin) * STEP), state,
                method="RK45", rtol=tolerance, atol=tolerance,
            )  # fmt: skip
            state, evaluations = found.y[:, -1], evaluations + found.nfev
            states.append(state)
            begin = step
    return np.array(states), evaluations


def cast(tree, dtype=np.float32):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.astype(dtype)), tree)


def test_it_is_runge_and_kutta_s_method_on_its_equation() -> None:
    params, inputs = case()
    with jax.enable_x64(True):
        outputs, _ = jax.jit(MODEL.apply)(params, inputs)
    np.testing.assert_allclose(outputs, by_hand(params, inputs), atol=1e-12)


def test_only_the_first_state_and_the_controls_are_read() -> None:
    params, inputs = case()
    changed = inputs.copy()
    changed[:, 1:, :2] = 7.0
    apply = jax.jit(lambda inputs: MODEL.apply(cast(params), inputs)[0])
    np.testing.assert_array_equal(apply(cast(inputs)), apply(cast(changed)))


def test_no_output_depends_on_a_later_control() -> None:
    params, inputs = case()
    changed = inputs.copy()
    changed[:, 7:, 2] += 1.0
    apply = jax.jit(lambda inputs: MODEL.apply(cast(params), inputs)[0])
    same = np.asarray(apply(cast(inputs)) == apply(cast(changed))).all(axis=(0, 2))
    assert same.tolist() == [step < 7 for step in range(TIME)]


@pytest.mark.parametrize("seed", [0, 1])
def test_evaluations_and_solution_are_scipy_s(seed: int) -> None:
    """Every evaluation, which is more than the tenth that the notes ask for."""
    params, inputs = case(seed)
    expected = [scipy_solution(params, sample) for sample in inputs]
    counts = [evaluations for _, evaluations in expected]
    np.testing.assert_array_equal(MODEL.solver_evaluations(params, inputs), counts)
    assert min(counts) >= 3 * 8

    def solution(sample):
        return node_small.adaptive_solution(params, sample[0, :2], sample[:, 2:], STEP, 1e-6)[0]

    with jax.enable_x64(True):
        states = jax.jit(jax.vmap(solution))(inputs)
    for found, (known, _) in zip(states, expected, strict=True):
        np.testing.assert_allclose(found[HOLD - 1 :: HOLD], known, atol=1e-9)


def test_each_stretch_of_constant_control_is_solved_anew() -> None:
    """A control that never changes is one stretch, one that changes at each step is 15."""
    steady, moving = np.zeros((TIME, 1)), np.arange(TIME)[:, None]
    assert node_small.pieces(jnp.asarray(steady)).tolist() == [TIME] + [0] * (TIME - 1)
    assert node_small.pieces(jnp.asarray(moving)).tolist() == [1] * TIME
    uneven = np.array([0, 0, 1, 1, 1, 0, 2, 2])[:, None]
    assert node_small.pieces(jnp.asarray(uneven)).tolist() == [2, 0, 3, 0, 0, 1, 2, 0]


def test_evaluations_of_a_broken_network_are_not_a_number() -> None:
    params, inputs = case()
    params["Dense_0"]["bias"][:] = np.nan
    assert np.isnan(MODEL.solver_evaluations(params, inputs)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), keep=st.integers(1, HIDDEN))
def test_the_smaller_network_is_the_masked_one(dtype, seed: int, keep: int) -> None:
    """To the notes' tolerances, filled with zeros or with other constants."""
    given_params, inputs = case(seed)
    params, inputs = jax.tree.map(lambda leaf: leaf.astype(dtype), (given_params, inputs[:2]))
    (layer,) = MODEL.unit_layers
    rng = np.random.default_rng(seed)
    mask = np.isin(np.arange(HIDDEN), rng.permutation(HIDDEN)[:keep]).astype(dtype)
    for fill in (None, rng.normal(size=HIDDEN).astype(dtype)):
        constant = dtype(0) if fill is None else (1 - mask) * fill
        expected = by_hand(params, inputs, lambda hidden, c=constant: mask * hidden + c)
        small = hu.compact(params, layer, hu.kept_units(mask), fill)
        assert small["Dense_1"]["kernel"].shape == (keep, 2)
        limit = (1e-12 if dtype == np.float64 else 1e-5) * max(1, np.abs(expected).max())
        for smaller in (small, hu.fold(params, layer, mask, fill)):
            found = by_hand(smaller, inputs)
            assert found.dtype == dtype
            assert np.abs(found - expected).max() <= limit


def test_it_is_counted_and_resized() -> None:
    """A multiply-add of the state's rows at each of four stages, of the control's once a step."""
    state, control = 2 * HIDDEN + HIDDEN * 2, HIDDEN
    assert MODEL.flops((TIME, 3)) == TIME * 2 * (4 * state + control)
    smaller = MODEL.resized({"hidden": 3})
    assert smaller.options == {**MODEL.options, "hidden": 3}
    assert smaller.flops((TIME, 3)) == MODEL.flops((TIME, 3)) / 2
    assert registry.load("models", "node_small").make({}, outputs=2).options["time_step"] == 0.05


def test_it_says_which_tracks_it_can_do() -> None:
    track = dynamics.build(preset="quick", train_size=4, validation_size=1, test_size=1)
    inputs = jax.eval_shape(track.generate, jax.random.key(0)).train.inputs
    params = jax.eval_shape(MODEL.init, jax.random.key(0), inputs)
    assert params["Dense_0"]["kernel"].shape == (3, HIDDEN)
    with pytest.raises(JaxbenchError, match=r"but the track's are \[4, 10\]"):
        MODEL.init(jax.random.key(0), np.zeros((4, 10), np.float32))
    with pytest.raises(JaxbenchError, match="a state of 5"):
        node_small.build(outputs=5).init(jax.random.key(0), np.zeros((4, 3, 3), np.float32))
