"""Q-learning against value iteration, and the task of solving on a ring."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench import graphs
from jaxbench.interventions import cluster_policies, cluster_sweeps, q_learning
from jaxbench.interventions.node_partitions import make_partition

NEXT = np.array([[0, 1], [0, 1]])
REWARD = np.array([[0.0, -1.0], [2.0, 0.5]])
"""Two states: it costs to go to state 1, going back from it pays, staying there pays less."""


def value_iteration(gamma):
    values = np.zeros((2, 2))
    for _ in range(2000):
        values = REWARD + gamma * values.max(axis=1)[NEXT]
    return values


def two_states():
    def reset(key):
        state = jax.random.randint(key, (), 0, 2)
        return state, state

    def step(key, world, action):
        following = jnp.asarray(NEXT)[world, action].astype(world.dtype)
        return following, following, jnp.asarray(REWARD, jnp.float32)[world, action]

    return q_learning.Environment(2, 2, reset, step)


def test_q_learning_finds_the_values_of_value_iteration():
    learn = functools.partial(q_learning.learn, two_states(), episodes=400, length=50, gamma=0.9)
    table = np.asarray(jax.jit(learn)(jax.random.key(0)))
    exact = value_iteration(0.9)
    np.testing.assert_allclose(table, exact, atol=1e-3)
    round_trip = (2 - 0.9) / (1 - 0.9**2)  # more than staying, which is worth 0.5 / (1 - 0.9)
    np.testing.assert_allclose(exact[1, 0], round_trip)
    assert (table.argmax(axis=1) == exact.argmax(axis=1)).all()


def ring_task():
    ring = graphs.ring(8)
    partition = make_partition("contiguous", 4, 8)
    task = q_learning.solve_environment(ring, partition, 4, kappa=1.0, eta=0.5, bins=4)
    return ring, partition, task


def test_rewards_add_up_to_the_fall_of_the_logarithm_of_the_residuals():
    ring, _, task = ring_task()
    M, scale = graphs.jacobi_map(ring, 1.0)
    assert (task.states, task.actions) == (81, 4)
    (u, f, size), state = task.reset(jax.random.key(3))

    def norm(u):
        return np.linalg.norm(M @ np.asarray(u)[:, 0] + scale * np.asarray(f) - np.asarray(u)[:, 0])

    world, first, total = (u, f, size), norm(u), 0.0
    assert 0 <= int(state) < 81
    step = jax.jit(task.step)
    for action in (0, 1, 2, 3, 1):
        world, state, reward = step(jax.random.key(0), world, jnp.int32(action))
        total += float(reward)
        assert 0 <= int(state) < 81
    np.testing.assert_allclose(total, np.log(first / norm(world[0])), rtol=1e-4)


def test_what_is_learned_on_ringsolve_beats_always_updating_one_cluster_and_chance():
    """Greedy in the learned table, residuals fall further in a budget than at random."""
    ring, partition, task = ring_task()
    learn = functools.partial(q_learning.learn, task, episodes=1500, length=24)
    table = jax.jit(learn)(jax.random.key(0))
    M, scale = (jnp.asarray(each, jnp.float32) for each in graphs.jacobi_map(ring, 1.0))
    f = jax.random.normal(jax.random.key(1), (200, 8))

    def update(u):
        return (u[..., 0] @ M.T + jnp.broadcast_to(scale, f.shape) * f)[..., None]

    @functools.partial(jax.jit, static_argnums=0)
    def left(policy, turns):
        choose = cluster_policies.chooser(policy, partition, 4, 4, table)
        start = jnp.zeros((200, 8, 1))
        u, _ = cluster_sweeps.sweep_cluster(update, start, choose, turns, partition, 0.5)
        r = cluster_sweeps.residual(update(u), u)
        return jnp.mean(jnp.log(jnp.sqrt(jnp.sum(r**2, axis=-1))))

    budget = (16, 200)
    chance = cluster_policies.turns_of("random", 4, budget, jax.random.key(2))
    learned = left("q", jnp.zeros(budget, jnp.int32))
    assert learned < left("random", chance)
    assert learned < left("roundrobin", jnp.zeros(budget, jnp.int32)), "cluster 0 again and again"
