"""`rev_gru_small`: one reversible GRU layer with a linear head.

The state has two halves, `h = (a, b)`, and each is updated by gates that read the other:
`a' = z(b) a + (1 - z(b)) n(b)`, `b' = z(a') b + (1 - z(a')) n(a')`.  Since `a'` and `b'` are known
afterwards, the gates can be computed again, and the step is undone by dividing by `z`.  Each
division enlarges rounding errors by up to `1 / z`, so `z` is kept in `[z_min, 1]` (MacKay et al.
2018, "Reversible recurrent neural networks", section 3.2).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Gt, Le, MultipleOf
from flax import linen as nn

from jaxbench.base import Model, Recurrence
from jaxbench.models.recurrent_states import states_along

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

HALVES = ("first", "second")
HEAD = "Dense_0"


class GatedHalf(nn.Module):
    """Holds one half's maps to its three gates: from the input with bias, from the other half."""

    width: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "batch features"]) -> Float[Array, "batch gates"]:
        """Create the parameters for inputs of this width."""
        other = jnp.zeros((*inputs.shape[:-1], self.width), inputs.dtype)
        dense = partial(nn.Dense, 3 * self.width, param_dtype=float)
        return dense(name="input")(inputs) + dense(use_bias=False, name="recurrent")(other)


class ReversibleGRUNetwork(nn.Module):
    """Two gated halves and a linear head: the parameters of `rev_gru_small`."""

    hidden: int
    outputs: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "batch time features"]) -> Float[Array, "batch y"]:
        """Create the parameters for inputs of this width."""
        for half in HALVES:
            GatedHalf(self.hidden // 2, name=half)(inputs[:, 0])
        head = nn.Dense(self.outputs, param_dtype=float, name=HEAD)
        return head(jnp.zeros((1, self.hidden), inputs.dtype))


def half_gates(
    half: PyTree,
    other: Float[Array, "*batch width"],
    inputs: Float[Array, "*batch features"],
    z_min: float,
) -> tuple[Float[Array, "*batch width"], Float[Array, "*batch width"]]:
    """The gate `z` and candidate `n` of one half, from the other half and the input.

    `z = z_min + (1 - z_min) sigmoid(.)`, `n = tanh(W_in x + b_in + r W_hn other)`.
    """
    products = inputs @ half["input"]["kernel"]
    from_input = products + jnp.broadcast_to(half["input"]["bias"], products.shape)
    input_r, input_z, input_n = jnp.split(from_input, 3, axis=-1)
    other_r, other_z, other_n = jnp.split(other @ half["recurrent"]["kernel"], 3, axis=-1)
    reset = jax.nn.sigmoid(input_r + other_r)
    update = z_min + (1 - z_min) * jax.nn.sigmoid(input_z + other_z)
    return update, jnp.tanh(input_n + reset * other_n)


def rev_gru_step(
    params: PyTree,
    hidden: Float[Array, "*batch hidden"],
    inputs: Float[Array, "*batch features"],
    z_min: float,
) -> Float[Array, "*batch hidden"]:
    """One step: the first half by the second, then the second by the new first."""
    a, b = jnp.split(hidden, 2, axis=-1)
    update, candidate = half_gates(params["first"], b, inputs, z_min)
    a = update * a + (1 - update) * candidate
    update, candidate = half_gates(params["second"], a, inputs, z_min)
    b = update * b + (1 - update) * candidate
    return jnp.concatenate([a, b], axis=-1)


def rev_gru_inverse(
    params: PyTree,
    hidden: Float[Array, "*batch hidden"],
    inputs: Float[Array, "*batch features"],
    z_min: float,
) -> Float[Array, "*batch hidden"]:
    """The state before a step, from the one after it: the second half first."""
    a, b = jnp.split(hidden, 2, axis=-1)
    update, candidate = half_gates(params["second"], a, inputs, z_min)
    b = (b - (1 - update) * candidate) / update
    update, candidate = half_gates(params["first"], b, inputs, z_min)
    a = (a - (1 - update) * candidate) / update
    return jnp.concatenate([a, b], axis=-1)


def build(
    *,
    outputs: int,
    hidden: Annotated[int, Gt(0), MultipleOf(2)] = 32,
    z_min: Annotated[float, Gt(0), Le(1)] = 0.5,
) -> Model:
    """Build a reversible GRU with a linear head, over inputs [batch, time, features].

    Its intermediates are `hidden` [batch, time, hidden], the state after each step.

    Args:
        outputs: width of the outputs, given by the track.
        hidden: units of both halves together.
        z_min: the least value of the update gates; a step loses up to `log2(1 / z_min)` bits.
    """
    network = ReversibleGRUNetwork(hidden, outputs)

    def init(key: Key, inputs: Float[Array, "batch time features"]) -> PyTree:
        return network.init(key, inputs)["params"]

    def initial_hidden(params: PyTree, batch_shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*batch_shape, hidden), params[HEAD]["kernel"].dtype)

    def step(params: PyTree, state: Array, inputs: Array) -> Array:
        return rev_gru_step(params, state, inputs, z_min)

    def inverse(params: PyTree, state: Array, inputs: Array) -> Array:
        return rev_gru_inverse(params, state, inputs, z_min)

    def readout(params: PyTree, state: Array) -> Array:
        products = state @ params[HEAD]["kernel"]
        return products + jnp.broadcast_to(params[HEAD]["bias"], products.shape)

    def apply(
        params: PyTree,
        inputs: Float[Array, "batch time features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        start = initial_hidden(params, inputs.shape[:1])
        states = states_along(lambda hidden, now: step(params, hidden, now), start, inputs)
        return readout(params, states), {"hidden": states}

    def flops(input_shape: tuple[int, ...]) -> float:
        time, features = input_shape
        half = hidden // 2
        gates = 2 * 2 * 3 * half * (features + half)
        return float(time * (gates + 2 * hidden * outputs))

    return Model(
        name="rev_gru_small",
        summary="one reversible GRU layer with a linear head",
        options={"hidden": hidden, "z_min": z_min},
        reads="sequences [samples, steps, features]",
        features=frozenset({"recurrent", "reversible"}),
        init=init,
        apply=apply,
        flops=flops,
        recurrence=Recurrence(initial_hidden, step, readout, inverse=inverse),
    )
