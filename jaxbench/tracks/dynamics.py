"""`dynamics`: seeded trajectories of a driven pendulum, `th'' = -(g/l) sin th - b th' + u`.

The control `u` is drawn anew every few steps and held in between.  A model sees the first state
and the control (`rollout`, the default) or the current state and the control (`onestep`), and
predicts the state after each step.  Angles are not wrapped: a pendulum that goes over the top
counts its turns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt

from jaxbench.base import Batch, Metric, Splits, Track
from jaxbench.tracks import pendulum, regression

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree, Recurrence

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"sequence_length": 80, "angle_range": 1.0},
    "quick": {"sequence_length": 20, "angle_range": 1.0},
    "hard": {"sequence_length": 80, "angle_range": 2.0},
}


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


def onestep_references(splits: Splits) -> dict[str, float]:
    """Score the mean, staying at the current state, and least squares.

    `linear` sees the current state and control only, which determine the next state, with the same
    coefficients at all times.
    """
    train, test = splits.train, splits.test
    linear = regression.least_squares(
        train.inputs.reshape(-1, 3), train.targets.reshape(-1, 2), test.inputs.reshape(-1, 3)
    )
    return pendulum.score_references(
        splits, test.inputs[..., :2], linear.reshape(test.targets.shape)
    )


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
    trajectory = partial(
        pendulum.draw,
        physics=pendulum.Pendulum(gravity_over_length, damping, time_step),
        angle_range=options["angle_range"],
        speed_range=speed_range,
        control_range=control_range,
        hold=hold,
    )
    batch = pendulum.rollout_batch if mode == "rollout" else onestep_batch
    sizes = (train_size, validation_size, test_size)

    def longer_test(key: Key, steps: int) -> Batch:
        keys = jax.random.split(key, test_size)
        return jax.vmap(lambda own: batch(*trajectory(own, sequence_length=steps)))(keys)

    def generate(key: Key) -> Splits:
        usual = partial(trajectory, sequence_length=options["sequence_length"])
        return pendulum.draw_splits(key, sizes, usual, batch)

    def references(splits: Splits) -> dict[str, float]:
        if mode == "onestep":
            return onestep_references(splits)
        return pendulum.rollout_references(splits, hold)

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
