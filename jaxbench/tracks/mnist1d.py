"""`mnist1d`: MNIST-1D, ten templates of twelve points, moved, scaled, sheared and noisy.

Made by the generator of the package of that name (Greydanus and Kobak 2024, Scaling down deep
learning with MNIST-1D), which runs on this machine; nothing is downloaded.  All seeds draw their
splits from one pool of samples, in which all classes are equally frequent.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Annotated, Literal

import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from jaxbench.base import Batch, Splits, Track
from jaxbench.tracks import classification, extras, samples

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Key

CLASSES = 10
LENGTH = 40


@functools.lru_cache(maxsize=4)
def pool(
    size: int, seed: int
) -> tuple[Float[np.ndarray, "samples time"], Int[np.ndarray, " samples"]]:
    """Make a pool of at least so many samples by the package's generator, and their labels.

    It is of mean 0 and variance 1.  The generator seeds Python's and numpy's global random numbers,
    whose states are put back.
    """
    data = extras.load("mnist1d.data", "mnist1d", "mnist1d")
    arguments = data.get_dataset_args()
    arguments.num_samples = CLASSES * -(-size // CLASSES)
    arguments.seed = seed
    states = random.getstate(), np.random.get_state()
    try:
        made = data.make_dataset(arguments)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    values = np.concatenate([made["x"], made["x_test"]])
    labels = np.concatenate([made["y"], made["y_test"]])
    return values.astype(np.float32), labels.astype(np.int32)


def build(
    *,
    layout: Literal["40x1", "flat"] = "40x1",
    shuffled: bool = False,
    train_size: Annotated[int, Ge(1)] = 4000,
    validation_size: Annotated[int, Ge(1)] = 1000,
    test_size: Annotated[int, Ge(1)] = 1000,
    pool_seed: Annotated[int, Ge(0)] = 42,
) -> Track:
    """Build MNIST-1D: say which of ten templates a sequence of 40 points was made of.

    Args:
        layout: point by point (40 steps of 1), or all 40 at once.
        shuffled: whether the points come in one random order, the same for all seeds.
        train_size: training samples.
        validation_size: validation samples; the published data have none.
        test_size: test samples.
        pool_seed: of the generator; the published data have 42.
    """
    options = dict(locals())
    sizes = (train_size, validation_size, test_size)
    values, labels = pool(sum(sizes), pool_seed)
    order = np.random.default_rng(0).permutation(LENGTH) if shuffled else np.arange(LENGTH)

    def generate(key: Key) -> Splits:
        def batch(indices: Array) -> Batch:
            drawn = jnp.asarray(values[:, order])[indices].astype(float)
            shaped = drawn if layout == "flat" else drawn[..., None]
            return Batch(shaped, jnp.asarray(labels)[indices])

        return Splits(*map(batch, samples.stratified_split(key, labels, sizes)))

    return Track(
        name="mnist1d",
        summary="MNIST-1D: say which template a noisy sequence of 40 points was made of",
        options=options,
        metric=classification.ACCURACY,
        output_size=CLASSES,
        features=classification.features(sequence=layout != "flat"),
        generate=generate,
        loss=classification.cross_entropy,
        score=classification.accuracy,
        constant_loss=functools.partial(classification.constant_loss, classes=CLASSES),
        references=functools.partial(classification.references, classes=CLASSES),
    )
