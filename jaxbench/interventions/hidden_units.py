"""Hidden units of any network: score, mask, fold and remove them, told by data where they lie.

A `base.UnitLayer` names the slices of leaves that belong to each unit: `incoming` ones make its
value `h_j`, `outgoing` ones carry it onwards.  Nothing else about the network is known, so these
functions take any parameter pytree: nested dicts, lists, dataclasses, Equinox modules.  A path
names dict keys, sequence indices and attributes, from the root to the leaf.

The *port* of a unit is where its value leaves for the outgoing weights.  Multiplying the port by
`m_j` is multiplying the outgoing weights by it, whatever the network does with the raw value `h_j`
elsewhere (the leak of a GRU): this is why every real mask folds into the parameters exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError, UnitLayer, UnitSlice
from jaxbench.interventions.leaf_paths import Path, leaf_at, path_of, path_text, replace_leaves
from jaxbench.interventions.masked_updates import masked_updates

if TYPE_CHECKING:
    import optax
    from jaxtyping import Array, Bool, Float, Int

    from jaxbench.base import PyTree

    Units = Float[Array | np.ndarray, " units"]

Role = Literal["incoming", "outgoing"]
BOTH: tuple[Role, ...] = ("incoming", "outgoing")

# --------------------------------------------------------------------------------------------------
# Scores and choices
# --------------------------------------------------------------------------------------------------


def unit_norms(
    params: PyTree, layer: UnitLayer, roles: Sequence[Role] = BOTH, *, biases: bool = True
) -> Float[Array, " units"]:
    """The norm of each unit's weights, `sqrt(sum of squares over its slices of these roles)`.

    Args:
        params: any parameter pytree.
        layer: its units.
        roles: `incoming`, `outgoing` or both; an entry in both (a recurrent unit's weight on
            itself) counts twice.
        biases: whether leaves with one axis count.

    Raises:
        JaxbenchError: a leaf that is not there.
    """
    squares = unit_products(params, params, layer, roles, biases=biases)
    return squares**0.5


def unit_products(
    params: PyTree,
    others: PyTree,
    layer: UnitLayer,
    roles: Sequence[Role] = BOTH,
    *,
    biases: bool = True,
) -> Float[Array, " units"]:
    """The products of each unit's weights with another tree's, `sum theta * other` over its slices.

    With a gradient as the other tree and outgoing slices, it is the gradient by the units' masks.
    Arguments and errors as for `unit_norms`.
    """
    total: Any = 0
    for piece in layer.slices:
        leaf = leaf_at(params, piece.leaf)
        if piece.role in roles and (biases or leaf.ndim > 1):
            units = units_of(piece, layer)
            at = (slice(None),) * piece.axis + (slice(piece.start, piece.start + len(units)),)
            axes = tuple(axis for axis in range(leaf.ndim) if axis != piece.axis)
            sums = (leaf * leaf_at(others, piece.leaf))[at].sum(axis=axes)
            around = (units.start, layer.size - units.stop)
            total = total + _namespace(sums).pad(sums, around)
    return total


def units_of(piece: UnitSlice, layer: UnitLayer) -> range:
    """The numbers of the units that a slice holds."""
    count = layer.size - piece.first if piece.units is None else piece.units
    return range(piece.first, piece.first + count)


def top_k(score: Units, keep: int) -> Float[Array, " units"]:
    """The mask {0, 1} of the `keep` highest scores: exactly that many, ties by the lower index.

    NaN is the lowest score of all.

    Raises:
        JaxbenchError: `keep` is not in 1..units.
    """
    check_keep(keep, score.size)
    best = jnp.argsort(-jnp.asarray(score), stable=True)[:keep]
    return jnp.zeros(score.shape, score.dtype).at[best].set(1)


def check_keep(keep: int, units: int, name: str = "units") -> None:
    """Refuse to keep no unit, or more than there are."""
    if not 1 <= keep <= units:
        raise JaxbenchError(
            f"keep is {keep}, but the layer has {units} {name}; keep between 1 and {units} of them"
        )


def kept_units(mask: Units) -> Int[np.ndarray, " kept"]:
    """The indices of the units whose mask is not 0, on the host, for `compact`."""
    return np.flatnonzero(np.asarray(mask))


# --------------------------------------------------------------------------------------------------
# Masks
# --------------------------------------------------------------------------------------------------


def mask_params(
    params: PyTree, layer: UnitLayer, mask: Units, roles: Sequence[Role] = BOTH
) -> PyTree:
    """The parameters (or a gradient) with unit `j`'s slices multiplied by `m_j` in {0, 1}.

    Raises:
        JaxbenchError: a mask of another shape than [units], or a leaf that is not there.
    """
    mask = _mask(mask, layer)
    leaves: dict[Path, Any] = {}
    for piece in layer.slices:
        if piece.role in roles:
            leaf = leaves[piece.leaf] if piece.leaf in leaves else leaf_at(params, piece.leaf)
            leaves[piece.leaf] = leaf * _spread(mask, leaf, piece, layer)
    return replace_leaves(params, leaves)


def fold(
    params: PyTree,
    layer: UnitLayer,
    mask: Units,
    fill: Units | None = None,
) -> PyTree:
    """The parameters of the network whose ports give `m_j h_j + (1 - m_j) fill_j`, not `h_j`.

    The outgoing slices are multiplied by `m`, and `sum_j (1 - m_j) fill_j V_j` of the outgoing
    slices `V` goes to their biases.  Exact for any real mask, and differentiable in it.

    Args:
        params: any parameter pytree.
        layer: its units.
        mask: any real numbers.
        fill: values of the ports at mask 0, such as the units' means; 0 if None.

    Raises:
        JaxbenchError: a mask or a fill of another shape than [units], a leaf that is not there, or
            a fill where an outgoing slice names no bias of the right shape.
    """
    folded = mask_params(params, layer, mask, ("outgoing",))
    if fill is None:
        return folded
    fill = _mask(fill, layer, "fill")
    constant = (1 - _mask(mask, layer).astype(fill.dtype)) * fill
    biases: dict[Path, Any] = {}
    for piece in layer.slices:
        if piece.role == "outgoing":
            leaf = leaf_at(params, piece.leaf)
            added = (leaf * _spread(constant, leaf, piece, layer, outside=0)).sum(axis=piece.axis)
            bias = _bias_of(piece, params, added.shape)
            biases[bias] = biases.get(bias, leaf_at(params, bias)) + added
    return replace_leaves(folded, biases)


def _bias_of(piece: UnitSlice, params: PyTree, shape: tuple[int, ...]) -> Path:
    """The path of the bias that takes what is constant in a slice's product."""
    if piece.bias is None:
        raise JaxbenchError(
            f"a fill must go somewhere, but the outgoing slice of {path_text(piece.leaf)!r} names "
            "no bias; give UnitSlice(..., bias=path), or fill with 0"
        )
    there = leaf_at(params, piece.bias).shape
    if there != shape:
        raise JaxbenchError(
            f"the bias {path_text(piece.bias)!r} has shape {list(there)}, but what "
            f"{path_text(piece.leaf)!r} carries onwards has {list(shape)}; name another bias"
        )
    return piece.bias


