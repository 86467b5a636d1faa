"""`stability_penalty`: keep a recurrence mean-square stable under noise on its weights.

Along the trajectory, `rho_hat` says how much one step can enlarge a mean-square deviation of the
hidden state when the weights are noisy; the penalty is `weight * mean relu(rho_hat - 1)^2`.

- level `norm`, as in the reference report: `rho_hat = (1 + sigma^2) |J|_2^2` with `J = dh'/dh`, an
  upper bound where the noise scales all of `J`; it adds about a tenth to a training step;
- level `power`: the spectral radius of the lift `P -> J P J^T + sigma^2 sum_g B_g P B_g^T` of the
  groups' own noise, by power iteration; a training step takes over ten times as long (32 units).

The exact spectral radius (`rho_dense`) has no useful gradient, so it is no level of the penalty: it
is measured on the host, against the other two.

The gradient is the full one: it goes through `J` and through the hidden states at which `J` is
taken, since the backward pass through time runs anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, MinLen

from jaxbench.base import Context, Hyper, Intervention, JaxbenchError, Recurrence
from jaxbench.interventions.mean_square import (
    DENSE_LIMIT,
    check_sigma,
    elementwise_lift_adjoint,
    elementwise_lift_apply,
    irregular,
    lift_adjoint,
    lift_apply,
    rho_dense,
    rho_norm,
    rho_power,
    top_singular_vectors,
)
from jaxbench.interventions.stability_measures import (
    exact_growth,
    first_orders,
    growth_by_power,
    growth_under_noise,
)
from jaxbench.interventions.stability_signatures import SIGNATURES
from jaxbench.interventions.weight_noise import (
    GRU_GROUPS,
    Groups,
    Step,
    first_order,
    local_jacobian,
    monte_carlo_growth,
    noise_operators,
    predicted_growth,
)

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Batch, Key, PyTree, Scalar

__all__ = [
    "GRU_GROUPS",
    "build",
    "elementwise_lift_adjoint",
    "elementwise_lift_apply",
    "first_order",
    "lift_adjoint",
    "lift_apply",
    "local_jacobian",
    "monte_carlo_growth",
    "noise_operators",
    "penalty",
    "predicted_growth",
    "rho_dense",
    "rho_norm",
    "rho_norm_along",
    "rho_power",
    "rho_power_along",
]

MEASURED_SEQUENCES = 16
MEASURED_TIMES = 10
MEASURED_POWER_STEPS = 100

# --------------------------------------------------------------------------------------------------
# The penalty
# --------------------------------------------------------------------------------------------------


def penalty(rho: Float[Array, "*points"]) -> Scalar:
    """The hinge `mean relu(rho - 1)^2` of the growths at some points: 0 where all are stable."""
    return jnp.mean(jax.nn.relu(rho - 1) ** 2)


def rho_norm_along(
    step: Step,
    params: PyTree,
    hidden: Float[Array, "points n"],
    inputs: Float[Array, "points features"],
    sigma: Scalar | float,
    steps: int = 10,
    start: Float[Array, "points n"] | None = None,
) -> Float[Array, " points"]:
    """`rho_norm` of the step's Jacobian at each point, `(1 + sigma^2) (u^T J v)^2`, matrix-free.

    The step is linearised once at all points, so that each product with `J` or `J^T` is one batched
    product, and no Jacobian is built.

    Args:
        step: `(params, hidden [n], input [features]) -> hidden [n]`.
        params: its parameters, any pytree.
        hidden: the states before the step.
        inputs: the step's inputs.
        sigma: standard deviation of the noise.
        steps: of the power iteration, from below.
        start: its first vectors.  In training they must be drawn anew each step: a network learns
            to keep `J`'s largest direction orthogonal to a fixed one, where few steps miss it.

    Raises:
        JaxbenchError: a negative sigma.
    """
    check_sigma(sigma)

    def advance(params: PyTree, hidden: Array) -> Array:
        return jax.vmap(step, (None, 0, 0))(params, hidden, inputs)

    if start is None:
        start = jnp.broadcast_to(irregular(hidden.shape[-1], hidden.dtype), hidden.shape)
    frozen_params, frozen = jax.lax.stop_gradient((params, hidden))
    _, forward = jax.linearize(partial(advance, frozen_params), frozen)
    transpose = jax.linear_transpose(forward, frozen)
    left, right = top_singular_vectors(forward, lambda u: transpose(u)[0], start, steps)
    _, stretched = jax.jvp(partial(advance, params), (hidden,), (right,))
    return (1 + sigma**2) * jnp.sum(left * stretched, axis=-1) ** 2


def rho_power_along(
    step: Step,
    params: PyTree,
    hidden: Float[Array, "points n"],
    inputs: Float[Array, "points features"],
    sigma: Scalar | float,
    groups: Groups,
    steps: int = 20,
) -> Float[Array, " points"]:
    """`rho_power` of the lift at each point, of the step's Jacobian and the groups' noise.

    Arguments as for `rho_norm_along`; `groups` as for `group_members`.
    """

    def at(hidden: Array, inputs: Array) -> Array:
        order = first_order(step, params, hidden, inputs, groups)
        return rho_power(order.J, order.B, sigma, steps)

    return jax.vmap(at)(hidden, inputs)


def recurrence_of(ctx: Context) -> Recurrence:
    """The recurrence of the model that trains, or an error that says that it has none."""
    if ctx.model.recurrence is None:
        raise JaxbenchError(
            f"stability_penalty needs a recurrent model, but {ctx.model.name!r} has no recurrence"
        )
    return ctx.model.recurrence


def trajectory_points(
    recurrence: Recurrence,
    params: PyTree,
    inputs: Float[Array, "batch time features"],
    hidden: Float[Array, "batch time n"],
    samples: Int[Array | np.ndarray, "samples 1"],
    times: Int[Array | np.ndarray, "samples times"],
) -> tuple[Float[Array, "points n"], Float[Array, "points features"]]:
    """The hidden states before the steps `times` of these `samples`, and the steps' inputs."""
    first = recurrence.initial_hidden(params, times.shape)
    before = jnp.where((times > 0)[..., None], hidden[samples, jnp.maximum(times - 1, 0)], first)
    now = inputs[samples, times]
    return before.reshape(-1, before.shape[-1]), now.reshape(-1, now.shape[-1])


