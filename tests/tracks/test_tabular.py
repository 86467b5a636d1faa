"""Friedman's first problem against its formula and moments; its data against its words."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbench.base import Splits
from jaxbench.tracks import tabular

SIZES = {"train_size": 30, "validation_size": 20, "test_size": 10}
MANY = {"train_size": 40_000, "validation_size": 1, "test_size": 20_000}


@functools.cache
def compiled(**options):
    lowered = jax.jit(tabular.build(**options).generate).lower(jax.random.key(0))
    return lowered.compile({"xla_backend_optimization_level": 0})  # compiles faster, runs once


def generate(seed=0, **options) -> Splits:
    return jax.tree.map(np.asarray, compiled(**options)(jax.random.key(seed)))


@pytest.fixture(scope="module")
def many() -> Splits:
    return generate(**MANY)


@pytest.fixture(scope="module")
def moments():
    """Mean and variance of the signal, and what the best linear predictor leaves, by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    x, w = (nodes + 1) / 2, weights / 2
    sine = 10 * np.sin(np.pi * np.outer(x, x))
    mean = w @ sine @ w
    variance = w @ sine**2 @ w - mean**2
    slope = 12 * (w * (x - 0.5)) @ sine @ w  # cov(sine, x_1) / var(x_1), the same for x_2
    curved = 400 * (w @ (x - 0.5) ** 4 - (w @ (x - 0.5) ** 2) ** 2)
    straight = (10**2 + 5**2) / 12
    return {
        "mean": mean + 20 / 12 + 7.5,
        "variance": variance + curved + straight,
        "linear": variance - 2 * slope**2 / 12 + curved,
    }


# The signal


def test_the_formula_at_points_where_it_is_known():
    rest = np.full(5, 0.37)
    for first, expected in [
        ([0, 0, 0.5, 0, 0], 0),
        ([1, 0.5, 0.5, 0, 0], 10),
        ([1, 1, 0, 0, 0], 5),
        ([0.5, 1 / 3, 1, 1, 1], 5 + 5 + 10 + 5),
    ]:
        point = np.concatenate([first, rest])
        assert tabular.friedman(point) == pytest.approx(expected, abs=1e-12)
        assert tabular.friedman(jnp.array(point)) == pytest.approx(expected, abs=1e-5)


def test_only_the_first_five_inputs_matter():
    points = np.random.default_rng(0).uniform(size=(9, 12))
    other = points.copy()
    other[:, 5:] = 0
    np.testing.assert_array_equal(tabular.friedman(points), tabular.friedman(other))
    for place in range(5):
        moved = points.copy()
        moved[:, place] += 0.1
        assert (tabular.friedman(moved) != tabular.friedman(points)).all()


def test_the_moments_that_the_docstring_names(moments):
    assert moments["mean"] == pytest.approx(14.413, abs=5e-4)
    assert moments["variance"] == pytest.approx(23.826, abs=5e-4)
    assert moments["linear"] == pytest.approx(5.889, abs=5e-4)


# The data


def test_many_samples_have_these_moments(many, moments):
    targets = many.train.targets.astype(float)
    variance = moments["variance"] + 1
    error = np.sqrt(variance / targets.size)
    assert abs(targets.mean() - moments["mean"]) < 5 * error
    assert targets.var() == pytest.approx(variance, rel=5 * np.sqrt(3 / targets.size))


def test_references_are_the_levels_of_the_moments(many, moments):
    references = tabular.build(**MANY).references(many)
    assert references["noise"] == pytest.approx(1, rel=0.05)
    assert references["linear"] == pytest.approx(moments["linear"] + 1, rel=0.05)
    assert references["constant"] == pytest.approx(moments["variance"] + 1, rel=0.05)


def test_inputs_are_uniform_and_the_noise_standard_normal(many):
    for column in many.train.inputs.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    correlation = np.corrcoef(many.train.inputs.T) - np.eye(10)
    assert np.abs(correlation).max() < 5 / np.sqrt(MANY["train_size"])
    noise = (many.train.targets - tabular.friedman(many.train.inputs)[:, None])[:, 0]
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(noise, many.train.inputs.T)[0, 1:]).max() < 0.025


def test_without_noise_the_targets_are_the_signal():
    clean, noisy = generate(noise=0.0, **SIZES), generate(noise=2.0, **SIZES)
    for one, other in zip(clean, noisy, strict=True):
        np.testing.assert_allclose(
            one.targets[:, 0], tabular.friedman(one.inputs.astype(float)), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_array_equal(one.inputs, other.inputs)
        assert (one.targets != other.targets).all()


def test_shapes_and_sizes_are_as_asked():
    splits = generate(inputs=7, **SIZES)
    for split, size in zip(splits, SIZES.values(), strict=True):
        assert split.inputs.shape == (size, 7)
        assert split.targets.shape == (size, 1)
        assert split.inputs.dtype == split.targets.dtype == np.float32
        assert ((split.inputs > 0) & (split.inputs <= 1)).all()


def test_splits_and_seeds_share_no_sample_and_sizes_move_none():
    first, second = generate(0, **SIZES), generate(1, **SIZES)
    rows = np.concatenate([split.inputs for splits in (first, second) for split in splits])
    assert len(np.unique(rows, axis=0)) == len(rows)
    fewer = generate(0, **{**SIZES, "train_size": 5})
    np.testing.assert_array_equal(fewer.train.inputs, first.train.inputs[:5])
    np.testing.assert_array_equal(fewer.test.targets, first.test.targets)


def test_what_it_says_about_itself():
    track = tabular.build(**SIZES)
    assert track.options == {**SIZES, "inputs": 10, "noise": 1.0}
    assert track.metric.direction == "lower"
    assert track.output_size == 1
    assert {"tabular", "regression"} <= track.features