# --------------------------------------------------------------------------------------------------
# Smaller networks
# --------------------------------------------------------------------------------------------------


def compact(
    params: PyTree,
    layer: UnitLayer,
    keep: Int[np.ndarray, " kept"] | Sequence[int],
    fill: Units | None = None,
) -> PyTree:
    """The parameters of the smaller network without the other units: call it outside jit.

    Its outputs are those of `fold(params, layer, mask, fill)` with the mask of `keep`.

    Args:
        params: any parameter pytree of numpy or jax arrays; each leaf keeps its kind and dtype.
        layer: its units.
        keep: the indices of the units to keep, in any order; they stay in the layer's.
        fill: constant values in place of the removed units, [units]; 0 if None.

    Raises:
        JaxbenchError: a layer whose units cannot be removed; no unit kept, or one twice, or one
            that is not there; parameters with NaN or infinity; otherwise as for `fold`.
    """
    if not layer.removable:
        raise JaxbenchError(
            f"the parameters of {layer.name!r} can be 0, but a network without them is none; keep "
            "the masked parameters, or remove hidden units"
        )
    chosen = np.asarray(keep)
    check_keep(chosen.size, layer.size)
    good = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
    if (
        not good
        or len(set(chosen.tolist())) < chosen.size
        or not np.isin(chosen, range(layer.size)).all()
    ):
        raise JaxbenchError(
            f"keep must be different unit numbers of 0..{layer.size - 1}, got {chosen.tolist()}; "
            "kept_units(mask) gives them for a mask"
        )
    check_finite(params)
    kept = np.isin(np.arange(layer.size), chosen)
    if fill is not None:
        params = fold(params, layer, kept.astype(float), fill)
    stays: dict[tuple[Path, int], Bool[np.ndarray, " entries"]] = {}
    for piece in layer.slices:
        leaf = leaf_at(params, piece.leaf)
        entries = stays.setdefault((piece.leaf, piece.axis), np.ones(leaf.shape[piece.axis], bool))
        units = units_of(piece, layer)
        entries[piece.start : piece.start + len(units)] &= kept[units.start : units.stop]
    leaves: dict[Path, Any] = {}
    for (path, axis), entries in stays.items():
        leaf = leaves[path] if path in leaves else leaf_at(params, path)
        leaves[path] = leaf[(slice(None),) * axis + (np.flatnonzero(entries),)]
    return replace_leaves(params, leaves)


