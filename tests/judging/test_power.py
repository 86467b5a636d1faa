"""Power: statsmodels as the oracle, the numbers of the science notes, and consistency."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from statsmodels.stats.power import TTestPower

from jaxbench.base import JaxbenchError
from jaxbench.judging import (
    attainable_p,
    detectable,
    mde_at_power,
    mde_half_width,
    paired_power,
    seeds_needed,
    seeds_to_reach_significance,
)


@pytest.mark.parametrize("pairs", [2, 3, 8, 20, 64, 400])
@pytest.mark.parametrize("effect", [0.0, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_power_is_that_of_statsmodels(effect, pairs, alpha):
    oracle = TTestPower().power(effect, pairs, alpha)
    if np.isnan(oracle):  # its far tail fails for large effects, where it is zero
        ncp = effect * np.sqrt(pairs)
        assert ncp > 7.0
        oracle = special.nctdtr(pairs - 1, -ncp, special.stdtrit(pairs - 1, alpha / 2))
    assert paired_power(effect, pairs, alpha=alpha) == pytest.approx(oracle, abs=1e-9)
    assert paired_power(-effect, pairs, alpha=alpha) == paired_power(effect, pairs, alpha=alpha)


def test_power_without_an_effect_is_alpha():
    assert paired_power(0.0, 8, alpha=0.03) == pytest.approx(0.03)


@pytest.mark.parametrize("alpha", [1e-12, 0.001, 0.05, 0.9])
@pytest.mark.parametrize("pairs", [2, 3, 8, 100, 10**6])
def test_power_grows_with_the_effect_and_stays_a_probability(pairs, alpha):
    # scipy's noncentral t gives 1 where the power is 0.0003, at 8 pairs and alpha = 1e-12.
    powers = [paired_power(d, pairs, alpha=alpha) for d in (0.0, *np.geomspace(1e-6, 1e15, 60))]
    assert powers[0] == pytest.approx(alpha, rel=1e-4)
    assert powers[-1] == pytest.approx(1.0)
    assert np.all(np.diff(powers) >= -1e-12)


@pytest.mark.parametrize(("pairs", "effect"), [(8, 1.156), (16, 0.749), (32, 0.511)])
def test_effects_found_with_eighty_percent_are_those_of_the_notes(pairs, effect):
    assert mde_at_power(pairs) == pytest.approx(effect, abs=5e-4)
    assert paired_power(mde_at_power(pairs), pairs) == pytest.approx(0.8, abs=1e-9)


def test_mde_at_eighty_percent_is_three_point_two_seven_standard_errors_at_eight_seeds():
    assert mde_at_power(8, np.sqrt(8.0)) == pytest.approx(3.270, abs=5e-4)


def test_the_reports_mde_is_a_half_width_with_a_power_of_one_half():
    differences = np.random.default_rng(0).normal(size=8)
    deviation = differences.std(ddof=1)
    assert mde_half_width(differences) == pytest.approx(2.365 * deviation / np.sqrt(8), rel=1e-14)
    power_there = paired_power(mde_half_width(differences) / deviation, 8)
    assert power_there == pytest.approx(0.53, abs=0.01)


@pytest.mark.parametrize("effect", [0.3, 0.5, 0.9, -0.5])
def test_seeds_needed_is_the_least_number_with_the_power(effect):
    pairs = seeds_needed(effect)
    oracle = TTestPower().solve_power(abs(effect), alpha=0.05, power=0.8)
    assert pairs == int(np.ceil(oracle))
    assert paired_power(effect, pairs) >= 0.8 > paired_power(effect, pairs - 1)


def test_no_effect_is_found_with_seeds_that_cannot_reach_significance():
    assert paired_power(10.0, 3) > 0.99
    assert seeds_needed(10.0) == 6
    assert seeds_needed(10.0, hypotheses=7) == 9
    assert seeds_needed(0.5, hypotheses=7) > seeds_needed(0.5)


@pytest.mark.parametrize(("hypotheses", "pairs"), [(1, 6), (2, 7), (6, 8), (7, 9), (100, 12)])
def test_seeds_to_reach_significance_is_the_first_whose_p_passes_holm(hypotheses, pairs):
    assert seeds_to_reach_significance(hypotheses) == pairs
    assert pairs == np.ceil(1 + np.log2(hypotheses / 0.05))
    assert attainable_p(pairs) * hypotheses <= 0.05 < attainable_p(pairs - 1) * hypotheses


def test_detectable_agrees_with_its_parts():
    differences = np.array([0.5, 1.5, -0.5, 1.0, 0.25, 0.75, 2.0, -0.25])
    deviation = differences.std(ddof=1)
    found = detectable(differences)
    assert found.mde == mde_half_width(differences)
    assert found.mde_80 == mde_at_power(8, deviation)
    assert found.seeds_for_80_power == seeds_needed(differences.mean() / deviation)


@pytest.mark.parametrize("differences", [[0.0] * 8, [0.5] * 8, [1.0, -1.0, 2.0, -2.0]])
def test_an_effect_or_spread_of_zero_needs_no_number_of_seeds(differences):
    assert detectable(differences).seeds_for_80_power is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: seeds_needed(0.0), "more than 1000000 seeds"),
        (lambda: seeds_needed(float("nan")), "finite"),
        (lambda: paired_power(1.0, 1), "pairs must be"),
        (lambda: paired_power(1.0, 8, alpha=5), "such as 0.05 for 5 %"),
        (lambda: mde_at_power(8, power_wanted=0.01), "between alpha"),
        (lambda: mde_at_power(8, -1.0), "standard deviation"),
        (lambda: seeds_to_reach_significance(0), "hypotheses"),
    ],
)
def test_impossible_questions_are_refused_in_words(call, message):
    with pytest.raises(JaxbenchError, match=message):
        call()
