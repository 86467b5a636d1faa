"""The sign-flip test: published p-values, exact cases, symmetries, and agreement with scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxbench.base import JaxbenchError
from jaxbench.judging import attainable_p, legacy_signflip_p, sign_flip_test

MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
NBC = [94.203, 92.754, 95.652, 91.176, 92.647, 91.176, 92.647, 92.647, 86.765, 91.176]
J48 = [92.754, 92.754, 89.855, 89.706, 95.588, 89.706, 95.588, 94.118, 91.176, 92.647]

PUBLISHED = {
    "Darwin's maize (Fisher 1935)": (MAIZE, 1726 / 32768),
    "mlxtend, floats": (
        np.subtract(
            [3.67, 1.72, 3.46, 2.60, 2.03, 2.10, 3.01], [2.11, 1.79, 2.71, 1.89, 1.69, 1.71, 2.01]
        ),
        4 / 128,
    ),
    "mlxtend, integers": (
        np.subtract([209, 200, 177, 169, 159, 169, 187], [151, 168, 147, 164, 166, 163, 176]),
        8 / 128,
    ),
    "baycomp": (np.subtract(NBC, J48), 668 / 1024),
    "ties in decimal fractions": ([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, -0.1, -0.2], 44 / 256),
}

whole_differences = st.lists(st.integers(-40, 40), min_size=2, max_size=9)
positive_factors = st.floats(1e-290, 1e290)


def p_value(differences, **options) -> float:
    return sign_flip_test(differences, **options).p_value


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_p_values_come_out_exactly(name):
    differences, expected = PUBLISHED[name]
    assert p_value(differences) == expected


def test_maize_one_sided_is_half_of_two_sided():
    assert p_value(MAIZE, alternative="greater") == 863 / 32768
    assert p_value(np.negative(MAIZE), alternative="less") == 863 / 32768


@pytest.mark.parametrize("pairs", [2, 8, 20, 25])
def test_no_difference_at_all_gives_one(pairs):
    assert p_value(np.zeros(pairs)) == 1.0
    assert sign_flip_test(np.zeros(pairs)).attainable_p == 1.0


@pytest.mark.parametrize("pairs", range(2, 21))
def test_differences_of_one_sign_reach_the_attainable_p(pairs):
    test = sign_flip_test(np.linspace(0.1, 0.7, pairs))
    assert test.exact
    assert test.p_value == test.attainable_p == attainable_p(pairs) == 2.0 ** (1 - pairs)


def test_a_zero_difference_doubles_the_attainable_p():
    assert sign_flip_test([0.0, 1.0, 2.0, 3.0]).p_value == attainable_p(4, zeros=1) == 2 / 8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("pairs", [8, 30])
def test_a_difference_that_is_not_finite_is_refused(bad, pairs):
    differences = np.ones(pairs)
    differences[3] = bad
    for function in (sign_flip_test, legacy_signflip_p):
        with pytest.raises(JaxbenchError, match="must be finite; 1 of"):
            function(differences)


@given(whole_differences)
@settings(deadline=None, max_examples=40)
def test_agrees_with_scipy_and_with_plain_enumeration(differences):
    array = np.array(differences, dtype=float)
    flips = np.array(list(itertools.product([1, -1], repeat=array.size)))
    plain = np.mean(np.abs(flips @ array) >= abs(array.sum()))
    assert p_value(array) == plain
    for alternative in ("two-sided", "greater", "less"):
        oracle = stats.permutation_test(
            (array,),
            lambda x, axis: x.sum(axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
            alternative=alternative,
            vectorized=True,
        )
        assert p_value(array, alternative=alternative) == pytest.approx(oracle.pvalue, abs=1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9), positive_factors)
@settings(deadline=None, max_examples=50)
def test_swapped_arms_give_the_same_p(differences, factor):
    array = np.array(differences)
    assert p_value(array) == p_value(-array)
    assert p_value(array, alternative="less") == p_value(-array, alternative="greater")


@given(whole_differences, positive_factors, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_scale_and_order_of_seeds_do_not_matter(differences, factor, random):
    shuffled = differences.copy()
    random.shuffle(shuffled)
    for alternative in ("two-sided", "greater", "less"):
        expected = p_value(differences, alternative=alternative)
        assert p_value(np.array(differences) * factor, alternative=alternative) == expected
        assert p_value(shuffled, alternative=alternative) == expected


def test_random_flips_do_not_depend_on_order_sign_or_power_of_two():
    differences = np.random.default_rng(5).normal(0.2, 1.0, 40)
    expected = p_value(differences)
    assert not sign_flip_test(differences).exact
    for same in (differences[::-1], -differences, 8.0 * differences):
        assert p_value(same) == expected
    assert p_value(differences, seed=1) != expected
    assert p_value(differences, seed=1) == pytest.approx(expected, abs=0.01)


def test_random_flips_count_the_observed_one():
    test = sign_flip_test(np.ones(40), resamples=999)
    assert test.p_value == test.attainable_p == attainable_p(40, resamples=999) == 1 / 1000


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_random_flips_agree_with_enumeration_across_the_border(alternative):
    differences = np.random.default_rng(0).normal(0.3, 1.0, 20)
    exact = p_value(differences, alternative=alternative)
    # A zero difference changes no sum: 21 pairs have the p-value of 20, now from random flips.
    drawn = sign_flip_test(np.append(differences, 0.0), alternative=alternative)
    assert not drawn.exact
    assert drawn.p_value == pytest.approx(exact, abs=5 * np.sqrt(exact / 1e5))


def test_rounding_of_large_scores_does_not_break_a_tie():
    # Differences .1, .2, .3, ... beside 10^4 carry errors of 10^-12, far above 10^-12 of their sum.
    wanted = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, -0.1, -0.2])
    baseline = np.full(8, 1e4)
    rounded = (baseline + wanted) - baseline
    assert p_value(rounded, rounding=8 * np.spacing(1e4)) == 44 / 256


def test_the_old_monte_carlo_p_of_eight_equal_signs_is_162_in_20000():
    # R0 and R3 both state 0.0081: any eight differences of one sign give the same 162 flips.
    assert legacy_signflip_p(np.arange(1.0, 9.0)) == 162 / 20_000
    assert legacy_signflip_p([-3.0, -1.0, -4.0, -1.0, -5.0, -9.0, -2.0, -6.0]) == 162 / 20_000


def test_the_old_monte_carlo_p_is_the_formula_of_the_notes_at_any_size():
    differences = np.random.default_rng(1).normal(0.1, 1.0, 300)  # drawn in several blocks
    signs = np.random.default_rng(0).choice([-1, 1], size=(20_000, 300))
    flipped = np.abs((signs * differences).mean(1))
    assert legacy_signflip_p(differences) == np.mean(flipped >= abs(differences.mean()) - 1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0],), "at least 2 seeds"),
        (([],), "at least 2 seeds"),
        (([[1.0, 2.0]],), "flat list"),
        ((["one", "two"],), "must be numbers"),
    ],
)
def test_unusable_differences_are_refused_in_words(arguments, message):
    with pytest.raises(JaxbenchError, match=message):
        sign_flip_test(*arguments)


def test_an_unknown_alternative_names_the_nearest():
    with pytest.raises(JaxbenchError, match="Did you mean 'greater'"):
        sign_flip_test([1.0, 2.0], alternative="grater")
    with pytest.raises(JaxbenchError, match="resamples"):
        sign_flip_test([1.0, 2.0], resamples=0)
