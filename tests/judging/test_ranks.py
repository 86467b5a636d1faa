"""Ranks: the published p-value, scipy as the oracle, and diverged runs as the worst outcome."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxbench.base import JaxbenchError
from jaxbench.judging import paired_scores, signed_rank_test, signed_ranks

BAD = [np.nan, np.inf, -np.inf, None, 1e300]


def test_published_p_value():
    x, y = [209, 200, 177, 169, 159, 169, 187], [151, 168, 147, 164, 166, 163, 176]
    assert signed_rank_test(y, x, direction="higher").p_value == 0.078125


def test_ties_share_the_mean_of_their_ranks_and_zeros_have_none():
    ranks = signed_ranks(np.array([0.3, -0.1, 0.1, 0.0, np.inf, -np.inf, 0.1 + 1e-17]))
    assert ranks.tolist() == [4.0, -2.0, 2.0, 0.0, 5.5, -5.5, 2.0]


def test_scores_that_round_differently_still_tie():
    # 10.3 - 10.0 and 20.3 - 20.0 differ in their last bits, and are both 0.3.
    pairs = paired_scores([10.0, 20.0, 1.0], [10.3, 20.3, 3.0], "lower")
    assert signed_ranks(pairs.differences, pairs.rounding).tolist() == [1.5, 1.5, 3.0]


@given(st.lists(st.integers(1, 10**6), min_size=4, max_size=10, unique=True), st.data())
@settings(deadline=None, max_examples=40)
def test_is_scipys_exact_test_without_ties(sizes, data):
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=len(sizes), max_size=len(sizes)))
    differences = np.multiply(sizes, signs)
    for alternative in ("two-sided", "greater", "less"):
        ours = signed_rank_test(
            np.zeros(len(sizes)), differences, direction="lower", alternative=alternative
        )
        oracle = stats.wilcoxon(differences, method="exact", alternative=alternative)
        assert ours.p_value == pytest.approx(oracle.pvalue, abs=1e-12)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("direction", "worse"), [("lower", np.inf), ("higher", -np.inf)])
def test_a_diverged_run_differs_by_infinity_towards_worse(bad, direction, worse):
    pairs = paired_scores([1.0, bad, bad, 4.0], [bad, 2.0, bad, 3.0], direction)
    assert pairs.differences.tolist() == [worse, -worse, 0.0, -1.0]
    assert not pairs.all_finite
    assert [int(lost.sum()) for lost in pairs.diverged] == [2, 2]


def test_how_a_run_diverged_makes_no_difference():
    baseline, idea = [1.0, 2.0, 3.0, 4.0], [0.5, 1.0, 2.0]
    p_values = {signed_rank_test(baseline, [*idea, bad], direction="lower").p_value for bad in BAD}
    # The signed ranks are -1, -2.5, -2.5 and 4; of 16 flips only -1, -4 and 1, 4 sum to zero.
    assert p_values == {14 / 16}


def test_all_runs_diverging_in_one_arm_is_as_significant_as_can_be():
    test = signed_rank_test(np.ones(8), np.full(8, np.nan), direction="higher")
    assert test.p_value == test.attainable_p == 2 / 256
    assert signed_rank_test(np.full(8, np.nan), np.full(8, np.inf), direction="lower").p_value == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1.0, 2.0, 3.0], "lower"), "got 2 baseline scores and 3 idea scores"),
        (([1.0], [2.0], "lower"), "at least 2 seeds"),
        (([1.0, 2.0], [1.0, 2.0], "lowest"), "Did you mean 'lower'"),
        (([[1.0, 2.0]], [[1.0, 2.0]], "lower"), "rows of one seed are not independent"),
        ((["a", "b"], [1.0, 2.0], "lower"), "baseline scores must be numbers"),
    ],
)
def test_unusable_scores_are_refused_in_words(arguments, message):
    with pytest.raises(JaxbenchError, match=message):
        paired_scores(*arguments)
