"""Which axes of rectified units the data see, which units to remove, and by what to replace them.

A unit's axis is where `a_j = 0`.  On data that do not cross it the unit is affine: *on* (`a_j`
itself) or *off* (0), and can be replaced without loss on those data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError
from jaxbench.interventions.hidden_units import check_keep, top_k
from jaxbench.interventions.relu_certificates import CROSSING, OFF, ON
from jaxbench.interventions.relu_network import Network, Replacement, check_network, preacts, relu

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from jaxbench.base import Key, Scalar

Score = Literal["crossing", "kink", "magnitude", "random"]
Fill = Literal["zero", "affine", "fit"]
ROUNDING = 1e-3
"""What a number of samples `alpha * n` may lack of an integer by rounding."""


class Visibility(NamedTuple):
    """What some data see of each unit's axis [units].

    Attributes:
        kind: on (1), off (-1) or crossing (0), by quantiles.
        crossing: `min(P(a > 0), P(a <= 0))`, the share of the data on the rarer side.
        kink: `min(E a^+, E a^-)`, the mean absolute error of the better of 0 and `a` as its
            replacement.
    """

    kind: Any
    crossing: Any
    kink: Any


class Choice(NamedTuple):
    """What is removed from each hidden layer, and what replaces it: one entry a layer."""

    visibility: tuple[Visibility, ...]
    replacements: tuple[Replacement, ...]


def visibility(a: Float[Any, "samples units"], alpha: float | Scalar) -> Visibility:
    """Classify units by what the data see of their axes.

    On if at most a share `alpha` of the data has `a <= 0`, that is if its `alpha` quantile is above
    0; off if at most `alpha` has `a > 0`; else crossing.  One-sided units are those with `crossing`
    at most `alpha`; counting compiles several times faster than the sort behind a quantile.

    Args:
        a: a layer's pre-activations on the data.
        alpha: share of the data that may lie on the other side, in [0, 1/2).

    Raises:
        JaxbenchError: no data, or an alpha out of range.
    """
    if a.shape[0] == 0:
        raise JaxbenchError(
            "the visibility of axes needs at least one sample, but the batch is empty"
        )
    if isinstance(alpha, float | int) and not 0 <= alpha < 0.5:
        raise JaxbenchError(
            f"alpha is the share of data that may lie beyond an axis, at least 0 and below 0.5, "
            f"but it is {alpha}"
        )
    a = jnp.asarray(a)
    samples = a.shape[0]
    above = jnp.sum(a > 0, axis=0, dtype=a.dtype)
    few = jnp.floor(jnp.asarray(alpha, a.dtype) * samples + ROUNDING)
    kind = jnp.where(samples - above <= few, ON, jnp.where(above <= few, OFF, CROSSING))
    kink = jnp.minimum(jnp.mean(relu(a), axis=0), jnp.mean(relu(-a), axis=0))
    rarer = jnp.minimum(above, samples - above) / samples
    return Visibility(kind.astype(jnp.int32), rarer, kink)


def axis_score(
    incoming: Float[Any, "inputs units"],
    outgoing: Float[Any, "units outputs"],
    seen: Visibility,
    score: Score,
    key: Key | None = None,
) -> Float[Any, " units"]:
    """Give each unit's worth: those with the lowest are removed.

    `crossing`: `c_j |V_j|`; `kink`: `E min(a^+, a^-) |V_j|`, a bound on the mean change of the
    outputs when the unit of the last layer is replaced; `magnitude`: `|W_j| |V_j|`, blind to data;
    `random`: uniform in [0, 1), the negative control.

    Args:
        incoming: the layer's kernel `W`.
        outgoing: the next layer's kernel `V`.
        seen: of the layer's pre-activations.
        score: which of them.
        key: for `random`.

    Raises:
        JaxbenchError: `random` without a key.
    """
    if score == "random":
        if key is None:
            raise JaxbenchError("the score 'random' needs a key; give it as an argument")
        return jax.random.uniform(key, seen.crossing.shape, seen.crossing.dtype)
    carried = jnp.sqrt(jnp.sum(jnp.asarray(outgoing) ** 2, axis=1))
    if score == "magnitude":
        return jnp.sqrt(jnp.sum(jnp.asarray(incoming) ** 2, axis=0)) * carried
    return (seen.crossing if score == "crossing" else seen.kink) * carried


def kept_count(keep: float, units: int) -> int:
    """Give how many of a layer's units stay: the nearest to `keep * units`, at least one.

    Raises:
        JaxbenchError: a share that is not in (0, 1].
    """
    if not 0 < keep <= 1:
        raise JaxbenchError(
            f"keep is the share of units that stay, above 0 and at most 1, but it is {keep}"
        )
    count = max(1, math.floor(keep * units + 0.5))
    check_keep(count, units)
    return count


def affine_fit(
    a: Float[Any, "samples units"],
) -> tuple[Float[Any, " units"], Float[Any, " units"]]:
    """Fit `max(a, 0)` by `s a + t` in least squares: slope in [0, 1] and intercept, by unit."""
    centred = a - jnp.mean(a, axis=0)[None]
    value = relu(a)
    variance = jnp.mean(centred**2, axis=0)
    tiny = jnp.finfo(a.dtype).tiny
    slope = jnp.mean(centred * value, axis=0) / jnp.maximum(variance, tiny)
    slope = jnp.clip(slope, 0, 1)
    return slope, jnp.mean(value, axis=0) - slope * jnp.mean(a, axis=0)


def replacement_of(
    mask: Float[Any, " units"],
    kind: Int[Any, " units"],
    a: Float[Any, "samples units"],
    fill: Fill,
) -> Replacement:
    """Say what stands for each removed unit.

    `zero`: 0, for all; `affine`: `a` for units that are on, else 0; `fit`: also the least-squares
    `s a + t` for units that cross.

    Args:
        mask: 1 for units that stay, 0 for those that are removed.
        kind: on, off or crossing.
        a: the pre-activations on the data that decided it.
        fill: which.
    """
    removed = 1 - mask
    nothing = jnp.zeros_like(mask)
    if fill == "zero":
        return Replacement(mask, nothing, nothing)
    slope = jnp.where(kind == ON, removed, nothing)
    if fill == "affine":
        return Replacement(mask, slope, nothing)
    fitted, intercept = affine_fit(jnp.asarray(a))
    crosses = (kind == CROSSING).astype(mask.dtype) * removed
    return Replacement(mask, slope + crosses * fitted, crosses * intercept)


def choose(
    layers: Network,
    inputs: Float[Any, "samples inputs"],
    *,
    score: Score = "crossing",
    keep: float = 0.5,
    alpha: float = 0.05,
    fill: Fill = "affine",
    key: Key | None = None,
) -> Choice:
    """Choose which units of each hidden layer to remove, all at once, and by what to replace them.

    Args:
        layers: the network.
        inputs: the data that see it.
        score: the units with the lowest are removed, of equal ones those with the higher index.
        keep: share of each layer's units that stay, in (0, 1].
        alpha: as for `visibility`.
        fill: as for `replacement_of`.
        key: for the score `random`.

    Raises:
        JaxbenchError: no data, a network that does not fit or has NaN, a share out of range, or
            `random` without a key.
    """
    check_network(layers)
    values = preacts(layers, inputs)
    seen = tuple(visibility(a, alpha) for a in values)
    replacements = []
    for place, (a, view) in enumerate(zip(values, seen, strict=True)):
        own = None if key is None else jax.random.fold_in(key, place)
        worth = axis_score(layers[place][0], layers[place + 1][0], view, score, own)
        mask = top_k(worth, kept_count(keep, worth.size))
        replacements.append(replacement_of(mask, view.kind, a, fill))
    return Choice(seen, tuple(replacements))


def one_sided_replaced(kinds: Sequence[Int[Any, " units"]], dtype: Any) -> tuple[Replacement, ...]:
    """Replace every unit that is on by `a` and every one that is off by 0; keep the others."""
    return tuple(
        Replacement(
            (kind == CROSSING).astype(dtype),
            (kind == ON).astype(dtype),
            jnp.zeros(kind.shape, dtype),
        )
        for kind in kinds
    )
