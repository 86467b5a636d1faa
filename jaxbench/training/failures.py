"""What made training fail: a program that cannot be traced, or a term that is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError, Splits
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
    """Which hook made a run diverge, whose it is, and what it did, in words that follow those."""

    hook: Callable[..., Any]
    name: str
    owner: str
    text: str


def cause_of_divergence(recipe: Recipe, consts: Any, run: RunInput, step: int) -> Cause | None:
    """Find the hook that made a run diverge: by its data, at its start, or at the end of an epoch.

    Args:
        recipe: what trains.
        consts: what its intervention prepared.
        run: the run's seeds and hyperparameters.
        step: at which it diverged.
    """
    intervention, track, program = recipe.intervention, recipe.track, Program(recipe)
    owner, of_track = f"intervention {intervention.name}", f"track {track.name}"
    made = jax.jit(lambda run: program.start(consts, run)[0].data)(run)
    wrong = not_finite(jax.device_get(made))
    if wrong is not None:
        text = f"must make finite data, but {wrong} of seed {int(run.seed)}"
        return Cause(track.generate, "generate", of_track, text)
    at = f"at the initial parameters of seed {int(run.seed)}"
    if step <= 1:
        found = jax.device_get(jax.jit(lambda run: _first_step(program, consts, run))(run))
        value, loss, gradient, update, outputs = found
        if intervention.loss_term is not None:
            term = intervention.loss_term, "loss_term", owner
            if not np.isfinite(value):
                text = f"must be finite, but is {value} {at}, where the track's loss is {loss:.4g}"
                return Cause(*term, text)
            if not gradient:
                text = (
                    f"is finite ({value:.4g}) {at}, but its gradient is not; a square root, norm, "
                    f"logarithm or quotient at 0 does that"
                )
                return Cause(*term, text)
        if not outputs:
            model = program.model
            return Cause(model.apply, "apply", f"model {model.name}", f"is not finite {at}")
        if not np.isfinite(loss):
            text = f"must be finite, but is {loss} {at}, where the model's outputs are finite"
            return Cause(track.loss, "loss", of_track, text)
        if not gradient:
            text = (
                f"is finite ({loss:.4g}) {at}, but its gradient through {program.model.name} is not"
            )
            return Cause(track.loss, "loss", of_track, text)
        if not update:
            text = f"makes updates that are not finite {at}, where loss and gradient are"
            return Cause(intervention.wrap_optimizer, "wrap_optimizer", owner, text)
        return None
    epoch, left = divmod(step, program.steps_per_epoch)
    if left:
        return None
    done = 0
    for phase in recipe.phases:
        done += phase.epochs
        if done == epoch and phase.surgery is not None:
            text = f"ran just before step {step}, where seed {int(run.seed)} diverged"
            return Cause(phase.surgery, "surgery", owner, text)
    if intervention.after_epoch is not None:
        text = f"ran just before step {step}, where seed {int(run.seed)} diverged"
        return Cause(intervention.after_epoch, "after_epoch", owner, text)
    return None


def not_finite(data: Splits) -> str | None:
    """Say which part of a seed's data, on the host, is not finite; None where all is.

    Args:
        data: its splits; leaves [samples, ...] that are no floating numbers are not looked at.
    """
    for split, batch in data._asdict().items():
        for part, tree in batch._asdict().items():
            for leaf in map(np.asarray, jax.tree.leaves(tree)):
                if jnp.issubdtype(leaf.dtype, jnp.floating):
                    bad = int((~np.isfinite(leaf)).sum())
                    if bad:
                        return f"{bad} of {leaf.size} numbers are NaN or infinite in {split}.{part}"
    return None


def _first_step(program: Program, consts: Any, run: RunInput) -> tuple[Any, ...]:
    """Give the first step's loss term and loss; whether gradient, updates, outputs are finite."""
    recipe = program.recipe
    fixed, carry = program.start(consts, run)
    ctx = program.context(consts, run, fixed)
    batch = jax.tree.map(lambda leaf: leaf[: recipe.schedule.batch_size], fixed.data.train)
    step = jnp.zeros((), jnp.int32)

    def objective(params: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        outputs, intermediates = ctx.model.apply(
            params, batch.inputs, ctx=ctx, state=carry.state, key=ctx.key
        )
        loss = recipe.track.loss(outputs, batch.targets)
        term: Any = jnp.zeros_like(loss)
        if recipe.intervention.loss_term is not None:
            term = recipe.intervention.loss_term(
                ctx, params, carry.state, batch, outputs, intermediates, step, ctx.key
            )
        return loss + term, (jnp.asarray(term), loss, _finite(outputs))

    (value, (term, loss, outputs)), gradient = jax.value_and_grad(objective, has_aux=True)(
        carry.params
    )
    with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
        updates, _ = program.optimizer(ctx).on_vector.update(
            gradient, carry.opt_state, carry.params,
            value=value, intervention_state=carry.state, step=step, key=ctx.key,
        )  # fmt: skip
    return term, loss, _finite(gradient), _finite(updates), outputs


def _finite(tree: Any) -> Any:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
