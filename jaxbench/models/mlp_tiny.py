"""`mlp_tiny`: a multilayer perceptron of rectified linear units with a linear head.

`h_0 = x`, `a_l = h_{l-1} W_l + b_l`, `h_l = max(a_l, 0)`, `y = h_L W_{L+1} + b_{L+1}`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge, MinLen
from flax import linen as nn

from jaxbench.base import Model, UnitLayer, UnitSlice
from jaxbench.models.initial_kernels import lecun_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree


class MLP(nn.Module):
    """Dense layers with a rectifier between them: `Dense_0` first, the head last."""

    hidden: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*batch features"]
    ) -> tuple[Float[Array, "*batch outputs"], dict[str, Float[Array, "*batch units"]]]:
        """Give the outputs and each hidden layer's pre-activations under its name."""
        value, preactivations = inputs, {}
        for layer, width in enumerate(self.hidden):
            preactivations[f"Dense_{layer}"] = nn.Dense(width)(value)
            value = nn.relu(preactivations[f"Dense_{layer}"])
        return nn.Dense(self.outputs)(value), preactivations


def unit_layer(layer: int, width: int) -> UnitLayer:
    """Which slices of which leaves belong to a unit of a hidden layer, counted from 0."""
    here, onwards = f"Dense_{layer}", f"Dense_{layer + 1}"
    return UnitLayer(
        here,
        width,
        (
            UnitSlice((here, "kernel"), 1, "incoming"),
            UnitSlice((here, "bias"), 0, "incoming"),
            UnitSlice((onwards, "kernel"), 0, "outgoing", bias=(onwards, "bias")),
        ),
    )


def build(
    *,
    outputs: int,
    hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (64, 64),
) -> Model:
    """Build a perceptron over inputs [..., features].

    Its intermediates are each hidden layer's pre-activations [..., units], under the layer's name.

    Args:
        outputs: width of the outputs, given by the track.
        hidden: units of each hidden layer, the first one first.
    """
    network = MLP(tuple(hidden), outputs)

    def init(key: Key, inputs: Float[Array, "*batch features"]) -> PyTree:
        shapes = jax.eval_shape(network.init, key, inputs)["params"]
        names = [f"Dense_{layer}" for layer in range(len(hidden) + 1)]
        kernels = lecun_kernels(key, [shapes[name]["kernel"].shape for name in names])
        return {
            name: {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1:], kernel.dtype)}
            for name, kernel in zip(names, kernels, strict=True)
        }

    def apply(
        params: PyTree,
        inputs: Float[Array, "*batch features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        outputs: tuple[Array, dict[str, Array]] = network.apply({"params": params}, inputs)  # type: ignore[assignment]
        return outputs

    def flops(input_shape: tuple[int, ...]) -> float:
        widths = (input_shape[-1], *hidden, outputs)
        return float(sum(2 * a * b for a, b in itertools.pairwise(widths)))

    def resized(sizes: Mapping[str, int]) -> Model:
        widths = [sizes.get(f"Dense_{layer}", width) for layer, width in enumerate(hidden)]
        return build(outputs=outputs, hidden=tuple(widths))

    return Model(
        name="mlp_tiny",
        summary="a perceptron of rectified linear units with a linear head",
        options={"hidden": hidden},
        reads="vectors [samples, ..., features]",
        features=frozenset({"relu_mlp", "hidden_units"}),
        init=init,
        apply=apply,
        flops=flops,
        unit_layers=tuple(unit_layer(layer, width) for layer, width in enumerate(hidden)),
        resized=resized,
    )
