"""The rules of the signatures, on samples whose answer is known."""

import numpy as np
import pytest

from jaxbench.interventions import stability_signatures as rules
from jaxbench.interventions.stability_penalty import build

SEEDS, LEVELS, HORIZONS = 6, np.array([0.1, 0.2]), np.array([5, 10, 20])


def samples(effect: float = 1.0, law_error: float = 0.0, seed: int = 0):
    """Penalised and baseline runs; with `effect` 1 growth follows rho_hat, with 0 it stays."""
    rng = np.random.default_rng(seed)
    weight = np.repeat([1.0, 0.0], SEEDS)
    rho = np.where(weight > 0, 0.95, 1.1) + rng.uniform(-0.01, 0.01, 2 * SEEDS)
    growth = np.array([rules.log_accumulated(1.1 + effect * (r - 1.1), HORIZONS) for r in rho])
    growth = np.repeat(growth[:, None], len(LEVELS), axis=1)
    injected = np.log(LEVELS**2)[:, None] + np.log(HORIZONS) + np.zeros_like(growth)
    noise = rng.normal(size=growth.shape) * 0.02
    seeds = np.tile(np.arange(SEEDS), 2)
    return {
        "rho_hat": rho,
        "state_growth": np.full(2 * SEEDS, 1.01),
        "weight": weight,
        "sigma": np.full(2 * SEEDS, 0.2),
        "pair": np.stack([np.zeros_like(seeds), seeds], axis=1).astype(np.uint32),
        "noise_sigma": np.tile(LEVELS, (2 * SEEDS, 1)),
        "horizons": np.tile(HORIZONS, (2 * SEEDS, 1)),
        "log_injected": injected,
        "log_predicted": injected + growth,
        "log_measured": injected + growth * (1 + law_error) + noise,
        "log_measured_error": np.full_like(growth, 0.02),
    }


def skill(rule, null, data) -> float:
    return 1 - rule(data).error / rule(null(data)).error


def shuffled(data):
    order = np.random.default_rng(1).permutation(2 * SEEDS)
    return {name: value[order] for name, value in data.items()}


def test_the_reported_rule_is_a_relative_error_of_means() -> None:
    data = {"rho_hat": np.array([1.0243, 1.0243]), "state_growth": np.array([1.0002, 1.0002])}
    finding = rules.state_growth(data)
    assert finding.passed
    assert finding.error == pytest.approx(0.0235, abs=5e-5)
    assert not rules.state_growth({**data, "rho_hat": np.array([1.2, 1.2])}).passed


def test_the_lift_rule_confirms_the_law_and_refutes_another() -> None:
    assert rules.lift_predicts_growth(samples()).passed
    assert skill(rules.lift_predicts_growth, rules.no_growth, samples()) > 0.5
    wrong = rules.lift_predicts_growth(samples(law_error=0.3))
    assert wrong.passed is False
    assert wrong.values["slope"] == pytest.approx(1.3, abs=0.05)
    assert "Slope 1." in wrong.reason


def test_growth_one_has_no_slope() -> None:
    finding = rules.lift_predicts_growth(rules.no_growth(samples()))
    assert finding.passed is None
    assert finding.error > 0.1


def test_the_effect_rule_confirms_what_rho_hat_predicts() -> None:
    finding = rules.penalty_lowers_growth(samples())
    assert finding.passed
    assert finding.values["pairs"] == finding.values["pairs_that_fell"] == SEEDS
    assert skill(rules.penalty_lowers_growth, rules.same_growth, samples()) > 0.5


@pytest.mark.parametrize("effect", [0.0, -0.5, 2.5])
def test_the_effect_rule_refutes_another_size_or_sign(effect: float) -> None:
    assert rules.penalty_lowers_growth(samples(effect)).passed is False


def test_the_null_explains_a_penalty_without_effect() -> None:
    assert skill(rules.penalty_lowers_growth, rules.same_growth, samples(0.0)) < 0


def test_a_penalty_that_did_not_act_is_untestable() -> None:
    data = samples()
    data["rho_hat"] = np.full_like(data["rho_hat"], 0.9)
    finding = rules.penalty_lowers_growth(data)
    assert finding.passed is None
    assert "did not lower it" in finding.reason


def test_pairs_do_not_depend_on_the_order_of_runs() -> None:
    data = samples()
    assert rules.penalty_lowers_growth(shuffled(data)).error == pytest.approx(
        rules.penalty_lowers_growth(data).error
    )
    other = shuffled(data)
    for baseline, idea in rules.paired_rows(other):
        assert (other["pair"][baseline] == other["pair"][idea]).all()
        assert other["weight"][idea] > other["weight"][baseline]


def test_a_baseline_alone_has_no_pairs() -> None:
    data = {name: value[SEEDS:] for name, value in samples().items()}
    finding = rules.penalty_lowers_growth(data)
    assert finding.passed is None
    assert finding.values["pairs"] == 0


def test_diverged_runs_are_dropped_and_counted() -> None:
    data = samples()
    data["log_measured"][2] = np.nan
    data["rho_hat"][3] = np.inf
    lift = rules.lift_predicts_growth(data)
    assert lift.passed
    assert lift.values["runs_dropped"] == 1
    effect = rules.penalty_lowers_growth(data)
    assert effect.passed
    assert (effect.values["runs_dropped"], effect.values["pairs"]) == (2, SEEDS - 2)
    assert rules.state_growth(data).values["runs_dropped"] == 1


@pytest.mark.parametrize("signature", build().signatures, ids=lambda signature: signature.name)
def test_nothing_finite_is_untestable_with_a_reason(signature) -> None:
    data = {name: np.full_like(value, np.nan, float) for name, value in samples().items()}
    for runs in (slice(0, 0), slice(None)):
        finding = signature.evaluate({name: value[runs] for name, value in data.items()})
        assert finding.passed is None
        assert finding.reason.endswith(".")


def test_accumulated_growth_solves_its_recursion() -> None:
    for rho in (0.0, 0.7, 1.0, 1.3):
        deviation, expected = 0.0, []
        for time in range(1, 11):
            deviation = rho * deviation + 1.0
            expected.append(np.log(deviation / time))
        got = rules.log_accumulated(rho, np.arange(1, 11))
        np.testing.assert_allclose(got, expected, atol=1e-12)


def test_exact_growths_are_summarised_where_they_were_measured() -> None:
    data = samples()
    exact = np.linspace(0.9, 1.0, 2 * SEEDS)[:, None]
    data |= {
        "exact_rho": exact,
        "exact_rho_by_norm": 1.2 * exact,
        "exact_rho_by_power": 0.99 * exact,
    }
    values = rules.penalty_lowers_growth(data).values
    assert values["norm_over_exact"] == pytest.approx(1.2)
    assert values["power_over_exact"] == pytest.approx(0.99)
    assert values["correlation_norm_exact"] == pytest.approx(1.0)


def test_only_the_reported_rule_lacks_a_null() -> None:
    reported, *proper = build().signatures
    assert reported.reported_rule
    assert all(one.null and one.null_name and one.controls for one in proper)
