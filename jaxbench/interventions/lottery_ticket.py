"""`lottery_ticket`: train, remove the smallest weights, rewind the others, train again.

A network is trained, a share of each layer's weights is removed, those that stay go back to their
initial values, and it is trained again, as often as there are rounds.  The lottery ticket
hypothesis says that the network left by removing the smallest weights trains to a better one than
the same initial network less weights chosen at random (Frankle and Carbin 2019, The lottery ticket
hypothesis).  Any arm trains equally often; one that keeps everything is the dense network.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge

from jaxbench.base import Batch, Context, Hyper, Intervention, Phase
from jaxbench.interventions.leaf_paths import path_of
from jaxbench.interventions.masked_updates import masked_updates

if TYPE_CHECKING:
    from jaxbench.base import Key, PyTree, Scalar

Kind = Literal["magnitude", "random"]

# --------------------------------------------------------------------------------------------------
# Masks of weights
# --------------------------------------------------------------------------------------------------


def layers_of(params: PyTree) -> list[list[int]]:
    """Group the leaves of a tree, by their numbers, into layers: those that lie in one node."""
    groups: dict[Any, list[int]] = {}
    for number, (entries, _) in enumerate(jax.tree_util.tree_leaves_with_path(params)):
        groups.setdefault(path_of(entries)[:-1], []).append(number)
    return list(groups.values())


def keep_highest(scores: PyTree, mask: PyTree, share: Scalar | float) -> PyTree:
    """Keep the highest scores of each layer among those that the mask has left, as a mask {0, 1}.

    `round(share n)` of a layer's `n` weights stay, its bias counted with them; of equals the first.

    Args:
        scores: of each weight, a tree like the parameters.
        mask: 1 for the weights that are still there.
        share: of all weights of a layer, at most as many as are still there.
    """
    leaves, structure = jax.tree.flatten(scores)
    there = jax.tree.leaves(mask)
    kept = list(leaves)
    for layer in layers_of(scores):
        flat = jnp.concatenate(
            [jnp.where(there[leaf] > 0, leaves[leaf], -jnp.inf).ravel() for leaf in layer]
        )
        staying = jnp.arange(flat.size, dtype=flat.dtype) < jnp.round(share * flat.size)
        order = jnp.argsort(-flat, stable=True)
        ones = jnp.zeros_like(flat).at[order].set(staying.astype(flat.dtype))
        start = 0
        for leaf in layer:
            shape, size = leaves[leaf].shape, leaves[leaf].size
            kept[leaf] = ones[start : start + size].reshape(shape)
            start += size
    return jax.tree.unflatten(structure, kept)


def weight_scores(kind: Kind, params: PyTree, key: Key) -> PyTree:
    """Score each weight by its size, `|w|`, or at random; the lowest are to be removed."""
    if kind == "magnitude":
        return jax.tree.map(jnp.abs, params)
    leaves, structure = jax.tree.flatten(params)
    drawn = [
        jax.random.uniform(jax.random.fold_in(key, number), leaf.shape, leaf.dtype)
        for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, drawn)


def sparsity(mask: PyTree) -> Scalar:
    """Give the share of weights that are removed."""
    leaves = jax.tree.leaves(mask)
    return 1 - sum(jnp.sum(leaf) for leaf in leaves) / sum(leaf.size for leaf in leaves)


def times(mask: PyTree, tree: PyTree) -> PyTree:
    """Multiply each weight by its mask."""
    return jax.tree.map(jnp.multiply, mask, tree)


# --------------------------------------------------------------------------------------------------
# The intervention
# --------------------------------------------------------------------------------------------------


def build(
    *,
    kind: Kind = "magnitude",
    rounds: Annotated[int, Ge(1)] = 8,
    epochs_each: Annotated[int, Ge(1)] = 1,
) -> Intervention:
    """Iterative pruning of weights with rewinding to the initial ones.

    Args:
        kind: which weights stay: the largest, or any.
        rounds: removals, geometric from all weights to the share `keep`, each followed by a
            training.  What stays at random is the same in one round as in many.
        epochs_each: of each training; with the first one there are rounds + 1 of them.
    """

    def init_state(ctx: Context) -> PyTree:
        return jax.tree.map(jnp.ones_like, ctx.params0)

    def wrap_optimizer(optimizer: Any, ctx: Context) -> Any:
        del ctx
        return masked_updates(optimizer, times)

    def surgery(
        number: int, ctx: Context, params: PyTree, opt_state: PyTree, mask: PyTree
    ) -> tuple[PyTree, PyTree, PyTree]:
        scores = weight_scores(kind, params, jax.random.fold_in(ctx.key, number))
        mask = keep_highest(scores, mask, ctx.hyper["keep"] ** ((number + 1) / rounds))
        fresh = jax.tree.map(jnp.zeros_like, opt_state)  # as Adam begins
        return times(mask, ctx.params0), fresh, mask

    def measure(ctx: Context, params: PyTree, mask: PyTree, test: Batch) -> dict[str, Scalar]:
        del ctx, params, test
        return {"sparsity": sparsity(mask)}

    phases = [Phase(epochs_each, functools.partial(surgery, number)) for number in range(rounds)]
    return Intervention(
        name="lottery_ticket",
        summary="train, remove the smallest weights, rewind the others, train again",
        static={"kind": kind, "rounds": rounds, "epochs_each": epochs_each},
        hyper={
            "keep": Hyper(
                default=0.08,
                low=1e-6,
                high=1.0,
                summary="share of each layer's weights that stays in the end; with 1 all do",
            )
        },
        surgery_static=("kind", "rounds", "epochs_each", "keep"),
        limitations=(
            "Removed weights are 0, which saves no time by itself; biases are removed with the "
            "weights of their layer.",
        ),
        init_state=init_state,
        wrap_optimizer=wrap_optimizer,
        phases=(*phases, Phase(epochs_each)),
        measure=measure,
    )
