"""`noise_injection`: train a recurrence with noisy weights, and evaluate it without the noise.

In the forward pass of each training step, each group of weights is multiplied by `1 + sigma w_g`,
with a standard normal `w_g` for each sample and time step (Murray and Edwards 1994; Jim, Giles and
Horne 1996).  Validation and test are clean.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, MinLen

from jaxbench.base import Context, Hyper, Intervention, JaxbenchError, Model
from jaxbench.interventions.growth_along import (
    MEASURED_POWER_STEPS,
    measure_growth,
    recurrence_of,
    rho_norm_along,
)
from jaxbench.interventions.noisy_recurrence import run_clean, run_noisy
from jaxbench.interventions.robustness import Robustness
from jaxbench.interventions.weight_noise import GRU_GROUPS, Groups

if TYPE_CHECKING:
    from jaxbench.base import Batch, PyTree

__all__ = ["build", "inject", "run_noisy"]


def inject(model: Model, groups: Groups) -> Model:
    """The model with noise of `ctx.hyper["sigma"]` wherever it is given a key.

    Args:
        model: a recurrent model.
        groups: which weights share a noise, as for `group_members`.

    Raises:
        JaxbenchError: the model has no recurrence.
    """
    recurrence = model.recurrence
    if recurrence is None:
        raise JaxbenchError(
            f"noise_injection needs a recurrent model, but {model.name!r} has no recurrence"
        )

    def apply(
        params: PyTree, inputs: Any, *, ctx: Any = None, state: Any = None, key: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        if key is None:
            return model.apply(params, inputs, ctx=ctx, state=state, key=key)
        hidden = run_noisy(recurrence, params, inputs, groups, ctx.hyper["sigma"], key)
        return recurrence.readout(params, hidden), {"hidden": hidden}

    return dataclasses.replace(model, apply=apply)


def build(
    *,
    groups: Annotated[dict[str, list[str]], MinLen(1)] | None = None,
    measured_sigma: Annotated[float, Ge(0)] = 0.2,
    score_noise: Annotated[float, Gt(0)] | None = None,
    bits: Annotated[list[Annotated[int, Ge(2)]], MinLen(1)] | None = None,
    rollout_steps: Annotated[list[Annotated[int, Ge(1)]], MinLen(1)] | None = None,
) -> Intervention:
    """Multiplicative noise on the weights of a recurrence in training.

    Args:
        groups: weights that share a noise: {name: globs of leaf paths}; if not given, those of a
            GRU: each recurrent kernel, and the input kernels together.
        measured_sigma: sigma at which `rho_hat` and the hinge's active fraction are measured.
        score_noise: sigma of the weight noise under which the test split is scored too; an
            endpoint.
        bits: numbers of bits to which the kernels are rounded and scored too; an endpoint.
        rollout_steps: lengths at which new sequences are scored too; an endpoint.
    """
    chosen = groups or GRU_GROUPS
    further = Robustness(score_noise, bits or (), rollout_steps or (), chosen)

    def measure(ctx: Context, params: PyTree, state: PyTree, test: Batch) -> dict[str, Any]:
        del state
        recurrence, sigma = recurrence_of(ctx), jnp.asarray(measured_sigma, jnp.float32)
        rho = partial(rho_norm_along, recurrence.step, sigma=sigma, steps=MEASURED_POWER_STEPS)
        hidden = run_clean(recurrence, params, test.inputs)
        return {
            **measure_growth(recurrence, params, test.inputs, hidden, rho),
            "pair": jax.random.key_data(ctx.key),
            **further.measure(ctx, recurrence, params, test, sigma),
        }

    return Intervention(
        name="noise_injection",
        summary="train with multiplicative noise on the weights of the recurrence",
        static={"groups": chosen, "measured_sigma": measured_sigma, **further.static},
        hyper={
            "sigma": Hyper(
                0.2, 0.0, 1.0, "relative standard deviation of the weights' noise", neutral=0.0
            )
        },
        requires=frozenset({"recurrent"}),
        limitations=("Its noise is drawn for each sample and time step, by group of weights.",),
        wrap_model=lambda model: inject(model, chosen),
        measure=measure,
        surgery_static=("measured_sigma", "score_noise", "bits", "rollout_steps"),
        endpoints=further.endpoints,
    )
