"""Quantised weights, and how far rounding drives the hidden state of a recurrence.

A kernel `W` with `b` bits is `W_q = D round(W / D)`, `D = max|W| / (2^(b-1) - 1)`: a symmetric
uniform grid over its range.  Its errors are taken as independent, uniform in `[-D/2, D/2]`, with
variance `D^2 / 12` (Widrow and Kollar 2008).  Two predictions follow, both to first order in
`delta = h_q - h`, with `J = dF/dh` and `b_ij = dF/dW_ij` of the step `F`:

- `redrawn`: errors drawn anew each time step, as in the lift,
  `P' = J P J^T + sum_ij s_ij^2 (b_ij b_ij^T + B_ij P B_ij^T)`;
- `constant`: errors that stay, as a quantised network's do, so that their effects add up with
  their signs, `S_ij' = J S_ij + b_ij`, `E|delta|^2 = sum_ij s_ij^2 |S_ij|^2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbench.base import JaxbenchError
from jaxbench.interventions.mean_square import TINY
from jaxbench.interventions.weight_noise import Step, group_members

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import PyTree

RECURRENT = ("*h[rzn]/kernel",)
"""The leaves of a GRU that multiply the hidden state."""
INPUT = ("*i[rzn]/kernel",)
"""Those that multiply the input."""


def quantisation_step(kernel: Float[Array, "*shape"], bits: int) -> Float[Array, ""]:
    """The distance `max|W| / (2^(bits-1) - 1)` of the grid's levels, of which 0 is one.

    Raises:
        JaxbenchError: fewer than 2 bits.
    """
    if bits < 2:
        raise JaxbenchError(f"a signed weight needs at least 2 bits, but came bits = {bits}")
    return jnp.max(jnp.abs(kernel)) / (2 ** (bits - 1) - 1)


def quantise(params: PyTree, bits: int, kernels: Sequence[str] = (*RECURRENT, *INPUT)) -> PyTree:
    """Round kernels to `bits` bits, each leaf on its own grid; everything else stays.

    Args:
        params: any pytree.
        bits: of each weight, at least 2.
        kernels: globs of the leaves' paths.

    Raises:
        JaxbenchError: fewer than 2 bits, or a glob that matches no leaf.
    """
    members = group_members(params, {glob: glob for glob in kernels})

    def round_off(leaf: Array) -> Array:
        step = jnp.maximum(quantisation_step(leaf, bits), TINY)
        return step * jnp.round(leaf / step)

    leaves, structure = jax.tree.flatten(params)
    rounded = [
        round_off(leaf) if numbers else leaf for leaf, numbers in zip(leaves, members, strict=True)
    ]
    return jax.tree.unflatten(structure, rounded)


class RoundingGrowth(NamedTuple):
    """`E|delta|^2` after each time step [bits, time], with errors redrawn each step or constant."""

    redrawn: Any
    constant: Any


def predicted_rounding(
    step: Step,
    params: PyTree,
    start: Float[Array, " n"],
    inputs: Float[Array, "time features"],
    bits: Sequence[int],
    recurrent: Sequence[str] = RECURRENT,
    others: Sequence[str] = INPUT,
) -> RoundingGrowth:
    """Predict how far quantised kernels drive the hidden state, with `s = D / sqrt(12)`.

    Of `B_ij = dJ/dW_ij` only the diagonal form is kept, `sum_ij B_ij P B_ij^T = tr P sum_j d_j
    d_j^T` for a kernel that multiplies `h`, with `b_ij = d_j h_i`: exact where the step is linear
    in `h`.  What an error does to the slopes of the gates is of the same order and left out.

    Args:
        step: `F`, `(params, hidden [n], input [features]) -> hidden [n]`.
        params: its parameters.
        start: the first hidden state.
        inputs: of every time step.
        bits: numbers of bits, each at least 2.
        recurrent: globs of the kernels that multiply the hidden state.
        others: globs of other kernels that are quantised.

    Raises:
        JaxbenchError: fewer than 2 bits, or a glob that matches no leaf.
    """
    members = group_members(params, {glob: glob for glob in (*recurrent, *others)})
    leaves, structure = jax.tree.flatten(params)
    chosen = [place for place, numbers in enumerate(members) if numbers]
    kernels = [leaves[place] for place in chosen]
    on_hidden = jnp.asarray([min(members[p]) < len(recurrent) for p in chosen], start.dtype)
    steps = jnp.stack([jnp.stack([quantisation_step(k, b) for k in kernels]) for b in bits])
    variances = steps**2 / 12  # [bits, kernels]

    def advance(kernels: list[Array], hidden: Array, now: Array) -> Array:
        changed = list(leaves)
        for place, kernel in zip(chosen, kernels, strict=True):
            changed[place] = kernel
        return step(jax.tree.unflatten(structure, changed), hidden, now)

    def move(carry: tuple[Array, Array, list[Array]], now: Array) -> tuple[Any, tuple[Any, Any]]:
        hidden, moments, sums = carry
        slopes, J = jax.jacrev(advance, argnums=(0, 1))(kernels, hidden, now)
        slopes = [each.reshape(hidden.size, -1) for each in slopes]
        sources = jnp.stack([each @ each.T for each in slopes])  # sum_ij b_ij b_ij^T
        share = on_hidden / jnp.maximum(hidden @ hidden, TINY)

        def later(variances: Array, P: Array) -> Array:
            weights = variances * (1 + share * jnp.trace(P))
            return J @ P @ J.T + jnp.einsum("k,kij->ij", weights, sources)

        moments = jax.vmap(later)(variances, moments)
        sums = [J @ S + b for S, b in zip(sums, slopes, strict=True)]
        constant = variances @ jnp.stack([jnp.sum(S**2) for S in sums])
        after = (advance(kernels, hidden, now), moments, sums)
        return after, (jnp.trace(moments, axis1=1, axis2=2), constant)

    n = start.size
    nothing = [jnp.zeros((n, kernel.size), start.dtype) for kernel in kernels]
    zero = jnp.zeros((len(bits), n, n), start.dtype)
    _, (redrawn, constant) = jax.lax.scan(move, (start, zero, nothing), inputs)
    return RoundingGrowth(redrawn.T, constant.T)
