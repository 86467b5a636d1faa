"""`seqdigits`: handwritten digits of 8 x 8 pixels, read as sequences.

The 1797 test digits of the UCI repository that come with scikit-learn (Alpaydin and Kaynak 1998,
Optical recognition of handwritten digits); nothing is downloaded.  Each seed draws its own splits,
in which the classes are as frequent as in the whole.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from jaxbench.base import Batch, Splits, Track
from jaxbench.tracks import classification, extras, samples

if TYPE_CHECKING:
    from jaxbench.base import Key

CLASSES = 10
SHAPES = {"64x1": (64, 1), "8x8": (8, 8), "flat": (64,)}
GREATEST_PIXEL = 16


def build(
    *,
    layout: Literal["64x1", "8x8", "flat"] = "8x8",
    train_size: Annotated[int, Ge(1)] = 1000,
    validation_size: Annotated[int, Ge(1)] = 300,
    test_size: Annotated[int, Ge(1)] = 497,
) -> Track:
    """Build the handwritten digits: say which digit a sequence of pixels shows.

    Args:
        layout: pixel by pixel (64 steps of 1), row by row (8 steps of 8), or all 64 at once.
        train_size: training samples; there are 1797 in all.
        validation_size: validation samples.
        test_size: test samples.
    """
    options = dict(locals())
    datasets = extras.load("sklearn.datasets", "scikit-learn", "seqdigits")
    pixels, digits = datasets.load_digits(return_X_y=True)
    pixels, labels = pixels.astype(np.uint8), digits.astype(np.int32)
    sizes = (train_size, validation_size, test_size)
    samples.check_sizes(sizes, len(labels), "the data set")

    def generate(key: Key) -> Splits:
        def batch(indices: jnp.ndarray) -> Batch:
            drawn = jnp.asarray(pixels)[indices].astype(float) / GREATEST_PIXEL
            shaped = drawn.reshape(len(indices), *SHAPES[layout])
            return Batch(shaped, jnp.asarray(labels)[indices])

        return Splits(*map(batch, samples.stratified_split(key, labels, sizes)))

    return Track(
        name="seqdigits",
        summary="handwritten digits of 8 x 8 pixels, read as sequences",
        options=options,
        metric=classification.ACCURACY,
        output_size=CLASSES,
        features=classification.features(sequence=layout != "flat"),
        generate=generate,
        loss=classification.cross_entropy,
        score=classification.accuracy,
        constant_loss=partial(classification.constant_loss, classes=CLASSES),
        references=partial(classification.references, classes=CLASSES),
    )
