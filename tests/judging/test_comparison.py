"""Comparisons: verdicts, symmetries, divergence, families, and strict JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError
from jaxbench.judging import SequentialTest, compare, confidence, correct

RISING = np.array([0.05, 0.11, 0.02, 0.08, 0.14, 0.03, 0.09, 0.06])
FLAT = np.array([0.02, -0.02, 0.01, -0.01, 0.03, -0.03, 0.02, -0.01])
WIDE = np.array([0.9, -0.8, 1.1, -0.7, 0.6, -1.2, 0.8, -0.5])
BASE = np.array([1.0, 1.2, 0.9, 1.1, 1.05, 0.95, 1.15, 0.85])

scores = st.lists(st.integers(1, 1000), min_size=4, max_size=9)


def mirrored(comparison: dict) -> dict:
    """Give the numbers that must not depend on the direction when the scores are negated."""
    names = ("p_value", "p_value_one_sided", "rank_p_value", "idea_wins", "gain", "outcome")
    names += ("verdict", "system_worked", "negligible", "mde", "mde_80", "legacy_p_value")
    return {name: comparison[name] for name in names}


@pytest.mark.parametrize(
    ("change", "outcome", "negligible", "verdict"),
    [
        (-RISING * 5, "better", False, "idea better (significant)"),
        (RISING * 5, "worse", False, "idea worse (significant)"),
        (-RISING / 5, "better", True, "idea better (significant)"),
        (RISING / 5, "worse", True, "idea worse (significant)"),
        (FLAT, "equivalent", False, "no significant win"),
        (WIDE, "inconclusive", False, "no significant win"),
        (BASE * 0.0, "equivalent", False, "no significant win"),
    ],
)
@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_every_verdict(change, outcome, negligible, verdict, direction):
    change = change if direction == "lower" else -change
    comparison = compare(BASE, BASE + change, direction=direction)
    assert comparison.outcome == outcome
    assert comparison.negligible is negligible
    assert comparison.verdict == verdict
    assert comparison.system_worked is (verdict == "idea better (significant)")
    # Delta is idea minus baseline, whatever the direction.
    assert comparison.delta_mean == pytest.approx(change.mean())


def test_an_idea_that_changes_nothing_did_not_act():
    comparison = compare(BASE, BASE, direction="lower")
    assert (comparison.p_value, comparison.delta_mean, comparison.acted) == (1.0, 0.0, False)
    assert (comparison.idea_wins, comparison.ties) == (0, 8)
    assert any("did not act" in warning for warning in comparison.warnings)
    assert compare(BASE, BASE + FLAT, direction="lower").acted


@given(scores, st.data())
@settings(deadline=None, max_examples=30)
def test_higher_is_the_mirror_of_lower(baseline, data):
    idea = data.draw(st.lists(st.integers(1, 1000), min_size=len(baseline), max_size=len(baseline)))
    lower = compare(baseline, idea, direction="lower")
    higher = compare(np.negative(baseline), np.negative(idea), direction="higher")
    assert mirrored(lower.to_dict()) == mirrored(higher.to_dict())
    assert higher.delta_mean == -lower.delta_mean
    better = "probability_idea_better", "probability_of_improvement"
    for name in better:
        assert getattr(higher.effects, name) == getattr(lower.effects, name)


@given(scores, st.data(), st.floats(1e-290, 1e290))
@settings(deadline=None, max_examples=30)
def test_units_do_not_matter(baseline, data, factor):
    idea = data.draw(st.lists(st.integers(1, 1000), min_size=len(baseline), max_size=len(baseline)))
    plain = compare(baseline, idea, direction="lower")
    scaled = compare(np.multiply(baseline, factor), np.multiply(idea, factor), direction="lower")
    for name in ("p_value", "p_value_one_sided", "rank_p_value", "idea_wins", "ties", "verdict"):
        assert getattr(scaled, name) == getattr(plain, name), name
    assert scaled.tost is not None
    assert plain.tost is not None
    assert scaled.tost.p_value == pytest.approx(plain.tost.p_value, abs=1e-9)
    assert scaled.delta_mean == pytest.approx(factor * plain.delta_mean)


@given(scores, st.data())
@settings(deadline=None, max_examples=30)
def test_swapped_arms_turn_every_statement_round(baseline, data):
    idea = data.draw(st.lists(st.integers(1, 1000), min_size=len(baseline), max_size=len(baseline)))
    one = compare(baseline, idea, direction="lower")
    other = compare(idea, baseline, direction="lower")
    assert other.p_value == one.p_value
    assert other.rank_p_value == one.rank_p_value
    assert other.delta_mean == -one.delta_mean
    assert other.idea_wins + one.idea_wins + one.ties == len(baseline)
    opposite = {"better": "worse", "worse": "better"}
    assert other.gain == -one.gain
    if one.outcome in opposite:
        assert other.outcome == opposite[one.outcome]


@given(scores, st.data(), st.sampled_from([np.nan, np.inf, -np.inf, None]))
@settings(deadline=None, max_examples=50)
def test_a_diverged_idea_is_never_better_for_it(baseline, data, bad):
    idea = [score - 1.0 for score in baseline]
    place = data.draw(st.integers(0, len(baseline) - 1))
    whole = compare(baseline, idea, direction="lower")
    idea[place] = bad
    broken = compare(baseline, idea, direction="lower")
    assert broken.idea.diverged == 1
    assert broken.gain < whole.n_pairs
    assert broken.p_value_one_sided > whole.p_value_one_sided
    assert broken.p_value == broken.rank_p_value
    assert broken.delta_mean is broken.intervals is broken.tost is broken.legacy_p_value is None
    assert broken.delta_mean_finite_pairs == pytest.approx(-1.0)
    assert broken.per_seed_diffs[place] is None
    assert "1 of" in broken.warnings[0]
    assert "diverged" in broken.warnings[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_number_of_diverged_idea_runs_is_a_win(bad):
    for lost in range(1, 9):
        idea = np.where(np.arange(8) < lost, bad, BASE - 0.5)
        comparison = compare(BASE, idea, direction="lower")
        assert comparison.outcome != "better"
        assert not comparison.system_worked
    assert comparison.outcome == "worse"
    assert comparison.idea.mean is None


def test_a_baseline_that_diverges_everywhere_loses():
    comparison = compare([None] * 8, BASE, direction="lower")
    assert comparison.outcome == "better"
    assert comparison.idea_wins == 8
    assert comparison.effects.probability_of_improvement == 1.0


def test_holm_over_a_family_decides_the_outcomes():
    clear = compare(BASE, BASE - RISING * 5, direction="lower")
    idea = BASE - RISING * 5
    idea[2] = BASE[2] + 0.01  # one small loss: p = 4/256
    nearly = compare(BASE, idea, direction="lower")
    lost = compare(BASE, BASE + WIDE, direction="lower")
    assert (clear.p_value, nearly.p_value) == (2 / 256, 4 / 256)
    family = correct([nearly, lost, clear, lost])
    assert [member.family_size for member in family] == [4] * 4
    assert family[2].p_corrected == 4 * 2 / 256
    assert family[0].p_corrected == 3 * 4 / 256
    assert [member.outcome for member in family[:3]] == ["better", "inconclusive", "better"]
    doubled = correct([nearly] * 4)
    assert doubled[0].p_corrected == 16 / 256
    assert doubled[0].outcome == "inconclusive"
    # The older labels know of no correction.
    assert doubled[0].verdict == "idea better (significant)"
    assert correct([]) == []


def test_a_family_too_large_for_its_seeds_is_told_so():
    clear = compare(BASE, BASE - RISING, direction="lower")
    assert clear.warnings == ()
    member = correct([clear] * 7)[0]
    assert member.p_corrected == 7 * 2 / 256
    assert "at least 9 pairs" in member.warnings[0]
    with pytest.raises(JaxbenchError, match="share their alpha"):
        correct([clear, compare(BASE, BASE - RISING, direction="lower", alpha=0.01)])


def test_a_paired_spread_above_the_unpaired_one_is_warned_of():
    comparison = compare(BASE, 2.0 - BASE + FLAT, direction="lower")
    assert comparison.spread is not None
    assert comparison.spread.correlation < -0.9
    assert comparison.spread.paired_sd > comparison.spread.unpaired_sd
    assert "above the unpaired one" in comparison.warnings[0]
    assert "did not help, so check that both arms share data" in comparison.warnings[0]
    (known,) = comparison.warnings_knowing("data and batch order")
    assert known.endswith("did not help, although both arms share data and batch order.")


@pytest.mark.parametrize("pairs", [2, 5, 8, 15, 25])
@pytest.mark.parametrize("kind", ["plain", "same", "constant", "diverged", "zero"])
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_a_comparison_is_strict_json_with_always_the_same_keys(pairs, kind, alpha):
    generator = np.random.default_rng(pairs)
    baseline, idea = generator.normal(1.0, 0.1, (2, pairs))
    if kind == "same":
        idea = baseline
    if kind == "constant":
        baseline, idea = np.full(pairs, 1.0), np.full(pairs, 0.5)
    if kind == "diverged":
        idea[0] = np.nan
    if kind == "zero":
        baseline = np.zeros(pairs)
    comparison = compare(baseline, idea, direction="lower", alpha=alpha)
    values = comparison.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert set(values) == set(compare(BASE, BASE, direction="higher").to_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "hihger"}, "Did you mean 'higher'"),
        ({"direction": "lower", "alpha": 5}, "0.05 for 5 %"),
        ({"direction": "lower", "alpha": 0.7}, "below 0.5"),
        ({"direction": "lower", "alpha": np.nan}, "alpha"),
        ({"direction": "lower", "margin": -0.1}, "margin"),
        ({"direction": "lower", "margin": np.nan}, "margin"),
    ],
)
def test_unusable_options_are_refused_in_words(options, message):
    with pytest.raises(JaxbenchError, match=message):
        compare(BASE, BASE, **options)


# Pairs that were added until a test decides


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_pairs_added_until_decided_are_judged_by_the_sequential_test(direction):
    """Six pairs of one sign are significant at a number fixed beforehand, not yet in a sequence."""
    better = -1.0 if direction == "lower" else 1.0
    base, change = np.ones(8), better * np.array([3.0, 3.1, 2.9, 3.0, 3.2, 2.8, 3.0, 3.1])
    fixed, early, late = (
        compare(base[:n], (base + change)[:n], direction=direction, max_pairs=most)
        for n, most in ((6, None), (6, 64), (8, 64))
    )
    assert (fixed.outcome, early.outcome, late.outcome) == ("better", "inconclusive", "better")
    assert early.verdict == "no significant win"
    assert late.system_worked
    assert early.p_value == fixed.p_value == 2 / 64
    assert early.p_corrected == early.sequential.p_anytime > 0.05 >= late.p_corrected
    assert compare(base + change, base, direction=direction, max_pairs=64).outcome == "worse"
    assert json.loads(json.dumps(late.to_dict(), allow_nan=False))["sequential"]["max_pairs"] == 64


def test_the_trajectory_is_the_test_after_each_pair():
    differences = np.array([0.5, -0.1, 0.4, 0.6, 0.2, 0.7, 0.3, 0.9, 0.1, 0.4])
    comparison = compare(np.ones(10), 1.0 + differences, direction="higher", max_pairs=20)
    steps = comparison.sequential
    for pairs in range(1, 11):
        state = SequentialTest(0.05).update(comparison.per_seed_diffs[:pairs])
        assert steps.e_values[pairs - 1] == state.e_value
        assert steps.p_values[pairs - 1] == state.p_anytime
    assert (steps.decided_at, steps.sign) == (state.decided_at, state.sign)


def test_equivalence_is_tested_only_at_the_number_of_pairs_fixed_beforehand():
    """Stopping when the test of equivalence passes would be a choice after the fact."""
    outcomes = [
        compare(BASE, BASE + FLAT, direction="lower", max_pairs=most).outcome
        for most in (None, 8, 64)
    ]
    assert outcomes == ["equivalent", "equivalent", "inconclusive"]


def test_no_difference_is_negligible_by_a_test_that_is_not_valid():
    """A win of 1 % and a margin of 5 %, significant after 8 pairs: too small only at the last."""
    found = [
        compare(np.ones(8), np.full(8, 0.99), direction="lower", max_pairs=most)
        for most in (None, 8, 64)
    ]
    assert [each.outcome for each in found] == ["better"] * 3
    assert all(each.tost.p_value <= each.alpha for each in found)
    assert [each.negligible for each in found] == [True, True, False]


def test_the_verdict_has_the_sign_of_the_bets_that_the_corrected_p_comes_from():
    """Seven losses suffice alone, not in a family of two, where later wins decide."""
    differences = np.array([1.0] * 7 + [-5.0] * 25)
    other = compare(BASE, BASE + WIDE, direction="lower", max_pairs=64)
    outcomes = []
    for pairs in (7, 32):
        whole = compare(np.zeros(pairs), differences[:pairs], direction="lower", max_pairs=64)
        first, _ = correct([whole, other])
        outcomes.append((whole.sequential.decided_at, whole.outcome, first.outcome))
    assert outcomes == [(7, "worse", "inconclusive"), (7, "better", "better")]


@pytest.mark.parametrize(("pairs", "enough"), [(8, False), (9, True)])
def test_too_few_pairs_for_the_sequential_test_are_told_by_what_it_can_reach(pairs, enough):
    """In a family of six: 8 pairs reach 6 p = 0.047 at a fixed number, but a sequence takes 9."""
    change = -(10.0 ** np.arange(pairs))  # each the largest so far: nearly the largest bets
    several = [compare(np.ones(pairs), 1.0 + change, direction="lower", max_pairs=64)] * 6
    comparison = correct(several)[0]
    assert comparison.p_corrected == pytest.approx(6.0 * comparison.decisive_attainable_p, rel=0.02)
    assert (comparison.outcome == "better") is enough
    assert any("takes at least 9 pairs" in each for each in comparison.warnings) is not enough
    rated = confidence(comparison, equal_trials=True, signature="untestable")
    assert rated.parts["seeds"] == float(enough)


def test_the_sign_is_that_of_the_test_that_decided():
    """Seven losses decide; what comes after, however large, does not turn the verdict round."""
    differences = np.array([1.0] * 7 + [-50.0])
    comparison = compare(np.zeros(8), differences, direction="lower", max_pairs=16)
    assert comparison.sequential.decided_at == 7
    assert comparison.delta_mean < 0.0
    assert comparison.outcome == "worse"
    assert comparison.verdict == "idea worse (significant)"


def test_a_family_is_corrected_by_the_p_values_that_decide():
    change = -np.array([3.0, 3.1, 2.9, 3.0, 3.2, 2.8, 3.0, 3.1])
    alone = compare(np.ones(8), np.ones(8) + change, direction="lower", max_pairs=64)
    other = compare(BASE, BASE + WIDE, direction="lower", max_pairs=64)
    first, second = correct([alone, other])
    assert first.p_corrected == pytest.approx(2.0 * alone.sequential.p_anytime)
    assert second.p_corrected == max(first.p_corrected, other.sequential.p_anytime)


def test_more_pairs_than_were_planned_are_refused():
    with pytest.raises(JaxbenchError, match="at most 4 pairs cannot have 8"):
        compare(BASE, BASE + WIDE, direction="lower", max_pairs=4)


def test_confidence_where_runs_diverged_is_by_the_p_value_that_decides():
    """Eight baseline runs lost: decided by the sequential test, with its larger p-value."""
    lost = [None] * 8
    fixed, steps = (compare(lost, BASE, direction="lower", max_pairs=most) for most in (None, 64))
    rated = [
        confidence(each, equal_trials=True, signature="untestable").parts["posterior"]
        for each in (fixed, steps)
    ]
    assert [fixed.outcome, steps.outcome] == ["better", "better"]
    assert rated[0] == pytest.approx(5.0 * (1.0 - fixed.p_value))
    assert rated[1] == pytest.approx(5.0 * (1.0 - steps.sequential.p_anytime))
    assert rated[1] < rated[0]
