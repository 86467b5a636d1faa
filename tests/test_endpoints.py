"""Comparisons by an endpoint: measured on every arm, judged as the score is, in one family."""

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbench import config, judging, study
from jaxbench.base import JaxbenchError, Progress
from jaxbench.explanation import endpoint_sources
from jaxbench.plan import Plan, make_plan
from jaxbench.reporting import strict_json, terminal
from jaxbench.reporting.audit import audit_file
from jaxbench.reporting.schema import check_report
from jaxbench.training.runs import Measurement, TrainedRun

IDEA = """
import jax
import jax.numpy as jnp
from jaxbench.base import Endpoint, Hyper, Intervention

def build(*, power: int = 2, broken_seed: bool = False):
    def loss_term(ctx, params, state, batch, outputs, intermediates, step, key):
        return ctx.hyper["weight"] * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    def measure(ctx, params, state, test):
        outputs, _ = ctx.model.apply(params, test.inputs, ctx=ctx, state=state)
        return {"reach": jnp.mean(jnp.abs(outputs) ** power), "score": ctx.track.score(outputs,
                test.targets), "pair": jax.random.key_data(ctx.key), "weight": ctx.hyper["weight"]}

    summary = f"mean absolute output to the power {power}"
    return Intervention(
        name="shrinking", summary="decays weights", static={"power": power},
        hyper={"weight": Hyper(1.0, 0.0, 1e3, "weight", neutral=0.0)},
        loss_term=loss_term, measure=measure,
        endpoints=(
            Endpoint(name="reach", summary=summary, unit="rad", direction="higher"),
            Endpoint(name="score", summary="the test score again"),
        ),
    )
"""

