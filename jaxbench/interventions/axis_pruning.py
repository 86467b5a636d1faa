"""`axis_pruning`: remove the rectified units whose axes the data do not see.

A unit matters only where its axis `a_j = 0` crosses the task's data; elsewhere it is 0 or affine
and can be replaced (Serra, Kumar and Ramalingam 2020).  After the dense training, the units of each
hidden layer with the lowest score are replaced, all at once, and the rest is trained on:

- score `crossing`, as in the reference report: the share of the data beyond the axis times the
  norm of the outgoing weights; `kink`: the mean error of the replacement times that norm;
  `magnitude`: incoming times outgoing norm, the baseline; `random`: the negative control;
- units that are off become 0; units that are on stay as affine functions, which `fold` turns into
  a skip around the layer (`replacement = "affine"`), or become 0 too (`"zero"`).

Arms that differ in these share the dense training.  What the explanation predicts is measured on
the network as it is before it is pruned, on test inputs.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Le, Lt

from jaxbench.base import Context, Intervention, JaxbenchError, Model, Phase
from jaxbench.interventions.axis_measures import (
    bound_measures,
    class_measures,
    compact_measures,
    milp_measures,
)
from jaxbench.interventions.axis_signatures import SIGNATURES
from jaxbench.interventions.axis_visibility import (
    Choice,
    Fill,
    Score,
    Visibility,
    affine_fit,
    axis_score,
    choose,
    kept_count,
    one_sided_replaced,
    replacement_of,
    visibility,
)
from jaxbench.interventions.hidden_units import mask_moments, mask_params, masked_optimizer
from jaxbench.interventions.relu_certificates import (
    CROSSING,
    OFF,
    ON,
    everywhere,
    hull_bounds,
    ibp,
    milp_bounds,
    sample_bounds,
    signs,
)
from jaxbench.interventions.relu_network import (
    Affine,
    Replacement,
    alive,
    compact_apply,
    dense_layers,
    fold,
    masked_apply,
    merge_dependent,
    nothing_replaced,
    preacts,
    replacement_bound,
    replacement_error,
)

if TYPE_CHECKING:
    from jaxbench.base import Batch, PyTree

__all__ = [
    "CROSSING",
    "OFF",
    "ON",
    "Affine",
    "Choice",
    "Replacement",
    "Visibility",
    "affine_fit",
    "axis_score",
    "build",
    "choose",
    "compact_apply",
    "dense_layers",
    "everywhere",
    "fold",
    "hull_bounds",
    "ibp",
    "kept_count",
    "masked_apply",
    "merge_dependent",
    "milp_bounds",
    "one_sided_replaced",
    "preacts",
    "replacement_bound",
    "replacement_error",
    "replacement_of",
    "sample_bounds",
    "signs",
    "visibility",
]


class Pruned(NamedTuple):
    """What a run carries beside its parameters.

    Attributes:
        replacements: what each hidden layer's units are replaced by.
        dense: the parameters as they were before pruning.
        done: 1 once pruned, else 0; until then the dense parameters are the present ones.
    """

    replacements: tuple[Replacement, ...]
    dense: Any
    done: Any


def alive_units(place: int, state: Pruned) -> Any:
    """Which units of a hidden layer still carry anything onwards, {0, 1} [units]."""
    return alive(state.replacements[place])


def rows(inputs: Any) -> Any:
    """Give one row [inputs] for each time that the network is run: a sample, or a sample's step."""
    return inputs.reshape(-1, inputs.shape[-1])


