"""The driven pendulum `th'' = -(g/l) sin th - b th' + u`, for the tracks that observe it.

The control `u` is drawn anew every few steps and held in between.  Angles are not wrapped: a
pendulum that goes over the top counts its turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import Batch, Splits
from jaxbench.tracks import regression

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key


class Pendulum(NamedTuple):
    """The physics: `gravity_over_length` (1/s^2), `damping` (1/s) and the integrator's step (s)."""

    gravity_over_length: float = 1.0
    damping: float = 0.1
    time_step: float = 0.05


def derivative(
    pendulum: Pendulum, state: Float[Array, "*batch 2"], control: Float[Array, "*batch"]
) -> Float[Array, "*batch 2"]:
    """Give the time derivative `(th', -(g/l) sin th - b th' + u)` of the state `(th, th')`.

    Args:
        pendulum: the physics.
        state: angle from the lowest point (rad) and angular velocity (rad/s).
        control: angular acceleration by the motor (rad/s^2).
    """
    angle, velocity = state[..., 0], state[..., 1]
    acceleration = (
        -pendulum.gravity_over_length * jnp.sin(angle) - pendulum.damping * velocity + control
    )
    return jnp.stack([velocity, acceleration], axis=-1)


def rk4_step(
    pendulum: Pendulum, state: Float[Array, "*batch 2"], control: Float[Array, "*batch"]
) -> Float[Array, "*batch 2"]:
    """Advance one time step under a constant control by the classical Runge-Kutta method.

    `s + dt/6 (k1 + 2 k2 + 2 k3 + k4)`, of fourth order (Kutta 1901).
    """
    dt = pendulum.time_step
    k1 = derivative(pendulum, state, control)
    k2 = derivative(pendulum, state + dt / 2 * k1, control)
    k3 = derivative(pendulum, state + dt / 2 * k2, control)
    k4 = derivative(pendulum, state + dt * k3, control)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(
    pendulum: Pendulum, initial: Float[Array, "*batch 2"], controls: Float[Array, "*batch time"]
) -> Float[Array, "*batch time+1 2"]:
    """Give the states from the initial one to that after the last control, each held for a step."""

    def advance(state: Array, control: Array) -> tuple[Array, Array]:
        state = rk4_step(pendulum, state, control)
        return state, state

    _, states = jax.lax.scan(advance, initial, jnp.moveaxis(controls, -1, 0))
    return jnp.concatenate([initial[..., None, :], jnp.moveaxis(states, 0, -2)], axis=-2)


def hold_levels(
    levels: Float[Array, "*batch levels"], hold: int, steps: int
) -> Float[Array, "*batch steps"]:
    """Hold each level for `hold` steps, `u_t = levels[t // hold]`."""
    return jnp.repeat(levels, hold, axis=-1)[..., :steps]


def draw(
    key: Key,
    *,
    physics: Pendulum,
    sequence_length: int,
    angle_range: float,
    speed_range: float,
    control_range: float,
    hold: int,
) -> tuple[Float[Array, "time+1 2"], Float[Array, " time"]]:
    """Draw one trajectory and its control, each quantity uniform within plus or minus its range.

    Args:
        key: decides everything.
        physics: of the pendulum.
        sequence_length: time steps.
        angle_range: of the first angle (rad).
        speed_range: of the first angular velocity (rad/s).
        control_range: of the control (rad/s^2).
        hold: steps for which a control stays.
    """
    levels = -(-sequence_length // hold)
    limits = jnp.array([angle_range, speed_range, *[control_range] * levels], float)
    drawn = limits * jax.random.uniform(key, limits.shape, minval=-1.0)
    controls = hold_levels(drawn[2:], hold, sequence_length)
    return simulate(physics, drawn[:2], controls), controls


def draw_splits(
    key: Key,
    sizes: tuple[int, int, int],
    trajectory: Callable[[Key], tuple[Array, Array]],
    batch: Callable[[Array, Array], Batch],
) -> Splits:
    """Draw training, validation and test trajectories, each sample from a key of its own.

    A sample depends on the key, its split and its number alone, not on how many others there are.

    Args:
        key: decides everything.
        sizes: of the three splits.
        trajectory: `(key) -> (states [time+1, 2], controls [time])`.
        batch: makes a model's inputs and targets of these.
    """

    def sample(split: Array, number: Array) -> Batch:
        return batch(*trajectory(jax.random.fold_in(jax.random.fold_in(key, split), number)))

    splits = jnp.asarray(np.repeat(np.arange(3), sizes))
    numbers = jnp.concatenate([jnp.arange(size) for size in sizes])
    samples = jax.vmap(sample)(splits, numbers)
    leaves = [jnp.split(leaf, np.cumsum(sizes)[:2]) for leaf in samples]
    return Splits(*(Batch(*parts) for parts in zip(*leaves, strict=True)))


def rollout_batch(states: Float[Array, "time+1 2"], controls: Float[Array, " time"]) -> Batch:
    """`x_t = [th_0, w_0, u_t]` and `y_t = (th, w)_{t+1}`: predict many steps ahead."""
    initial = jnp.broadcast_to(states[:1], (*controls.shape, 2))
    return Batch(jnp.concatenate([initial, controls[..., None]], axis=-1), states[1:])


def rollout_references(splits: Splits, hold: int) -> dict[str, float]:
    """Score the mean, staying at the first state, and causal least squares.

    `linear` sees the first state and, at time `t`, the controls `u_0 .. u_t`.
    """
    train, test = splits.train, splits.test
    known = 3 + np.arange(train.targets.shape[1]) // hold

    def features(inputs: np.ndarray) -> np.ndarray:
        return np.hstack([inputs[:, 0, :2], inputs[:, ::hold, 2]])

    linear = regression.causal_least_squares(
        features(train.inputs), train.targets, features(test.inputs), known
    )
    return score_references(splits, test.inputs[..., :2], linear)


def score_references(
    splits: Splits, persistence: np.ndarray, linear: np.ndarray
) -> dict[str, float]:
    """Score the constant prediction and these two on the test targets, in float64."""
    targets = np.asarray(splits.test.targets, np.float64)
    predictions = {
        "constant": regression.constant_prediction(splits.train.targets),
        "persistence": persistence,
        "linear": linear,
    }
    return {
        name: float(regression.mean_squared_error(prediction, targets))
        for name, prediction in predictions.items()
    }
