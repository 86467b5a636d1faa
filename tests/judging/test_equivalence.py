"""Equivalence and multiplicity: statsmodels as the oracle, and the duality with intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from jaxbench.base import JaxbenchError
from jaxbench.judging import holm, probability_better, rope, t_interval, tost

spread_out = st.lists(st.floats(-5, 5), min_size=3, max_size=20).filter(
    lambda differences: np.std(differences) > 1e-3
)


@given(spread_out, st.floats(0.01, 10.0))
@settings(deadline=None, max_examples=50)
def test_tost_is_that_of_statsmodels(differences, margin):
    oracle, *_ = DescrStatsW(np.array(differences)).ttost_mean(-margin, margin)
    assert tost(differences, margin).p_value == pytest.approx(oracle, abs=1e-9)


@given(spread_out, st.floats(0.01, 10.0))
@settings(deadline=None, max_examples=50)
def test_tost_passes_exactly_where_the_ninety_percent_interval_is_inside(differences, margin):
    low, high, *_ = t_interval(differences, confidence=0.9)
    room = min(margin - high, low + margin)
    if abs(room) > 1e-9:
        assert (tost(differences, margin).p_value <= 0.05) == (room > 0.0)


@given(spread_out, st.floats(0.0, 10.0))
@settings(deadline=None, max_examples=50)
def test_the_rope_splits_one_and_mirrors(differences, margin):
    regions = rope(differences, margin)
    assert sum(regions) == pytest.approx(1.0)
    assert min(regions) >= 0.0
    assert rope(np.negative(differences), margin) == pytest.approx(regions[::-1], abs=1e-12)
    # Without a margin what lies below is the probability that a lower score is the better one.
    assert rope(differences, 0.0).below == pytest.approx(
        probability_better(differences, direction="lower")
    )


def test_the_rope_is_the_posterior_simulated():
    differences = np.array([0.3, -0.1, 0.4, 0.2, 0.6, 0.0, 0.1, 0.5])
    draws = np.random.default_rng(0).standard_t(7, 400_000)
    posterior = differences.mean() + draws * differences.std(ddof=1) / np.sqrt(8)
    simulated = [
        np.mean(posterior < -0.2),
        np.mean(abs(posterior) <= 0.2),
        np.mean(posterior > 0.2),
    ]
    assert rope(differences, 0.2) == pytest.approx(simulated, abs=0.003)


def test_without_spread_the_mean_alone_decides():
    assert tost(np.zeros(8), 0.1).p_value == 0.0
    assert rope(np.full(8, 0.5), 0.1) == (0.0, 0.0, 1.0)
    assert tost(np.full(8, -0.5), 0.1).p_value == 1.0
    assert [probability_better(np.full(8, d), direction="lower") for d in (-1.0, 0.0, 1.0)] == [
        1.0,
        0.5,
        0.0,
    ]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
@settings(deadline=None, max_examples=8)
def test_holm_is_that_of_statsmodels(p_values):
    _, oracle, *_ = multipletests(p_values, method="holm")
    assert holm(p_values) == pytest.approx(list(oracle), abs=1e-12)


def test_holm_of_the_five_reference_reports_is_that_of_the_notes():
    exact = [2 / 256, 4 / 256, 44 / 256, 2 / 256, 180 / 256]
    assert holm(exact) == pytest.approx([0.039, 0.047, 0.344, 0.039, 0.703], abs=5e-4)
    assert holm([]) == []


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.5])
def test_what_is_no_p_value_is_refused(bad):
    with pytest.raises(JaxbenchError, match="between 0 and 1"):
        holm([0.5, bad])


@pytest.mark.parametrize("margin", [-0.1, np.nan, np.inf])
def test_a_margin_must_be_a_finite_width(margin):
    for judgement in (tost, rope):
        with pytest.raises(JaxbenchError, match="margin"):
            judgement([1.0, 2.0, 3.0], margin)