def with_replacements(model: Model) -> Model:
    """Make the model run with the units replaced that a run's `Pruned` state names."""

    def apply(
        params: PyTree, inputs: Any, *, ctx: Any = None, state: Any = None, key: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        if not isinstance(state, Pruned):
            return model.apply(params, inputs, ctx=ctx, state=state, key=key)
        layers = dense_layers(params, model.unit_layers)
        outputs, values = masked_apply(layers, state.replacements, inputs)
        names = (layer.name for layer in model.unit_layers)
        return outputs, dict(zip(names, values, strict=True))

    return dataclasses.replace(model, apply=apply)


def build(
    *,
    score: Score = "crossing",
    keep: Annotated[float, Gt(0), Le(1)] = 0.5,
    replacement: Fill = "affine",
    alpha: Annotated[float, Ge(0), Lt(0.5)] = 0.05,
    samples: Annotated[int, Ge(1)] = 400,
    dense_epochs: Annotated[int, Ge(1)] = 12,
    finetune_epochs: Annotated[int, Ge(0)] = 4,
    low: float = 0.0,
    high: float = 1.0,
    milp_units: Annotated[int, Ge(0)] = 0,
    milp_seconds: Annotated[float, Gt(0)] = 10.0,
) -> Intervention:
    """Remove the units of a rectified perceptron whose axes the data see least, then train on.

    Args:
        score: the units with the lowest are removed.
        keep: share of each hidden layer's units that stay.
        replacement: what removed units become: `zero`; `affine`, themselves where they are on, else
            0; `fit`, also a least-squares line where they cross.
        alpha: share of the data that may lie beyond the axis of a one-sided unit.
        samples: how many of the first training samples see the network.
        dense_epochs: epochs before pruning.
        finetune_epochs: epochs after it; with `dense_epochs` they make up `training.epochs`.
        low: the least value that an input can have, for certificates on the whole domain.
        high: the greatest.
        milp_units: units of each layer, of those that interval bounds leave open, that are
            certified by mixed-integer programming; at 64 units the second layer takes minutes each.
        milp_seconds: longest time of each of a unit's two bounds.
    """
    static = dict(locals())
    if low > high:
        raise JaxbenchError(f"the inputs' domain is from low to high, but it is {low} to {high}")

    decide = jax.jit(partial(choose, score=score, keep=keep, alpha=alpha, fill=replacement))

    def choice_of(ctx: Context, params: PyTree) -> tuple[tuple[Affine, ...], Choice]:
        layers = dense_layers(params, ctx.model.unit_layers)
        return layers, decide(layers, rows(ctx.probe.inputs), key=ctx.key)

    def init_state(ctx: Context) -> Pruned:
        layers = dense_layers(ctx.params0, ctx.model.unit_layers)
        return Pruned(nothing_replaced(layers), ctx.params0, jnp.zeros((), jnp.int32))

    def wrap_optimizer(optimizer: Any, ctx: Context) -> Any:
        for place, layer in enumerate(ctx.model.unit_layers):
            optimizer = masked_optimizer(optimizer, layer, partial(alive_units, place))
        return optimizer

    def surgery(
        ctx: Context, params: PyTree, opt_state: PyTree, state: Pruned
    ) -> tuple[PyTree, PyTree, Pruned]:
        del state
        _, choice = choice_of(ctx, params)
        dense = params
        for layer, by in zip(ctx.model.unit_layers, choice.replacements, strict=True):
            params = mask_params(params, layer, alive(by))
            opt_state = mask_moments(opt_state, params, layer, alive(by))
        return params, opt_state, Pruned(choice.replacements, dense, jnp.ones((), jnp.int32))

    def dense_of(params: PyTree, state: Pruned) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(state.done > 0, a, b), state.dense, params)

    def measure(ctx: Context, params: PyTree, state: Pruned, test: Batch) -> dict[str, Any]:
        layers, choice = choice_of(ctx, dense_of(params, state))
        data, seen = rows(ctx.probe.inputs), rows(test.inputs)
        return {
            **class_measures(layers, choice, data, seen, low, high),
            **bound_measures(layers, choice, data, seen),
        }

    def measure_host(ctx: Context, params: PyTree, state: Pruned, test: Batch) -> dict[str, Any]:
        trained = dense_layers(params, ctx.model.unit_layers)
        seen = rows(test.inputs)
        measured = compact_measures(trained, state.replacements, seen)
        if milp_units:
            layers, choice = choice_of(ctx, state.dense if state.done else params)
            measured |= milp_measures(layers, choice, seen, low, high, milp_units, milp_seconds)
        return measured

    phases = (Phase(dense_epochs, surgery), Phase(finetune_epochs))
    return Intervention(
        name="axis_pruning",
        summary="remove the rectified units whose axes the data do not see",
        static=static,
        requires=frozenset({"relu_mlp"}),
        limitations=(
            "units are chosen all at once, on the dense network: removing units of one layer moves "
            "the axes of the next",
            "a unit that is one-sided on the training samples may cross on others; only "
            "certificates on the whole domain exclude it, and few units have one",
            "affine units that are kept as skips cost parameters; unfolded, folded and dense "
            "counts are reported",
        ),
        probe_size=samples,
        wrap_model=with_replacements,
        init_state=init_state,
        wrap_optimizer=wrap_optimizer,
        phases=phases if finetune_epochs else phases[:1],
        measure=measure,
        measure_host=measure_host,
        surgery_static=(
            "score",
            "keep",
            "replacement",
            "alpha",
            "samples",
            "low",
            "high",
            "milp_units",
            "milp_seconds",
        ),
        signatures=SIGNATURES,
    )
