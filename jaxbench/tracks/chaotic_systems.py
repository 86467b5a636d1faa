"""Chaotic flows in three dimensions, and how fast neighbouring trajectories of them part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, Scalar

    Flow = Callable[[Array], Array]


def lorenz(state: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """Give `(10 (y - x), x (28 - z) - y, x y - 8/3 z)` (Lorenz 1963)."""
    x, y, z = state[..., 0], state[..., 1], state[..., 2]
    return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=-1)


def rossler(state: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """Give `(-y - z, x + 0.2 y, 0.2 + z (x - 5.7))` (Rössler 1976)."""
    x, y, z = state[..., 0], state[..., 1], state[..., 2]
    return jnp.stack([-y - z, x + 0.2 * y, 0.2 + z * (x - 5.7)], axis=-1)


class System(NamedTuple):
    """A flow and what is known of its attractor.

    Attributes:
        flow: the time derivative of the state.
        exponent: its largest Lyapunov exponent (1 / time).
        step: of the integrator (time).
        settling: steps after which states lie on the attractor, and anywhere on it.
        centre, spread: a box of states to begin at, `centre - spread` to `centre + spread`.
        mean, deviation: of each coordinate on the attractor.
    """

    flow: Flow
    exponent: float
    step: float
    settling: int
    centre: tuple[float, float, float]
    spread: tuple[float, float, float]
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]


SYSTEMS = {
    "lorenz": System(
        lorenz, 0.9056, 0.01, 1500, (0.0, 0.0, 25.0), (10.0, 10.0, 10.0),
        (0.0, 0.0, 23.55), (7.92, 9.01, 8.62),
    ),
    "rossler": System(
        rossler, 0.0714, 0.05, 2000, (0.0, 0.0, 0.1), (4.0, 4.0, 0.1),
        (0.18, -0.89, 0.87), (5.17, 4.83, 2.78),
    ),
}  # fmt: skip
"""Exponents as in Sprott (2003), Chaos and Time-Series Analysis, appendix A.

The Lorenz attractor is symmetric, so that x and y have the mean 0.  The other means and deviations
are rounded averages over long trajectories, which only set the scale of the score.
"""


def rk4_step(flow: Flow, step: float, state: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """Advance one step by the classical Runge-Kutta method (Kutta 1901)."""
    k1 = flow(state)
    k2 = flow(state + step / 2 * k1)
    k3 = flow(state + step / 2 * k2)
    k4 = flow(state + step * k3)
    return state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def advance(
    system: System, state: Float[Array, "*batch 3"], steps: int
) -> Float[Array, "*batch 3"]:
    """Advance several steps."""
    return jax.lax.fori_loop(
        0, steps, lambda _, now: rk4_step(system.flow, system.step, now), state
    )


def draw(system: System, key: Key, count: int) -> Float[Array, "count 3"]:
    """Draw states on the attractor: random ones in a box that went on until they had settled."""
    offsets = jnp.asarray(system.spread)[None] * jax.random.uniform(key, (count, 3), minval=-1.0)
    return advance(system, offsets + jnp.asarray(system.centre)[None], system.settling)


def trajectory(
    system: System, start: Float[Array, "*batch 3"], samples: int, every: int
) -> Float[Array, "samples *batch 3"]:
    """Give the states after `every`, `2 every`, ... steps."""

    def move(state: Array, _: None) -> tuple[Array, Array]:
        state = advance(system, state, every)
        return state, state

    return jax.lax.scan(move, start, None, length=samples)[1]


def largest_exponent(
    system: System, key: Key, *, trajectories: int = 256, steps: int = 5000, aligning: int = 1000
) -> Scalar:
    """Estimate the largest Lyapunov exponent, the mean rate at which a tangent vector grows.

    `1/T sum log |v|` of vectors `v` that follow the linearised step and are made of length 1 after
    each, averaged over trajectories (Benettin et al. 1980).

    Args:
        system: the flow.
        key: of where trajectories begin, and of the vectors.
        trajectories: how many.
        steps: that are averaged over.
        aligning: steps before them, in which vectors turn into the direction that grows fastest.
    """
    state_key, vector_key = jax.random.split(key)
    start = draw(system, state_key, trajectories)
    vectors = jax.random.normal(vector_key, start.shape)

    def move(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        state, vector = carry
        state, vector = jax.jvp(partial(rk4_step, system.flow, system.step), (state,), (vector,))
        length = jnp.linalg.norm(vector, axis=-1, keepdims=True)
        return (state, vector / length), jnp.mean(jnp.log(length))

    _, rates = jax.lax.scan(move, (start, vectors), None, length=aligning + steps)
    return jnp.mean(rates[aligning:]) / system.step
