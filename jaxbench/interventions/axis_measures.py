"""What `axis_pruning` measures on a network: classes, certificates, errors and their bound."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.interventions.axis_visibility import Choice, one_sided_replaced, visibility
from jaxbench.interventions.relu_certificates import (
    CROSSING,
    OFF,
    ON,
    Interval,
    everywhere,
    hull_bounds,
    ibp,
    milp_bounds,
    sample_bounds,
    signs,
)
from jaxbench.interventions.relu_network import (
    Affine,
    Network,
    Replacement,
    alive,
    compact_apply,
    flops,
    fold,
    masked_apply,
    nothing_replaced,
    parameter_count,
    preacts,
    relu,
    replacement_bound,
    replacement_error,
)

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    Kinds = Sequence[Int[Any, " units"]]

THRESHOLDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
DOMAINS = ("quantile", "sample", "hull", "box", "everywhere")
"""What decides a unit's class: the choice's own quantiles, and four certificates."""
MEASURABLE = 1e-3
"""Smallest bound, relative to the outputs, whose tightness float32 can tell."""


def certified_kinds(
    layers: Network, data: Float[Any, "samples inputs"], low: float, high: float
) -> dict[str, tuple[Int[Any, " units"], ...]]:
    """Say which units of each hidden layer each domain certifies as on or off.

    Args:
        layers: the network.
        data: `sample` is these inputs, and `hull` their convex hull (first layer only).
        low: `box` reaches from here for every input,
        high: to here.
    """
    first = layers[0][0]
    lows, highs = (jnp.full(first.shape[0], end, first.dtype) for end in (low, high))
    box = tuple(signs(bounds) for bounds in ibp(layers, lows, highs)[:-1])
    undecided = tuple(jnp.full_like(kind, CROSSING) for kind in box)
    return {
        "sample": tuple(signs(bounds) for bounds in sample_bounds(layers, data)),
        "hull": (signs(hull_bounds(layers, data)), *undecided[1:]),
        "box": box,
        "everywhere": everywhere(layers),
    }


def largest_errors(
    a: Float[Any, "samples units"], kinds: Int[Any, "sets units"]
) -> tuple[Float[Any, " sets"], Float[Any, " sets"]]:
    """Give the largest error of replacing units by 0 where they are off, by `a` where they are on.

    Args:
        a: pre-activations on the data where it is measured.
        kinds: on or off for the units that are replaced, crossing for the others; several sets.

    Returns:
        the largest error of each set, and the largest relative to its unit's largest `|a|`.
    """
    a = jnp.asarray(a)
    zero = jnp.zeros((), a.dtype)
    on, off = (kinds == ON)[:, None], (kinds == OFF)[:, None]
    errors = jnp.where(on, relu(-a)[None], jnp.where(off, relu(a)[None], zero)).max(axis=1)
    size = jnp.maximum(jnp.max(jnp.abs(a), axis=0), jnp.finfo(a.dtype).tiny)
    return errors.max(axis=1), (errors / size[None]).max(axis=1)


def class_measures(
    layers: Network,
    choice: Choice,
    data: Float[Any, "samples inputs"],
    test: Float[Any, "patch inputs"],
    low: float,
    high: float,
) -> dict[str, Any]:
    """Count classes, of all units and of the removed ones, and measure the errors of the removed.

    Counts are [layers, domains, (off, crossing, on)] in the order of `DOMAINS`.  Errors are those
    of the removed units in three sets: `one_sided` (by quantiles), `sampled` (one-sided on every
    sample) and `certified` (on the box or everywhere).

    Args:
        layers: the network before it is pruned.
        choice: what is removed.
        data: on which it was chosen.
        test: on which errors are measured.
        low: least value of every input.
        high: greatest value.
    """
    certified = certified_kinds(layers, data, low, high)
    by_layer = {"quantile": tuple(view.kind for view in choice.visibility), **certified}
    sizes = [bias.size for _, bias in layers[:-1]]
    kinds = jnp.stack([jnp.concatenate(by_layer[domain]) for domain in DOMAINS])
    removed = jnp.concatenate([by.mask == 0 for by in choice.replacements])
    member = np.eye(len(sizes), dtype=np.int32)[np.repeat(np.arange(len(sizes)), sizes)]
    classes = (kinds[..., None] == np.array([OFF, CROSSING, ON])[None, None]).astype(jnp.int32)
    quantile, sample, _, box, always = kinds
    sets = jnp.stack([quantile, sample, jnp.where(box == CROSSING, always, box)])
    sets = jnp.where(removed[None], sets, CROSSING)
    errors, relative = largest_errors(jnp.concatenate(preacts(layers, test), axis=1), sets)
    measured = {
        "units": jnp.einsum("duc,ul->ldc", classes, member),
        "removed": jnp.einsum("duc,u,ul->ldc", classes, removed.astype(jnp.int32), member),
        "outside_box": jnp.mean((test < low) | (test > high), dtype=test.dtype),
    }
    for place, name in enumerate(("one_sided", "sampled", "certified")):
        measured[f"{name}_units"] = jnp.sum(sets[place] != CROSSING)
        measured[f"{name}_error"] = errors[place]
        measured[f"{name}_relative_error"] = relative[place]
    return measured


def bound_measures(
    layers: Network,
    choice: Choice,
    data: Float[Any, "samples inputs"],
    test: Float[Any, "patch inputs"],
) -> dict[str, Any]:
    """Measure how far outputs move when one-sided units are replaced, beside the bound of it.

    At each of `THRESHOLDS`, every unit that is one-sided on the data at that `alpha` is replaced,
    in all layers: mean move and mean bound, and the largest excess of a move over its bound.
    `tightness` is the least ratio of move to bound where a single unit of the last layer errs, of
    the units one-sided at the choice's own `alpha`; it is 1 where no sample has one.

    Args:
        layers: the network before it is pruned.
        choice: what is removed.
        data: on which units are classified.
        test: on which outputs are compared.
    """
    outputs, values = masked_apply(layers, nothing_replaced(layers), test)
    data_values = preacts(layers, data)
    scale = jnp.max(jnp.abs(outputs))

    def moved(replacements: Sequence[Replacement]) -> Any:
        other, _ = masked_apply(layers, replacements, test)
        return jnp.sqrt(jnp.sum((other - outputs) ** 2, axis=1))

    def at(threshold: Array) -> dict[str, Any]:
        kinds = [visibility(a, threshold).kind for a in data_values]
        by = one_sided_replaced(kinds, outputs.dtype)
        move, bound = moved(by), replacement_bound(layers, by, test)
        return {
            "threshold_units": sum(jnp.sum(kind != CROSSING) for kind in kinds),
            "threshold_move": jnp.mean(move),
            "threshold_bound": jnp.mean(bound),
            "threshold_excess": jnp.max(move - bound),
        }

    last = len(values) - 1
    alone = [
        view.kind if place == last else jnp.full_like(view.kind, CROSSING)
        for place, view in enumerate(choice.visibility)
    ]
    by = one_sided_replaced(alone, outputs.dtype)
    errs = jnp.sum(replacement_error(values[last], by[last]) > 0, axis=1)
    bound = replacement_bound(layers, by, test)
    single = (errs == 1) & (bound > MEASURABLE * scale)
    ratio = jnp.where(single, moved(by) / jnp.where(single, bound, 1), 1)
    return {
        "output_scale": scale,
        "tightness": jnp.min(ratio),
        "single_errors": jnp.sum(single),
        "pruning_move": jnp.mean(moved(choice.replacements)),
        **jax.vmap(at)(jnp.asarray(THRESHOLDS, outputs.dtype)),
    }


def compact_measures(
    layers: Network, replacements: Sequence[Replacement], test: Float[Any, "patch inputs"]
) -> dict[str, Any]:
    """Fold a pruned network on the host in float64, count it, and compare it with the masked one.

    Args:
        layers: the network as trained under its replacements.
        replacements: of each hidden layer.
        test: inputs on which the two are compared.
    """
    exact = [Affine(*(np.asarray(leaf, np.float64) for leaf in each)) for each in layers]
    by = [Replacement(*(np.asarray(part, np.float64) for part in each)) for each in replacements]
    inputs = np.asarray(test, np.float64)
    small, whole = fold(exact, by), fold(exact, nothing_replaced(exact))
    outputs = masked_apply(exact, by, inputs)[0]
    widths = [exact[0].kernel.shape[0], *(int(alive(each).sum()) for each in by)]
    widths.append(exact[-1].bias.size)
    unfolded = sum((a + 1) * b for a, b in itertools.pairwise(widths))
    return {
        "dense_parameters": parameter_count(whole),
        "compact_parameters": parameter_count(small),
        "unfolded_parameters": unfolded,
        "dense_flops": flops(whole),
        "compact_flops": flops(small),
        "compact_difference": np.abs(compact_apply(small, inputs) - outputs).max(),
    }


def milp_measures(
    layers: Network,
    choice: Choice,
    test: Float[Any, "patch inputs"],
    low: float,
    high: float,
    units: int,
    seconds: float,
) -> dict[str, Any]:
    """Certify removed one-sided units by mixed-integer programming, on the host.

    In each layer the first `units` of those that interval bounds leave open.  Counts are [layers,
    (tried, off, on, cut short)]; `milp_relative_error` is the largest error on the test inputs of
    those that it certified, as in `worst_errors`.
    """
    exact = [Affine(*(np.asarray(leaf, np.float64) for leaf in each)) for each in layers]
    lows, highs = (np.full(exact[0].kernel.shape[0], end, np.float64) for end in (low, high))
    box = [signs(bounds) for bounds in ibp(exact, lows, highs)[:-1]]
    counts, worst, certified = [], 0.0, 0
    for place, a in enumerate(preacts(exact, np.asarray(test, np.float64))):
        kind = np.asarray(choice.visibility[place].kind)
        gone = np.asarray(choice.replacements[place].mask) == 0
        open_units = np.flatnonzero(gone & (kind != CROSSING) & (box[place] == CROSSING))[:units]
        found = np.full(kind.shape, CROSSING)
        cut = 0
        for unit in open_units:
            bounds = milp_bounds(exact, lows, highs, place, int(unit), seconds)
            one = Interval(*(np.array([end]) for end in bounds[:2]))
            found[unit] = signs(one)[0]
            cut += not (bounds.exact_low and bounds.exact_high)
        _, relative = largest_errors(a, found[None])
        worst = max(worst, float(relative[0]))
        certified += int((found != CROSSING).sum())
        counts.append([len(open_units), (found == OFF).sum(), (found == ON).sum(), cut])
    return {
        "milp": np.array(counts),
        "milp_units": certified,
        "milp_relative_error": worst,
    }
