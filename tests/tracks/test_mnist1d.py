"""`mnist1d` against the published generator's own output."""

import random

import jax
import numpy as np
import pytest

from jaxbench.tracks import mnist1d

data = pytest.importorskip("mnist1d.data")
SIZES = {"train_size": 40, "validation_size": 20, "test_size": 17}


def test_the_pool_is_the_generators_and_leaves_global_random_numbers_alone() -> None:
    np.random.seed(3)
    random.seed(3)
    mnist1d.pool.cache_clear()
    values, labels = mnist1d.pool(77, 42)
    after = np.random.rand(), random.random()
    np.random.seed(3)
    random.seed(3)
    assert after == (np.random.rand(), random.random())
    arguments = data.get_dataset_args()
    arguments.num_samples = 80
    made = data.make_dataset(arguments)
    np.testing.assert_allclose(values[:64], made["x"], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(labels[64:], made["y_test"])
    assert np.bincount(labels).tolist() == [8] * 10
    assert values.mean() == pytest.approx(0, abs=1e-6)
    assert values.std() == pytest.approx(1, rel=1e-5)


def test_splits_are_drawn_from_it_and_shuffling_moves_points_of_all_alike() -> None:
    plain, mixed = (mnist1d.build(**SIZES, shuffled=shuffled) for shuffled in (False, True))
    values, _ = mnist1d.pool(77, 42)
    order = np.random.default_rng(0).permutation(40)
    for seed in (0, 1):
        one, other = (
            jax.tree.map(np.asarray, jax.jit(track.generate)(jax.random.key(seed)))
            for track in (plain, mixed)
        )
        assert one.test.inputs.shape == (17, 40, 1)
        assert {tuple(row) for row in one.train.inputs[..., 0]} <= {tuple(row) for row in values}
        np.testing.assert_array_equal(other.train.inputs, one.train.inputs[:, order])
        np.testing.assert_array_equal(other.train.targets, one.train.targets)
