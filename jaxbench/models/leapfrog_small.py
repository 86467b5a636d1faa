"""`leapfrog_small`: a driven oscillator of low-rank force, stepped by leapfrog, with a linear head.

The state is `h = (q, p)`, position and momentum.  With the force
`f(q, x) = U tanh(V^T q + W x) - K q`, where U and V are [units, rank], a step is
`p += dt/2 f(q, x)`, `q += dt p`, `p += dt/2 f(q, x)`.  It is undone by the same updates with the
signs turned, backwards, so that only rounding is lost (Hairer, Lubich & Wanner 2006, chapter I.1;
Störmer-Verlet).  Columns of U and V whose `active` is 0 take no part: an idea may switch them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Lt, MultipleOf
from flax import linen as nn

from jaxbench.base import JaxbenchError, Model, Recurrence
from jaxbench.models.recurrent_states import states_along

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree

FORCE = "force"
HEAD = "Dense_0"


class LowRankForce(nn.Module):
    """Holds U and V [units, max_rank], W [features, max_rank], K [units], active [max_rank].

    V and W are drawn with variance 1 / inputs, U's active columns with variance 1 / rank; its
    others are 0, and K is 1.
    """

    units: int
    rank: int
    max_rank: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "batch features"]) -> None:
        """Create the parameters for inputs of this width."""
        normal = nn.initializers.lecun_normal()
        active = (jnp.arange(self.max_rank) < self.rank).astype(float)

        def draw_u(key: Key) -> Array:
            drawn = jax.random.normal(key, (self.units, self.max_rank), float)
            return active[None, :] * drawn / self.rank**0.5

        self.param("U", draw_u)
        self.param("V", normal, (self.units, self.max_rank), float)
        self.param("W", normal, (inputs.shape[-1], self.max_rank), float)
        self.param("K", nn.initializers.ones, (self.units,), float)
        self.param("active", lambda key: active)


class LeapfrogNetwork(nn.Module):
    """A low-rank force and a linear head: the parameters of `leapfrog_small`."""

    units: int
    rank: int
    max_rank: int
    outputs: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "batch time features"]) -> Float[Array, "batch y"]:
        """Create the parameters for inputs of this width."""
        LowRankForce(self.units, self.rank, self.max_rank, name=FORCE)(inputs[:, 0])
        head = nn.Dense(self.outputs, param_dtype=float, name=HEAD)
        return head(jnp.zeros((1, 2 * self.units), inputs.dtype))


def force(
    params: PyTree, position: Float[Array, "*batch units"], inputs: Float[Array, "*batch features"]
) -> Float[Array, "*batch units"]:
    """The force `U tanh(V^T q + W x) - K q` over the active columns.

    K may be a vector (a diagonal) or a whole matrix [units, units].  `active` is no weight: no
    gradient reaches it.
    """
    active = jax.lax.stop_gradient(params["active"])
    response = jnp.tanh(position @ params["V"] + inputs @ params["W"])
    stiffness = params["K"]
    if stiffness.ndim == 2:
        pull = position @ stiffness.T
    else:
        pull = position * jnp.broadcast_to(stiffness, position.shape)
    return (response * jnp.broadcast_to(active, response.shape)) @ params["U"].T - pull


def leapfrog_step(
    params: PyTree,
    hidden: Float[Array, "*batch hidden"],
    inputs: Float[Array, "*batch features"],
    dt: float,
) -> Float[Array, "*batch hidden"]:
    """One step of kick, drift, kick; `-dt` with the half kicks is its inverse."""
    position, momentum = jnp.split(hidden, 2, axis=-1)
    momentum = momentum + 0.5 * dt * force(params, position, inputs)
    position = position + dt * momentum
    momentum = momentum + 0.5 * dt * force(params, position, inputs)
    return jnp.concatenate([position, momentum], axis=-1)


def build(
    *,
    outputs: int,
    hidden: Annotated[int, Gt(0), MultipleOf(2)] = 32,
    rank: Annotated[int, Ge(1)] = 8,
    max_rank: Annotated[int, Ge(1)] | None = None,
    dt: Annotated[float, Gt(0), Lt(2)] = 0.3,
) -> Model:
    """Build a leapfrog oscillator with a linear head, over inputs [batch, time, features].

    Its intermediates are `hidden` [batch, time, hidden], positions and momenta after each step.

    Args:
        outputs: width of the outputs, given by the track.
        hidden: positions and momenta together.
        rank: columns of the force that are active at first.
        max_rank: columns that there are; as many as `rank` if not given.
        dt: step in time; leapfrog is stable below `2 / sqrt(K)`, and K starts at 1.

    Raises:
        JaxbenchError: a `max_rank` below `rank`.
    """
    columns = rank if max_rank is None else max_rank
    if columns < rank:
        raise JaxbenchError(
            f"leapfrog_small needs max_rank of at least rank = {rank}, got {columns}; "
            f"raise max_rank or leave it out"
        )
    network = LeapfrogNetwork(hidden // 2, rank, columns, outputs)

    def init(key: Key, inputs: Float[Array, "batch time features"]) -> PyTree:
        return network.init(key, inputs)["params"]

    def initial_hidden(params: PyTree, batch_shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*batch_shape, hidden), params[HEAD]["kernel"].dtype)

    def step(params: PyTree, state: Array, inputs: Array) -> Array:
        return leapfrog_step(params[FORCE], state, inputs, dt)

    def inverse(params: PyTree, state: Array, inputs: Array) -> Array:
        return leapfrog_step(params[FORCE], state, inputs, -dt)

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
        units = hidden // 2
        forces = 2 * 2 * columns * (2 * units + features)
        return float(time * (forces + 2 * hidden * outputs))

    return Model(
        name="leapfrog_small",
        summary="a driven oscillator of low-rank force, stepped by leapfrog, with a linear head",
        options={"hidden": hidden, "rank": rank, "max_rank": columns, "dt": dt},
        reads="sequences [samples, steps, features]",
        features=frozenset({"recurrent", "reversible", "low_rank_force"}),
        init=init,
        apply=apply,
        flops=flops,
        recurrence=Recurrence(initial_hidden, step, readout, inverse=inverse),
    )
