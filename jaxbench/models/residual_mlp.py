"""`residual_mlp`: a perceptron of two hidden layers, the second added to the first.

`h_1 = max(x W_1 + b_1, 0)`, `h_2 = h_1 + max(h_1 W_2 + b_2, 0)`, `y = h_2 W_3 + b_3` of a whole
sample: the perceptron of MNIST-1D (Greydanus and Kobak 2024, Scaling down deep learning with
MNIST-1D).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Annotated, Any

import jax
from annotated_types import Ge

from jaxbench.base import Model
from jaxbench.models.dense_layers import affine, dense, flat

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree


def build(*, outputs: int, hidden: Annotated[int, Ge(1)] = 100) -> Model:
    """Build a residual perceptron over inputs [samples, ...], read as vectors.

    Its intermediates are each hidden layer's pre-activations [samples, units], under its name.

    Args:
        outputs: width of the outputs, given by the track.
        hidden: units of each of the two hidden layers.
    """

    def widths(input_shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        return tuple(itertools.pairwise((math.prod(input_shape), hidden, hidden, outputs)))

    def init(key: Key, inputs: Float[Array, "samples ..."]) -> PyTree:
        shapes = widths(inputs.shape[1:])
        return dense(key, {f"Dense_{layer}": shape for layer, shape in enumerate(shapes)})

    def apply(
        params: PyTree,
        inputs: Float[Array, "samples ..."],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        first = affine(params["Dense_0"], flat(inputs))
        value = jax.nn.relu(first)
        second = affine(params["Dense_1"], value)
        value = value + jax.nn.relu(second)
        return affine(params["Dense_2"], value), {"Dense_0": first, "Dense_1": second}

    def flops(input_shape: tuple[int, ...]) -> float:
        return float(sum(2 * a * b for a, b in widths(input_shape)))

    return Model(
        name="residual_mlp",
        summary="a perceptron of two hidden layers, the second added to the first",
        options={"hidden": hidden},
        features=frozenset(),
        reads="samples [samples, ...] as a whole, with one output each",
        init=init,
        apply=apply,
        flops=flops,
    )
