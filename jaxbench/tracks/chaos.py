"""`chaos`: forecast the Lorenz or the Rössler system from its present state.

A model sees the state at the beginning of a sequence, at every time, and predicts the states after
it.  The score is the forecast horizon: how long a forecast stays within 0.4 of the truth, in units
in which the distance of two random states is about 1.4, averaged over sequences and counted in
Lyapunov times, in each of which errors grow by a factor of e (Pathak et al. 2018, Model-free
prediction of large spatiotemporally chaotic systems).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt

from jaxbench.base import Batch, Metric, Splits, Track
from jaxbench.tracks import chaotic_systems, regression

if TYPE_CHECKING:
    from jaxbench.base import Key

EVERY = {"lorenz": 5, "rossler": 10}


def forecast_horizon(outputs: Any, targets: Any, *, tolerance: float, lyapunov_times: float) -> Any:
    """Average over sequences how long a forecast is good, for jax and numpy arrays alike.

    A forecast is good until `|output - target| / sqrt(3)` first exceeds the tolerance; one that is
    not finite makes the score NaN.

    Args:
        outputs: standardised states [samples, time, 3].
        targets: standardised states.
        tolerance: in root mean squares of a standardised state.
        lyapunov_times: that pass between two outputs.
    """
    xp = targets.__array_namespace__()
    error = xp.sqrt(((outputs - targets) ** 2).sum(axis=-1) / targets.shape[-1])
    good = xp.cumprod((error <= tolerance).astype(targets.dtype), axis=-1)
    horizon = lyapunov_times * good.sum(axis=-1).mean()
    return xp.where(xp.isfinite(error).all(), horizon, xp.nan)


def references(splits: Splits, score: Any) -> dict[str, float]:
    """Score the mean, staying at the first state, and least squares from it."""
    train, test = splits.train, splits.test
    starts = [each.inputs[:, 0].astype(np.float64) for each in (train, test)]
    flat = train.targets.reshape(len(train.targets), -1)
    linear = regression.least_squares(starts[0], flat, starts[1])
    targets = test.targets.astype(np.float64)
    constant = regression.constant_prediction(train.targets)
    predictions = {
        "constant": np.broadcast_to(constant, targets.shape),
        "persistence": np.broadcast_to(starts[1][:, None], targets.shape),
        "linear": linear.reshape(targets.shape),
    }
    return {name: float(score(each, targets)) for name, each in predictions.items()}


def build(
    *,
    system: Literal["lorenz", "rossler"] = "lorenz",
    sequence_length: Annotated[int, Ge(1)] = 60,
    steps_between: Annotated[int, Ge(1)] | None = None,
    tolerance: Annotated[float, Gt(0)] = 0.4,
    train_size: Annotated[int, Ge(1)] = 400,
    validation_size: Annotated[int, Ge(1)] = 200,
    test_size: Annotated[int, Ge(1)] = 200,
) -> Track:
    """Build a chaotic flow: forecast its states from the present one.

    Args:
        system: which flow, of three dimensions.
        sequence_length: states to forecast.
        steps_between: integrator steps (Lorenz 0.01, Rössler 0.05 time units) between two of them;
            if not given, 5 and 10: 60 states are 2.7 and 2.1 Lyapunov times.
        tolerance: error up to which a forecast is good, in root mean squares of a state.
        train_size: training sequences.
        validation_size: validation sequences.
        test_size: test sequences.
    """
    every = EVERY[system] if steps_between is None else steps_between
    options = {**locals(), "steps_between": every}
    del options["every"]
    flow = chaotic_systems.SYSTEMS[system]
    sizes = (train_size, validation_size, test_size)
    score = partial(
        forecast_horizon, tolerance=tolerance, lyapunov_times=flow.exponent * flow.step * every
    )

    def batch(key: Key, count: int, length: int) -> Batch:
        start = chaotic_systems.draw(flow, key, count)
        later = chaotic_systems.trajectory(flow, start, length, every)
        mean, deviation = (jnp.asarray(each, float) for each in (flow.mean, flow.deviation))
        start = (start - mean[None]) / deviation[None]
        targets = ((later - mean[None, None]) / deviation[None, None]).swapaxes(0, 1)
        return Batch(jnp.broadcast_to(start[:, None], targets.shape), targets)

    def generate(key: Key) -> Splits:
        whole = batch(key, sum(sizes), sequence_length)
        parts = [jnp.split(leaf, np.cumsum(sizes)[:2]) for leaf in whole]
        return Splits(*(Batch(*both) for both in zip(*parts, strict=True)))

    return Track(
        name="chaos",
        summary="a chaotic flow: forecast its states from the present one",
        options=options,
        metric=Metric("forecast horizon", "Lyapunov times", "higher"),
        output_size=3,
        features=frozenset({"sequence", "regression", "rollout"}),
        generate=generate,
        loss=regression.mean_squared_error,
        score=score,
        constant_loss=regression.constant_loss,
        references=partial(references, score=score),
        longer_test=lambda key, steps: batch(key, test_size, steps),
    )