# --------------------------------------------------------------------------------------------------
# The intervention
# --------------------------------------------------------------------------------------------------


def build(
    *,
    level: Literal["norm", "power"] = "norm",
    samples: Annotated[int, Ge(1)] = 8,
    times: Annotated[int, Ge(1)] = 5,
    power_steps: Annotated[int, Ge(1)] | None = None,
    groups: Annotated[dict[str, list[str]], MinLen(1)] | None = None,
    noise_levels: Annotated[list[Annotated[float, Gt(0)]], MinLen(1)] | None = None,
    test_sequences: Annotated[int, Ge(1)] = 4,
    paths: Annotated[int, Ge(2)] = 256,
    exact_points: Annotated[int, Ge(0)] = 1,
) -> Intervention:
    """A penalty on the mean-square growth of a recurrence, `weight * mean relu(rho_hat - 1)^2`.

    Args:
        level: how `rho_hat` is estimated: `norm` as reported, or `power`.
        samples: sequences of the batch at which it is taken, drawn anew each step.
        times: time steps of each such sequence, drawn anew each step.
        power_steps: of its power iteration; if not given, 10 for `norm` and 20 for `power`.
        groups: weights that share a noise: {name: globs of leaf paths}; if not given, those of a
            GRU: each recurrent kernel, and the input kernels together.
        noise_levels: sigmas of the signatures; if not given, 0.05, 0.1, 0.2 and 0.4.
        test_sequences: test sequences of the signatures' noisy runs.
        paths: noise paths of each; the relative sampling error is at most `sqrt(2 / paths)`, 9 % at
            256 paths, and about half of it in a trained network.
        exact_points: trajectory points with an exact `rho`, in models of up to 64 hidden units.
    """
    chosen = groups or GRU_GROUPS
    levels = noise_levels or [0.05, 0.1, 0.2, 0.4]
    training_steps = power_steps or {"norm": 10, "power": 20}[level]

    def rho_along(
        step: Step,
        params: PyTree,
        hidden: Array,
        inputs: Array,
        sigma: Scalar,
        steps: int,
        start: Array | None = None,
    ) -> Array:
        if level == "norm":
            return rho_norm_along(step, params, hidden, inputs, sigma, steps, start)
        return rho_power_along(step, params, hidden, inputs, sigma, chosen, steps)

    def loss_term(
        ctx: Context,
        params: PyTree,
        state: PyTree,
        batch: Batch,
        outputs: Any,
        intermediates: Mapping[str, Any],
        step: Any,
        key: Key,
    ) -> Scalar:
        del state, outputs, step
        recurrence, hidden = recurrence_of(ctx), intermediates["hidden"]
        size, length, n = hidden.shape
        bits = jax.random.bits(key, (samples, 1 + times + times * n), jnp.uint32)
        at_samples, at_times = bits[:, :1] % size, (bits[:, 1 : 1 + times] % length).astype(int)
        where = trajectory_points(recurrence, params, batch.inputs, hidden, at_samples, at_times)
        signed = jax.lax.bitcast_convert_type(bits[:, 1 + times :], jnp.int32)
        start = signed.reshape(samples * times, n).astype(hidden.dtype) * 2.0**-31
        rho = rho_along(recurrence.step, params, *where, ctx.hyper["sigma"], training_steps, start)
        return ctx.hyper["weight"] * penalty(rho)

    def measure(ctx: Context, params: PyTree, state: PyTree, test: Batch) -> dict[str, Any]:
        recurrence, sigma = recurrence_of(ctx), ctx.hyper["sigma"]
        _, intermediates = ctx.model.apply(params, test.inputs, ctx=ctx, state=state)
        hidden = intermediates["hidden"]
        at_samples = np.linspace(0, hidden.shape[0] - 1, MEASURED_SEQUENCES).astype(int)[:, None]
        at_times = np.linspace(0, hidden.shape[1] - 1, MEASURED_TIMES).astype(int)[None, :]
        at_times = np.repeat(at_times, MEASURED_SEQUENCES, axis=0)
        where = trajectory_points(recurrence, params, test.inputs, hidden, at_samples, at_times)
        rho = rho_along(recurrence.step, params, *where, sigma, MEASURED_POWER_STEPS)
        energy = jnp.mean(jnp.sum(hidden**2, axis=-1), axis=0)
        rho_hat, growth = jnp.mean(rho), jnp.sum(energy[1:]) / jnp.sum(energy[:-1])
        inputs = test.inputs[:test_sequences]
        exact = {}
        if exact_points and hidden.shape[-1] <= DENSE_LIMIT:
            orders = first_orders(recurrence, params, test.inputs[0], chosen, exact_points)
            exact = growth_by_power(orders, sigma)
        return {
            "rho_hat": rho_hat,
            "state_growth": growth,
            "relative_error": jnp.abs(rho_hat - growth) / rho_hat,
            "active_fraction": jnp.mean(rho > 1, dtype=rho.dtype),
            "weight": ctx.hyper["weight"],
            "sigma": sigma,
            "pair": jax.random.key_data(ctx.key),
            **growth_under_noise(recurrence, params, inputs, chosen, levels, ctx.key, paths),
            **exact,
        }

    def measure_host(
        ctx: Context, params: PyTree, state: PyTree, test: Batch
    ) -> dict[str, np.ndarray]:
        del params, state, test
        if "exact_J" not in ctx.measured:
            return {}
        Js, Bs = ctx.measured["exact_J"], ctx.measured["exact_B"]
        return exact_growth(Js, Bs, float(ctx.hyper["sigma"]))

    return Intervention(
        name="stability_penalty",
        summary="penalise the mean-square growth of the recurrence under weight noise",
        static={
            "level": level,
            "samples": samples,
            "times": times,
            "power_steps": training_steps,
            "groups": chosen,
            "noise_levels": levels,
            "test_sequences": test_sequences,
            "paths": paths,
            "exact_points": exact_points,
        },
        hyper={
            "weight": Hyper(1.0, 0.0, 1e6, "weight of the penalty in the loss", neutral=0.0),
            "sigma": Hyper(0.2, 0.0, 1.0, "relative standard deviation of the weights' noise"),
        },
        requires=frozenset({"recurrent"}),
        limitations=(
            "The norm bounds the growth of one step only: over many steps, and for non-normal "
            "Jacobians, it can lie far above the growth of deviations.",
            "Few power steps find rho_hat a few per cent too low, so that the hinge leaves it a "
            "little above 1.",
            "The lift is a first-order prediction: it is too low under large noise.",
        ),
        loss_term=loss_term,
        measure=measure,
        measure_host=measure_host if exact_points else None,
        host_only=("exact_J", "exact_B"),
        surgery_static=("noise_levels", "test_sequences", "paths", "exact_points"),
        signatures=SIGNATURES,
    )
