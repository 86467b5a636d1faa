"""Signatures: every state, skill, pooling, and the fingerprint of the rule."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from jaxbench.base import Finding, JaxbenchError, Signature
from jaxbench.judging import judge, overall_state, rule_digest

LIMIT = 0.1


def evaluate(samples):
    """Hold where the predicted value is within the limit of the observed one, run by run."""
    predicted, observed = samples["predicted"], samples["observed"]
    if np.ptp(observed) == 0.0:
        return Finding(None, {}, None, "The observed values do not vary.")
    error = float(np.mean(np.abs(predicted - observed)))
    return Finding(error <= LIMIT, {"runs": observed.size}, error, f"The error is {error:.3g}.")


def predict_mean(samples):
    """Predict the same for every run."""
    observed = np.asarray(samples["observed"])
    return {**samples, "predicted": np.full_like(observed, observed.mean())}


def always(samples):
    """Pass whatever comes, without an error."""
    del samples
    return Finding(True, {}, None, "It holds.")


SIGNATURE = Signature(
    name="law",
    claim="the prediction is what is observed",
    formula="y = p (a source)",
    tolerance={"error": LIMIT},
    evaluate=evaluate,
    null=predict_mean,
    null_name="the mean",
    controls=("untrained", "baseline"),
)

OBSERVED = np.linspace(1.0, 3.0, 8)


def samples(error: float, observed: np.ndarray = OBSERVED) -> dict[str, np.ndarray]:
    return {"predicted": observed + error, "observed": observed}


def judged(signature=SIGNATURE, idea=0.01, baseline=2.0, untrained=2.0, observed=OBSERVED):
    arms = {"idea": samples(idea, observed), "baseline": samples(baseline)}
    return judge(signature, arms, {"idea": samples(untrained), "baseline": samples(untrained)})


def test_confirmed_where_only_the_idea_passes():
    result = judged()
    assert result.state == "confirmed"
    assert result.confirmed
    assert result.confirmed_legacy is None
    assert result.subject.passed
    assert not result.null.passed
    assert {name: bool(found.passed) for name, found in result.controls.items()} == {
        "untrained": False,
        "baseline": False,
    }
    # The mean is off by the mean absolute deviation, 4/7; the idea by 1/100.
    assert result.skill == pytest.approx(1.0 - 0.01 / (4 / 7))
    assert result.rule_digest == rule_digest(SIGNATURE)


def test_refuted_where_the_prediction_fails():
    result = judged(idea=0.2)
    assert result.state == "refuted"
    assert not result.confirmed
    assert result.reason == "The error is 0.2."


@pytest.mark.parametrize("control", ["untrained", "baseline"])
def test_vacuous_where_a_negative_control_passes_too(control):
    result = judged(**{control: 0.05})
    assert result.state == "vacuous"
    assert f"control {control}" in result.reason


def test_vacuous_where_the_null_passes_too():
    result = judged(observed=1.0 + 0.01 * OBSERVED, idea=0.0)
    assert result.state == "vacuous"
    assert "null (the mean)" in result.reason


@pytest.mark.parametrize(
    ("error", "null_error", "state"),
    [
        (0.05, 0.1, "confirmed"),
        (0.05, 0.0999, "vacuous"),
        (0.05, 0.0, "vacuous"),
        (0.0, 0.0, "vacuous"),
        (0.05, np.inf, "confirmed"),
        (np.nan, 1.0, "untestable"),
        (np.inf, np.inf, "vacuous"),
        (None, 1.0, "confirmed"),
    ],
)
def test_a_skill_below_one_half_is_vacuous(error, null_error, state):
    def by_marker(samples):
        null = samples["null"][0] > 0
        return Finding(not null, {}, null_error if null else error, "It holds.")

    signature = dataclasses.replace(
        SIGNATURE,
        evaluate=by_marker,
        null=lambda samples: {"null": np.ones_like(samples["null"])},
        controls=(),
    )
    arm = {"null": np.zeros(2)}
    result = judge(signature, {"idea": arm}, {})
    assert result.state == state
    json.dumps(result.to_dict(), allow_nan=False)


def test_untestable_where_evaluate_cannot_tell():
    result = judged(observed=np.full(8, 2.0))
    assert result.state == "untestable"
    assert result.reason == "The observed values do not vary."


def test_a_control_that_cannot_be_tested_does_not_pass():
    arms = {"idea": samples(0.01), "baseline": samples(0.01, np.full(8, 2.0))}
    assert judge(SIGNATURE, arms, {"idea": samples(2.0)}).state == "confirmed"


def test_vacuous_where_nothing_could_have_failed():
    bare = dataclasses.replace(SIGNATURE, evaluate=always, null=None, controls=())
    result = judge(bare, {"idea": samples(0.0)}, {})
    assert result.state == "vacuous"
    assert "neither a null nor a negative control" in result.reason


def test_the_reported_rule_states_only_the_older_confirmation():
    reported = dataclasses.replace(SIGNATURE, reported_rule=True, null=None, controls=())
    for error, held in ((0.01, True), (0.2, False)):
        result = judged(reported, idea=error)
        assert result.confirmed_legacy is held
        assert result.state is None
        assert not result.confirmed


def test_pooled_arms_are_put_together_along_runs():
    pooled = dataclasses.replace(SIGNATURE, pool=("idea", "baseline"), controls=("untrained",))
    arms = {"idea": samples(0.01), "baseline": samples(0.03) | {"extra": np.zeros(8)}}
    untrained = {"idea": samples(2.0), "baseline": samples(2.0)}
    result = judge(pooled, arms, untrained)
    assert result.subject.values["runs"] == 16
    assert result.subject.error == pytest.approx(0.02)
    assert result.state == "confirmed"


def test_arms_that_share_initial_parameters_give_them_once():
    """The untrained control of a pool reads what is given of the pool; the subject needs all."""
    pooled = dataclasses.replace(SIGNATURE, pool=("idea", "baseline"), controls=("untrained",))
    arms = {"idea": samples(0.01), "baseline": samples(0.03)}
    result = judge(pooled, arms, {"idea": samples(2.0)})
    assert result.controls["untrained"].values["runs"] == 8
    with pytest.raises(JaxbenchError, match="untrained measurements of the arm 'idea'"):
        judge(pooled, arms, {})
    with pytest.raises(JaxbenchError, match="trained measurements of the arm 'baseline'"):
        judge(pooled, {"idea": samples(0.01)}, {"idea": samples(2.0)})


def test_all_ideas_of_a_study_are_pooled_by_name():
    pooled = dataclasses.replace(SIGNATURE, pool=("ideas",), controls=())
    every = {"predicted": np.zeros(20), "observed": np.linspace(0.0, 0.1, 20)}
    result = judge(pooled, {"idea": samples(5.0), "ideas": every}, {})
    assert result.subject.values["runs"] == 20
    assert result.subject.error == pytest.approx(0.05)


def test_what_was_not_measured_is_named():
    with pytest.raises(JaxbenchError, match="arm 'baseline'; there are idea"):
        judge(SIGNATURE, {"idea": samples(0.0)}, {"idea": samples(0.0)})
    with pytest.raises(JaxbenchError, match="'predicted', which was not measured; there are other"):
        judge(SIGNATURE, {"idea": {"other": np.zeros(3)}}, {})


def test_the_overall_state_is_the_worst_of_the_proper_ones():
    confirmed, refuted = judged(), judged(idea=0.2)
    vacuous, untestable = judged(baseline=0.0), judged(observed=np.full(8, 2.0))
    reported = judged(dataclasses.replace(SIGNATURE, reported_rule=True))
    assert overall_state([]) == "untestable"
    assert overall_state([reported]) == "untestable"
    assert overall_state([confirmed, reported]) == "confirmed"
    assert overall_state([confirmed, untestable]) == "untestable"
    assert overall_state([confirmed, untestable, vacuous]) == "vacuous"
    assert overall_state([vacuous, refuted, confirmed]) == "refuted"


@pytest.mark.parametrize(
    "change",
    [
        {"formula": "y = 2 p"},
        {"claim": "another"},
        {"tolerance": {"error": 0.2}},
        {"null_name": "zero"},
        {"null": None},
        {"controls": ("untrained",)},
        {"pool": ("baseline",)},
        {"evaluate": always},
    ],
)
def test_the_digest_changes_with_every_part_of_the_rule(change):
    assert rule_digest(dataclasses.replace(SIGNATURE, **change)) != rule_digest(SIGNATURE)


def test_the_digest_sees_values_and_functions_that_the_rule_reads(monkeypatch):
    def with_limit(limit):
        def hidden(samples):
            return Finding(bool(samples["x"].max() < limit), {}, None, "")

        return dataclasses.replace(SIGNATURE, evaluate=hidden)

    assert rule_digest(with_limit(0.1)) == rule_digest(with_limit(0.1))
    assert rule_digest(with_limit(0.1)) != rule_digest(with_limit(0.2))
    before = rule_digest(SIGNATURE)
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 0.2)
    assert rule_digest(SIGNATURE) != before


def test_a_rule_whose_source_cannot_be_read_is_refused():
    with pytest.raises(JaxbenchError, match="define it as a function in a file"):
        rule_digest(dataclasses.replace(SIGNATURE, evaluate=len))


def test_the_digest_is_the_same_in_another_process():
    code = f"import {__name__} as t; print(t.rule_digest(t.SIGNATURE))"
    path = json.dumps(sys.path)
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {path}\n{code}"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == rule_digest(SIGNATURE)
