"""Regression on a table of numbers: seeded splits, standardised on the training split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxbench.base import Batch, Metric, Splits, Track
from jaxbench.tracks import regression, samples

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key


def standardise(
    train: Float[Array, "train columns"], others: list[Float[Array, "samples columns"]]
) -> list[Float[Array, "samples columns"]]:
    """Give `(x - mean) / deviation` of every part, by the training part's mean and deviation.

    The training part comes first.  A column that does not vary there becomes 0 there.
    """
    mean = train.mean(axis=0, keepdims=True)
    deviation = train.std(axis=0, keepdims=True)
    deviation = jnp.where(deviation > 0, deviation, jnp.ones_like(deviation))
    return [(each - mean) / deviation for each in (train, *others)]


def references(splits: Splits) -> dict[str, float]:
    """Score the mean and least squares on the test targets, in float64."""
    train, test = splits.train, splits.test
    targets = np.asarray(test.targets, np.float64)
    predictions = {
        "constant": regression.constant_prediction(train.targets),
        "linear": regression.least_squares(train.inputs, train.targets, test.inputs),
    }
    return {
        name: float(regression.mean_squared_error(prediction, targets))
        for name, prediction in predictions.items()
    }


def table_track(
    inputs: Float[np.ndarray, "samples inputs"],
    targets: Float[np.ndarray, "samples targets"],
    sizes: tuple[int, int, int],
    *,
    name: str,
    summary: str,
    options: Mapping[str, Any],
    where: str,
) -> Track:
    """Make a track of a table: each seed draws its splits, every choice equally likely.

    Both inputs and targets are standardised, so that the score is a share of the variance that the
    targets have on the training split.

    Args:
        inputs: of all samples.
        targets: of all samples.
        sizes: of the training, validation and test split.
        name: of the track.
        summary: of the track.
        options: of the track.
        where: the data's name, for errors.

    Raises:
        JaxbenchError: there are fewer samples than the splits need.
    """
    samples.check_sizes(sizes, len(inputs), where)
    # Far from 0 a column would lose its digits in single precision.
    columns = [each - each.mean(axis=0) for each in (inputs, targets)]

    def generate(key: Key) -> Splits:
        indices = samples.split(key, len(inputs), sizes)
        parts = []
        for column in columns:
            drawn = [jnp.asarray(column, float)[each] for each in indices]
            parts.append(standardise(drawn[0], drawn[1:]))
        return Splits(*(Batch(*both) for both in zip(*parts, strict=True)))

    return Track(
        name=name,
        summary=summary,
        options=dict(options),
        metric=Metric("mean squared error", "variances of the training targets", "lower"),
        output_size=targets.shape[1],
        features=frozenset({"tabular", "regression"}),
        generate=generate,
        loss=regression.mean_squared_error,
        score=regression.mean_squared_error,
        constant_loss=regression.constant_loss,
        references=references,
    )
