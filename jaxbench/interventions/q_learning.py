"""Tabular Q-learning, and the task on which a policy of cluster updates is learned.

`Q(s, a) <- Q(s, a) + alpha (reward + gamma max_b Q(s', b) - Q(s, a))` with actions drawn by
epsilon-greedy exploration (Watkins and Dayan 1992).  The task is `ringsolve`: solve
`(I + kappa L) u = f` on a ring by damped cluster updates from `u = 0`.  A state is how much of each
cluster is in the highest bin of the residuals' histogram, an action is the cluster that is updated,
and the reward is by how much the logarithm of the residuals' norm falls.  Choosing which part of a
graph to update by learned values is as in RELDEC (Habib, Beemer and Kliewer 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxbench import graphs
from jaxbench.interventions.cluster_policies import LEVELS, high_fraction_state
from jaxbench.interventions.cluster_sweeps import hist, move, residual

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Key, Scalar
    from jaxbench.graphs import Neighbours
    from jaxbench.interventions.node_partitions import Partition


class Environment(NamedTuple):
    """A decision process with numbered states and actions.

    Attributes:
        states, actions: how many.
        reset: `(key) -> (world, state)`.
        step: `(key, world, action) -> (world, state, reward)`.
    """

    states: int
    actions: int
    reset: Callable[[Key], tuple[Any, Int[Array, ""]]]
    step: Callable[[Key, Any, Int[Array, ""]], tuple[Any, Int[Array, ""], Scalar]]


def learn(
    environment: Environment,
    key: Key,
    *,
    episodes: int,
    length: int,
    alpha: float = 0.1,
    gamma: float = 0.9,
    first_epsilon: float = 1.0,
    last_epsilon: float = 0.05,
) -> Float[Array, "states actions"]:
    """Learn a table of action values, episodes one after another, as one scan.

    Args:
        environment: what is acted on; its episodes are cut after `length` steps, not ended, so that
            the last step is worth what follows it too.
        key: of resets, exploration and the environment's chance.
        episodes: how many.
        length: steps of each.
        alpha: how far a value goes towards what was seen.
        gamma: worth of the next step's reward.
        first_epsilon: share of random actions in the first episode.
        last_epsilon: in the last one; in between it falls linearly.
    """

    def act(carry: tuple[Array, Any, Array], now: tuple[Key, Array]) -> tuple[Any, None]:
        table, world, state = carry
        key, epsilon = now
        explore_key, action_key, step_key = jax.random.split(key, 3)
        wild = jax.random.randint(action_key, (), 0, environment.actions)
        explore = jax.random.uniform(explore_key) < epsilon
        action = jnp.where(explore, wild, jnp.argmax(table[state]).astype(wild.dtype))
        world, following, reward = environment.step(step_key, world, action)
        target = reward + gamma * jnp.max(table[following])
        table = table.at[state, action].add(alpha * (target - table[state, action]))
        return (table, world, following), None

    def episode(table: Array, now: tuple[Key, Array]) -> tuple[Array, None]:
        key, epsilon = now
        reset_key, act_key = jax.random.split(key)
        world, state = environment.reset(reset_key)
        steps = (jax.random.split(act_key, length), jnp.broadcast_to(epsilon, length))
        (table, _, _), _ = jax.lax.scan(act, (table, world, state), steps)
        return table, None

    table = jnp.zeros((environment.states, environment.actions))
    epsilons = jnp.linspace(first_epsilon, last_epsilon, episodes, dtype=table.dtype)
    return jax.lax.scan(episode, table, (jax.random.split(key, episodes), epsilons))[0]


def solve_environment(
    neighbours: Neighbours,
    partition: Partition,
    clusters: int,
    *,
    kappa: float,
    eta: float,
    bins: int,
    levels: int = LEVELS,
) -> Environment:
    """Make the task of solving `(I + kappa L) u = f`, `f` white noise, by cluster updates.

    Args:
        neighbours: of the graph's nodes.
        partition: cluster of each node.
        clusters: how many, which is the number of actions.
        kappa: coupling between neighbours.
        eta: how far a node goes towards its new value in an update.
        bins: of the residuals' histogram.
        levels: of how much of a cluster is in the highest bin; there are `levels^clusters` states.
    """
    M, scale = graphs.jacobi_map(neighbours, kappa)
    nodes = len(neighbours)
    floor = 1e-6  # of the norm, in a problem of unit size: float32 comes no closer

    def new_values(u: Array, f: Array) -> Array:
        iteration = jnp.asarray(M, u.dtype), jnp.asarray(scale, u.dtype)
        return iteration[0] @ u + (iteration[1] * f)[:, None]

    def observe(u: Array, f: Array) -> tuple[Array, Array]:
        residuals = residual(new_values(u, f), u)
        state = high_fraction_state(hist(residuals, partition, clusters, bins), levels)
        return state, jnp.log(jnp.maximum(jnp.sqrt(jnp.sum(residuals**2)), floor))

    def reset(key: Key) -> tuple[Any, Array]:
        f = jax.random.normal(key, (nodes,))
        u = jnp.zeros((nodes, 1), f.dtype)
        state, size = observe(u, f)
        return (u, f, size), state

    def step(key: Key, world: Any, action: Array) -> tuple[Any, Array, Array]:
        del key
        u, f, size = world
        u = move(u, new_values(u, f), action, partition, eta)
        state, smaller = observe(u, f)
        return (u, f, smaller), state, size - smaller

    return Environment(levels**clusters, clusters, reset, step)
