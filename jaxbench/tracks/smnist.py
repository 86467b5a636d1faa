"""`smnist`: sequential MNIST, handwritten digits read pixel by pixel or row by row.

The four IDX files of MNIST are read from a folder that the user names; nothing is downloaded.
Training and validation samples are drawn from the training files, test samples from the test files,
in each of which the classes are as frequent as in the files (Le, Jaitly and Hinton 2015, A simple
way to initialize recurrent networks of rectified linear units).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from jaxbench.base import Batch, DataFiles, JaxbenchError, Splits, Track
from jaxbench.tracks import classification, idx_files, samples

if TYPE_CHECKING:
    from jaxtyping import Array, Int, UInt8

    from jaxbench.base import Key

CLASSES = 10
NAMES = {"train": "train", "test": "t10k"}
GREATEST_PIXEL = 255
HELP = (
    "smnist reads MNIST's four files (train-images-idx3-ubyte, train-labels-idx1-ubyte, "
    "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, gzipped or not), which "
    "https://github.com/cvdfoundation/mnist tells where to get; put them into one folder and name "
    "it by track.folder"
)


def read_part(
    folder: Path, part: str
) -> tuple[UInt8[np.ndarray, "samples rows columns"], Int[np.ndarray, " samples"]]:
    """Read the images and labels of `train` or `test`.

    Raises:
        JaxbenchError: a file is missing or broken, or they do not go together.
    """
    paths = [
        idx_files.find(folder, f"{NAMES[part]}-{what}-ubyte", HELP)
        for what in ("images-idx3", "labels-idx1")
    ]
    images, labels = idx_files.read(paths[0], 3), idx_files.read(paths[1], 1)
    if len(images) != len(labels):
        raise JaxbenchError(
            f"{paths[0]} has {len(images)} images, but {paths[1]} {len(labels)} labels; take both "
            f"from one source"
        )
    if labels.size and labels.max() >= CLASSES:
        raise JaxbenchError(
            f"{paths[1]} has the label {labels.max()}; expected digits from 0 to {CLASSES - 1}"
        )
    return images, labels.astype(np.int32)


def build(
    *,
    folder: Annotated[str, DataFiles(("*-ubyte*",))] = "",
    layout: Literal["pixels", "rows", "flat"] = "pixels",
    permuted: bool = False,
    train_size: Annotated[int, Ge(1)] = 1000,
    validation_size: Annotated[int, Ge(1)] = 500,
    test_size: Annotated[int, Ge(1)] = 1000,
) -> Track:
    """Build sequential MNIST: say which digit a sequence of pixels shows.

    A run keeps its splits in memory, 3136 bytes a sample of 28 x 28 pixels.

    Args:
        folder: with MNIST's four files; a relative one begins at the working directory.
        layout: pixel by pixel (784 steps of 1), row by row (28 steps of 28), or all at once.
        permuted: whether pixels come in one random order, the same for all seeds.
        train_size: training samples; the files have 60000 for training and validation.
        validation_size: validation samples.
        test_size: test samples; the files have 10000.
    """
    options = dict(locals())
    if not folder:
        raise JaxbenchError(f"no folder is named; {HELP}")
    place = Path(folder).expanduser()
    (train, train_labels), (test, test_labels) = (read_part(place, part) for part in NAMES)
    if train.shape[1:] != test.shape[1:]:
        raise JaxbenchError(
            f"the training images of {folder} are of {list(train.shape[1:])} pixels, the test "
            f"images of {list(test.shape[1:])}; take them from one source"
        )
    rows, columns = train.shape[1:]
    pixels = rows * columns
    shape = {"pixels": (pixels, 1), "rows": (rows, columns), "flat": (pixels,)}[layout]
    order = np.random.default_rng(0).permutation(pixels) if permuted else np.arange(pixels)
    training_sizes = (train_size, validation_size)
    samples.check_sizes(training_sizes, len(train), "the training file")
    samples.check_sizes((test_size,), len(test), "the test file")

    def generate(key: Key) -> Splits:
        def batch(images: np.ndarray, labels: np.ndarray, indices: Array) -> Batch:
            drawn = jnp.asarray(images.reshape(len(images), pixels)[:, order])[indices]
            shaped = drawn.astype(float).reshape(len(indices), *shape) / GREATEST_PIXEL
            return Batch(shaped, jnp.asarray(labels)[indices])

        keys = jax.random.split(key)
        own = samples.stratified_split(keys[0], train_labels, training_sizes)
        held_out = samples.stratified_split(keys[1], test_labels, (test_size,))
        return Splits(
            train=batch(train, train_labels, own[0]),
            validation=batch(train, train_labels, own[1]),
            test=batch(test, test_labels, held_out[0]),
        )

    return Track(
        name="smnist",
        summary="sequential MNIST: handwritten digits read pixel by pixel",
        options={**options, "data": samples.digest(train, train_labels, test, test_labels)},
        metric=classification.ACCURACY,
        output_size=CLASSES,
        features=classification.features(sequence=layout != "flat"),
        generate=generate,
        loss=classification.cross_entropy,
        score=classification.accuracy,
        constant_loss=partial(classification.constant_loss, classes=CLASSES),
        references=partial(classification.references, classes=CLASSES),
    )
