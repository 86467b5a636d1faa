"""`reversal_checkpointing`: go back in time through a recurrence instead of storing its states.

In the backward pass a state is made again from the one after it by an inverse of the step, and a
true state is kept every `interval` steps.  Where the reconstruction is bad, checkpoints should be
denser: after each epoch the defect D, the mean relative error of states made again on a probe
batch, halves the interval (`D > tau`) or doubles it (`D < tau / 2`).  See MacKay et al. 2018;
Gruslys et al. 2016; Griewank & Walther 2000; Gholami et al. 2019.

The pure functions are `rev_scan`, which truly frees the states, `emulated_scan`, which gives the
same gradient for an interval that is data, the inverses in `state_inverses`, `defects` and
`controller`.  Training uses the emulation: every run has an interval of its own in one compiled
program, and its cost says nothing about memory or time.  Those are measured with `rev_scan` after
training, and for more methods and models by `scripts/benchmark memory`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Le

from jaxbench.base import Context, Hyper, Intervention, JaxbenchError, Model, Recurrence
from jaxbench.interventions.checkpoint_schedules import revolve, revolve_scan, segment_scan
from jaxbench.interventions.reversal_defects import (
    Defects,
    controller,
    defects,
    gradient_disagreement,
    mean_defect,
    reversal_error,
)
from jaxbench.interventions.reversal_signatures import SIGNATURES
from jaxbench.interventions.reversible_scan import (
    check_interval,
    checkpoint_count,
    checkpoint_flags,
    dense_scan,
    emulated_scan,
    rev_scan,
)
from jaxbench.interventions.state_inverses import (
    InverseKind,
    fixed_point,
    inverse_of,
    newton,
    reflect,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float

    from jaxbench.base import Batch, MakeScan, PyTree, Scalar

__all__ = [
    "build",
    "checkpoint_flags",
    "controller",
    "defects",
    "dense_scan",
    "emulated_scan",
    "fixed_point",
    "newton",
    "reflect",
    "rev_scan",
    "revolve",
    "revolve_scan",
    "segment_scan",
]

MEASURED_SEQUENCES = 16
REVERSED_STEPS = (4, 8, 16, 32)


def recurrence_of(model: Model) -> Recurrence:
    """The recurrence of a model, or an error that says that it has none."""
    if model.recurrence is None:
        raise JaxbenchError(
            f"reversal_checkpointing needs a recurrent model, but {model.name!r} has no recurrence"
        )
    return model.recurrence


def build(
    *,
    mode: Literal["reverse", "recompute", "dense"] = "reverse",
    inverse: InverseKind = "reflect",
    iterations: Annotated[int, Ge(1)] | None = None,
    z_min: Annotated[float, Gt(0), Le(1)] = 0.1,
    controlled: Literal["step", "segment"] = "step",
    first_interval: Annotated[int, Ge(1)] = 8,
    longest_interval: Annotated[int, Ge(1)] = 32,
) -> Intervention:
    """A backward pass through reconstructed states, with checkpoints as dense as the defect asks.

    Args:
        mode: `reverse`; `recompute`, whose gradient is exact; or `dense`, plain training.
        inverse: how a step is undone: `exact` by a reversible cell itself, else approximately.
        iterations: of `fixedpoint` (1 if not given) and `newton` (4).
        z_min: the least divisor of `fixedpoint`.
        controlled: the defect that moves the interval: of single steps, as reported, or of the
            segments between checkpoints, which is what the gradient sees.
        first_interval: steps between checkpoints at the start.
        longest_interval: the most steps between checkpoints.

    Raises:
        JaxbenchError: a first interval above the longest; when it trains: an interval longer than
            the sequence, or an inverse that the model's cell does not have.
    """
    if first_interval > longest_interval:
        raise JaxbenchError(
            f"first_interval is {first_interval}, above longest_interval = {longest_interval}; "
            f"lower the first or raise the other"
        )
    summary = "make states again by reversing the recurrence, with as many checkpoints as needed"
    if mode == "dense":
        return Intervention(
            name="reversal_checkpointing", summary=summary, static={"mode": mode},
            requires=frozenset({"recurrent"}),
        )  # fmt: skip

    def inverse_for(model: Model) -> Any:
        return inverse_of(recurrence_of(model), inverse, z_min, iterations, model.name)

    def wrap_model(model: Model) -> Model:
        recurrence = recurrence_of(model)
        scan = emulated_scan(recurrence.step, inverse_for(model))

        def apply(
            params: PyTree,
            inputs: Float[Array, "batch time features"],
            *,
            ctx: Any = None,
            state: Any = None,
            key: Any = None,
        ) -> tuple[Array, dict[str, Array]]:
            if state is None:
                return model.apply(params, inputs, ctx=ctx, key=key)
            length = inputs.shape[1]
            check_interval(longest_interval, length)
            start = recurrence.initial_hidden(params, inputs.shape[:1])
            interval = (
                jnp.ones_like(state["interval"]) if mode == "recompute" else state["interval"]
            )
            flags = checkpoint_flags(length, interval)
            _, hidden = scan(params, start, inputs.swapaxes(0, 1), flags)
            hidden = hidden.swapaxes(0, 1)
            return recurrence.readout(params, hidden), {"hidden": hidden}

        return dataclasses.replace(model, apply=apply)

    def init_state(ctx: Context) -> dict[str, Array]:
        first = jnp.where(ctx.hyper["threshold"] > 0, first_interval, 1)
        return {"interval": first.astype(jnp.int32)}

    def defects_at(ctx: Context, params: PyTree, inputs: Array, interval: Any) -> Defects:
        recurrence = recurrence_of(ctx.model)
        start = recurrence.initial_hidden(params, inputs.shape[:1])
        return defects(
            recurrence.step, inverse_for(ctx.model), params, start, inputs.swapaxes(0, 1),
            checkpoint_flags(inputs.shape[1], interval),
        )  # fmt: skip

    def disagreement(ctx: Context, params: PyTree, batch: Batch, interval: Array) -> Scalar:
        """`1 - cos` against the gradient with every state kept, which is the dense one."""

        def gradient(interval: Array) -> PyTree:
            def loss(params: PyTree) -> Scalar:
                state = {"interval": interval}
                outputs, _ = ctx.model.apply(params, batch.inputs, ctx=ctx, state=state)
                assert ctx.track is not None
                return ctx.track.loss(outputs, batch.targets)

            return jax.grad(loss)(params)

        both = jax.lax.map(gradient, jnp.stack([interval, jnp.ones_like(interval)]))
        return gradient_disagreement(*(jax.tree.map(lambda g, i=i: g[i], both) for i in (0, 1)))

    def after_epoch(
        ctx: Context, params: PyTree, opt_state: PyTree, state: PyTree, epoch: Any
    ) -> tuple[PyTree, PyTree, PyTree, dict[str, Scalar]]:
        del epoch
        interval, length = state["interval"], ctx.probe.inputs.shape[1]
        found = defects_at(ctx, params, ctx.probe.inputs, interval)
        step, segment = mean_defect(found.step), mean_defect(found.segment)
        apart = disagreement(ctx, params, ctx.probe, interval)
        log = {
            "defect": step,
            "segment_defect": segment,
            "interval": interval.astype(step.dtype),
            "checkpoints": checkpoint_count(length, interval).astype(step.dtype),
            "gradient_cosine": 1 - apart,
            "gradient_disagreement": apart,
        }
        seen = step if controlled == "step" else segment
        following = controller(interval, seen, ctx.hyper["threshold"], longest_interval)
        return params, opt_state, {"interval": following}, log

    def measure(ctx: Context, params: PyTree, state: PyTree, test: Batch) -> dict[str, Any]:
        batch = jax.tree.map(lambda leaf: leaf[:MEASURED_SEQUENCES], test)
        interval, length = state["interval"], batch.inputs.shape[1]

        def means(interval: Array) -> Defects:
            return jax.tree.map(mean_defect, defects_at(ctx, params, batch.inputs, interval))

        found = jax.lax.map(means, jnp.stack([interval, jnp.full_like(interval, first_interval)]))
        real = found.step.dtype
        return {
            "defect": found.step[0],
            "segment_defect": found.segment[0],
            "reference_defect": (found.step if controlled == "step" else found.segment)[1],
            "interval": interval.astype(real),
            "checkpoints": checkpoint_count(length, interval).astype(real),
            "threshold": ctx.hyper["threshold"],
            "gradient_disagreement": disagreement(ctx, params, batch, interval),
            **rounding(ctx, params, batch.inputs),
        }

    def rounding(ctx: Context, params: PyTree, inputs: Array) -> dict[str, Array]:
        """Errors of whole reversals, measured and predicted [steps back]; 0 where not exact."""
        back = np.array([n for n in REVERSED_STEPS if n < inputs.shape[1]])
        if inverse != "exact" or not len(back):
            nothing = jnp.zeros(len(back), inputs.dtype)
            return {"exact": jnp.zeros((), inputs.dtype), "log_error": nothing,
                    "log_error_predicted": nothing}  # fmt: skip
        recurrence = recurrence_of(ctx.model)
        start = recurrence.initial_hidden(params, inputs.shape[:1])
        found = reversal_error(
            recurrence.step, inverse_for(ctx.model), params, start, inputs.swapaxes(0, 1),
            int(back.max()),
        )  # fmt: skip
        tiny = jnp.finfo(inputs.dtype).tiny
        log_error, log_predicted = (
            0.5 * jnp.log(jnp.mean(values[back - 1] ** 2, axis=1) + tiny) for values in found
        )
        return {"exact": jnp.ones((), inputs.dtype), "log_error": log_error,
                "log_error_predicted": log_predicted}  # fmt: skip

    def scans(model: Model) -> Mapping[str, MakeScan]:
        step, undo = recurrence_of(model).step, inverse_for(model)
        ways: dict[str, MakeScan] = {
            "dense": partial(dense_scan, step),
            "segments of sqrt(T)": lambda emit: segment_scan(step, emit=emit),
        }
        for k in sorted({first_interval, longest_interval}):
            ways[f"{mode}, interval {k}"] = partial(
                lambda k, emit: rev_scan(step, undo, interval=k, mode=mode, emit=emit), k
            )
        return ways

    return Intervention(
        name="reversal_checkpointing",
        summary=summary,
        static={
            "mode": mode,
            "inverse": inverse,
            "iterations": iterations,
            "z_min": z_min,
            "controlled": controlled,
            "first_interval": first_interval,
            "longest_interval": longest_interval,
        },
        hyper={
            "threshold": Hyper(
                0.08, 0.0, 1e3, "relative defect above which checkpoints get denser", neutral=0.0
            )
        },
        requires=frozenset({"recurrent"}),
        limitations=(
            "Training emulates the reversal and stores every state; what it saves in memory and "
            "costs in time is measured apart, on gradients of a scan that frees them.",
            "The defect of single steps does not depend on the interval, so that with "
            "`controlled = 'step'` the interval moves to one end of its range unless the defect "
            "stays between half the threshold and the threshold.",
        ),
        probe_size=32,
        wrap_model=wrap_model,
        init_state=init_state,
        after_epoch=after_epoch,
        measure=measure,
        scans=scans,
        signatures=SIGNATURES,
    )