STUDY: dict[str, Any] = {
    "name": "endpoints",
    "track": {"name": "tabular", "train_size": 16, "validation_size": 8, "test_size": 8},
    "model": {"name": "mlp_tiny", "hidden": [3]},
    "training": {"epochs": 1, "batch_size": 8},
    "protocol": {"seeds": 6, "tuning_seeds": 1},
    "grid": {"learning_rate": [0.01]},
    "arms": {
        "plain": {"intervention": "none"},
        "weak": {"intervention": "idea.py", "fixed": {"weight": 0.1}},
        "strong": {"intervention": "idea.py", "fixed": {"weight": 10.0}},
    },
    "comparisons": [
        {"idea": "weak", "baseline": "plain", "role": "primary"},
        {"idea": "weak", "baseline": "plain", "role": "secondary", "endpoint": "score"},
        {"idea": "strong", "baseline": "plain", "role": "secondary", "endpoint": "reach"},
        {"idea": "strong", "baseline": "weak", "role": "control", "endpoint": "reach"},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ideas")
    (place / "idea.py").write_text(IDEA)
    return place


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """One study with a baseline that measures nothing, and an arm outside the primary one."""
    made = study.run_study(config.from_run(copy.deepcopy(STUDY), folder), progress=Progress())
    check_report(made)
    return made


def comparisons(report: dict[str, Any]) -> list[dict[str, Any]]:
    return report["bench_report"]["comparisons"]


def test_the_measured_scores_give_the_comparison_of_the_scores(report: dict[str, Any]) -> None:
    """The endpoint `score` is the test score, so the numbers must be those of the primary one."""
    primary, again = comparisons(report)[:2]
    assert "endpoint" not in primary
    assert again["endpoint"] == "score"
    assert again["direction"] == primary["direction"] == "lower"
    np.testing.assert_allclose(again["per_seed_diffs"], primary["per_seed_diffs"], rtol=1e-3)
    assert again["p_value"] == primary["p_value"]


def test_an_endpoint_is_judged_in_its_own_direction_and_corrected_in_the_family(
    report: dict[str, Any],
) -> None:
    made = comparisons(report)[2]
    assert (made["endpoint_unit"], made["direction"]) == ("rad", "higher")
    arms = report["bench_report"]["arms"]
    values = [arms[name]["measured"]["reach"] for name in ("plain", "strong")]
    expected = judging.compare(*values, direction="higher")
    assert made["per_seed_diffs"] == list(expected.per_seed_diffs)
    assert made["idea_wins"] == sum(strong > plain for plain, strong in zip(*values, strict=True))
    assert made["gain"] == pytest.approx(made["delta_mean"])
    assert [each["family_size"] for each in comparisons(report)] == [3, 3, 3, 1]


def test_the_audit_finds_nothing_and_sees_an_endpoint_that_was_changed(
    report: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    path.write_text(strict_json.dumps(report))
    assert audit_file(path).by_status("contradicts") == []
    forged = copy.deepcopy(report)
    comparisons(forged)[2]["per_seed_diffs"][0] *= 2
    path.write_text(strict_json.dumps(forged))
    wrong = [each.place for each in audit_file(path).by_status("contradicts")]
    assert wrong == [("bench_report", "comparisons", 2, "per_seed_diffs", 0)]


def test_the_report_shows_it_in_words_and_on_the_screen(
    report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = report["metrics"]["endpoints"]
    assert len(told) == 3
    assert told[1].startswith("reach, strong against plain: ")
    stream = io.StringIO()
    terminal.render(report, terminal.console_for(stream))
    text = stream.getvalue()
    for name in ("weak - plain by score", "strong - plain by reach", "strong - weak by reach"):
        assert name in text
    assert "Measured" in text
    for arm in ("plain", "weak", "strong"):
        mean = np.mean(report["bench_report"]["arms"][arm]["measured"]["reach"])
        assert f"{mean:.4g}" in text


# Judging ------------------------------------------------------------------------------------------


def scored(plan: Plan, lost: int | None = None) -> dict[str, list[TrainedRun]]:
    """Runs of every arm, `weak` better by 1 than the others; seed `lost` of `strong` diverged."""

    def run(arm: str, seed: int) -> TrainedRun:
        diverged_at = 3 if (arm, seed) == ("strong", lost) else None
        score = float(seed) - (arm == "weak")
        return TrainedRun(plan.arms[arm].run(0, {}, seed), score, score, diverged_at, {})

    return {arm: [run(arm, seed) for seed in range(8)] for arm in plan.arms}


def test_a_diverged_run_has_no_endpoint(folder: Path) -> None:
    """Not even where something was measured of it."""
    plan = make_plan(config.from_run(copy.deepcopy(STUDY), folder))
    values = {"reach": np.float32(2.0), "score": np.float32(3.0)}
    found = {each: [Measurement(values, {})] * 8 for each in endpoint_sources(plan)}
    compared = study.compare_arms(plan, scored(plan, lost=4), found)
    for place in (2, 3):
        assert (compared[place].baseline.diverged, compared[place].idea.diverged) == (0, 1)
        assert compared[place].per_seed_diffs == (*[0.0] * 4, None, *[0.0] * 3)
    assert compared[1].per_seed_diffs == (0.0,) * 8


def test_endpoints_count_in_the_correction_before_they_are_measured(folder: Path) -> None:
    """As if they had a p-value of 1, so that seeds are added until the study itself decides."""
    document = copy.deepcopy(STUDY)
    document["protocol"] = {"seeds": 8, "max_seeds": 16}
    plan = make_plan(config.from_run(document, folder))
    primary, *others = study.compare_arms(plan, scored(plan), found=None)
    assert primary.sequential is not None
    p_value = primary.sequential.p_anytime
    assert 0.0 < p_value < 0.05
    assert (primary.p_corrected, primary.family_size) == (pytest.approx(3 * p_value), 3)
    assert [each.decisive_p for each in others] == [1.0] * 3
    assert [each.p_corrected for each in others[:2]] == [1.0] * 2


# Configs ------------------------------------------------------------------------------------------


def changed(folder: Path, place: int, **values: Any) -> config.Config:
    document = copy.deepcopy(STUDY)
    document["comparisons"][place] |= values
    return config.from_run(document, folder)


def test_the_endpoint_is_part_of_the_plan_that_is_hashed(folder: Path) -> None:
    one, other = changed(folder, 2), changed(folder, 2, endpoint="score")
    assert config.digest(one) != config.digest(other)
    assert config.digest(config.from_run(one.as_run(), folder)) == config.digest(one)


def test_an_unknown_endpoint_is_refused_with_the_nearest(folder: Path) -> None:
    with pytest.raises(JaxbenchError, match=r"no endpoint 'reech'; did you mean reach\?"):
        changed(folder, 2, endpoint="reech")


def test_the_primary_comparison_is_by_the_score(folder: Path) -> None:
    with pytest.raises(JaxbenchError, match="the primary comparison is that of the score"):
        changed(folder, 0, endpoint="reach")


def test_two_arms_are_compared_once_by_each_endpoint(folder: Path) -> None:
    with pytest.raises(JaxbenchError, match="compared already"):
        changed(folder, 1, idea="strong", endpoint="reach")


def test_arms_that_measure_different_things_are_not_compared(folder: Path) -> None:
    document = copy.deepcopy(STUDY)
    document["arms"]["strong"]["options"] = {"power": 3}
    with pytest.raises(JaxbenchError, match=r"different things: .*power 3.* and .*power 2"):
        config.from_run(document, folder)


def test_an_idea_without_endpoints_is_refused(folder: Path) -> None:
    document = copy.deepcopy(STUDY)
    document["arms"]["strong"] = {"intervention": "none"}
    with pytest.raises(JaxbenchError, match=r"no endpoint 'reach' \(none: none; see its options"):
        config.from_run(document, folder)
