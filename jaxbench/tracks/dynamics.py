"""`dynamics`: seeded trajectories of a driven pendulum, `th'' = -(g/l) sin th - b th' + u`.

The control `u` is drawn anew every few steps and held in between.  A model sees the first state
and the control (`rollout`, the default) or the current state and the control (`onestep`), and
predicts the state after each step.  Angles are not wrapped: a pendulum that goes over the top
counts its turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt

from jaxbench.base import Batch, Metric, Splits, Track
from jaxbench.tracks import regression

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree, Recurrence

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"sequence_length": 80, "angle_range": 1.0},
    "quick": {"sequence_length": 20, "angle_range": 1.0},
    "hard": {"sequence_length": 80, "angle_range": 2.0},
}


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
    pendulum: Pendulum,
    *,
    sequence_length: int,
    angle_range: float,
    speed_range: float,
    control_range: float,
    hold: int,
) -> tuple[Float[Array, "time+1 2"], Float[Array, " time"]]:
    """Draw one trajectory and its control, each quantity uniform within plus or minus its range.

    Args:
        key: decides everything.
        pendulum: the physics.
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
    return simulate(pendulum, drawn[:2], controls), controls


def rollout_batch(states: Float[Array, "time+1 2"], controls: Float[Array, " time"]) -> Batch:
    """`x_t = [th_0, w_0, u_t]` and `y_t = (th, w)_{t+1}`: predict many steps ahead."""
    initial = jnp.broadcast_to(states[:1], (*controls.shape, 2))
    return Batch(jnp.concatenate([initial, controls[..., None]], axis=-1), states[1:])


def onestep_batch(states: Float[Array, "time+1 2"], controls: Float[Array, " time"]) -> Batch:
    """`x_t = [th_t, w_t, u_t]` and `y_t = (th, w)_{t+1}`: predict the next state from this one."""
    return Batch(jnp.concatenate([states[:-1], controls[..., None]], axis=-1), states[1:])


def free_run(
    recurrence: Recurrence, params: PyTree, inputs: Float[Array, "batch time 3"]
) -> Float[Array, "batch time 2"]:
    """Run a one-step model on its own predictions: only the first state and the controls are read.

    Args:
        recurrence: of a recurrent model with two outputs, trained on `onestep`.
        params: its parameters.
        inputs: of `onestep`; the outputs compare with the same batch's targets.
    """

    def advance(carry: tuple[Array, Array], control: Array) -> tuple[tuple[Array, Array], Array]:
        hidden, state = carry
        hidden = recurrence.step(
            params, hidden, jnp.concatenate([state, control[:, None]], axis=-1)
        )
        state = recurrence.readout(params, hidden)
        return (hidden, state), state

    start = recurrence.initial_hidden(params, inputs.shape[:1]), inputs[:, 0, :2]
    _, states = jax.lax.scan(advance, start, inputs[..., 2].T)
    return states.swapaxes(0, 1)


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


def onestep_references(splits: Splits) -> dict[str, float]:
    """Score the mean, staying at the current state, and least squares.

    `linear` sees the current state and control only, which determine the next state, with the same
    coefficients at all times.
    """
    train, test = splits.train, splits.test
    linear = regression.least_squares(
        train.inputs.reshape(-1, 3), train.targets.reshape(-1, 2), test.inputs.reshape(-1, 3)
    )
    return score_references(splits, test.inputs[..., :2], linear.reshape(test.targets.shape))


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


def build(
    *,
    preset: Literal["default", "quick", "hard"] = "default",
    mode: Literal["rollout", "onestep"] = "rollout",
    train_size: Annotated[int, Ge(1)] = 400,
    validation_size: Annotated[int, Ge(1)] = 200,
    test_size: Annotated[int, Ge(1)] = 200,
    sequence_length: Annotated[int, Ge(1)] | None = None,
    angle_range: Annotated[float, Ge(0)] | None = None,
    speed_range: Annotated[float, Ge(0)] = 0.5,
    control_range: Annotated[float, Ge(0)] = 1.0,
    hold: Annotated[int, Ge(1)] = 5,
    gravity_over_length: Annotated[float, Ge(0)] = 1.0,
    damping: Annotated[float, Ge(0)] = 0.1,
    time_step: Annotated[float, Gt(0)] = 0.05,
) -> Track:
    """Build the controlled pendulum: predict its states from the first one and the control.

    Args:
        preset: `quick` has 20 steps, `hard` starts at up to 2 rad, where nonlinearity matters.
        mode: `rollout` gives the first state and each control, `onestep` the current ones.
        train_size: training sequences.
        validation_size: validation sequences.
        test_size: test sequences.
        sequence_length: time steps; if not given, as in the preset (80, or 20 for `quick`).
        angle_range: greatest first angle (rad); if not given, as in the preset (1, `hard` 2).
        speed_range: greatest first angular velocity (rad/s).
        control_range: greatest control (rad/s^2).
        hold: steps for which a control stays.
        gravity_over_length: g/l (1/s^2).
        damping: b (1/s).
        time_step: of the integrator (s).
    """
    options = {
        name: PRESETS[preset][name] if value is None else value for name, value in locals().items()
    }
    pendulum = Pendulum(gravity_over_length, damping, time_step)
    batch = rollout_batch if mode == "rollout" else onestep_batch
    sizes = (train_size, validation_size, test_size)

    def sequence(key: Key, steps: int) -> Batch:
        trajectory = draw(
            key,
            pendulum,
            sequence_length=steps,
            angle_range=options["angle_range"],
            speed_range=speed_range,
            control_range=control_range,
            hold=hold,
        )
        return batch(*trajectory)

    def longer_test(key: Key, steps: int) -> Batch:
        return jax.vmap(lambda own: sequence(own, steps))(jax.random.split(key, test_size))

    def generate(key: Key) -> Splits:
        def sample(split: Array, number: Array) -> Batch:
            own_key = jax.random.fold_in(jax.random.fold_in(key, split), number)
            return sequence(own_key, options["sequence_length"])

        splits = jnp.asarray(np.repeat(np.arange(3), sizes))
        numbers = jnp.concatenate([jnp.arange(size) for size in sizes])
        samples = jax.vmap(sample)(splits, numbers)
        leaves = [jnp.split(leaf, np.cumsum(sizes)[:2]) for leaf in samples]
        return Splits(*(Batch(*parts) for parts in zip(*leaves, strict=True)))

    def references(splits: Splits) -> dict[str, float]:
        if mode == "onestep":
            return onestep_references(splits)
        return rollout_references(splits, hold)

    return Track(
        name="dynamics",
        summary="a controlled pendulum: predict its states from the first one and the control",
        options=options,
        metric=Metric("mean squared error", "rad^2 and (rad/s)^2, pooled", "lower"),
        output_size=2,
        features=frozenset({"sequence", "regression", mode}),
        generate=generate,
        loss=regression.mean_squared_error,
        score=regression.mean_squared_error,
        constant_loss=regression.constant_loss,
        references=references,
        longer_test=longer_test,
        free_run=free_run if mode == "onestep" else None,
    )
