"""`bigru_small`: a GRU in either direction of time and a linear head over all of its states.

`y = vec(h_forward, h_backward) W + b`, one output a sequence: the recurrent network of MNIST-1D
(Greydanus and Kobak 2024, Scaling down deep learning with MNIST-1D).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge
from flax import linen as nn

from jaxbench.base import Model
from jaxbench.models.dense_layers import affine, dense, flat
from jaxbench.models.gru_scan import gru_scan
from jaxbench.models.initial_kernels import lecun_kernels

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

GATES = 3
DIRECTIONS = ("forward", "backward")
HEAD = "Dense_0"


def states_of(
    cell: PyTree, inputs: Float[Array, "time samples features"]
) -> Float[Array, "time samples hidden"]:
    """Run one GRU over sequences; its gates r, z and n stand side by side in each leaf."""
    return gru_scan(
        (cell["input"]["kernel"], cell["input"]["bias"], cell["hidden"]["kernel"],
         cell["hidden"]["bias"]),
        inputs,
    )  # fmt: skip


def build(*, outputs: int, hidden: Annotated[int, Ge(1)] = 6) -> Model:
    """Build a bidirectional GRU over inputs [samples, time, features].

    Its intermediates are `hidden` [samples, time, 2 hidden], the states of both directions.

    Args:
        outputs: width of the outputs, given by the track.
        hidden: units of each direction.
    """

    def init(key: Key, inputs: Float[Array, "samples time features"]) -> PyTree:
        _, time, features = inputs.shape
        of_inputs, of_states, of_head = jax.random.split(key, 3)
        kernels = lecun_kernels(of_inputs, [(features, GATES * hidden)] * len(DIRECTIONS))
        orthogonal = nn.initializers.orthogonal()
        gates = jax.lax.map(  # one after another: XLA:CPU can hang on batches of decompositions
            lambda own: orthogonal(own, (hidden, hidden), float),
            jax.random.split(of_states, len(DIRECTIONS) * GATES),
        ).reshape(len(DIRECTIONS), GATES, hidden, hidden)
        cells = {}
        for place, direction in enumerate(DIRECTIONS):
            zeros = jnp.zeros((GATES * hidden,), kernels[place].dtype)
            recurrent = jnp.concatenate(list(gates[place]), axis=1)
            cells[direction] = {
                "input": {"kernel": kernels[place], "bias": zeros},
                "hidden": {"kernel": recurrent, "bias": zeros},
            }
        return cells | dense(of_head, {HEAD: (time * len(DIRECTIONS) * hidden, outputs)})

    def apply(
        params: PyTree,
        inputs: Float[Array, "samples time features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        in_time = inputs.swapaxes(0, 1)
        onwards = states_of(params["forward"], in_time)
        back = states_of(params["backward"], in_time[::-1])[::-1]
        states = jnp.concatenate([onwards, back], axis=-1).swapaxes(0, 1)
        return affine(params[HEAD], flat(states)), {"hidden": states}

    def flops(input_shape: tuple[int, ...]) -> float:
        time, features = input_shape
        gates = 2 * GATES * hidden * (features + hidden)
        return float(len(DIRECTIONS) * time * (gates + 2 * hidden * outputs))

    return Model(
        name="bigru_small",
        summary="a GRU in either direction of time and a linear head over all of its states",
        options={"hidden": hidden},
        features=frozenset(),
        reads="sequences [samples, steps, features] as a whole, with one output each",
        init=init,
        apply=apply,
        flops=flops,
    )
