"""`spectral_normalisation`: keep the spectral norm of recurrent kernels at a bound.

The forward pass uses `W min(1, bound / s(W))` with `s(W) = |W|_2 = u^T W v`: at `bound = 1` that is
`W / s(W)` of Miyato et al. (2018) wherever `s(W) > 1`, and the kernel itself below.  The gradient
goes through `s(W)` with `u` and `v` held fixed, as there.  The power iteration starts from the
direction that was found after the last epoch, which is carried as state, and from a fresh random
one: a network could keep its largest direction orthogonal to a fixed start.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, MinLen

from jaxbench.base import Context, Hyper, Intervention, Model
from jaxbench.interventions.growth_along import (
    MEASURED_POWER_STEPS,
    measure_growth,
    recurrence_of,
    rho_norm_along,
)
from jaxbench.interventions.mean_square import TINY, top_singular_vectors, unit
from jaxbench.interventions.noisy_recurrence import run_clean
from jaxbench.interventions.robustness import Robustness
from jaxbench.interventions.weight_noise import group_members

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Batch, Key, PyTree, Scalar

__all__ = ["bound_norms", "build", "chosen_kernels", "spectral_norm"]

GRU_KERNELS = ("*hr/kernel", "*hz/kernel", "*hn/kernel")
REFRESHING_STEPS = 100
"""Power iterations after an epoch, from which the next one's start is carried."""

STREAM = zlib.crc32(b"spectral_normalisation")
"""Keys of the directions, apart from those of the steps."""

Directions = list[Any]
"""One right singular vector a kernel, in the order of leaves."""


# --------------------------------------------------------------------------------------------------
# Spectral norms
# --------------------------------------------------------------------------------------------------


def spectral_norm(
    kernel: Float[Array, "inputs outputs"], start: Float[Array, " outputs"], steps: int
) -> tuple[Scalar, Float[Array, " outputs"]]:
    """The spectral norm `u^T W v` and the direction `v`, by power iteration from `start`.

    It approaches the norm from below; its gradient is `u v^T`.

    Args:
        kernel: `W`.
        start: the first `v`.
        steps: of the power iteration on `W^T W`.
    """
    frozen = jax.lax.stop_gradient(kernel)
    left, right = top_singular_vectors(lambda v: frozen @ v, lambda u: u @ frozen, start, steps)
    return left @ kernel @ right, right


def chosen_kernels(params: PyTree, kernels: Sequence[str]) -> list[int]:
    """The places, in the order of leaves, of the kernels that these globs name.

    Raises:
        JaxbenchError: a glob that matches no leaf.
    """
    members = group_members(params, {glob: glob for glob in kernels})
    return [place for place, numbers in enumerate(members) if numbers]


def bound_norms(
    params: PyTree, kernels: Sequence[str], bound: Scalar | float, starts: Directions, steps: int
) -> tuple[PyTree, Float[Array, " kernels"], Directions]:
    """Scale kernels to a spectral norm of at most `bound`, `W min(1, bound / s(W))`.

    Args:
        params: any pytree.
        kernels: globs of the paths of its kernels [inputs, outputs].
        bound: of the norm.
        starts: the first direction of each kernel's power iteration [outputs].
        steps: of the power iteration.

    Returns:
        the scaled parameters, the norms of the given kernels, and their directions.
    """
    leaves, structure = jax.tree.flatten(params)
    places = chosen_kernels(params, kernels)
    found = [spectral_norm(leaves[p], v, steps) for p, v in zip(places, starts, strict=True)]
    for place, (norm, _) in zip(places, found, strict=True):
        leaves[place] = leaves[place] * jnp.minimum(1, bound / jnp.maximum(norm, TINY))
    norms = jnp.stack([norm for norm, _ in found])
    return jax.tree.unflatten(structure, leaves), norms, [direction for _, direction in found]


def draw_directions(params: PyTree, kernels: Sequence[str], key: Key) -> Directions:
    """A random unit vector for each kernel."""
    leaves, places = jax.tree.leaves(params), chosen_kernels(params, kernels)
    return [
        unit(jax.random.normal(own, leaves[place].shape[1:], leaves[place].dtype))
        for place, own in zip(places, jax.random.split(key, len(places)), strict=True)
    ]


# --------------------------------------------------------------------------------------------------
# The intervention
# --------------------------------------------------------------------------------------------------


