"""What made training fail: a program that cannot be traced, or a term that is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.training.program import Program, RunInput
from jaxbench.training.runs import Recipe


class TracingError(JaxbenchError):
    """A program cannot be traced although each hook returned what it must."""

    exit_code = 1


def tracing_error(recipe: Recipe, program: str, error: Exception) -> TracingError:
    """Say which program of which recipe could not be traced, and the exception in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    parts = recipe.intervention.name, recipe.model.name, recipe.track.name
    return TracingError(
        f"the program {program!r} of {parts[0]} with {parts[1]} on {parts[2]} cannot be traced; "
        f"training differentiates the loss and its loss_term in reverse mode: {text}"
    )


class Cause(NamedTuple):
    """Which hook made a run diverge, and what it did, in words that follow its name."""

    hook: Callable[..., Any]
    name: str
    text: str


def cause_of_divergence(recipe: Recipe, consts: Any, run: RunInput, step: int) -> Cause | None:
    """Find the hook that made a run diverge: from its first step, or at the end of an epoch.

    Args:
        recipe: what trains.
        consts: what its intervention prepared.
        run: the run's seeds and hyperparameters.
        step: at which it diverged.
    """
    intervention, program = recipe.intervention, Program(recipe)
    at = f"at the initial parameters of seed {int(run.seed)}"
    if step <= 1:
        found = jax.device_get(jax.jit(lambda run: _first_step(program, consts, run))(run))
        value, loss, gradient, update = found
        if intervention.loss_term is not None:
            term = intervention.loss_term, "loss_term"
            if not np.isfinite(value):
                text = f"must be finite, but is {value} {at}, where the track's loss is {loss:.4g}"
                return Cause(*term, text)
            if not gradient:
                text = (
                    f"is finite ({value:.4g}) {at}, but its gradient is not; a square root, norm, "
                    f"logarithm or quotient at 0 does that"
                )
                return Cause(*term, text)
        if not update and np.isfinite(loss):
            text = f"makes updates that are not finite {at}, where loss and gradient are"
            return Cause(intervention.wrap_optimizer, "wrap_optimizer", text)
        return None
    epoch, left = divmod(step, program.steps_per_epoch)
    if left:
        return None
    done = 0
    for phase in recipe.phases:
        done += phase.epochs
        if done == epoch and phase.surgery is not None:
            text = f"ran just before step {step}, where seed {int(run.seed)} diverged"
            return Cause(phase.surgery, "surgery", text)
    if intervention.after_epoch is not None:
        text = f"ran just before step {step}, where seed {int(run.seed)} diverged"
        return Cause(intervention.after_epoch, "after_epoch", text)
    return None


def _first_step(program: Program, consts: Any, run: RunInput) -> tuple[Any, Any, Any, Any]:
    """Give the first step's loss term and loss, and whether gradient and updates are finite."""
    recipe = program.recipe
    fixed, carry = program.start(consts, run)
    ctx = program.context(consts, run, fixed)
    batch = jax.tree.map(lambda leaf: leaf[: recipe.schedule.batch_size], fixed.data.train)
    step = jnp.zeros((), jnp.int32)

    def objective(params: Any) -> tuple[Any, tuple[Any, Any]]:
        outputs, intermediates = ctx.model.apply(
            params, batch.inputs, ctx=ctx, state=carry.state, key=ctx.key
        )
        loss = recipe.track.loss(outputs, batch.targets)
        term: Any = jnp.zeros_like(loss)
        if recipe.intervention.loss_term is not None:
            term = recipe.intervention.loss_term(
                ctx, params, carry.state, batch, outputs, intermediates, step, ctx.key
            )
        return loss + term, (jnp.asarray(term), loss)

    (value, (term, loss)), gradient = jax.value_and_grad(objective, has_aux=True)(carry.params)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
        updates, _ = program.optimizer(ctx).on_vector.update(
            gradient, carry.opt_state, carry.params,
            value=value, intervention_state=carry.state, step=step, key=ctx.key,
        )  # fmt: skip
    return term, loss, _finite(gradient), _finite(updates)


def _finite(tree: Any) -> Any:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
