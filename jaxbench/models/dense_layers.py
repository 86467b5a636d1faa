"""Affine layers whose kernels are drawn together, for models of a whole sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp

from jaxbench.models.initial_kernels import lecun_kernels

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree


def dense(key: Key, shapes: Mapping[str, tuple[int, int]]) -> PyTree:
    """Draw each layer's kernel from flax's default, with a bias of 0.

    Args:
        key: decides everything.
        shapes: (inputs, outputs) of each layer, by its name.
    """
    kernels = lecun_kernels(key, list(shapes.values()))
    return {
        name: {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1:], kernel.dtype)}
        for name, kernel in zip(shapes, kernels, strict=True)
    }


def affine(layer: PyTree, inputs: Float[Array, "samples inputs"]) -> Float[Array, "samples y"]:
    """Give `x W + b`."""
    return inputs @ layer["kernel"] + layer["bias"][None]


def flat(inputs: Float[Array, "samples ..."]) -> Float[Array, "samples inputs"]:
    """Read every sample as one vector."""
    return inputs.reshape(len(inputs), -1)
