"""`ring`: the pendulum of `dynamics`, seen by a network of nodes on a ring.

The data are those of `dynamics` in `rollout`, seed for seed, in the sizes of the reference report
on clusters: 400 training and 100 test sequences.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt

from jaxbench.base import Metric, Splits, Track
from jaxbench.tracks import pendulum, regression

if TYPE_CHECKING:
    from jaxbench.base import Key

LENGTHS = {"default": 80, "quick": 20}
HOLD = 5


def build(
    *,
    preset: Literal["default", "quick"] = "default",
    train_size: Annotated[int, Ge(1)] = 400,
    validation_size: Annotated[int, Ge(1)] = 200,
    test_size: Annotated[int, Ge(1)] = 100,
    sequence_length: Annotated[int, Ge(1)] | None = None,
    angle_range: Annotated[float, Gt(0)] = 1.0,
) -> Track:
    """Build the controlled pendulum for networks of nodes.

    Args:
        preset: `quick` has 20 steps.
        train_size: training sequences.
        validation_size: validation sequences.
        test_size: test sequences.
        sequence_length: time steps; if not given, as in the preset (80, or 20 for `quick`).
        angle_range: greatest first angle (rad).
    """
    length = LENGTHS[preset] if sequence_length is None else sequence_length
    sizes = (train_size, validation_size, test_size)
    trajectory = partial(
        pendulum.draw,
        physics=pendulum.Pendulum(),
        sequence_length=length,
        angle_range=angle_range,
        speed_range=0.5,
        control_range=1.0,
        hold=HOLD,
    )

    def generate(key: Key) -> Splits:
        return pendulum.draw_splits(key, sizes, trajectory, pendulum.rollout_batch)

    return Track(
        name="ring",
        summary="a controlled pendulum, seen by a network of nodes on a ring",
        options={
            "preset": preset,
            "train_size": train_size,
            "validation_size": validation_size,
            "test_size": test_size,
            "sequence_length": length,
            "angle_range": angle_range,
        },
        metric=Metric("mean squared error", "rad^2 and (rad/s)^2, pooled", "lower"),
        output_size=2,
        features=frozenset({"sequence", "regression", "rollout"}),
        generate=generate,
        loss=regression.mean_squared_error,
        score=regression.mean_squared_error,
        constant_loss=regression.constant_loss,
        references=partial(pendulum.rollout_references, hold=HOLD),
    )
