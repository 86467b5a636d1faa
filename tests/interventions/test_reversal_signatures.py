"""The rules of `reversal_checkpointing` on made-up measurements."""

import numpy as np
import pytest
from scipy import stats

from jaxbench import judging
from jaxbench.interventions import reversal_signatures as rs

RULES = {signature.name: signature for signature in rs.SIGNATURES}
RUNS = 8


def samples(**changes):
    """Runs whose checkpoints, gradients and rounding errors follow their defects."""
    defect = np.geomspace(1e-6, 1.0, RUNS)
    interval = np.array([32, 32, 16, 16, 8, 4, 2, 1.0])
    predicted = np.log(np.outer(defect, [1e-2, 1e-1]))
    made = {
        "defect": defect,
        "segment_defect": np.where(interval > 1, defect, 0),
        "reference_defect": defect,
        "interval": interval,
        "checkpoints": np.ceil(80 / interval) + 1,
        "threshold": np.full(RUNS, 1e-3),
        "gradient_disagreement": np.where(interval > 1, 0.3 * defect**2, 0),
        "exact": np.ones(RUNS),
        "log_error": predicted + np.log(3),
        "log_error_predicted": predicted,
    }
    return {**made, **changes}


def judged(name, trained, untrained=None):
    """Judge a rule with an untrained control at the first interval, whose gates make no error."""
    if untrained is None:
        untrained = samples(
            interval=np.full(RUNS, 8.0),
            segment_defect=np.zeros(RUNS),
            exact=np.zeros(RUNS),
        )
    arms = {"idea": trained, "ideas": trained, "baseline": trained}
    return judging.judge(RULES[name], arms, {"idea": untrained, "ideas": untrained})


@pytest.mark.parametrize("name", [name for name in RULES if name != "checkpoints_rise"])
def test_what_follows_the_defect_is_confirmed(name) -> None:
    assert judged(name, samples()).state == "confirmed"


def test_the_reported_rule_needs_a_rise() -> None:
    assert judged("checkpoints_rise", samples()).confirmed_legacy
    turned = samples(checkpoints=samples()["checkpoints"][::-1])
    assert judged("checkpoints_rise", turned).confirmed_legacy is False


def test_a_saturated_controller_is_untestable_and_never_confirmed() -> None:
    """All runs keep every state, as in the reference report."""
    saturated = samples(
        interval=np.ones(RUNS),
        checkpoints=np.full(RUNS, 81.0),
        defect=np.full(RUNS, 0.12),
        segment_defect=np.zeros(RUNS),
        gradient_disagreement=np.zeros(RUNS),
        exact=np.zeros(RUNS),
    )
    results = [judged(name, saturated, saturated) for name in RULES]
    assert [each.state for each in results] == [None, "untestable", "untestable", "untestable"]
    assert not any(each.confirmed for each in results)
    assert results[0].confirmed_legacy is False
    assert results[0].subject.passed is None
    assert judging.overall_state(results) == "untestable"


def test_two_intervals_are_too_few() -> None:
    two = np.array([8.0] * 4 + [4.0] * 4)
    given = samples(interval=two, checkpoints=np.ceil(80 / two) + 1)
    assert judged("checkpoints_follow_defect", given).state == "untestable"
    assert RULES["checkpoints_rise"].evaluate(given).passed is None


def test_checkpoints_that_fall_with_the_defect_refute() -> None:
    given = samples(checkpoints=samples()["checkpoints"][::-1])
    result = judged("checkpoints_follow_defect", given)
    assert (result.state, result.subject.values["spearman"] < 0) == ("refuted", True)


def test_a_gradient_that_is_wrong_where_the_defect_is_small_refutes() -> None:
    apart = samples()["gradient_disagreement"]
    for wrong in (apart[::-1], 1e3 * apart + 1e-3):
        given = samples(gradient_disagreement=np.where(apart > 0, np.abs(wrong) + 1e-12, 0))
        assert judged("gradient_follows_defect", given).state == "refuted"


def test_an_untrained_network_that_obeys_makes_the_laws_vacuous() -> None:
    for name in ("gradient_follows_defect", "rounding_follows_jacobians"):
        assert judged(name, samples(), samples()).state == "vacuous"


def test_rounding_errors_beyond_a_factor_of_ten_refute_and_large_ones_say_nothing() -> None:
    predicted = samples()["log_error_predicted"]
    assert judged(
        "rounding_follows_jacobians", samples(log_error=predicted + np.log(11))
    ).state == ("refuted")
    large = np.zeros_like(predicted)
    given = samples(log_error=large, log_error_predicted=large)
    assert judged("rounding_follows_jacobians", given).state == "untestable"


def test_diverged_runs_are_left_out() -> None:
    defect = samples()["reference_defect"].copy()
    defect[0] = np.nan
    finding = RULES["checkpoints_follow_defect"].evaluate(samples(reference_defect=defect))
    assert (finding.passed, finding.values["runs"]) == (True, RUNS - 1)


def test_spearman_is_scipys() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert rs.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert rs.spearman(x, np.ones(40)) == 0
