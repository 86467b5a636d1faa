"""Verdict labels: the whole truth table of each rule."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.judging import (
    CONFIDENCE_RULE,
    compare,
    confidence,
    control_holds,
    correct,
    legacy_verdict,
    mechanism_ok,
    outcome,
    practical_verdict,
    system_verdict,
    worked,
)

BASE = np.linspace(1.0, 1.4, 16)
STEPS = np.linspace(0.2, 0.4, 16)


@pytest.mark.parametrize(
    ("p_corrected", "gain", "equivalence_p", "expected"),
    [
        (0.05, 1.0, 0.01, "better"),
        (0.05, -1.0, None, "worse"),
        (0.051, 1.0, 0.05, "equivalent"),
        (0.051, 1.0, 0.051, "inconclusive"),
        (0.051, 1.0, None, "inconclusive"),
    ],
)
def test_four_way_outcome(p_corrected, gain, equivalence_p, expected):
    assert outcome(p_corrected, gain, equivalence_p, alpha=0.05) == expected


def test_legacy_labels():
    assert legacy_verdict(0.05, 1.0) == "idea better (significant)"
    assert legacy_verdict(0.05, -1.0) == "idea worse (significant)"
    assert legacy_verdict(0.06, 1.0) == "no significant win"


@pytest.mark.parametrize(
    ("four_way", "negligible", "expected"),
    [
        ("better", False, "helps"),
        ("worse", False, "harms"),
        ("better", True, "inconclusive"),
        ("worse", True, "inconclusive"),
        ("equivalent", False, "inconclusive"),
        ("inconclusive", False, "inconclusive"),
    ],
)
def test_practical_verdict(four_way, negligible, expected):
    assert practical_verdict(four_way, negligible=negligible) == expected


@pytest.mark.parametrize("practical", ["helps", "harms", "inconclusive"])
@pytest.mark.parametrize("signature", ["confirmed", "refuted", "vacuous", "untestable"])
@pytest.mark.parametrize("controls", [(), (True,), (True, False)])
def test_system_verdict_and_mechanism(practical, signature, controls):
    mechanism = mechanism_ok(signature, practical, controls)
    assert mechanism == int(
        signature == "confirmed" and practical != "harms" and False not in controls
    )
    system = system_verdict(practical, mechanism)
    expected = {"helps": "worked", "inconclusive": "partial"}[practical] if mechanism else "failed"
    assert system == expected
    assert worked(system) == (practical == "helps" and mechanism == 1)


@pytest.mark.parametrize(
    ("control", "when_it_helps", "otherwise"),
    [
        ("better", True, True),
        ("equivalent", False, True),
        ("inconclusive", False, True),
        ("worse", False, False),
    ],
)
def test_a_control_can_only_weaken(control, when_it_helps, otherwise):
    assert control_holds(control, "helps") is when_it_helps
    assert control_holds(control, "inconclusive") is otherwise
    assert control_holds(control, "harms") is otherwise


def test_confidence_is_ten_only_with_everything():
    clear = compare(BASE, BASE - STEPS, direction="lower")
    full = confidence(clear, equal_trials=True, signature="confirmed")
    assert full.value == 10
    assert full.rule == CONFIDENCE_RULE
    assert confidence(clear, equal_trials=False, signature="confirmed").value == 9
    assert confidence(clear, equal_trials=True, signature="vacuous").value == 8
    eight = compare(BASE[:8], BASE[:8] - STEPS[:8], direction="lower")
    assert confidence(eight, equal_trials=True, signature="refuted").value == 9
    # Seven hypotheses cannot be decided with eight seeds: inconclusive, and no points for seeds.
    crowded = correct([eight] * 7)[0]
    assert confidence(crowded, equal_trials=True, signature="refuted").parts == {
        "posterior": 0.0,
        "seeds": 0.0,
        "parity": 1.0,
        "signature": 2.0,
    }


def test_there_is_no_confidence_in_a_quick_run_or_in_an_idea_that_did_not_act():
    clear = compare(BASE, BASE - STEPS, direction="lower")
    still = compare(BASE, BASE, direction="lower")
    assert not still.acted
    for found in (
        confidence(clear, equal_trials=True, signature="confirmed", quick=True),
        confidence(still, equal_trials=True, signature="refuted"),
    ):
        assert found.value == 0
        assert set(found.parts.values()) == {0.0}


def test_confidence_is_the_same_for_a_win_and_its_mirror():
    win = compare(BASE, BASE - STEPS, direction="lower")
    loss = compare(BASE, BASE - STEPS, direction="higher")
    parts = [confidence(c, equal_trials=True, signature="refuted").parts for c in (win, loss)]
    assert parts[0] == pytest.approx(parts[1])


def test_confidence_in_equivalence_is_that_of_the_region():
    same = compare(BASE, BASE + 0.001 * np.sin(np.arange(16)), direction="lower")
    assert same.outcome == "equivalent"
    assert confidence(same, equal_trials=True, signature="confirmed").value == 10


def test_confidence_where_runs_diverged_comes_from_the_ranks():
    lost = compare(BASE, np.full(16, np.nan), direction="lower")
    rating = confidence(lost, equal_trials=True, signature="untestable")
    assert rating.parts["posterior"] == 5.0 * (1.0 - lost.p_value)
    assert rating.value == 8
