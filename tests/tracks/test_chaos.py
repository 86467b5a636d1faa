"""Chaotic flows against published exponents; the forecast horizon against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxbench.tracks import chaos, chaotic_systems

SIZES = {"train_size": 30, "validation_size": 10, "test_size": 20}


@pytest.mark.parametrize(
    ("name", "published", "tolerance"), [("lorenz", 0.9056, 0.01), ("rossler", 0.0714, 0.003)]
)
def test_the_largest_exponent_is_the_published_one(
    name: str, published: float, tolerance: float
) -> None:
    """Sprott (2003), appendix A; the tolerance is about 3 standard errors of the average."""
    system = chaotic_systems.SYSTEMS[name]
    assert system.exponent == published
    found = jax.jit(lambda key: chaotic_systems.largest_exponent(system, key))(jax.random.key(0))
    assert found == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize("name", chaotic_systems.SYSTEMS)
def test_a_trajectory_is_scipys(name: str) -> None:
    system = chaotic_systems.SYSTEMS[name]
    start = np.array([1.0, 2.0, 0.5])
    with jax.enable_x64(True):
        found = chaotic_systems.trajectory(system, jnp.asarray(start), 4, 5)
    times = 5 * system.step * np.arange(1, 5)
    expected = solve_ivp(
        lambda _, state: np.asarray(system.flow(jnp.asarray(state)), float),
        (0, times[-1]), start, t_eval=times, rtol=1e-6, atol=1e-8,
    ).y.T  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", chaotic_systems.SYSTEMS)
def test_states_are_standardised_on_the_attractor(name: str) -> None:
    system = chaotic_systems.SYSTEMS[name]

    def states(key: jax.Array) -> jax.Array:
        start = chaotic_systems.draw(system, key, 400)
        return chaotic_systems.trajectory(system, start, 50, 40)

    drawn = np.asarray(jax.jit(states)(jax.random.key(1)), float).reshape(-1, 3)
    scaled = (drawn - np.array(system.mean)) / np.array(system.deviation)
    assert np.abs(scaled.mean(0)).max() < 0.1
    assert np.abs(scaled.std(0) - 1).max() < 0.1


def test_the_horizon_is_the_time_until_the_first_large_error() -> None:
    targets = np.zeros((2, 5, 3))
    outputs = targets.copy()
    outputs[0, 3] = 0.41  # good for three steps, whatever comes later
    outputs[1, 0, 0] = 0.41 * np.sqrt(3)  # never good
    for xp in (np, jnp):
        found = chaos.forecast_horizon(
            xp.asarray(outputs), xp.asarray(targets), tolerance=0.4, lyapunov_times=0.5
        )
        assert found == pytest.approx(0.5 * (3 + 0) / 2)
        perfect = chaos.forecast_horizon(
            xp.asarray(targets), xp.asarray(targets), tolerance=0.4, lyapunov_times=0.5
        )
        assert perfect == pytest.approx(2.5)
    outputs[0, 4] = np.nan
    assert np.isnan(chaos.forecast_horizon(outputs, targets, tolerance=0.4, lyapunov_times=0.5))


def test_a_small_error_grows_to_the_tolerance_in_the_time_that_the_exponent_says() -> None:
    """Errors of e^-4 last about four Lyapunov times longer than errors of the tolerance's size."""
    system = chaotic_systems.SYSTEMS["lorenz"]

    def runs(key: jax.Array) -> jax.Array:
        start = chaotic_systems.draw(system, key, 200)
        near = start + 0.4 * np.exp(-4) * 8.5 * jax.random.normal(key, start.shape)
        both = jnp.stack([start, near])
        return chaotic_systems.trajectory(system, both, 200, 5)

    states = np.asarray(jax.jit(runs)(jax.random.key(2)), float)
    scaled = (states - np.array(system.mean)) / np.array(system.deviation)
    truth, forecast = scaled.transpose(1, 2, 0, 3)
    found = chaos.forecast_horizon(forecast, truth, tolerance=0.4, lyapunov_times=0.9056 * 0.05)
    assert 2.5 < found < 6


def test_the_track_forecasts_from_the_first_state() -> None:
    track = chaos.build(sequence_length=12, **SIZES)
    splits = jax.tree.map(np.asarray, jax.jit(track.generate)(jax.random.key(0)))
    assert splits.test.inputs.shape == splits.test.targets.shape == (20, 12, 3)
    assert (splits.test.inputs == splits.test.inputs[:, :1]).all()
    references = track.references(splits)
    assert track.metric.direction == "higher"
    assert 0 <= references["constant"] < references["linear"]
    assert float(track.score(splits.test.targets, splits.test.targets)) == pytest.approx(
        12 * 0.05 * 0.9056, rel=1e-5
    )
    longer = jax.eval_shape(lambda key: track.longer_test(key, 30), jax.random.key(0))
    assert longer.targets.shape == (20, 30, 3)
