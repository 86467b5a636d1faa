"""A GRU over a whole sequence, with a backward pass that is cheaper than that of `lax.scan`.

Reverse-mode differentiation of a scan adds to the weights' gradients at every time step, with two
small products that XLA:CPU computes slowly, and keeps about nine arrays a step.  Here a step keeps
its state and its gates, and one product over all steps makes the gradients of all weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import PyTree

    Fused = tuple[Array, Array, Array, Array]


def gates_of(
    from_input: Float[Array, "*batch 3*hidden"], from_hidden: Float[Array, "*batch 3*hidden"]
) -> tuple[Array, Array, Array, Array]:
    """Reset, update, candidate, and the candidate's part of the recurrent product [*batch, hidden].

    Args:
        from_input: what the gates r, z and n receive from the input.
        from_hidden: what they receive from the hidden state.
    """
    input_r, input_z, input_n = jnp.split(from_input, 3, axis=-1)
    hidden_r, hidden_z, hidden_n = jnp.split(from_hidden, 3, axis=-1)
    reset = jax.nn.sigmoid(input_r + hidden_r)
    update = jax.nn.sigmoid(input_z + hidden_z)
    return reset, update, jnp.tanh(input_n + reset * hidden_n), hidden_n


def run(
    fused: Fused, inputs: Float[Array, "time batch features"]
) -> tuple[Float[Array, "time batch hidden"], Float[Array, "time batch 4*hidden"]]:
    """The states from the state 0, and the four `gates_of` each step side by side."""
    input_kernel, input_bias, kernel, bias = fused
    from_input = with_one(inputs) @ jnp.concatenate([input_kernel, input_bias[None]])
    offset = jnp.broadcast_to(bias, from_input.shape[1:])

    def advance(hidden: Array, now: Array) -> tuple[Array, tuple[Array, Array]]:
        gates = gates_of(now, hidden @ kernel + offset)
        _, update, candidate, _ = gates
        hidden = (1 - update) * candidate + update * hidden
        return hidden, (hidden, jnp.concatenate(gates, axis=-1))

    start = jnp.zeros((inputs.shape[1], kernel.shape[0]), from_input.dtype)
    return jax.lax.scan(advance, start, from_input)[1]


@jax.custom_vjp
def gru_scan(
    fused: Fused, inputs: Float[Array, "time batch features"]
) -> Float[Array, "time batch hidden"]:
    """The states of a GRU after each step, from the state 0.

    It is differentiated in reverse mode, and its gradients in either mode; for forward mode of the
    states themselves, scan over the model's `step`.

    Args:
        fused: input kernel [features, 3H] and bias [3H], recurrent kernel [H, 3H] and bias [3H], of
            the gates r, z and n side by side.
        inputs: of each step.
    """
    return run(fused, inputs)[0]


def forward(fused: Fused, inputs: Array) -> tuple[Array, PyTree]:
    """The states, and what the backward pass needs."""
    states, gates = run(fused, inputs)
    return states, (fused, inputs, states, gates)


def backward(kept: PyTree, cotangents: Array) -> tuple[Fused, Array]:
    """The gradients of the weights and the inputs, from those of the states."""
    (input_kernel, _, kernel, _), inputs, states, gates = kept
    hidden, features = kernel.shape[0], inputs.shape[-1]
    back = jax.lax.optimization_barrier(kernel.T)  # else each step's product transposes it
    before = jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])

    def retreat(later: Array, at: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        direct, previous, gates = at
        reset, update, candidate, hidden_n = jnp.split(gates, 4, axis=-1)
        total = later + direct
        to_n = total * (1 - update) * (1 - candidate * candidate)
        to_z = total * (previous - candidate) * update * (1 - update)
        to_r = to_n * hidden_n * reset * (1 - reset)
        to_products = jnp.concatenate([to_r, to_z, to_n * reset], axis=-1)
        return total * update + to_products @ back, (to_products, to_n)

    start = jnp.zeros_like(states[0])
    _, (to_products, to_n) = jax.lax.scan(retreat, start, (cotangents, before, gates), reverse=True)
    seen = with_one(jnp.concatenate([before, inputs], axis=-1))
    of_products, of_candidate = summed(seen, to_products), summed(with_one(inputs), to_n)
    of_inputs = replace_last(of_products[hidden:], of_candidate)
    fused = of_inputs[:features], of_inputs[features], of_products[:hidden], of_products[-1]
    return fused, replace_last(to_products, to_n) @ input_kernel.T


def with_one(rows: Float[Array, "*batch width"]) -> Float[Array, "*batch width+1"]:
    """The rows with a 1 at their end, by which a product adds a bias."""
    return jnp.concatenate([rows, jnp.ones_like(rows[..., :1])], axis=-1)


def summed(
    seen: Float[Array, "time batch inputs"], sent: Float[Array, "time batch outputs"]
) -> Float[Array, "inputs outputs"]:
    """A kernel's gradient from what it saw and what is sent back, over all steps and samples."""
    return seen.reshape(-1, seen.shape[-1]).T @ sent.reshape(-1, sent.shape[-1])


def replace_last(
    three: Float[Array, "*any 3*hidden"], last: Float[Array, "*any hidden"]
) -> Float[Array, "*any 3*hidden"]:
    """Put the candidate's input part in the place of its recurrent part."""
    return jnp.concatenate([three[..., : -last.shape[-1]], last], axis=-1)


gru_scan.defvjp(forward, backward)
