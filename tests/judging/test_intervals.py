"""Intervals: duality with their tests, equivariance, and agreement with scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxbench.base import JaxbenchError
from jaxbench.judging import (
    all_intervals,
    bca_interval,
    sign_flip_interval,
    sign_flip_test,
    t_interval,
)

INTERVALS = (t_interval, sign_flip_interval)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=12), st.floats(0.5, 0.99))
@settings(deadline=None, max_examples=50)
def test_the_t_interval_is_scipys(differences, confidence):
    array = np.round(differences, 6)
    interval = t_interval(array, confidence=confidence)
    if np.ptp(array) == 0.0:
        assert interval.low == interval.high == pytest.approx(array[0])
        return
    oracle = stats.ttest_1samp(array, 0.0).confidence_interval(confidence)
    assert interval[:2] == pytest.approx((oracle.low, oracle.high), rel=1e-9, abs=1e-9)


@given(
    st.lists(st.integers(-50, 50), min_size=6, max_size=9),
    st.sampled_from([0.05, 0.1, 0.2, 0.0625]),
)
@settings(deadline=None, max_examples=60)
def test_the_inverted_interval_is_the_set_of_shifts_not_rejected(differences, alpha):
    array = np.array(differences, dtype=float)
    low, high, *_ = sign_flip_interval(array, confidence=1.0 - alpha)

    def p_value(shift: float) -> float:
        return sign_flip_test(array - shift).p_value

    step = 1e-5
    for inside in (low, high, array.mean(), (low + 3 * high) / 4):
        assert p_value(inside) > alpha
    assert p_value(low - step) <= alpha
    assert p_value(high + step) <= alpha


def test_too_few_pairs_leave_the_inverted_interval_unbounded():
    # With five pairs no p-value is at most 0.05 (the smallest is 1/16), so nothing is rejected.
    interval = sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval[:2] == (-np.inf, np.inf)
    assert np.all(np.isfinite(sign_flip_interval(np.arange(6.0))[:2]))


@pytest.mark.parametrize("pairs", [8, 20, 30])
@pytest.mark.parametrize("interval", INTERVALS)
def test_intervals_move_and_stretch_with_the_differences(interval, pairs):
    differences = np.random.default_rng(pairs).normal(0.5, 1.0, pairs)
    low, high, *_ = interval(differences)
    assert interval(4.0 * differences)[:2] == pytest.approx((4.0 * low, 4.0 * high))
    assert interval(-differences)[:2] == pytest.approx((-high, -low))
    assert interval(differences[::-1])[:2] == pytest.approx((low, high))
    if pairs <= 20:
        assert interval(differences + 3.0)[:2] == pytest.approx((low + 3.0, high + 3.0))


def test_random_flips_give_nearly_the_enumerated_interval():
    differences = np.random.default_rng(1).normal(0.5, 1.0, 20)
    exact = sign_flip_interval(differences)
    # One more pair at the mean: the interval is drawn, and only slightly narrower.
    drawn = sign_flip_interval(np.append(differences, differences.mean()))
    assert drawn[:2] == pytest.approx(exact[:2], abs=0.05)


def test_identical_differences_give_an_interval_of_no_width():
    for interval in (*INTERVALS, bca_interval):
        assert interval(np.full(16, 0.25))[:2] == (0.25, 0.25)


def test_bca_is_scipys_up_to_the_noise_of_the_bootstrap():
    differences = np.random.default_rng(3).lognormal(0.0, 1.0, 20)
    ours = bca_interval(differences)
    oracle = stats.bootstrap(
        (differences,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1), method="BCa"
    ).confidence_interval
    width = oracle.high - oracle.low
    assert ours[:2] == pytest.approx((oracle.low, oracle.high), abs=0.05 * width)
    assert ours == bca_interval(differences)


def test_bca_is_refused_below_fifteen_pairs():
    with pytest.raises(JaxbenchError, match="at least 15 pairs; got 14"):
        bca_interval(np.arange(14.0))
    assert all_intervals(np.arange(14.0)).bca is None
    assert all_intervals(np.arange(15.0)).bca is not None


def test_a_confidence_in_percent_is_refused():
    for interval in (*INTERVALS, bca_interval):
        with pytest.raises(JaxbenchError, match="strictly between 0 and 1; got 95"):
            interval(np.arange(20.0), confidence=95)
