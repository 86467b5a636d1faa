"""Outputs of a model that can be differentiated in forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from jaxbench.base import Context, Model

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import PyTree


def forward_of(model: Model, ctx: Context | None = None) -> Callable[[PyTree, Any], Any]:
    """A model's outputs, `(params, inputs) -> outputs`, for differentiation in either mode.

    A recurrent model's `apply` may have a reverse mode of its own, so its `step` is iterated over
    inputs [batch, time, features].
    """
    recurrence = model.recurrence
    if recurrence is None:
        return lambda params, inputs: model.apply(params, inputs, ctx=ctx)[0]

    def iterate(params: PyTree, inputs: Float[Array, "batch time features"]) -> Array:
        def advance(hidden: Any, now: Array) -> tuple[Any, Array]:
            hidden = recurrence.step(params, hidden, now)
            return hidden, recurrence.readout(params, hidden)

        start = recurrence.initial_hidden(params, inputs.shape[:1])
        _, outputs = jax.lax.scan(advance, start, inputs.swapaxes(0, 1))
        return outputs.swapaxes(0, 1)

    return iterate
