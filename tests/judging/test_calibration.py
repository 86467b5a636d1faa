"""Calibration: counts that are known by enumeration."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from jaxbench.judging.calibration import (
    SHIFTS,
    Scores,
    calibrate,
    false_positives,
    planted,
    shifted,
    watched,
)

SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=6)))
"""Every sign pattern of six differences: 2 of 64 are significant, which is 0.03125."""


def aa_studies(signs: np.ndarray = SIGNS) -> np.ndarray:
    """Studies whose differences have sizes of which no two sums are equal, [studies, 2, pairs]."""
    second = 10.0 + 2.0 ** np.arange(signs.shape[1]) * signs / 64.0
    return np.stack([np.full_like(second, 10.0), second], axis=1)


def some_scores() -> Scores:
    chosen = np.array([[0.1, 0.1]] * 32 + [[0.1, 0.3]] * 32)
    studies = aa_studies()
    return Scores(fixed=studies, tuned=studies, chosen=chosen, planted=studies - [[[0.0], [5.0]]])


def test_all_sign_patterns_give_exactly_the_attainable_level() -> None:
    rates = calibrate(some_scores(), "lower", sequences=400, max_pairs=16)
    assert rates["attainable_level"] == 2 / 64
    fixed = rates["fixed"]["false_positives"]
    assert (fixed["count"], fixed["trials"]) == (2, 64)
    outcomes = rates["fixed"]["outcomes"]
    assert (outcomes["better"], outcomes["worse"]) == (1, 1)
    assert sum(outcomes.values()) == 64
    tuned = {name: part["false_positives"]["trials"] for name, part in rates["tuned"].items()}
    assert tuned == {"all": 64, "same_choice": 32, "other": 32}
    assert [row["shift"] for row in rates["power"]] == list(SHIFTS)
    found = [row["power"]["rate"] for row in rates["power"]]
    assert found == sorted(found)
    assert rates["planted"]["outcomes"]["better"] == 64
    sequential = rates["sequential"]
    assert sequential["simulated"]["decided"]["low"] <= 0.05
    assert sequential["measured"]["decided"]["trials"] == 64 * 6 // 16


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_planted_effect_is_found_in_its_direction(direction) -> None:
    arms = np.array([[0.0], [5.0]])
    effect = planted(aa_studies() + arms, direction, 0.05)
    assert effect["difference"] == pytest.approx(5.0)
    assert effect["power"].rate == 1.0
    assert effect["outcomes"]["worse" if direction == "lower" else "better"] == 64


def test_a_group_without_studies_has_no_rate() -> None:
    assert false_positives(np.zeros((0, 2, 6)), "lower", 0.05)["false_positives"] is None


def test_a_shift_of_many_deviations_is_always_found() -> None:
    studies = aa_studies()
    differences = studies[:, 1] - studies[:, 0]
    assert shifted(differences, 0.0, 1.0, 0.05)["power"].count == 2
    far = shifted(differences, 50.0, float(differences.std()), 0.05)
    assert far["power"].count == 64
    assert far["expected"] == pytest.approx(1.0)


def test_diverged_runs_are_counted_and_left_out_of_the_spread() -> None:
    few = aa_studies()[:4]
    scores = Scores(fixed=few, tuned=few[:1], chosen=np.full((1, 2), 0.1), planted=few[:2])
    fixed = scores.fixed.copy()
    fixed[0, 1, 0] = np.nan
    rates = calibrate(
        dataclasses.replace(scores, fixed=fixed), "lower", sequences=100, max_pairs=16
    )
    assert rates["diverged"] == 1
    assert rates["fixed"]["false_positives"]["trials"] == 4, "and yet it is judged"
    assert rates["power"][0]["power"]["trials"] == 3
    assert rates["tuned"]["other"]["false_positives"] is None


def test_sequences_take_seeds_in_steps() -> None:
    """Seven equal differences decide, see the test of the sequential test: 8 seeds; zeros none."""
    equal, zeros = np.ones((3, 20)), np.zeros((1, 20))
    seen = watched(np.concatenate([equal, zeros]), 0.05, 8)
    assert (seen["decided"].count, seen["mean_seeds"]) == (3, (3 * 8 + 20) / 4)
    assert watched(equal, 0.05, 5)["mean_seeds"] == 10.0
