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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, MinLen

from jaxbench.base import Context, Hyper, Intervention, JaxbenchError
from jaxbench.interventions.growth_along import (
    MEASURED_POWER_STEPS,
    measure_growth,
    penalty,
    recurrence_of,
    rho_norm_along,
    rho_power_along,
    trajectory_points,
)
from jaxbench.interventions.mean_square import (
    DENSE_LIMIT,
    elementwise_lift_adjoint,
    elementwise_lift_apply,
    lift_adjoint,
    lift_apply,
    rho_dense,
    rho_norm,
    rho_power,
)
from jaxbench.interventions.quantisation import predicted_rounding, quantise
from jaxbench.interventions.robustness import Robustness
from jaxbench.interventions.stability_measures import (
    evenly_spread,
    exact_growth,
    growth_by_power,
    growth_under_noise,
)
from jaxbench.interventions.stability_signatures import SIGNATURES
from jaxbench.interventions.structured_noise import (
    relative_levels,
    root_mean_square,
    sigma_hyper,
    sigma_of,
)
from jaxbench.interventions.weight_noise import (
    GRU_GROUPS,
    Step,
    first_order,
    local_jacobian,
    monte_carlo_growth,
    noise_operators,
    predicted_growth,
)

if TYPE_CHECKING:
    from jaxtyping import Array

    from jaxbench.base import Batch, Key, PyTree, Scalar
    from jaxbench.interventions.mean_square import Sigma

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
    "predicted_rounding",
    "quantise",
    "rho_dense",
    "rho_norm",
    "rho_norm_along",
    "rho_power",
    "rho_power_along",
    "trajectory_points",
]

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
    sigma_groups: Annotated[list[str], MinLen(1)] | None = None,
    score_noise: Annotated[float, Gt(0)] | None = None,
    bits: Annotated[list[Annotated[int, Ge(2)]], MinLen(1)] | None = None,
    rollout_steps: Annotated[list[Annotated[int, Ge(1)]], MinLen(1)] | None = None,
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
        sigma_groups: groups whose noise has a sigma of its own, the hyperparameter
            `sigma_<group>`; needs level `power`.  The signatures' sigmas are then root mean squares
            over groups.
        score_noise: sigma of the weight noise under which the test split is scored too; an
            endpoint.
        bits: numbers of bits to which the kernels are rounded and scored too; an endpoint.
        rollout_steps: lengths at which new sequences are scored too; an endpoint.
    """
    chosen = groups or GRU_GROUPS
    own = sigma_groups or []
    noise_hyper = sigma_hyper(chosen, own)
    if own and level == "norm":
        raise JaxbenchError(
            "sigma_groups needs level = 'power': the norm of J knows one sigma for all weights"
        )
    further = Robustness(score_noise, bits or (), rollout_steps or (), chosen)
    levels = noise_levels or [0.05, 0.1, 0.2, 0.4]
    training_steps = power_steps or {"norm": 10, "power": 20}[level]

    def rho_along(
        step: Step,
        params: PyTree,
        hidden: Array,
        inputs: Array,
        sigma: Sigma,
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
        sigma = sigma_of(ctx.hyper, chosen, own)
        rho = rho_along(recurrence.step, params, *where, sigma, training_steps, start)
        return ctx.hyper["weight"] * penalty(rho)

    def measure(ctx: Context, params: PyTree, state: PyTree, test: Batch) -> dict[str, Any]:
        recurrence, noise = recurrence_of(ctx), sigma_of(ctx.hyper, chosen, own)
        _, intermediates = ctx.model.apply(params, test.inputs, ctx=ctx, state=state)

        def rho(params: PyTree, hidden: Array, now: Array) -> Array:
            return rho_along(recurrence.step, params, hidden, now, noise, MEASURED_POWER_STEPS)

        grown = measure_growth(recurrence, params, test.inputs, intermediates["hidden"], rho)
        inputs = test.inputs[:test_sequences]
        at_levels = relative_levels(noise, levels) if own else None
        noisy, orders = growth_under_noise(
            recurrence, params, inputs, chosen, levels, ctx.key, paths, at_levels
        )
        exact = {}
        if exact_points and intermediates["hidden"].shape[-1] <= DENSE_LIMIT:
            exact = growth_by_power(evenly_spread(orders, exact_points), noise)
        return {
            **grown,
            "weight": ctx.hyper["weight"],
            "sigma": root_mean_square(noise) if own else noise,
            "pair": jax.random.key_data(ctx.key),
            **noisy,
            **exact,
            **further.measure(ctx, recurrence, params, test, noise),
        }

    def measure_host(
        ctx: Context, params: PyTree, state: PyTree, test: Batch
    ) -> dict[str, np.ndarray]:
        del params, state, test
        if "exact_J" not in ctx.measured:
            return {}
        Js, Bs = ctx.measured["exact_J"], ctx.measured["exact_B"]
        sigma = np.asarray(sigma_of(ctx.hyper, chosen, own), np.float64)
        return exact_growth(Js, Bs, sigma)

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
            **({"sigma_groups": own} if own else {}),
            **further.static,
        },
        hyper={
            "weight": Hyper(1.0, 0.0, 1e6, "weight of the penalty in the loss", neutral=0.0),
            **noise_hyper,
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
        surgery_static=(
            "noise_levels",
            "test_sequences",
            "paths",
            "exact_points",
            *further.static,
        ),
        signatures=SIGNATURES,
        endpoints=further.endpoints,
    )
