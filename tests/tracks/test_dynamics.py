"""The pendulum against closed forms and an independent integrator; its data against its words."""

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from jaxbench.base import Recurrence, Splits
from jaxbench.models import rnn_small
from jaxbench.tracks import dynamics, pendulum
from jaxbench.tracks.pendulum import Pendulum

SIZES = {"train_size": 30, "validation_size": 20, "test_size": 10}
SHORT = {"sequence_length": 12, "hold": 5, **SIZES}
OTHER = Pendulum(3.0, 0.2, 0.04)
OTHER_OPTIONS = {**OTHER._asdict(), **SHORT}


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


@functools.cache
def compiled(x64, **options):
    del x64  # only part of the cache's key
    return jax.jit(dynamics.build(**options).generate)


def generate(seed=0, **options) -> Splits:
    options = dynamics.build(**options).options
    splits = compiled(jax.config.jax_enable_x64, **options)(jax.random.key(seed))
    return jax.tree.map(np.asarray, splits)


def solve(physics, initial, controls):
    """Integrate step by step with scipy, since the control jumps between steps."""
    g, b, dt = physics
    states = [np.asarray(initial)]
    for control in controls:

        def right_hand_side(time, state, control=control):
            return [state[1], -g * np.sin(state[0]) - b * state[1] + control]

        solution = solve_ivp(
            right_hand_side, (0, dt), states[-1], method="DOP853", rtol=1e-12, atol=1e-12
        )
        states.append(solution.y[:, -1])
    return np.array(states)


# The physics


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("initial", [(1.0, -0.5), (2.0, 0.5), (3.1, 0.0)])
def test_simulate_agrees_with_scipy(initial):
    levels = np.random.default_rng(0).uniform(-1, 1, 17)
    controls = pendulum.hold_levels(jnp.array(levels), 5, 83)
    states = pendulum.simulate(Pendulum(), jnp.array(initial), controls)
    reference = solve(Pendulum(), initial, np.repeat(levels, 5)[:83])
    assert states.shape == (84, 2)
    assert np.abs(states - reference).max() / np.abs(reference).max() < 1e-6


@pytest.mark.usefixtures("float64")
def test_the_integrator_is_of_fourth_order():
    initial, levels = (1.0, 0.5), np.array([1.0, -0.5, 0.3])
    exact = solve(Pendulum(9.81, 0.1, 1.0), initial, levels)[-1]

    def error(steps):
        physics = Pendulum(9.81, 0.1, 1.0 / steps)
        controls = pendulum.hold_levels(jnp.array(levels), steps, 3 * steps)
        return np.abs(pendulum.simulate(physics, jnp.array(initial), controls)[-1] - exact).max()

    errors = np.array([error(steps) for steps in (20, 40, 80, 160)])
    orders = np.log2(errors[:-1] / errors[1:])
    np.testing.assert_allclose(orders, 4, atol=0.2)


@pytest.mark.usefixtures("float64")
def test_energy_is_conserved_without_damping_and_control():
    physics = Pendulum(damping=0.0)
    initial = jnp.array([[1.0, 0.5], [2.5, -0.5], [0.0, 3.0]])
    states = pendulum.simulate(physics, initial, jnp.zeros((3, 400)))
    energy = states[..., 1] ** 2 / 2 - physics.gravity_over_length * jnp.cos(states[..., 0])
    np.testing.assert_allclose(energy, np.broadcast_to(energy[:, :1], energy.shape), atol=2e-6)
    assert states[2, -1, 0] > 2 * np.pi, "angles are not wrapped"


