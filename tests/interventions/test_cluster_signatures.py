"""Rules on made-up measurements that obey or break them."""

import numpy as np
import pytest

from jaxbench import judging
from jaxbench.interventions.cluster_signatures import SIGNATURES

ETAS = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8])
REPORTED, LAW, UPDATES = SIGNATURES


def law(power=2.0, coefficient=0.6, third=0.0, runs=4):
    observed = coefficient * ETAS**power + third * ETAS**3
    return {
        "eta": np.tile(ETAS, (runs, 1)),
        "observed": np.tile(observed, (runs, 1)),
        "predicted_coefficient": np.full(runs, 0.6),
    }


def updates(policy=80.0, in_turn=100.0, random=120.0, reached=1.0, runs=4):
    return {
        "updates_policy": np.full(runs, policy),
        "updates_in_turn": np.full(runs, in_turn),
        "updates_random": np.full(runs, random),
        "reached_policy": np.full(runs, reached),
        "reached_in_turn": np.full(runs, reached),
        "reached_random": np.full(runs, reached),
    }


def judged(signature, samples, untrained=None):
    return judging.judge(
        signature, {"idea": samples, "baseline": samples}, {"idea": untrained or samples}
    )


def test_the_reported_rule_gives_what_the_reference_report_says():
    """Its `observed_linf`, `eta2_ratio_range` and `confirmed`, of one network."""
    observed = [0.023520752787590027, 0.09223496913909912, 0.20175543427467346, 0.3461129665374756]
    samples = {"eta": np.array([[0.2, 0.4, 0.6, 0.8]]), "observed": np.array([observed])}
    found = judged(REPORTED, samples)
    quotients = found.subject.values["over_eta_squared"]
    assert min(quotients) == pytest.approx(0.5408015102148055)
    assert max(quotients) == pytest.approx(0.5880188196897506)
    assert found.confirmed_legacy is True


def test_a_law_that_untrained_networks_obey_too_is_vacuous():
    assert judged(LAW, law()).state == "vacuous"
    assert judged(LAW, law(), untrained=law(power=1.0)).state == "confirmed"


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (law(coefficient=0.7), "off its prediction by 16"),
        (law(power=1.0), "slope is 1.000"),
        (law(third=1.5), "off its prediction by 12"),
    ],
)
def test_other_laws_are_refuted(samples, words):
    found = judged(LAW, samples, untrained=law(power=1.0))
    assert found.state == "refuted"
    assert words in found.reason


def test_the_null_of_the_law_is_linear_and_fails():
    found = judged(LAW, law(), untrained=law(power=1.0))
    assert not found.null.passed
    assert found.skill > 0.9
    assert LAW.evaluate(law(power=1.0) | LAW.null(law(power=1.0))).values[
        "relative_error"
    ] == pytest.approx(0)


def test_equal_sweeps_cannot_be_tested():
    same = law(coefficient=0.0)
    assert judged(LAW, same).state == "untestable"
    assert judged(REPORTED, same).subject.passed is None


@pytest.mark.parametrize(
    ("samples", "state"),
    [
        (updates(policy=89), "confirmed"),
        (updates(policy=91), "refuted"),
        (updates(policy=80, random=85), "vacuous"),
        (updates(reached=0.4), "untestable"),
        (updates(policy=0, in_turn=0), "untestable"),
    ],
)
def test_fewer_updates_is_judged_against_turns_and_chance(samples, state):
    assert judged(UPDATES, samples).state == state


def test_runs_that_diverged_are_left_out():
    samples = updates(policy=50.0)
    samples["updates_policy"][0] = np.nan
    found = judged(UPDATES, samples)
    assert (found.subject.values["runs"], found.subject.values["runs_dropped"]) == (3, 1)
