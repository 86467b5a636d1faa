"""Rates: exact intervals, and the level that a discrete test has."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from jaxbench.base import JaxbenchError
from jaxbench.judging import attainable_level, clopper_pearson, sign_flip_test


@pytest.mark.parametrize(("count", "trials"), [(0, 10), (10, 10), (19, 400), (1, 2), (0, 1)])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_the_interval_is_that_of_scipy(count: int, trials: int, confidence: float) -> None:
    rate = clopper_pearson(count, trials, confidence=confidence)
    oracle = stats.binomtest(count, trials).proportion_ci(confidence, method="exact")
    assert (rate.low, rate.high) == pytest.approx((oracle.low, oracle.high), abs=1e-12)
    assert (rate.count, rate.trials, rate.rate) == (count, trials, count / trials)


@pytest.mark.parametrize(("count", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_what_is_no_count_is_refused(count: int, trials: int) -> None:
    with pytest.raises(JaxbenchError, match="0 <= count <= trials"):
        clopper_pearson(count, trials)


def test_the_attainable_level_is_the_share_of_sign_patterns_that_are_significant() -> None:
    assert attainable_level(8) == 12 / 256
    assert attainable_level(4) == 0.0
    sizes = 2.0 ** np.arange(8)  # no two sums are equal
    p_values = [
        sign_flip_test(sizes * signs).p_value for signs in itertools.product((-1.0, 1.0), repeat=8)
    ]
    for alpha in (0.05, 0.01, 2 / 256, 0.2):
        assert np.mean(np.array(p_values) <= alpha) == attainable_level(8, alpha=alpha)
