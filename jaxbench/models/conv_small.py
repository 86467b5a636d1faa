"""`conv_small`: three convolutions over time and a linear head, one output a sequence.

`h_0 = x`, `h_l = max(h_{l-1} * K_l + b_l, 0)` with widths 5, 3 and 3, steps of 2 and one zero at
either end, and `y = vec(h_3) W + b`: the convolutional network of MNIST-1D (Greydanus and Kobak
2024, Scaling down deep learning with MNIST-1D).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge

from jaxbench.base import JaxbenchError, Model
from jaxbench.models.dense_layers import affine, dense, flat
from jaxbench.models.initial_kernels import lecun_kernels

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

WIDTHS = (5, 3, 3)
STRIDE = 2
PADDING = 1
HEAD = "Dense_0"


def lengths(time: int) -> list[int]:
    """How many steps each convolution gives for a sequence of `time` steps.

    Raises:
        JaxbenchError: none of them are left.
    """
    steps = [time]
    for width in WIDTHS:
        steps.append((steps[-1] + 2 * PADDING - width) // STRIDE + 1)
        if steps[-1] < 1:
            raise JaxbenchError(
                f"conv_small reads sequences of 7 or more steps, but the track's have {time}; take "
                f"a track or a layout with longer ones"
            )
    return steps[1:]


def convolution(
    layer: PyTree, inputs: Float[Array, "samples time channels"]
) -> Float[Array, "samples steps features"]:
    """Give `sum_s x_{2t+s-1} K_s + b`, as one product of all windows with the kernel.

    Windows and a product, because XLA:CPU computes the gradient of a narrow convolution slowly.

    Args:
        layer: kernel [width, channels, features] and bias [features].
        inputs: of every time step.
    """
    kernel = layer["kernel"]
    width, channels, features = kernel.shape
    padded = jnp.pad(inputs, ((0, 0), (PADDING, PADDING), (0, 0)))
    steps = (padded.shape[1] - width) // STRIDE + 1
    last = STRIDE * (steps - 1) + 1
    windows = [padded[:, shift : shift + last : STRIDE] for shift in range(width)]
    seen = jnp.concatenate(windows, axis=-1).reshape(-1, width * channels)
    sent = seen @ kernel.reshape(width * channels, features) + layer["bias"][None]
    return sent.reshape(len(inputs), steps, features)


def build(*, outputs: int, channels: Annotated[int, Ge(1)] = 25) -> Model:
    """Build a small convolutional network over inputs [samples, time, features].

    Its intermediates are each convolution's pre-activations [samples, steps, channels], by name.

    Args:
        outputs: width of the outputs, given by the track.
        channels: of each convolution.
    """
    names = [f"Conv_{layer}" for layer in range(len(WIDTHS))]

    def init(key: Key, inputs: Float[Array, "samples time features"]) -> PyTree:
        _, time, features = inputs.shape
        of_layers, of_head = jax.random.split(key)
        seen = (features, channels, channels)
        shapes = [(width * inward, channels) for width, inward in zip(WIDTHS, seen, strict=True)]
        kernels = lecun_kernels(of_layers, shapes)
        params = {
            name: {
                "kernel": kernel.reshape(width, -1, channels),
                "bias": jnp.zeros((channels,), kernel.dtype),
            }
            for name, width, kernel in zip(names, WIDTHS, kernels, strict=True)
        }
        return params | dense(of_head, {HEAD: (lengths(time)[-1] * channels, outputs)})

    def apply(
        params: PyTree,
        inputs: Float[Array, "samples time features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        value, preactivations = inputs, {}
        for name in names:
            preactivations[name] = convolution(params[name], value)
            value = jax.nn.relu(preactivations[name])
        return affine(params[HEAD], flat(value)), preactivations

    def flops(input_shape: tuple[int, ...]) -> float:
        time, features = input_shape
        steps = lengths(time)
        seen = (features, channels, channels)
        products = [
            count * width * inward * channels
            for count, width, inward in zip(steps, WIDTHS, seen, strict=True)
        ]
        return 2.0 * (math.fsum(products) + steps[-1] * channels * outputs)

    return Model(
        name="conv_small",
        summary="three convolutions over time and a linear head, one output a sequence",
        options={"channels": channels},
        features=frozenset(),
        reads="sequences [samples, steps, features] as a whole, with one output each",
        init=init,
        apply=apply,
        flops=flops,
    )
