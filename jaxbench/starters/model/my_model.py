"""`my_model`: a network of one hidden layer of sines, `W_2 sin(W_1 x + b_1) + b_2`.

Replace `forward` and `initial` by your own network, in plain jax or in any library that gives
parameters as a nested dict; all attributes are described in `jaxbench.base.Model`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge

from jaxbench.base import Model


def initial(key: jax.Array, features: int, hidden: int, outputs: int) -> dict[str, Any]:
    """Draw kernels with variance 1 / inputs; biases are 0."""
    first, second = jax.random.split(key)
    return {
        "hidden": {
            "kernel": jax.random.normal(first, (features, hidden)) / math.sqrt(features),
            "bias": jnp.zeros(hidden),
        },
        "output": {
            "kernel": jax.random.normal(second, (hidden, outputs)) / math.sqrt(hidden),
            "bias": jnp.zeros(outputs),
        },
    }


def forward(params: dict[str, Any], inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Compute outputs [..., outputs], and the hidden states for ideas that read them."""
    waves = jnp.sin(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return waves @ params["output"]["kernel"] + params["output"]["bias"], {"hidden": waves}


def build(*, outputs: int, hidden: Annotated[int, Ge(1)] = 16) -> Model:
    """Build the model.

    Args:
        outputs: width of the outputs; the track gives it.
        hidden: units of the hidden layer.
    """

    def init(key: jax.Array, inputs: Any) -> dict[str, Any]:
        return initial(key, inputs.shape[-1], hidden, outputs)

    def apply(params: Any, inputs: Any, *, ctx: Any = None, state: Any = None, key: Any = None):  # type: ignore[no-untyped-def]
        return forward(params, inputs)

    return Model(
        name="my_model",
        summary="one hidden layer of sines",
        options={"hidden": hidden},
        features=frozenset(),
        init=init,
        apply=apply,
        flops=lambda shape: 2.0 * hidden * (shape[-1] + outputs),
        reads="vectors [samples, ..., features]",
    )
