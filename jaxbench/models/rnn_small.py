"""`rnn_small`: one GRU layer with a linear head.

The cell is our own, with the parameter tree of `flax.linen.GRUCell`, because ideas act inside it;
a test holds the two equal.  Its three gates are computed with one fused product a step, which is
what makes it fast on CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge
from flax import linen as nn

from jaxbench.base import Model, Recurrence, UnitLayer, UnitSlice
from jaxbench.models.gru_scan import gates_of, gru_scan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

CELL = "GRUCell_0"
HEAD = "Dense_0"
GATES = ("r", "z", "n")


class Affine(nn.Module):
    """Holds the kernel [inputs, features] and, where wanted, the zero bias of one affine map."""

    use_bias: bool

    @nn.compact
    def __call__(self, kernel: Float[Array, "inputs features"]) -> None:
        """Create the parameters from the initial kernel."""
        self.param("kernel", lambda key: kernel)
        if self.use_bias:
            self.param("bias", nn.initializers.zeros, kernel.shape[1:], kernel.dtype)


class GRUCell(nn.Module):
    """Holds the parameters of a GRU cell under the names of `flax.linen.GRUCell`.

    They are drawn from the same distributions; the three gates' kernels are drawn in a loop, which
    compiles several times faster than one by one.
    """

    inputs: int
    hidden: int

    @nn.compact
    def __call__(self) -> None:
        """Create three input maps with bias and three recurrent ones, of which `hn` has a bias."""
        keys = jax.random.split(self.make_rng("params"), 2 * len(GATES)).reshape(2, len(GATES))
        from_input = draw_kernels(nn.initializers.lecun_normal(), keys[0], self.inputs, self.hidden)
        recurrent = draw_kernels(nn.initializers.orthogonal(), keys[1], self.hidden, self.hidden)
        for gate, kernel in zip(GATES, from_input, strict=True):
            Affine(True, name=f"i{gate}")(kernel)
        for gate, kernel in zip(GATES, recurrent, strict=True):
            Affine(gate == "n", name=f"h{gate}")(kernel)


class GRUNetwork(nn.Module):
    """A GRU layer and a linear head: the parameters of `rnn_small`."""

    hidden: int
    outputs: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "batch time features"]) -> None:
        """Create the parameters for inputs of this width."""
        GRUCell(inputs.shape[-1], self.hidden, name=CELL)()
        key = self.make_rng("params")
        Affine(True, name=HEAD)(
            nn.initializers.lecun_normal()(key, (self.hidden, self.outputs), float)
        )


def draw_kernels(
    initializer: nn.initializers.Initializer, keys: Array, inputs: int, features: int
) -> Float[Array, "kernels inputs features"]:
    """Draw one kernel a key, in jax's default float.

    One after another: XLA:CPU computes a batch of decompositions (the orthogonal kernels' QR) on
    the threads that its devices wait on, and with several devices and 64 units it waits for ever.
    """
    return jax.lax.map(lambda key: initializer(key, (inputs, features), float), keys)


def fuse(cell: PyTree) -> tuple[Array, Array, Array, Array]:
    """Put the gates side by side: input kernel and bias, recurrent kernel and bias, each [., 3H].

    Of the recurrent biases only the candidate's exists; the others are 0.
    """
    hidden_bias = cell["hn"]["bias"]
    none = jnp.zeros_like(hidden_bias)
    return (
        jnp.concatenate([cell[f"i{gate}"]["kernel"] for gate in GATES], axis=1),
        jnp.concatenate([cell[f"i{gate}"]["bias"] for gate in GATES]),
        jnp.concatenate([cell[f"h{gate}"]["kernel"] for gate in GATES], axis=1),
        jnp.concatenate([none, none, hidden_bias]),
    )


def gru_step(
    fused: tuple[Array, Array, Array, Array],
    hidden: Float[Array, "*batch hidden"],
    inputs: Float[Array, "*batch features"],
) -> Float[Array, "*batch hidden"]:
    """One GRU step, `h' = (1-z) n + z h` with `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`.

    Cho et al. 2014, in the form of `flax.linen.GRUCell`.
    """
    update, candidate = gru_gates(fused, hidden, inputs)
    return (1 - update) * candidate + update * hidden


def gru_gates(
    fused: tuple[Array, Array, Array, Array],
    hidden: Float[Array, "*batch hidden"],
    inputs: Float[Array, "*batch features"],
) -> tuple[Float[Array, "*batch hidden"], Float[Array, "*batch hidden"]]:
    """The update gate `z` and the candidate `n` of a step."""
    input_kernel, input_bias, hidden_kernel, hidden_bias = fused
    from_input = inputs @ input_kernel + along(input_bias, inputs)
    from_hidden = hidden @ hidden_kernel + along(hidden_bias, hidden)
    _, update, candidate, _ = gates_of(from_input, from_hidden)
    return update, candidate


def combine_gates(
    from_input: Float[Array, "*batch 3*hidden"],
    from_hidden: Float[Array, "*batch 3*hidden"],
    hidden: Float[Array, "*batch hidden"],
) -> Float[Array, "*batch hidden"]:
    """Make the next state of what the gates receive from the input and from the state."""
    _, update, candidate, _ = gates_of(from_input, from_hidden)
    return (1 - update) * candidate + update * hidden


def scaled_gru_step(
    cell: PyTree,
    gains: PyTree,
    hidden: Float[Array, "*batch hidden"],
    inputs: Float[Array, "*batch features"],
) -> Float[Array, "*batch hidden"]:
    """Do one GRU step with every leaf of `cell` multiplied by its gain [*batch].

    The gains multiply the products instead of the kernels, so that samples with different gains
    share one product.
    """
    input_kernel, input_bias, hidden_kernel, hidden_bias = fuse(cell)

    def scale(side: str, products: Array, bias: Array) -> Array:
        """Scale each gate's part of the products and of the biases; absent biases are 0."""
        parts = zip(GATES, jnp.split(products, 3, axis=-1), jnp.split(bias, 3), strict=True)
        scaled = []
        for gate, product, offset in parts:
            gain = gains[f"{side}{gate}"]
            kernel, bias_gain = gain["kernel"][..., None], gain.get("bias", gain["kernel"])
            scaled.append(kernel * product + bias_gain[..., None] * along(offset, product))
        return jnp.concatenate(scaled, axis=-1)

    from_input = scale("i", inputs @ input_kernel, input_bias)
    from_hidden = scale("h", hidden @ hidden_kernel, hidden_bias)
    return combine_gates(from_input, from_hidden, hidden)


def along(bias: Float[Array, " features"], batch: Float[Array, "*batch width"]) -> Array:
    """Repeat a bias for every sample of a batch [*batch, features]."""
    return jnp.broadcast_to(bias, (*batch.shape[:-1], bias.size))


def unit_layer(hidden: int) -> UnitLayer:
    """Which slices of which leaves belong to a hidden unit of the GRU."""
    slices = [
        UnitSlice((CELL, f"i{gate}", leaf), axis, "incoming")
        for gate in GATES
        for leaf, axis in (("kernel", 1), ("bias", 0))
    ]
    slices += [UnitSlice((CELL, f"h{gate}", "kernel"), 1, "incoming") for gate in GATES]
    slices += [UnitSlice((CELL, "hn", "bias"), 0, "incoming")]
    biases = {"r": (CELL, "ir", "bias"), "z": (CELL, "iz", "bias"), "n": (CELL, "hn", "bias")}
    slices += [
        UnitSlice((CELL, f"h{gate}", "kernel"), 0, "outgoing", bias=biases[gate]) for gate in GATES
    ]
    slices += [UnitSlice((HEAD, "kernel"), 0, "outgoing", bias=(HEAD, "bias"))]
    return UnitLayer("hidden", hidden, tuple(slices))


def gate_layer(hidden: int) -> UnitLayer:
    """The parameters that make each gate of each unit: all of `r`, then of `z`, then of `n`."""
    slices = [
        UnitSlice(leaf, axis, "outgoing", first=place * hidden, units=hidden)
        for place, gate in enumerate(GATES)
        for leaf, axis in (
            ((CELL, f"i{gate}", "kernel"), 1),
            ((CELL, f"i{gate}", "bias"), 0),
            ((CELL, f"h{gate}", "kernel"), 1),
        )
    ]
    candidate = GATES.index("n") * hidden
    slices += [UnitSlice((CELL, "hn", "bias"), 0, "outgoing", first=candidate, units=hidden)]
    return UnitLayer("gates", len(GATES) * hidden, tuple(slices), removable=False)


def input_layer(params: PyTree) -> UnitLayer:
    """The weights from each input to the three gates."""
    slices = [UnitSlice((CELL, f"i{gate}", "kernel"), 0, "outgoing") for gate in GATES]
    return UnitLayer("inputs", len(params[CELL]["ir"]["kernel"]), tuple(slices))


def build(*, outputs: int, hidden: Annotated[int, Ge(1)] = 32) -> Model:
    """Build a GRU with a linear head, over inputs [batch, time, features].

    Its intermediates are `hidden` [batch, time, hidden], the state after each step.

    Args:
        outputs: width of the outputs, given by the track.
        hidden: units of the GRU.
    """
    network = GRUNetwork(hidden, outputs)

    def init(key: Key, inputs: Float[Array, "batch time features"]) -> PyTree:
        return network.init(key, inputs)["params"]

    def initial_hidden(params: PyTree, batch_shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*batch_shape, hidden), params[HEAD]["kernel"].dtype)

    def step(params: PyTree, state: Array, inputs: Array) -> Array:
        return gru_step(fuse(params[CELL]), state, inputs)

    def readout(params: PyTree, state: Array) -> Array:
        return state @ params[HEAD]["kernel"] + along(params[HEAD]["bias"], state)

    def scaled_step(params: PyTree, gains: PyTree, state: Array, inputs: Array) -> Array:
        return scaled_gru_step(params[CELL], gains[CELL], state, inputs)

    def gates(params: PyTree, state: Array, inputs: Array) -> tuple[Array, Array]:
        return gru_gates(fuse(params[CELL]), state, inputs)

    def apply(
        params: PyTree,
        inputs: Float[Array, "batch time features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        states = gru_scan(fuse(params[CELL]), inputs.swapaxes(0, 1))
        outputs = readout(params, states).swapaxes(0, 1)
        return outputs, {"hidden": states.swapaxes(0, 1)}

    def flops(input_shape: tuple[int, ...]) -> float:
        time, features = input_shape
        gates = 2 * 3 * hidden * (features + hidden)
        return float(time * (gates + 2 * hidden * outputs))

    def resized(sizes: Mapping[str, int]) -> Model:
        return build(outputs=outputs, hidden=sizes.get("hidden", hidden))

    return Model(
        name="rnn_small",
        summary="one GRU layer with a linear head",
        options={"hidden": hidden},
        reads="sequences [samples, steps, features]",
        features=frozenset({"recurrent", "hidden_units", "gates", "inputs"}),
        init=init,
        apply=apply,
        flops=flops,
        recurrence=Recurrence(initial_hidden, step, readout, scaled_step, gates=gates),
        unit_layers=(unit_layer(hidden),),
        parameter_groups={"gates": lambda params: gate_layer(hidden), "inputs": input_layer},
        resized=resized,
    )
