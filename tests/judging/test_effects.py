"""Effect sizes: scipy as the oracle, exact cases, and what does not exist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxbench.judging import (
    effect_sizes,
    measure_spread,
    paired_scores,
    probability_better,
    probability_of_improvement,
    standard_deviation,
)

BASELINE = np.array([2.0, 4.0, 8.0, 5.0])
IDEA = np.array([1.0, 5.0, 4.0, 2.5])
some_scores = st.lists(st.integers(-5, 5), min_size=2, max_size=12)


def test_each_scale_by_hand():
    effects = effect_sizes(paired_scores(BASELINE, IDEA, "lower"))
    differences = np.array([-1.0, 1.0, -4.0, -2.5])
    assert effects.paired_d == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert effects.relative_change == pytest.approx(-1.625 / 4.75)
    # log ratios: -log 2, log 5/4, -log 2, -log 2
    assert effects.log_ratio == pytest.approx((-3 * np.log(2) + np.log(1.25)) / 4)
    assert effects.log_ratio_interval.low < effects.log_ratio < effects.log_ratio_interval.high
    # Of the 16 pairs 1 beats 4, 2.5 beats 3, 4 beats 2 and ties once, 5 beats 1 and ties once.
    assert effects.probability_of_improvement == (4 + 3 + 2.5 + 1.5) / 16


@given(some_scores, some_scores.flatmap(st.permutations))
@settings(deadline=None, max_examples=50)
def test_probability_of_improvement_is_mann_whitneys_u(baseline, idea):
    size = min(len(baseline), len(idea))
    pairs = paired_scores(baseline[:size], idea[:size], "higher")
    u = stats.mannwhitneyu(idea[:size], baseline[:size]).statistic
    assert probability_of_improvement(pairs) == pytest.approx(u / size**2)
    mirrored = paired_scores(baseline[:size], idea[:size], "lower")
    assert probability_of_improvement(mirrored) == pytest.approx(1.0 - u / size**2)


def test_the_posterior_probability_is_one_minus_the_one_sided_t_test():
    p_value = stats.ttest_rel(IDEA, BASELINE, alternative="less").pvalue
    assert probability_better(IDEA - BASELINE, direction="lower") == pytest.approx(1.0 - p_value)
    assert probability_better(IDEA - BASELINE, direction="higher") == pytest.approx(p_value)


def test_what_does_not_exist_is_none():
    constant = effect_sizes(paired_scores([0.0, 0.0], [1.0, 1.0], "lower"))
    assert constant.paired_d is constant.relative_change is constant.log_ratio is None
    assert constant.probability_idea_better == 0.0
    broken = effect_sizes(paired_scores([1.0, 2.0], [np.nan, 1.0], "lower"))
    assert broken.paired_d is broken.relative_change is broken.probability_idea_better is None
    assert broken.probability_of_improvement == 1.5 / 4


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e299])
def test_spread_neither_overflows_nor_vanishes(scale):
    spread = measure_spread(scale * BASELINE, scale * IDEA)
    assert spread.paired_sd == pytest.approx(scale * (IDEA - BASELINE).std(ddof=1))
    assert spread.unpaired_sd == pytest.approx(
        scale * np.sqrt(BASELINE.var(ddof=1) + IDEA.var(ddof=1))
    )
    assert spread.correlation == pytest.approx(np.corrcoef(BASELINE, IDEA)[0, 1])


def test_equal_values_have_no_spread_whatever_their_mean_rounds_to():
    assert standard_deviation(np.full(7, 0.1)) == 0.0
    assert measure_spread(np.full(7, 0.1), np.arange(7.0)).correlation is None
