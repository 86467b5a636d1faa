"""Pruning of hidden units with a score of one's choice: at once, or in rounds while training.

The scores are those of `unit_scores` and `group_scores`, the weights' norms, chance, and movement,
the sum of `-theta dL/dtheta` over a unit's outgoing weights and the steps of training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import optax

from jaxbench.base import Batch, JaxbenchError, UnitLayer
from jaxbench.interventions.group_scores import parameter_information
from jaxbench.interventions.hidden_units import (
    check_finite,
    check_keep,
    fold,
    mask_params,
    top_k,
    unit_norms,
    unit_products,
)
from jaxbench.interventions.unit_scores import (
    Forward,
    compensation,
    conditional,
    fisher,
    greedy_obs,
    marginal,
    mask_jacobian,
    taylor,
)

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

Kind = Literal[
    "conditional", "marginal", "greedy", "taylor", "parameters", "magnitude", "movement", "random"
]

# --------------------------------------------------------------------------------------------------
# Pruning
# --------------------------------------------------------------------------------------------------


def scores(
    kind: Kind,
    params: PyTree,
    layer: UnitLayer,
    F: Float[Array, "units units"],
    g: Float[Array, " units"],
    *,
    ridge: float = 1e-3,
    information: Float[Array, " units"] | None = None,
    movement: Float[Array, " units"] | None = None,
    key: Key | None = None,
) -> Float[Array, " units"]:
    """What each unit is worth, by one of the kinds; the lowest are to be removed.

    Args:
        kind: which score.
        params: any parameter pytree.
        layer: its units.
        F: the Fisher matrix of the masks, for the kinds that are made of it.
        g: the gradient of the masks.
        ridge: of `damped`, as a share of F's mean eigenvalue.
        information: of `parameter_information`, for `parameters`.
        movement: what was accumulated, for `movement`.
        key: for `random`.

    Raises:
        JaxbenchError: `parameters`, `movement` or `random` without its argument.
    """
    match kind:
        case "conditional":
            return conditional(F, ridge)
        case "marginal":
            return marginal(F)
        case "greedy":
            return greedy_obs(F, 1, ridge).step.astype(F.dtype)
        case "taylor":
            return taylor(g)
        case "magnitude":
            return unit_norms(params, layer, ("outgoing",))
        case "parameters" if information is not None:
            return information
        case "movement" if movement is not None:
            return movement
        case "random" if key is not None:
            return jax.random.uniform(key, (layer.size,), F.dtype)
    needed = {
        "parameters": "the information of the parameters",
        "movement": "the movement accumulated in training",
        "random": "a key",
    }
    raise JaxbenchError(f"the score {kind!r} needs {needed[kind]}; give it as an argument")


def prune(
    forward: Forward,
    params: PyTree,
    layer: UnitLayer,
    batch: Batch,
    *,
    keep: int,
    kind: Kind = "conditional",
    ridge: float = 1e-3,
    compensate: bool = False,
    rows: int = 512,
    **more: Any,
) -> tuple[PyTree, Float[Array, " units"]]:
    """Remove all but the `keep` best units of a layer at once: (masked parameters, mask).

    `compact(params, layer, kept_units(mask))` of the result is the smaller network.

    Args:
        forward: the network, `(params, inputs) -> outputs`.
        params: its parameters, any pytree.
        layer: its units.
        batch: training data to score them on.
        keep: how many units stay.
        kind: the score.
        ridge: of `damped`.
        compensate: whether to scale the units that stay so as to make up for the others.
        rows: outputs whose derivatives `parameters` takes.
        **more: `movement` or `key`, for the scores that need them.

    Raises:
        JaxbenchError: `keep` is not in 1..units, parameters that are not finite, a batch without
            samples, or parameters without the layer's leaves.
    """
    check_keep(keep, layer.size)
    check_finite(params)
    F, g = fisher(*mask_jacobian(forward, params, layer, batch))
    if kind == "parameters":
        more["information"] = parameter_information(
            forward, params, layer, batch, ridge=ridge, rows=rows
        )
    mask = top_k(scores(kind, params, layer, F, g, ridge=ridge, **more), keep)
    return masked(params, layer, mask, F, ridge if compensate else None), mask


def masked(
    params: PyTree,
    layer: UnitLayer,
    mask: Float[Array, " units"],
    F: Float[Array, "units units"],
    ridge: float | None,
) -> PyTree:
    """The parameters without the masked units; with a ridge, the others make up for them."""
    if ridge is not None:
        params = fold(params, layer, 1 + compensation(F, mask, ridge))
    return mask_params(params, layer, mask)


def keep_schedule(units: int, keep: int, rounds: int) -> tuple[int, ...]:
    """How many units stay after each round: geometric, `units (keep / units)^(r / rounds)`.

    Raises:
        JaxbenchError: `keep` is not in 1..units.
    """
    check_keep(keep, units)
    return tuple(round(units * (keep / units) ** (r / rounds)) for r in range(1, rounds + 1))


def split_evenly(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole numbers that differ by one at most, the larger first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


# --------------------------------------------------------------------------------------------------
# Movement
# --------------------------------------------------------------------------------------------------


class MovementState(NamedTuple):
    """The movement accumulated so far [units], and the state of the optimizer inside."""

    movement: Float[Array, " units"]
    inner: Any


def track_movement(
    optimizer: optax.GradientTransformation, layer: UnitLayer
) -> optax.GradientTransformationExtraArgs:
    """The same optimizer, which also accumulates each unit's `-sum theta dL/dtheta`, outgoing.

    That is `-dL/dm_j`, the loss's gradient by the unit's mask (Sanh et al. 2020).
    """
    inner = optax.with_extra_args_support(optimizer)

    def init(params: PyTree) -> MovementState:
        return MovementState(0 * unit_norms(params, layer), inner.init(params))

    def update(
        updates: PyTree, state: MovementState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, MovementState]:
        if params is None:
            raise JaxbenchError(
                "movement needs the parameters; pass them to the optimizer's update"
            )
        moved = state.movement - unit_products(params, updates, layer, ("outgoing",))
        updates, inner_state = inner.update(updates, state.inner, params, **extra)
        return updates, MovementState(moved, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)
