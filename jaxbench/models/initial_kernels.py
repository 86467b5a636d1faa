"""Initial kernels that models share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, Float

    from jaxbench.base import Key

CUT_DEVIATION = 0.87962566103423978
"""Standard deviation of a standard normal that is cut at -2 and 2."""


def lecun_kernels(
    key: Key, shapes: Sequence[tuple[int, int]]
) -> list[Float[Array, "inputs features"]]:
    """Draw kernels from flax's default, the normal of variance 1 / inputs cut at two deviations.

    All entries are drawn at once, which compiles several times faster than kernel by kernel.

    Args:
        key: decides everything.
        shapes: (inputs, features) of each kernel.
    """
    ends = np.cumsum([inputs * features for inputs, features in shapes])
    drawn = jax.random.truncated_normal(key, -2.0, 2.0, (int(ends[-1]),)) / CUT_DEVIATION
    parts = jnp.split(drawn, ends[:-1])
    return [
        part.reshape(shape) * (1 / shape[0]) ** 0.5
        for part, shape in zip(parts, shapes, strict=True)
    ]
