"""How much memory one run takes on a device."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from jaxbench.training.program import Fixed, Program, RunInput


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree of arrays or of their shapes."""
    return sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(tree)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended)
    )


def run_bytes(program: Program, consts: Any) -> int:
    """About how many bytes one run needs: its data, its carry twice, and a step's residuals.

    The residuals are those that reverse-mode differentiation of one batch's loss keeps, found by
    abstract evaluation; nothing is computed.
    """
    recipe = program.recipe
    names = ["learning_rate", *recipe.intervention.hyper]
    hyper = {name: jax.ShapeDtypeStruct((), np.float32) for name in names}
    seed = jax.ShapeDtypeStruct((), np.int32)
    run = RunInput(seed, seed, hyper)
    fixed, carry = jax.eval_shape(program.start, consts, run)

    def residuals(consts: Any, run: RunInput, fixed: Fixed, params: Any) -> Any:
        ctx = program.context(consts, run, fixed)
        size = recipe.schedule.batch_size
        batch = jax.tree.map(lambda leaf: leaf[:size], fixed.data.train)

        def objective(params: Any) -> Any:
            outputs, _ = ctx.model.apply(params, batch.inputs)
            return recipe.track.loss(outputs, batch.targets)

        return jax.vjp(objective, params)[1]

    kept = jax.eval_shape(residuals, consts, run, fixed, carry.params)
    return tree_bytes(fixed) + 2 * tree_bytes(carry) + tree_bytes(kept)
