"""Histograms and policies against numpy and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.interventions import cluster_policies, cluster_sweeps
from jaxbench.interventions.node_partitions import make_partition

PAIRS = np.repeat(np.arange(3), 2)


def residuals(*values):
    return jnp.asarray(values, float)


def test_the_histogram_is_numpys():
    rng = np.random.default_rng(0)
    r = rng.integers(0, 17, (5, 12)) / 16  # edges are hit, and exact
    r[:, 0] = 1
    partition = make_partition("random", 3, 12)
    found = cluster_sweeps.hist(jnp.asarray(r, jnp.float32), partition, 3, 4)
    for sample in range(5):
        edges = np.linspace(0, 1, 5)
        for cluster in range(3):
            expected = np.histogram(r[sample, partition == cluster], edges)[0]
            assert found[sample, cluster].tolist() == expected.tolist()


def test_equal_residuals_of_zero_are_in_the_lowest_bin_and_nothing_is_lost():
    found = cluster_sweeps.hist(jnp.zeros(6), PAIRS, 3, 4)
    assert found.tolist() == [[2, 0, 0, 0]] * 3
    assert int(cluster_policies.select_hist(jnp.zeros(6), PAIRS, 3, 4)) == 0


def test_residuals_are_norms_and_carry_no_gradient():
    hidden = jnp.array([[3.0, 0.0], [1.0, 1.0]])
    new = jnp.array([[0.0, 4.0], [1.0, 1.0]])
    assert cluster_sweeps.residual(new, hidden).tolist() == [5, 0]
    gradient = jax.grad(lambda h: jnp.sum(cluster_sweeps.residual(new, h)))(hidden)
    assert (gradient == 0).all()


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ((0.9, 0.1, 0.8, 0.8, 1.0, 0.0), 1),  # most nodes in the highest bin
        ((1.0, 0.0, 1.0, 0.5, 0.2, 0.2), 1),  # as many: the higher mean
        ((1.0, 0.5, 0.5, 1.0, 0.7, 0.7), 0),  # the same mean too: the lower number
    ],
)
def test_hist_takes_counts_then_means_then_numbers(values, chosen):
    assert int(cluster_policies.select_hist(residuals(*values), PAIRS, 3, 4)) == chosen


def test_max_takes_the_cluster_of_the_largest_residual():
    batch = jnp.stack([residuals(0.9, 0.9, 0.1, 1.0, 0.2, 0.3), residuals(1, 0, 0, 1, 0, 1)])
    assert cluster_policies.select_max(batch, PAIRS, 3).tolist() == [1, 0]


def test_every_sample_chooses_for_itself():
    batch = jnp.stack([residuals(1, 1, 0, 0, 0, 0), residuals(0, 0, 0, 0, 1, 1)])
    assert cluster_policies.select_hist(batch, PAIRS, 3, 4).tolist() == [0, 2]


def test_the_state_is_how_much_of_each_cluster_is_in_the_highest_bin():
    """No node, one of two and both: digits 0, 1 and 2 of a number in base three."""
    state = cluster_policies.high_fraction_state(
        cluster_sweeps.hist(residuals(0, 0, 1, 0, 1, 1), PAIRS, 3, 4)
    )
    assert int(state) == 0 * 9 + 1 * 3 + 2
    everything = cluster_policies.high_fraction_state(cluster_sweeps.hist(jnp.ones(6), PAIRS, 3, 4))
    assert int(everything) == 3**3 - 1


def test_q_takes_what_its_table_values_most():
    table = jnp.zeros((27, 3)).at[5, 2].set(1.0).at[26, 1].set(1.0)
    choose = cluster_policies.chooser("q", PAIRS, 3, 4, table)
    batch = jnp.stack([residuals(0, 0, 1, 0, 1, 1), jnp.ones(6), jnp.zeros(6)])
    assert choose(batch, jnp.zeros(3, jnp.int32)).tolist() == [2, 1, 0]
    with pytest.raises(JaxbenchError, match="needs its table"):
        cluster_policies.chooser("q", PAIRS, 3, 4)


def test_turns_go_on_from_one_time_step_to_the_next():
    turns = cluster_policies.turns_of("roundrobin", 4, (3, 3, 2), jax.random.key(0))
    assert turns[..., 0].tolist() == [[0, 1, 2], [3, 0, 1], [2, 3, 0]]
    assert (turns[..., 0] == turns[..., 1]).all()


def test_random_turns_are_alike_and_follow_their_key():
    turns = cluster_policies.turns_of("random", 4, (50, 40), jax.random.key(0))
    again = cluster_policies.turns_of("random", 4, (50, 40), jax.random.key(0))
    assert (turns == again).all()
    counts = np.bincount(np.asarray(turns).ravel(), minlength=4)
    assert counts.sum() == 2000
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)
