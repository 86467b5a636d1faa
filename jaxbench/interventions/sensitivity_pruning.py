"""`sensitivity_pruning`: remove the hidden units whose information the others already carry.

A network is trained densely, its hidden units are scored on training data, the lowest are removed,
and what is left is fine-tuned.  Arms that differ in the score share the dense training.  The idea's
score is `conditional` (see `unit_scores`); the others are its rivals:

- `magnitude`: the norm of a unit's outgoing weights; `random`;
- `marginal`, `conditional`, `taylor`: by the Fisher matrix and the gradient of the masks;
- `greedy`: the step at which the surgeon removes a unit, refitting after each;
- `movement`: `-sum theta dL/dtheta` over a unit's outgoing weights and the steps since the last
  removal, positive where training moves them away from zero (Sanh et al. 2020).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt

from jaxbench.base import Batch, Context, Intervention, JaxbenchError, Phase, UnitLayer
from jaxbench.interventions.forward_mode import forward_of
from jaxbench.interventions.hidden_units import (
    check_keep,
    compact,
    fold,
    kept_units,
    mask_moments,
    mask_params,
    masked_optimizer,
    top_k,
    unit_norms,
)
from jaxbench.interventions.sensitivity_signatures import SIGNATURES
from jaxbench.interventions.unit_pruning import (
    Kind,
    MovementState,
    keep_schedule,
    masked,
    prune,
    scores,
    split_evenly,
    track_movement,
)
from jaxbench.interventions.unit_scores import (
    ablation,
    compensation,
    conditional,
    conditioning,
    fisher,
    greedy_obs,
    marginal,
    mask_jacobian,
    masked_loss,
    refit,
    taylor,
)

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Model, PyTree

__all__ = [
    "ablation",
    "build",
    "compact",
    "compensation",
    "conditional",
    "conditioning",
    "fisher",
    "fold",
    "greedy_obs",
    "keep_schedule",
    "kept_units",
    "marginal",
    "mask_jacobian",
    "mask_params",
    "prune",
    "refit",
    "scores",
    "taylor",
    "top_k",
    "unit_norms",
]

# --------------------------------------------------------------------------------------------------
# The intervention
# --------------------------------------------------------------------------------------------------


class PruningState(NamedTuple):
    """What a run carries.

    Attributes:
        mask: 1 for the units that are still there [units].
        score: the units' scores at the first removal, 0 before it [units].
        dense: the parameters before the first removal, the initial ones until then.
    """

    mask: Float[Array, " units"]
    score: Float[Array, " units"]
    dense: PyTree


def layer_of(model: Model, name: str | None, keep: int) -> UnitLayer:
    """The layer of this name, or the only one.

    Raises:
        JaxbenchError: there is none, or several and no name, or it has fewer than `keep` units.
    """
    names = [layer.name for layer in model.unit_layers]
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        wanted = "one named layer" if name is None else f"the layer {name!r}"
        raise JaxbenchError(
            f"sensitivity_pruning prunes {wanted} of hidden units; {model.name!r} has "
            f"{', '.join(names) or 'none'}"
        )
    layer = model.unit_layers[names.index(name)]
    check_keep(keep, layer.size)
    return layer


def build(
    *,
    kind: Kind = "conditional",
    keep: Annotated[int, Ge(1)] = 32,
    rounds: Annotated[int, Ge(1)] = 1,
    dense_epochs: Annotated[int, Ge(1)] = 10,
    finetune_epochs: Annotated[int, Ge(1)] = 5,
    ridge: Annotated[float, Gt(0)] = 1e-3,
    sequences: Annotated[int, Ge(1)] = 64,
    compensate: bool = False,
    layer: str | None = None,
    refit_sequences: Annotated[int, Ge(1)] = 16,
    refit_steps: Annotated[int, Ge(0)] = 8,
) -> Intervention:
    """Dense training, removal of hidden units, fine-tuning of the others.

    Args:
        kind: the score by which units stay.
        keep: how many stay in the end.
        rounds: removals, geometric from all units to `keep`, each with a share of the fine-tuning.
        dense_epochs: before the first removal.
        finetune_epochs: after it, over all rounds; with `dense_epochs` those of the training.
        ridge: damping of the Fisher matrix, as a share of its mean eigenvalue.
        sequences: training samples that score the units, and test samples of the signatures.
        compensate: whether a removal scales the other units to make up for it.
        layer: which layer of the model; if not given, its only one.
        refit_sequences: training samples of the signatures' refits.
        refit_steps: Gauss-Newton steps of each refit, one for each unit.
    """
    if rounds > finetune_epochs:
        raise JaxbenchError(
            f"{rounds} rounds need at least as many epochs of fine-tuning, but finetune_epochs is "
            f"{finetune_epochs}"
        )

    def the_layer(ctx: Context) -> UnitLayer:
        return layer_of(ctx.model, layer, keep)

    def init_state(ctx: Context) -> PruningState:
        zeros = 0 * unit_norms(ctx.params0, the_layer(ctx))
        return PruningState(zeros + 1, zeros, ctx.params0)

    def wrap_optimizer(optimizer: Any, ctx: Context) -> Any:
        units = the_layer(ctx)
        return track_movement(masked_optimizer(optimizer, units, lambda s: s.mask), units)

    def surgery(
        number: int, ctx: Context, params: PyTree, opt_state: MovementState, state: PruningState
    ) -> tuple[PyTree, PyTree, PyTree]:
        units = the_layer(ctx)
        left = keep_schedule(units.size, keep, rounds)[number]
        F, g = fisher(*mask_jacobian(forward_of(ctx.model, ctx), params, units, ctx.probe))
        score = scores(
            kind, params, units, F, g, ridge=ridge, movement=opt_state.movement,
            key=jax.random.fold_in(ctx.key, number),
        )  # fmt: skip
        mask = top_k(jnp.where(state.mask > 0, score, -jnp.inf), left)
        if number == 0:
            state = PruningState(mask, score, params)
        pruned = masked(params, units, mask, F, ridge if compensate else None)
        moments = mask_moments(opt_state.inner, params, units, mask)
        opt_state = MovementState(0 * opt_state.movement, moments)
        return pruned, opt_state, state._replace(mask=mask)

    def measure(ctx: Context, params: PyTree, state: PruningState, test: Batch) -> dict[str, Any]:
        units, forward = the_layer(ctx), forward_of(ctx.model, ctx)
        S, e = mask_jacobian(forward, state.dense, units, ctx.probe)
        F, _ = fisher(S, e)
        condition, collinearity = conditioning(S)
        after, _ = mask_jacobian(forward, params, units, ctx.probe)
        condition_after, collinearity_after = conditioning(after[:, kept_first(state.mask, keep)])
        test = first(test, sequences)
        loss = masked_loss(forward, state.dense, units, test)
        own = masked_loss(forward, state.dense, units, first(ctx.probe, refit_sequences))
        dense_loss = loss(jnp.ones_like(state.mask))

        def remove(unit: Array) -> tuple[Array, Array]:
            return loss(1 - unit), loss(refit(own, F, 1 - unit, ridge, refit_steps))

        raw, refitted = jax.lax.map(remove, jnp.eye(units.size, dtype=F.dtype))
        return {
            "score": state.score,
            "mask": state.mask,
            "marginal": marginal(F),
            "conditional": conditional(F, ridge),
            "magnitude": unit_norms(state.dense, units, ("outgoing",)),
            "raw_ablation": raw - dense_loss,
            "refitted_ablation": refitted - dense_loss,
            "condition_before": condition,
            "condition_after": condition_after,
            "collinearity_before": collinearity,
            "collinearity_after": collinearity_after,
            "dense_loss": dense_loss,
            "pruned_loss": loss(state.mask),
            "tuned_loss": masked_loss(forward, params, units, test)(state.mask),
        }

    epochs = [dense_epochs, *split_evenly(finetune_epochs, rounds)]
    surgeries = [functools.partial(surgery, number) for number in range(rounds)]
    return Intervention(
        name="sensitivity_pruning",
        summary="remove the hidden units whose information the others already carry",
        static={
            "kind": kind,
            "keep": keep,
            "rounds": rounds,
            "dense_epochs": dense_epochs,
            "finetune_epochs": finetune_epochs,
            "ridge": ridge,
            "sequences": sequences,
            "compensate": compensate,
            "layer": layer,
            "refit_sequences": refit_sequences,
            "refit_steps": refit_steps,
        },
        surgery_static=(
            "kind",
            "keep",
            "rounds",
            "ridge",
            "compensate",
            "refit_sequences",
            "refit_steps",
        ),
        requires=frozenset({"hidden_units", "regression"}),
        limitations=(
            "Sensitivities are those of the mean squared error, to second order around the trained "
            "network, on the first training samples.",
            "Units are removed by their mask; what the smaller network saves in time is not "
            "measured here.",
        ),
        probe_size=sequences,
        init_state=init_state,
        wrap_optimizer=wrap_optimizer,
        phases=tuple(map(Phase, epochs, [*surgeries, None])),
        measure=measure,
        signatures=SIGNATURES,
    )


def kept_first(mask: Float[Array, " units"], keep: int) -> Array:
    """The indices of the `keep` units whose mask is 1, in a program."""
    return jnp.argsort(-mask, stable=True)[:keep]


def first(batch: Batch, count: int) -> Batch:
    """The first samples of a batch."""
    return jax.tree.map(lambda leaf: leaf[:count], batch)
