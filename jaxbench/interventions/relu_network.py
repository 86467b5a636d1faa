"""Networks of rectified linear units, units replaced by affine functions, and smaller equals.

A network is a sequence of affine layers `(W_l [inputs, units], b_l [units])` with a rectifier
between them: `h_0 = x`, `a_l = h_{l-1} W_l + b_l`, `h_l = max(a_l, 0)`; the last layer is the head.
Each hidden unit's axis `a_j = 0` cuts its inputs in two; on either side the unit is affine, so a
unit whose axis the data do not cross can be *replaced* by 0 or by `a_j` itself, and folded away.

Functions take numpy or jax arrays alike, and give what they are given.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import qr

from jaxbench.base import JaxbenchError, UnitLayer
from jaxbench.interventions.hidden_units import check_finite, leaf_at

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from jaxbench.base import PyTree


class Affine(NamedTuple):
    """One layer, `a = h W + b`: `kernel` [inputs, units] and `bias` [units]."""

    kernel: Any
    bias: Any


class Replacement(NamedTuple):
    """What each unit of a layer gives in place of `max(a, 0)`: `m max(a, 0) + s a + t` [units].

    A kept unit has `mask` 1; a removed one has 0 and is `slope * a + intercept`.
    """

    mask: Any
    slope: Any
    intercept: Any


Network = Sequence[Affine | tuple[Any, Any]]

# --------------------------------------------------------------------------------------------------
# The network
# --------------------------------------------------------------------------------------------------


def dense_layers(params: PyTree, unit_layers: Sequence[UnitLayer]) -> tuple[Affine, ...]:
    """Find the affine layers of a perceptron from what its hidden layers say of their slices.

    Args:
        params: any parameter pytree.
        unit_layers: in order; each with the slices of one kernel and bias that make it, and of the
            kernel, with its bias, that carries it onwards.

    Raises:
        JaxbenchError: a leaf that is not there, slices of another form, or widths that do not fit.
    """
    layers = []
    for place, layer in enumerate(unit_layers):
        makes = [piece for piece in layer.slices if piece.role == "incoming"]
        carries = [piece for piece in layer.slices if piece.role == "outgoing"]
        kernels = [piece.leaf for piece in makes if piece.axis == 1]
        biases = [piece.leaf for piece in makes if piece.axis == 0]
        if len(kernels) != 1 or len(biases) != 1 or len(carries) != 1 or carries[0].bias is None:
            raise JaxbenchError(
                f"the layer {layer.name!r} must have one incoming kernel [inputs, units] and bias "
                "[units], and one outgoing kernel [units, outputs] that names its bias"
            )
        layers.append(Affine(leaf_at(params, kernels[0]), leaf_at(params, biases[0])))
        if place == len(unit_layers) - 1:
            head = carries[0]
            assert head.bias is not None
            layers.append(Affine(leaf_at(params, head.leaf), leaf_at(params, head.bias)))
    check_network(layers)
    return tuple(layers)


def check_network(layers: Network) -> None:
    """Refuse layers that do not fit each other, fewer than two of them, and NaN."""
    shapes = [(np.shape(kernel), np.shape(bias)) for kernel, bias in layers]
    good = len(shapes) >= 2 and all(
        len(kernel) == 2 and bias == kernel[1:] for kernel, bias in shapes
    )
    if not good or any(a[0][1] != b[0][0] for a, b in itertools.pairwise(shapes)):
        raise JaxbenchError(
            "a perceptron is at least two layers (kernel [inputs, units], bias [units]), each as "
            f"wide as the next one's inputs, but the shapes are {shapes}"
        )
    check_finite([tuple(layer) for layer in layers])


def relu(a: Any) -> Any:
    """Give `max(a, 0)`, with derivative 0 at 0."""
    return np.maximum(a, 0) if isinstance(a, np.ndarray) else jax.nn.relu(a)


def affine(layer: Affine | tuple[Any, Any], inputs: Float[Any, "samples inputs"]) -> Any:
    """Give `h W + b` [samples, units]."""
    kernel, bias = layer
    return inputs @ kernel + bias[None]


def preacts(
    layers: Network, inputs: Float[Any, "samples inputs"]
) -> tuple[Float[Any, "samples units"], ...]:
    """Give the pre-activations `a_l` of every hidden layer."""
    values, value = [], inputs
    for layer in layers[:-1]:
        values.append(affine(layer, value))
        value = relu(values[-1])
    return tuple(values)


# --------------------------------------------------------------------------------------------------
# Units replaced
# --------------------------------------------------------------------------------------------------


def nothing_replaced(layers: Network) -> tuple[Replacement, ...]:
    """Give the replacements that keep every unit of every hidden layer."""
    one = [(bias * 0 + 1, bias * 0, bias * 0) for _, bias in layers[:-1]]
    return tuple(Replacement(*each) for each in one)


def replaced(a: Float[Any, "samples units"], by: Replacement) -> Any:
    """Give what the units give in place of `max(a, 0)`: `m max(a, 0) + s a + t`."""
    return by.mask[None] * relu(a) + by.slope[None] * a + by.intercept[None]


def masked_apply(
    layers: Network, replacements: Sequence[Replacement], inputs: Float[Any, "samples inputs"]
) -> tuple[Float[Any, "samples outputs"], tuple[Float[Any, "samples units"], ...]]:
    """Run the network with its units replaced: its outputs and hidden pre-activations.

    Raises:
        JaxbenchError: replacements that do not have one number for each unit.
    """
    check_replacements(layers, replacements)
    values, value = [], inputs
    for layer, by in zip(layers[:-1], replacements, strict=True):
        values.append(affine(layer, value))
        value = replaced(values[-1], by)
    return affine(layers[-1], value), tuple(values)


def check_replacements(layers: Network, replacements: Sequence[Replacement]) -> None:
    """Refuse replacements that do not have one number for each unit of each hidden layer."""
    units = [np.shape(bias) for _, bias in layers[:-1]]
    given = [tuple(np.shape(part) for part in by) for by in replacements]
    if given != [(shape,) * 3 for shape in units]:
        raise JaxbenchError(
            f"the hidden layers have {[shape[0] for shape in units]} units, but the replacements' "
            f"(mask, slope, intercept) have the shapes {given}; give one number for each unit"
        )


def alive(by: Replacement) -> Any:
    """Which units still carry anything onwards, as numbers {0, 1} [units]."""
    carries = (by.mask != 0) | (by.slope != 0) | (by.intercept != 0)
    return carries.astype(by.mask.dtype)


def replacement_error(a: Float[Any, "samples units"], by: Replacement) -> Any:
    """Give `|max(a, 0) - (m max(a, 0) + s a + t)|` [samples, units]: 0 for kept units.

    A unit replaced by 0 errs by `a^+`, one replaced by itself by `a^-`.
    """
    return abs(relu(a) - replaced(a, by))


def replacement_bound(
    layers: Network, replacements: Sequence[Replacement], inputs: Float[Any, "samples inputs"]
) -> Float[Any, " samples"]:
    """Bound how far the outputs move when units are replaced: `|y' - y|_2 <= B(x)`.

    `B = sum_l L_l sum_j |V_j|_2 e_j(x)` with the errors `e` at the network's own pre-activations,
    the units' outgoing weights `V` and `L_l`, the product of the norms of later kernels.  A unit's
    value moves by at most `e_j + |a'_j - a_j|` where replacements have slopes in [0, 1], so layers
    add up: replaced units of one layer shift the next one's inputs, and those shifts are carried on
    by maps of slope at most 1.  Equal to what is observed where one unit of the last layer errs.
    """
    total: Any = 0
    for place, (a, by) in enumerate(zip(preacts(layers, inputs), replacements, strict=True)):
        onwards = (layers[place + 1][0] ** 2).sum(axis=1) ** 0.5
        lipschitz: Any = 1
        for kernel, _ in layers[place + 2 :]:
            lipschitz = lipschitz * norm_bound(kernel)
        total = total + lipschitz * (replacement_error(a, by) @ onwards)
    return total


def norm_bound(kernel: Float[Any, "inputs units"]) -> Any:
    """Bound a spectral norm by `min(|W|_F, sqrt(|W|_1 |W|_inf))`: exact for one row or column."""
    size = abs(kernel)
    frobenius = (kernel**2).sum() ** 0.5
    mixed = (size.sum(axis=0).max() * size.sum(axis=1).max()) ** 0.5
    return (np if isinstance(kernel, np.ndarray) else jnp).minimum(frobenius, mixed)


# --------------------------------------------------------------------------------------------------
# Smaller networks with the same outputs, on the host
# --------------------------------------------------------------------------------------------------


class CompactLayer(NamedTuple):
    """`a = sum_s z_s W_s + b` of the sources `z_0 = x` and the kept units of earlier layers.

    Attributes:
        kernels: {source: [its width, units]}; two or more where affine units became skips.
        bias: [units].
    """

    kernels: Mapping[int, Any]
    bias: Any


def fold(layers: Network, replacements: Sequence[Replacement]) -> tuple[CompactLayer, ...]:
    """Give the network without its removed units: affine ones become skips around their layer.

    With the removed affine units `O` of a layer, `a^+ = relu(h W_K + b_K) V_K + h A + b^+ + c` with
    `A = W_O S V_O` and `c = (b_O S + t) V_O`.  Where `h` itself lost units, `h A` is written in
    what is left of it and in earlier layers.  A layer without kept units is gone.  Exact up to
    rounding; call it outside jit.

    Args:
        layers: the network, arrays of numpy or jax; each result has its kind and dtype.
        replacements: of each hidden layer.

    Raises:
        JaxbenchError: layers or replacements that do not fit, or NaN.
    """
    check_network(layers)
    check_replacements(layers, replacements)
    first = layers[0][0]
    terms: dict[int, Any] = {}  # the layer's inputs, h = sum_s z_s terms[s] + constant
    constant: Any = first[:, 0] * 0
    compact: list[CompactLayer] = []
    for place, (kernel, bias) in enumerate(layers):
        into = {source: term @ kernel for source, term in terms.items()} or {0: kernel}
        carried = constant @ kernel + bias
        if place == len(layers) - 1:
            compact.append(CompactLayer(into, carried))
            break
        by = replacements[place]
        kept = np.flatnonzero(np.asarray(by.mask))
        terms = {}
        if np.any(np.asarray(by.slope)):
            terms = {source: term * by.slope[None] for source, term in into.items()}
        constant = carried * by.slope + by.intercept
        if kept.size:
            part = {source: term[:, kept] for source, term in into.items()}
            compact.append(CompactLayer(part, carried[kept]))
            rows = np.eye(len(bias))[kept]
            terms[len(compact)] = (rows * np.asarray(by.mask)[None]).astype(bias.dtype)
        if not terms:
            terms = {0: first[:, :1] * 0 @ bias[None]}
    return tuple(compact)


def compact_apply(
    compact: Sequence[CompactLayer], inputs: Float[Any, "samples inputs"]
) -> Float[Any, "samples outputs"]:
    """Run a folded network."""
    sources = [inputs]
    for layer in compact:
        a = sum(sources[s] @ kernel for s, kernel in layer.kernels.items()) + layer.bias[None]
        sources.append(relu(a))
    return a


def parameter_count(compact: Sequence[CompactLayer]) -> int:
    """Count the entries of all kernels and biases."""
    return sum(leaf.size for leaf in jax.tree.leaves(tuple(compact)))


def flops(compact: Sequence[CompactLayer]) -> float:
    """Count the floating-point operations of one sample, a multiply-add as two, biases left out."""
    return float(sum(2 * k.size for layer in compact for k in layer.kernels.values()))


def fold_is_cheaper(inputs: int, outputs: int, removed: int) -> bool:
    """Say if a skip is smaller than its affine units, `|O| (d_in + d_out + 1) > d_in d_out`.

    Args:
        inputs: width before the layer.
        outputs: width after the layer.
        removed: how many affine units the skip stands for.
    """
    return removed * (inputs + outputs + 1) > inputs * outputs


def merge_dependent(
    layers: Network, layer: int, on: Bool[np.ndarray, " units"], tolerance: float = 1e-10
) -> tuple[tuple[Affine, ...], Int[np.ndarray, " removed"]]:
    """Merge units that are on everywhere and depend on others: at most `rank(W_on)` of them stay.

    With `w_j = sum_k c_k w_k`, `V_k += c_k V_j` and `b^+ += (b_j - sum_k c_k b_k) V_j` (Serra,
    Kumar and Ramalingam 2020, Lossless compression of deep neural networks).  On the host, in
    float64.

    Args:
        layers: the network.
        layer: which hidden layer, counted from 0.
        on: units whose pre-activation is never negative on the domain of interest [units].
        tolerance: relative size below which a direction counts as dependent.

    Returns:
        the smaller network, and the units that were merged away.

    Raises:
        JaxbenchError: a network or a mask that does not fit.
    """
    check_network(layers)
    smaller = [Affine(*(np.asarray(leaf, np.float64) for leaf in each)) for each in layers]
    (kernel, bias), (onwards, offset) = smaller[layer], smaller[layer + 1]
    units = np.flatnonzero(np.asarray(on))
    if np.shape(on) != bias.shape:
        raise JaxbenchError(
            f"layer {layer} has {bias.size} units, but `on` has the shape {np.shape(on)}; give one "
            "bool for each unit"
        )
    if units.size == 0:
        return tuple(smaller), units
    _, R, order = qr(kernel[:, units], mode="economic", pivoting=True)
    sizes = np.abs(np.diagonal(R))
    rank = int((sizes > tolerance * max(sizes[0], np.finfo(float).tiny)).sum())
    stay, leave = units[order[:rank]], np.sort(units[order[rank:]])
    coefficients = np.linalg.lstsq(kernel[:, stay], kernel[:, leave], rcond=None)[0]
    onwards, offset = onwards.copy(), offset.copy()
    offset += (bias[leave] - bias[stay] @ coefficients) @ onwards[leave]
    onwards[stay] += coefficients @ onwards[leave]
    smaller[layer] = Affine(np.delete(kernel, leave, 1), np.delete(bias, leave))
    smaller[layer + 1] = Affine(np.delete(onwards, leave, 0), offset)
    return tuple(smaller), leave