def build(
    *,
    kernels: Annotated[list[str], MinLen(1)] | None = None,
    power_steps: Annotated[int, Ge(1)] = 5,
    measured_sigma: Annotated[float, Ge(0)] = 0.2,
    score_noise: Annotated[float, Gt(0)] | None = None,
    bits: Annotated[list[Annotated[int, Ge(2)]], MinLen(1)] | None = None,
    rollout_steps: Annotated[list[Annotated[int, Ge(1)]], MinLen(1)] | None = None,
) -> Intervention:
    """Spectral normalisation of the recurrent kernels, `W min(1, bound / |W|_2)`.

    Args:
        kernels: globs of leaf paths; if not given, the three recurrent kernels of a GRU.
        power_steps: of the power iteration in each training step.
        measured_sigma: sigma at which `rho_hat` and the hinge's active fraction are measured.
        score_noise: sigma of the weight noise under which the test split is scored too; an
            endpoint.
        bits: numbers of bits to which the kernels are rounded and scored too; an endpoint.
        rollout_steps: lengths at which new sequences are scored too; an endpoint.
    """
    chosen = tuple(kernels or GRU_KERNELS)
    further = Robustness(score_noise, bits or (), rollout_steps or ())

    def wrap_model(model: Model) -> Model:
        """Bound the kernels in `apply`; the recurrence takes them as they are given."""

        def apply(
            params: PyTree, inputs: Any, *, ctx: Any = None, state: Any = None, key: Any = None
        ) -> tuple[Any, dict[str, Any]]:
            starts = state
            if key is not None:
                fresh = draw_directions(params, chosen, key)
                starts = [old + new for old, new in zip(state, fresh, strict=True)]
            bounded, _, _ = bound_norms(params, chosen, ctx.hyper["bound"], starts, power_steps)
            return model.apply(bounded, inputs, ctx=ctx, state=state, key=key)

        return dataclasses.replace(model, apply=apply)

    def refreshed(params: PyTree, key: Key, state: Directions) -> Directions:
        fresh = draw_directions(params, chosen, key)
        starts = [old + new for old, new in zip(state, fresh, strict=True)]
        return bound_norms(params, chosen, 1.0, starts, REFRESHING_STEPS)[2]

    def key_at(ctx: Context, epoch: Any) -> Key:
        return jax.random.fold_in(jax.random.fold_in(ctx.key, STREAM), epoch)

    def init_state(ctx: Context) -> Directions:
        start = draw_directions(ctx.params0, chosen, ctx.key)
        return refreshed(ctx.params0, key_at(ctx, 0), start)

    def after_epoch(
        ctx: Context, params: PyTree, opt_state: PyTree, state: Directions, epoch: Any
    ) -> tuple[PyTree, PyTree, Directions, dict[str, Scalar]]:
        state = refreshed(params, key_at(ctx, epoch + 1), state)
        _, norms, _ = bound_norms(params, chosen, ctx.hyper["bound"], state, 1)
        active = jnp.mean(norms > ctx.hyper["bound"], dtype=norms.dtype)
        return params, opt_state, state, {"spectral_norm": norms.max(), "bound_active": active}

    def measure(ctx: Context, params: PyTree, state: Directions, test: Batch) -> dict[str, Any]:
        recurrence, sigma = recurrence_of(ctx), jnp.asarray(measured_sigma, jnp.float32)
        bound = ctx.hyper["bound"]
        bounded, norms, _ = bound_norms(params, chosen, bound, state, power_steps)
        rho = partial(rho_norm_along, recurrence.step, sigma=sigma, steps=MEASURED_POWER_STEPS)
        hidden = run_clean(recurrence, bounded, test.inputs)
        return {
            **measure_growth(recurrence, bounded, test.inputs, hidden, rho),
            "spectral_norm": norms.max(),
            "bound_active": jnp.mean(norms > bound, dtype=norms.dtype),
            "pair": jax.random.key_data(ctx.key),
            **further.measure(ctx, recurrence, bounded, test, sigma),
        }

    return Intervention(
        name="spectral_normalisation",
        summary="bound the spectral norm of the recurrent kernels in the forward pass",
        static={
            "kernels": list(chosen),
            "power_steps": power_steps,
            "measured_sigma": measured_sigma,
            **further.static,
        },
        hyper={
            "bound": Hyper(1.0, 1e-3, 1e6, "greatest spectral norm of a kernel", neutral=1e6),
        },
        requires=frozenset({"recurrent"}),
        limitations=(
            "It bounds each kernel, not the Jacobian of the gated step, whose norm can exceed 1.",
        ),
        wrap_model=wrap_model,
        init_state=init_state,
        after_epoch=after_epoch,
        measure=measure,
        surgery_static=("measured_sigma", "score_noise", "bits", "rollout_steps"),
        endpoints=further.endpoints,
    )
