"""Training under a mask: an optimizer that neither sees nor moves what is masked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import optax

if TYPE_CHECKING:
    from jaxbench.base import PyTree


def masked_updates(
    optimizer: optax.GradientTransformation, masked: Callable[[PyTree, PyTree], PyTree]
) -> optax.GradientTransformationExtraArgs:
    """The same optimizer, whose gradient and update are masked.

    Args:
        optimizer: any optax transformation.
        masked: `(intervention_state, tree) -> tree`, with 0 for what is masked; the tree is shaped
            like the parameters.
    """
    inner = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree,
        state: PyTree,
        params: PyTree | None = None,
        *,
        intervention_state: PyTree,
        **extra: Any,
    ) -> tuple[PyTree, PyTree]:
        extra = {"intervention_state": intervention_state, **extra}
        updates = masked(intervention_state, updates)
        updates, state = inner.update(updates, state, params, **extra)
        return masked(intervention_state, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)
