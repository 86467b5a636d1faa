"""`my_track`: a noisy wave along a direction, `y = sin(3 w x) + noise`.

Replace `wave` and the inputs by your own task.  Data come from the key alone, so that every arm of
a study gets the same; all attributes are described in `jaxbench.base.Track`.
"""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from jaxbench.base import Batch, Metric, Splits, Track


def wave(inputs: Any) -> Any:
    """Compute `sin(3 w x)` [samples, 1] of inputs [samples, features], `w` being of unit length."""
    direction = jnp.ones((inputs.shape[-1], 1)) / jnp.sqrt(inputs.shape[-1])
    return jnp.sin(3.0 * inputs @ direction)


def mean_squared_error(outputs: Any, targets: Any) -> Any:
    """Compute the mean of squared differences."""
    return ((outputs - targets) ** 2).mean()


def references(splits: Splits) -> dict[str, float]:
    """Score methods without a network, fitted on the training split, with numpy."""
    train, test = splits.train, splits.test
    columns = [np.column_stack([each.inputs, np.ones(len(each.inputs))]) for each in (train, test)]
    weights, *_ = np.linalg.lstsq(columns[0], train.targets, rcond=None)
    return {
        "constant": float(np.mean((test.targets - train.targets.mean(axis=0)) ** 2)),
        "linear": float(np.mean((test.targets - columns[1] @ weights) ** 2)),
    }


def build(
    *,
    train_size: Annotated[int, Ge(1)] = 256,
    validation_size: Annotated[int, Ge(1)] = 128,
    test_size: Annotated[int, Ge(1)] = 128,
    features: Annotated[int, Ge(1)] = 4,
    noise: Annotated[float, Ge(0)] = 0.1,
) -> Track:
    """Build the track.

    Args:
        train_size: training samples.
        validation_size: validation samples.
        test_size: test samples.
        features: inputs of a sample.
        noise: standard deviation of the noise on the targets.
    """
    options = dict(locals())

    def sample(key: jax.Array, size: int) -> Batch:
        inputs_key, noise_key = jax.random.split(key)
        inputs = jax.random.normal(inputs_key, (size, features))
        return Batch(inputs, wave(inputs) + noise * jax.random.normal(noise_key, (size, 1)))

    def generate(key: jax.Array) -> Splits:
        sizes = (train_size, validation_size, test_size)
        keys = jax.random.split(key, 3)
        return Splits(*(sample(keys[split], size) for split, size in enumerate(sizes)))

    return Track(
        name="my_track",
        summary="a noisy wave along one direction",
        options=options,
        metric=Metric("mean squared error", "squared units of y", "lower"),
        output_size=1,
        features=frozenset({"regression"}),
        generate=generate,
        loss=mean_squared_error,
        score=mean_squared_error,
        constant_loss=lambda targets: ((targets - targets.mean(axis=0)) ** 2).mean(),
        references=references,
    )
