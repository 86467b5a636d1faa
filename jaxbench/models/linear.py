"""`linear`: one affine map of a whole sample, `y = vec(x) W + b`.

A sequence is read at once: there is one output a sample.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jaxbench.base import Model
from jaxbench.models.dense_layers import affine, dense, flat

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

HEAD = "Dense_0"


def build(*, outputs: int) -> Model:
    """Build an affine map over inputs [samples, ...], read as vectors.

    Args:
        outputs: width of the outputs, given by the track.
    """

    def init(key: Key, inputs: Float[Array, "samples ..."]) -> PyTree:
        return dense(key, {HEAD: (math.prod(inputs.shape[1:]), outputs)})

    def apply(
        params: PyTree,
        inputs: Float[Array, "samples ..."],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        return affine(params[HEAD], flat(inputs)), {}

    def flops(input_shape: tuple[int, ...]) -> float:
        return 2.0 * math.prod(input_shape) * outputs

    return Model(
        name="linear",
        summary="one affine map of a whole sample",
        options={},
        features=frozenset(),
        reads="samples [samples, ...] as a whole, with one output each",
        init=init,
        apply=apply,
        flops=flops,
    )