def check_finite(params: PyTree) -> None:
    """Refuse parameters with NaN or infinity, naming the leaf; tracers cannot be looked at."""
    for entries, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if isinstance(leaf, jax.core.Tracer) or not hasattr(leaf, "dtype"):
            continue
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not np.isfinite(leaf).all():
            raise JaxbenchError(
                f"the parameters at {path_text(path_of(entries))!r} are not all finite; the "
                "network diverged, so there is nothing to prune"
            )


# --------------------------------------------------------------------------------------------------
# Training under a mask
# --------------------------------------------------------------------------------------------------


def masked_optimizer(
    optimizer: optax.GradientTransformation,
    layer: UnitLayer,
    mask_of: Callable[[PyTree], Units],
) -> optax.GradientTransformationExtraArgs:
    """The optimizer under which masked units stay as they are: gradient and update are masked.

    With `mask_params` of the parameters and `mask_moments` of the optimizer's state, once, masked
    units are 0 and stay 0, and leave no trace in the moments.

    Args:
        optimizer: any optax transformation.
        layer: the units.
        mask_of: `(intervention_state) -> mask [units]`.
    """
    return masked_updates(optimizer, lambda state, tree: mask_params(tree, layer, mask_of(state)))


def mask_moments(opt_state: PyTree, params: PyTree, layer: UnitLayer, mask: Units) -> PyTree:
    """The optimizer's state with every part of it that is shaped like the parameters masked.

    Those are Adam's two moments; counts and the like stay.
    """

    def form(tree: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
        leaves, structure = jax.tree.flatten(tree)
        return structure, [jnp.shape(leaf) for leaf in leaves]

    expected = form(params)

    def like_params(node: PyTree) -> bool:
        return form(node) == expected

    return jax.tree.map(
        lambda node: mask_params(node, layer, mask) if like_params(node) else node,
        opt_state,
        is_leaf=like_params,
    )


# --------------------------------------------------------------------------------------------------
# Slices
# --------------------------------------------------------------------------------------------------


def _namespace(*arrays: Any) -> Any:
    """Numpy where all are numpy's, so that float64 survives without jax's x64 mode; else jax."""
    return np if all(isinstance(each, np.ndarray | np.generic) for each in arrays) else jnp


def _mask(mask: Any, layer: UnitLayer, name: str = "mask") -> Any:
    """Check that a mask has one number a unit."""
    mask = mask if hasattr(mask, "dtype") else np.asarray(mask, float)
    if mask.shape != (layer.size,):
        raise JaxbenchError(
            f"the {name} has shape {list(mask.shape)}, but the layer {layer.name!r} has "
            f"{layer.size} units; give one number a unit, [{layer.size}]"
        )
    return mask


def _spread(values: Units, leaf: Any, piece: UnitSlice, layer: UnitLayer, outside: int = 1) -> Any:
    """The units' numbers along the slice's axis, to multiply the leaf; `outside` elsewhere."""
    length, units = leaf.shape[piece.axis], units_of(piece, layer)
    after = length - piece.start - len(units)
    if after < 0:
        raise JaxbenchError(
            f"axis {piece.axis} of {path_text(piece.leaf)!r} has {length} entries, too few for "
            f"{len(units)} units from {piece.start} on; describe the layer for this network"
        )
    xp = _namespace(values, leaf)
    own = values[units.start : units.stop].astype(leaf.dtype)
    values = xp.pad(own, (piece.start, after), constant_values=outside)
    return values.reshape([length if axis == piece.axis else 1 for axis in range(leaf.ndim)])
