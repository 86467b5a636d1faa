"""The helpers of regression tracks against brute force."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jaxbench.tracks import regression

TARGETS = arrays(np.float64, (4, 3, 2), elements=st.floats(-100, 100))


def test_mean_squared_error_averages_over_all_elements():
    outputs, targets = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    assert regression.mean_squared_error(outputs, targets) == (0 + 4 + 9 + 16) / 4
    assert regression.mean_squared_error(jnp.array(outputs), jnp.array(targets)) == 29 / 4


@given(TARGETS, arrays(np.float64, 2, elements=st.floats(-100, 100)))
def test_no_constant_is_better_than_the_constant_loss(targets, constant):
    best = regression.constant_loss(targets)
    shift = constant - targets.mean(axis=(0, 1))
    loss = regression.mean_squared_error(constant[None, None], targets)
    # Steiner: the loss of a constant is the variance plus the squared distance from the mean.
    np.testing.assert_allclose(loss, best + (shift**2).mean(), rtol=1e-9, atol=1e-9)


@given(TARGETS)
def test_the_constant_prediction_attains_the_constant_loss_on_its_own_targets(targets):
    prediction = regression.constant_prediction(targets)
    assert prediction.shape == (1, 3, 2)
    np.testing.assert_allclose(
        regression.mean_squared_error(prediction, targets),
        regression.constant_loss(targets),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.integers(-4, 5, size=7)
    features = (rng.normal(size=(60, 7)) + 1) * scales
    return features[:40], rng.normal(size=(40, 9, 2)), features[40:]


def brute_force(train, targets, test, known):
    """Fit every time by itself, by singular values, on standardised columns."""

    def design(features, count):
        ones = np.ones((len(features), 1))
        return np.hstack([ones, features[:, :count] / np.abs(train[:, :count]).max(0)])

    return np.stack(
        [
            design(test, count)
            @ np.linalg.lstsq(design(train, count), targets[:, time], rcond=1e-10)[0]
            for time, count in enumerate(known)
        ],
        axis=1,
    )


def test_one_factorisation_gives_the_fit_of_every_time(problem):
    train, targets, test = problem
    known = np.array([0, 1, 1, 2, 3, 5, 6, 7, 7])
    np.testing.assert_allclose(
        regression.causal_least_squares(train, targets, test, known),
        brute_force(train, targets, test, known),
        rtol=1e-9,
        atol=1e-9,
    )


def test_a_feature_that_is_not_known_yet_changes_nothing(problem):
    train, targets, test = problem
    known = np.array([0, 1, 1, 2, 3, 5, 6, 7, 7])
    before = regression.causal_least_squares(train, targets, test, known)
    train, test = train.copy(), test.copy()
    train[:, 4] **= 2
    test[:, 4] += 1.0
    after = regression.causal_least_squares(train, targets, test, known)
    np.testing.assert_allclose(after[:, :5], before[:, :5], rtol=1e-12, atol=1e-12)
    assert np.abs(after[:, 5:] - before[:, 5:]).min() > 0


def test_dependent_and_empty_features_do_no_harm(problem):
    train, targets, test = problem
    independent = regression.least_squares(train, targets[:, 0], test)

    def widen(features):
        doubled = features[:, :1] - 2 * features[:, 1:2]
        return np.hstack([np.zeros((len(features), 1)), features, doubled])

    dependent = regression.least_squares(widen(train), targets[:, 0], widen(test))
    np.testing.assert_allclose(dependent, independent, rtol=1e-6, atol=1e-6)


def test_fewer_samples_than_features_are_interpolated(problem):
    train, targets, _ = problem
    fitted = regression.least_squares(train[:3], targets[:3, 0], train[:3])
    np.testing.assert_allclose(fitted, targets[:3, 0], rtol=1e-6, atol=1e-6)


def test_a_linear_map_is_found_exactly(problem):
    train, _, test = problem
    weights = np.random.default_rng(1).normal(size=(7, 2)) / np.abs(train).max(0)[:, None]
    predicted = regression.least_squares(train, train @ weights + 3, test)
    np.testing.assert_allclose(predicted, test @ weights + 3, rtol=1e-10)
