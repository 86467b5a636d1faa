"""The sequential test: a martingale by enumeration, errors over many looks, and what it costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError
from jaxbench.judging import (
    SequentialState,
    SequentialTest,
    attainable_p_anytime,
    paired_scores,
    seeds_needed,
    seeds_to_decide,
    sign_flip_wealth,
)

SIZES = {
    "equal": np.ones(12),
    "growing": np.arange(1.0, 13.0),
    "heavy tails": 10.0 ** np.linspace(-3, 3, 12)[[3, 0, 7, 2, 11, 5, 1, 9, 4, 8, 6, 10]],
    "with zeros": np.array([0.0, 1.0, 0.0, 2.0, 2.0, 0.0, 3.0, 1.0, 1.0, 5.0, 0.0, 1.0]),
    "with diverged runs": np.array([1.0, np.inf, 2, 1, np.inf, 3, 1, 2, 1, 1, 4, 2]),
}  # fmt: skip
SIGNS = np.array(list(itertools.product((1.0, -1.0), repeat=12)))
some_differences = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def alike(one: SequentialState, other: SequentialState) -> None:
    """Expect the same evidence up to rounding, and the same decision."""
    assert (other.e_value, other.p_anytime) == pytest.approx((one.e_value, one.p_anytime), rel=1e-9)
    same = {"e_value": 1.0, "p_anytime": 1.0}
    assert one._replace(**same) == other._replace(**same)


def all_signs(sizes: np.ndarray) -> np.ndarray:
    """Give sizes all their signs, [2^n, n]; a zero has none."""
    return np.where(sizes == 0.0, 0.0, SIGNS * sizes)


@pytest.mark.parametrize("name", SIZES)
def test_the_mean_wealth_over_all_signs_is_one_after_every_difference(name: str) -> None:
    wealth = sign_flip_wealth(all_signs(SIZES[name]))
    for logarithms in wealth:
        np.testing.assert_allclose(np.exp(logarithms).mean(axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("name", SIZES)
def test_the_chance_of_ever_deciding_by_enumeration_is_at_most_alpha(
    name: str, alpha: float
) -> None:
    wealth = sign_flip_wealth(all_signs(SIZES[name])).both
    ever = (wealth >= -math.log(alpha)).any(axis=1)
    assert ever.mean() <= alpha


@pytest.mark.parametrize("law", ["normal", "cauchy", "two scales"])
def test_the_false_positive_rate_over_64_looks_is_at_most_alpha(law: str) -> None:
    generator = np.random.default_rng(20250101)
    studies, looks = 10_000, 64
    differences = {
        "normal": generator.normal(size=(studies, looks)),
        "cauchy": generator.standard_cauchy((studies, looks)),
        "two scales": generator.normal(size=(studies, looks))
        * np.where(np.arange(looks) < 8, 9, 1),
    }[law]
    ever = (sign_flip_wealth(differences).both >= math.log(20.0)).any(axis=1).mean()
    # three standard errors of a simulated 5 %
    assert ever <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / studies)
    assert ever >= 0.01, "and it is not vacuously safe"


@pytest.mark.parametrize(("effect", "most"), [(0.75, 1.5), (1.0, 1.5), (1.5, 1.6)])
def test_it_takes_at_most_half_more_seeds_than_the_test_planned_for_the_true_effect(
    effect: float, most: float
) -> None:
    differences = np.random.default_rng(3).normal(effect, 1.0, (4000, 64))
    proofs = sign_flip_wealth(differences).both >= math.log(20.0)
    decided = proofs.any(axis=1)
    stopped = np.where(decided, proofs.argmax(axis=1) + 1, 64)
    assert decided.mean() >= 0.95
    assert stopped.mean() <= most * seeds_needed(effect, power_wanted=0.8)


@settings(deadline=None)
@given(some_differences, st.data())
def test_looking_earlier_changes_nothing(differences: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(differences)))
    whole, parts = SequentialTest(), SequentialTest()
    parts.update(differences[:cut])
    assert parts.update(differences[cut:]) == whole.update(differences)


@settings(deadline=None)
@given(some_differences)
def test_swapped_arms_give_the_same_with_the_other_sign(differences: list[float]) -> None:
    one = SequentialTest().update(differences)
    other = SequentialTest().update([-d for d in differences])
    alike(other._replace(sign=-other.sign), one)


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.floats(1e-150, 1e150))
def test_the_unit_does_not_matter(differences: list[int], factor: float) -> None:
    one = SequentialTest().update(differences)
    other = SequentialTest().update([factor * d for d in differences])
    alike(other, one)


def test_the_p_value_never_rises_and_a_decision_stays() -> None:
    test = SequentialTest(0.05)
    previous = 1.0
    for difference in [1.0] * 9 + [-5.0] * 9:
        state = test.update([difference])
        assert state.p_anytime <= previous
        previous = state.p_anytime
    assert state.decided
    assert state.e_value < 20.0
    assert (state.decided_at, state.sign) == (7, 1)


def test_no_differences_and_zeros_decide_nothing() -> None:
    test = SequentialTest()
    assert test.state == test.update([]) == (0, 1.0, 1.0, False, None, 0)
    alike(test.update([0.0] * 50), SequentialState(50, 1.0, 1.0, False, None, 0))


def test_diverged_runs_are_the_largest_differences_there_are() -> None:
    baseline = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 0.8, 1.0, 1.1]
    pairs = paired_scores(baseline, [None] * 9, "lower")
    state = SequentialTest().update(pairs.differences)
    assert state.decided
    assert state.sign == 1, "idea minus baseline is infinite: worse where lower is better"


def test_the_greatest_evidence_overflows_nothing() -> None:
    state = SequentialTest().update(np.full(3000, 1e300))
    assert math.isfinite(state.e_value)
    assert 0.0 <= state.p_anytime < 1e-300


def test_the_sign_belongs_to_the_greatest_wealth() -> None:
    """Bets on greater pass 1 / alpha first, and bets on less have the greatest wealth later."""
    test = SequentialTest(0.05)
    first = test.update([1.0] * 7)
    assert (first.decided_at, first.sign) == (7, 1)
    assert test.update([-5.0] * 5)._replace(e_value=0.0) == first._replace(pairs=12, e_value=0.0)
    last = test.update([-5.0] * 20)
    assert (last.decided_at, last.sign) == (7, -1)
    assert last.p_anytime < first.p_anytime


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([-math.inf, math.inf]), max_size=30))
def test_no_differences_give_less_than_the_attainable_p(differences: list[float]) -> None:
    state = SequentialTest().update(differences)
    zeros = differences.count(0.0)
    least = attainable_p_anytime(len(differences), zeros=zeros)
    assert state.p_anytime >= least * (1.0 - 1e-9)
    assert attainable_p_anytime(len(differences)) <= least * (1.0 + 1e-9)


@pytest.mark.parametrize("zeros", [0, 2])
def test_the_attainable_p_is_that_of_zeros_then_the_largest_bets(zeros: int) -> None:
    """The wealth of n such bets at strength k: (prod (1 + tanh k u) + prod (1 - tanh k u)) / 2."""
    bets = [math.sqrt(place) for place in range(zeros + 1, 10)]
    wealth = [
        math.prod(1 + side * math.tanh(strength * u) for u in bets)
        for side in (1, -1)
        for strength in (0.5, 1.0, 2.0)
    ]
    assert attainable_p_anytime(9, zeros=zeros) == pytest.approx(6 / sum(wealth))
    state = SequentialTest().update([0.0] * zeros + [math.inf] * (9 - zeros))
    assert state.p_anytime == attainable_p_anytime(9, zeros=zeros)


@pytest.mark.parametrize("hypotheses", [1, 2, 6, 30])
def test_the_fewest_seeds_that_can_decide_are_the_first_that_do(hypotheses: int) -> None:
    alpha = 0.05 / hypotheses
    assert SequentialTest(alpha).update([math.inf] * 60).decided_at == seeds_to_decide(hypotheses)


def test_what_is_no_number_of_pairs_is_refused() -> None:
    for pairs, zeros in ((2, 3), (2, -1), (-1, 0)):
        with pytest.raises(JaxbenchError, match="must be"):
            attainable_p_anytime(pairs, zeros=zeros)


@pytest.mark.parametrize("bad", [[1.0, math.nan], ["x"], [[1.0]], 3.0])
def test_what_is_no_list_of_differences_is_refused(bad: object) -> None:
    with pytest.raises(JaxbenchError, match="differences must be"):
        SequentialTest().update(bad)  # type: ignore[arg-type]


def test_a_level_out_of_range_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="alpha must lie strictly between"):
        SequentialTest(1.0)
