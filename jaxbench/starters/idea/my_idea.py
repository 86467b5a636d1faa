"""`my_idea`: penalise the distance from the initial parameters.

    loss + weight |theta - theta_0|^2

Replace `squared_distance` by your own idea.  Pure functions come first and need nothing but jax;
`build` says where the idea acts.  All hooks are described in `jaxbench.base.Intervention`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt

from jaxbench.base import Batch, Context, Finding, Hyper, Intervention, Signature

REACH = 2.0
"""How far from the start the explanation lets the parameters go."""


def squared_distance(params: Any, start: Any) -> jax.Array:
    """Compute `|theta - theta_0|^2`, the sum of squares over all leaves of two pytrees."""
    squares = jax.tree.map(lambda a, b: ((a - b) ** 2).sum(), params, start)
    return jnp.stack(jax.tree.leaves(squares)).sum()


def evaluate(samples: Mapping[str, np.ndarray]) -> Finding:
    """Judge the prediction on what `measure` returned, stacked over runs; numpy only."""
    distances = samples["distance"]
    median = float(np.median(distances))
    return Finding(
        passed=median <= REACH,
        values={"median_distance": median},
        error=None,
        reason=f"The median distance from the start is {median:.3g}, where at most {REACH:g} was "
        f"predicted.",
    )


def build(*, scale: Annotated[float, Gt(0)] = 1.0) -> Intervention:
    """Build the intervention.

    Args:
        scale: unit of the distance.  A static option: another value is another compiled program.
    """

    def loss_term(
        ctx: Context, params: Any, state: Any, batch: Batch, outputs: Any, intermediates: Any,
        step: Any, key: Any,
    ) -> Any:  # fmt: skip
        return ctx.hyper["weight"] * squared_distance(params, ctx.params0) / scale**2

    def measure(ctx: Context, params: Any, state: Any, test: Batch) -> dict[str, Any]:
        return {"distance": jnp.sqrt(squared_distance(params, ctx.params0)) / scale}

    return Intervention(
        name="my_idea",
        summary="penalise the distance from the initial parameters",
        static={"scale": scale},
        # Values that each run may have of its own: a whole grid of them is one compiled program.
        hyper={"weight": Hyper(0.01, 0.0, 1e3, "weight of the penalty", neutral=0.0)},
        loss_term=loss_term,
        measure=measure,
        # What your explanation predicts before looking, and where it must fail.
        signatures=(
            Signature(
                name="stays_near",
                claim="the penalty keeps the parameters near their start, plain training does not",
                formula=f"|theta - theta_0| <= {REACH:g}",
                tolerance={"reach": REACH},
                evaluate=evaluate,
                controls=("baseline",),
            ),
        ),
        limitations=("The start is random, so that nearness to it has no meaning of its own.",),
    )