@pytest.mark.usefixtures("float64")
def test_the_derivative_of_the_energy_is_power_minus_friction():
    state, control = jnp.array([[0.3, -1.2], [2.0, 0.7]]), jnp.array([0.5, -0.4])
    physics = Pendulum(2.0, 0.3)
    velocity, acceleration = pendulum.derivative(physics, state, control).T
    power = 2.0 * jnp.sin(state[:, 0]) * velocity + state[:, 1] * acceleration
    np.testing.assert_allclose(power, control * state[:, 1] - 0.3 * state[:, 1] ** 2, rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_small_angles_follow_the_damped_oscillator():
    g, b, dt = physics = Pendulum(2.0, 0.3, 0.01)
    angle, velocity, control = 1e-5, -2e-5, 3e-5
    states = pendulum.simulate(physics, jnp.array([angle, velocity]), jnp.full(300, control))
    time, rest = dt * np.arange(301), control / g
    frequency = np.sqrt(g - b**2 / 4)
    sine = (velocity + b / 2 * (angle - rest)) / frequency
    expected = rest + np.exp(-b / 2 * time) * (
        (angle - rest) * np.cos(frequency * time) + sine * np.sin(frequency * time)
    )
    np.testing.assert_allclose(states[:, 0], expected, atol=1e-8 * angle)


@pytest.mark.usefixtures("float64")
def test_without_gravity_the_speed_relaxes_to_control_over_damping():
    states = pendulum.simulate(Pendulum(0.0, 0.5, 0.05), jnp.array([1.0, 2.0]), jnp.full(80, 0.3))
    time = 0.05 * np.arange(81)
    np.testing.assert_allclose(states[:, 1], 0.6 + 1.4 * np.exp(-0.5 * time), rtol=1e-8)


def test_levels_are_held_and_the_last_one_may_be_cut():
    levels = jnp.array([1.0, 2.0, 3.0])
    assert pendulum.hold_levels(levels, 5, 12).tolist() == [1.0] * 5 + [2.0] * 5 + [3.0] * 2
    assert pendulum.hold_levels(levels[:1], 5, 3).tolist() == [1.0] * 3
    assert pendulum.hold_levels(levels, 1, 3).tolist() == [1.0, 2.0, 3.0]


# The data


@pytest.mark.parametrize(("mode", "steps"), [("rollout", 12), ("onestep", 3)])
def test_shapes_and_hold(mode, steps):
    splits = generate(mode=mode, **{**SHORT, "sequence_length": steps})
    for split, size in zip(splits, (30, 20, 10), strict=True):
        assert split.inputs.shape == (size, steps, 3)
        assert split.targets.shape == (size, steps, 2)
        assert split.inputs.dtype == split.targets.dtype == np.float32
        changes = np.flatnonzero(np.diff(split.inputs[:, :, 2], axis=1).any(axis=0)) + 1
        assert changes.tolist() == list(range(5, steps, 5))


@pytest.mark.usefixtures("float64")
def test_inputs_and_targets_are_those_of_the_simulated_trajectories():
    rollout = generate(**OTHER_OPTIONS).test
    onestep = generate(mode="onestep", **OTHER_OPTIONS).test
    assert rollout.inputs.dtype == np.float64
    np.testing.assert_array_equal(rollout.targets, onestep.targets)
    np.testing.assert_array_equal(rollout.inputs[..., 2], onestep.inputs[..., 2])
    np.testing.assert_array_equal(onestep.inputs[:, 1:, :2], onestep.targets[:, :-1])
    initial = np.broadcast_to(onestep.inputs[:, :1, :2], (10, 12, 2))
    np.testing.assert_array_equal(rollout.inputs[..., :2], initial)
    for inputs, targets in zip(rollout.inputs[:3], rollout.targets[:3], strict=True):
        states = solve(OTHER, inputs[0, :2], inputs[:, 2])
        np.testing.assert_allclose(targets, states[1:], atol=1e-6)


def test_every_quantity_is_uniform_within_its_range():
    ranges = {"angle_range": 2.0, "speed_range": 0.25, "control_range": 3.0}
    train = generate(train_size=2000, sequence_length=10, **ranges).train
    quantities = [train.inputs[:, 0, 0], train.inputs[:, 0, 1]]
    quantities += [train.inputs[:, 0, 2], train.inputs[:, 5, 2]]
    for values, limit in zip(quantities, (2.0, 0.25, 3.0, 3.0), strict=True):
        assert stats.kstest(values, stats.uniform(-limit, 2 * limit).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(quantities) - np.eye(4)).max() < 0.1


def test_a_seed_decides_the_data_and_seeds_differ():
    first, again, other = (generate(seed, **SHORT) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    for split, other_split in zip(first, other, strict=True):
        assert (split.targets != other_split.targets).all()


def test_no_trajectory_is_in_two_places():
    seeds = [generate(seed, **SHORT) for seed in range(10)]
    initial = np.concatenate([split.inputs[:, 0, :2] for splits in seeds for split in splits])
    assert len(np.unique(initial, axis=0)) == len(initial) == 10 * 60


def test_a_larger_training_set_extends_the_smaller_and_moves_no_other_split():
    small, large = generate(**SHORT), generate(**{**SHORT, "train_size": 77})
    jax.tree.map(np.testing.assert_array_equal, small[1:], large[1:])
    for leaf, larger in zip(small.train, large.train, strict=True):
        np.testing.assert_array_equal(leaf, larger[:30])


def test_generation_batched_over_seeds_equals_generation_alone():
    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    batched = jax.jit(jax.vmap(dynamics.build(**SHORT).generate))(keys)
    for seed in range(3):
        for leaf, alone in zip(
            jax.tree.leaves(batched), jax.tree.leaves(generate(seed, **SHORT)), strict=True
        ):
            np.testing.assert_allclose(leaf[seed], alone, atol=1e-6)


# The track


def test_presets_and_options():
    assert dynamics.build().options == {
        "preset": "default",
        "mode": "rollout",
        "train_size": 400,
        "validation_size": 200,
        "test_size": 200,
        "sequence_length": 80,
        "angle_range": 1.0,
        "speed_range": 0.5,
        "control_range": 1.0,
        "hold": 5,
        "gravity_over_length": 1.0,
        "damping": 0.1,
        "time_step": 0.05,
    }
    assert dynamics.build(preset="quick").options["sequence_length"] == 20
    assert dynamics.build(preset="hard").options["angle_range"] == 2.0
    chosen = dynamics.build(preset="hard", angle_range=0.5, sequence_length=7)
    assert (chosen.options["angle_range"], chosen.options["sequence_length"]) == (0.5, 7)
    assert dynamics.build(**chosen.options).options == chosen.options


def test_the_annotations_of_build_can_be_read():
    hints = typing.get_type_hints(dynamics.build, include_extras=True)
    assert set(hints) == {*dynamics.build().options, "return"}
    assert typing.get_args(hints["preset"]) == tuple(dynamics.PRESETS)


def test_loss_score_and_constant_loss_are_in_the_same_unit():
    track = dynamics.build(**SHORT)
    targets = generate(**SHORT).test.targets
    mean = np.broadcast_to(targets.mean(axis=(0, 1), keepdims=True), targets.shape)
    np.testing.assert_allclose(track.loss(mean, targets), track.constant_loss(targets), rtol=1e-5)
    np.testing.assert_allclose(track.score(mean, targets), track.loss(mean, targets))
    assert track.loss(jnp.asarray(targets), jnp.asarray(targets)) == 0


# The references


TINY = {"angle_range": 1e-4, "speed_range": 1e-4, "control_range": 1e-4}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "linear_system",
    [
        {"gravity_over_length": 0.0, "mode": "rollout"},
        {"gravity_over_length": 0.0, "mode": "onestep"},
        {**TINY, "mode": "rollout"},
    ],
)
def test_the_linear_reference_is_exact_on_a_linear_system(linear_system):
    options = {**SHORT, **linear_system}
    references = dynamics.build(**options).references(generate(**options))
    assert references["linear"] < 1e-14 * references["constant"]
    assert references["persistence"] > 1e-4 * references["constant"]


@pytest.mark.parametrize("mode", ["rollout", "onestep"])
def test_constant_and_persistence_are_what_they_say(mode):
    splits = generate(mode=mode)
    references = dynamics.build(mode=mode).references(splits)
    test = np.asarray(splits.test.targets, np.float64)
    first = np.asarray(splits.test.inputs[:, 0, :2], np.float64)
    last = first[:, None] if mode == "rollout" else np.hstack([first[:, None], test[:, :-1]])
    mean = [splits.train.targets[..., output].mean(dtype=np.float64) for output in (0, 1)]
    np.testing.assert_allclose(references["constant"], ((test - mean) ** 2).mean(), rtol=1e-12)
    np.testing.assert_allclose(references["persistence"], ((test - last) ** 2).mean(), rtol=1e-12)


def test_the_linear_rollout_reference_knows_no_control_before_its_time():
    splits = generate(**SHORT)
    train, test = splits.train, splits.test
    expected = []
    for time in range(12):

        def design(inputs, time=time):
            seen = inputs[:, : time + 1, 2]
            return np.hstack([np.ones((len(inputs), 1)), inputs[:, 0, :2], seen]).astype(float)

        # All controls seen so far, repeated as they are held: the least-norm fit is the same.
        fit = np.linalg.lstsq(design(train.inputs), train.targets[:, time], rcond=1e-10)[0]
        expected.append((design(test.inputs) @ fit - test.targets[:, time]) ** 2)
    references = dynamics.build(**SHORT).references(splits)
    np.testing.assert_allclose(references["linear"], np.mean(expected), rtol=1e-6)


@pytest.mark.parametrize("mode", ["rollout", "onestep"])
@pytest.mark.parametrize("size", [1, 5])
def test_references_are_finite_for_very_few_samples(mode, size):
    track = dynamics.build(mode=mode)
    few = jax.tree.map(lambda leaf: leaf[:size], generate(mode=mode))
    assert all(np.isfinite(list(track.references(few).values())))


@pytest.mark.parametrize("mode", ["rollout", "onestep"])
def test_the_linear_reference_is_below_persistence_and_constant(mode):
    references = dynamics.build(mode=mode).references(generate(mode=mode))
    assert list(references) == ["constant", "persistence", "linear"]
    assert references["linear"] < min(references["persistence"], references["constant"])


# The free-running test


@pytest.mark.usefixtures("float64")
def test_free_running_with_the_true_physics_reproduces_the_trajectory():
    true = Recurrence(
        initial_hidden=lambda params, batch: jnp.zeros((*batch, 2)),
        step=lambda params, hidden, at: pendulum.rk4_step(params, at[..., :2], at[..., 2]),
        readout=lambda params, hidden: hidden,
    )
    test = generate(mode="onestep", **OTHER_OPTIONS).test
    inputs = test.inputs.copy()
    inputs[:, 1:, :2] = np.nan  # may not be read
    outputs = dynamics.free_run(true, OTHER, jnp.array(inputs))
    np.testing.assert_allclose(outputs, test.targets, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_free_running_is_the_model_on_its_own_outputs():
    model = rnn_small.build(outputs=2, hidden=5)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(4, 6, 3))
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
    outputs = jax.jit(functools.partial(dynamics.free_run, model.recurrence))(params, inputs)
    inputs[:, 1:, :2] = outputs[:, :-1]
    np.testing.assert_allclose(jax.jit(model.apply)(params, inputs)[0], outputs, atol=1e-12)
