"""The states of a recurrent model along a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

if TYPE_CHECKING:
    from jaxtyping import Array, Float


def states_along(
    step: Callable[[Array, Array], Array],
    start: Float[Array, "batch hidden"],
    inputs: Float[Array, "batch time features"],
) -> Float[Array, "batch time hidden"]:
    """The state after each step `(hidden, input) -> hidden`, from `start`."""

    def advance(hidden: Array, now: Array) -> tuple[Array, Array]:
        hidden = step(hidden, now)
        return hidden, hidden

    return jax.lax.scan(advance, start, inputs.swapaxes(0, 1))[1].swapaxes(0, 1)
