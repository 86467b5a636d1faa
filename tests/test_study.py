"""A study from config to report: the protocol is kept, and the report says what the numbers say."""

import copy
import itertools
import math
import statistics
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats

from jaxbench import config, judging, study
from jaxbench.base import JaxbenchError, Progress
from jaxbench.interventions import stability_penalty
from jaxbench.plan import make_plan
from jaxbench.reporting import strict_json
from jaxbench.reporting.audit import audit_file
from jaxbench.reporting.schema import check_report
from jaxbench.training.engine import Engine
from jaxbench.training.keys import stage_key

SMALL: dict[str, Any] = {
    "name": "small",
    "track": {
        "name": "dynamics",
        "sequence_length": 10,
        "train_size": 32,
        "validation_size": 8,
        "test_size": 8,
    },
    "model": {"name": "rnn_small", "hidden": 4},
    "training": {"epochs": 2, "batch_size": 8},
    "protocol": {"seeds": 6, "tuning_seeds": 2},
    "grid": {"learning_rate": [0.003, 0.03]},
    "arms": {
        "baseline": {"intervention": "none"},
        "idea": {"intervention": "none"},
    },
    "comparisons": [{"idea": "idea", "baseline": "baseline", "role": "primary"}],
}

PENALTY: dict[str, Any] = {
    "baseline": {"intervention": "stability_penalty", "fixed": {"weight": 0.0}},
    "idea": {"intervention": "stability_penalty", "fixed": {"weight": 3.0, "sigma": 0.5}},
}


def run(engine: Engine | None = None, **changes: Any) -> dict[str, Any]:
    """Run the small study with some tables replaced, and check the report's form."""
    document = copy.deepcopy(SMALL)
    for key, value in changes.items():
        both = isinstance(value, dict) and key not in ("arms", "grid")
        document[key] = {**document[key], **value} if both else value
    report = study.run_study(config.from_run(document), progress=Progress(), engine=engine)
    check_report(report)
    strict_json.dumps(report)
    return report


@pytest.fixture(scope="module")
def penalised() -> dict[str, Any]:
    return run(arms=PENALTY)


def test_the_reports_numbers_follow_from_its_per_seed_scores(penalised: dict[str, Any]) -> None:
    """Recomputed by other code: the standard library, scipy and a loop over all sign flips."""
    bench = penalised["bench_report"]
    comparison = bench["comparison"]
    scores = {side: bench[side]["full"]["per_seed"] for side in ("baseline", "idea")}
    differences = [i - b for i, b in zip(scores["idea"], scores["baseline"], strict=True)]
    n = len(differences)
    assert n == bench["n_seeds"] == comparison["n_pairs"] == 6
    for side, values in scores.items():
        assert bench[side]["full"]["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert bench[side]["full"]["std"] == pytest.approx(statistics.pstdev(values), rel=1e-9)
        assert bench[side]["full_mean"] == bench[side]["full"]["mean"]
    delta = statistics.fmean(differences)
    assert comparison["per_seed_diffs"] == pytest.approx(differences, rel=1e-12)
    assert comparison["delta_mean"] == pytest.approx(delta, rel=1e-9)
    assert comparison["idea_wins"] == sum(each < 0 for each in differences)
    as_extreme = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= abs(n * delta) - 1e-15
        for signs in itertools.product((-1, 1), repeat=n)
    ]
    assert comparison["p_value"] == sum(as_extreme) / 2**n
    assert comparison["attainable_p"] == 2 / 2**n
    error = statistics.stdev(differences) / math.sqrt(n)
    low, high = scipy.stats.t.interval(0.95, n - 1, loc=delta, scale=error)
    interval = comparison["intervals"]["t"]
    assert (interval["low"], interval["high"]) == pytest.approx((low, high), rel=1e-9)
    assert comparison["mde"] == pytest.approx(2.571 * error, rel=1e-9)  # t_{.975, 5}, 3 decimals
    assert bench["metric_direction"] == "lower is better"


def test_selection_follows_from_the_sweep(penalised: dict[str, Any]) -> None:
    bench = penalised["bench_report"]
    assert bench["protocol"]["selected_on"] == "validation"
    assert bench["protocol"]["tuning_seeds"] == [100, 101]
    for arm in bench["arms"].values():
        assert [trial["cfg"]["learning_rate"] for trial in arm["sweep"]] == [0.003, 0.03]
        for trial in arm["sweep"]:
            assert trial["mean"] == pytest.approx(statistics.fmean(trial["per_seed"]), rel=1e-9)
        best = min(arm["sweep"], key=lambda trial: trial["mean"])
        assert best["selected"]
        assert arm["best_cfg"]["learning_rate"] == best["cfg"]["learning_rate"]
        edge = "low" if best["cfg"]["learning_rate"] == 0.003 else "high"
        assert arm["edge_of_grid"] == {"learning_rate": edge}


def test_both_arms_share_one_program_data_and_initial_weights(penalised: dict[str, Any]) -> None:
    bench = penalised["bench_report"]
    (group,) = bench["programs"]
    assert group["runs"] == group["trained"] == 2 * (2 * 2) + 2 * 6
    assert bench["pairing"]["same_data"]
    assert bench["pairing"]["same_initial_parameters"]
    assert bench["arms"]["idea"]["cost"]["optimizer_steps"] == 10 * 2 * 4


def test_the_sentence_agrees_with_the_numbers(penalised: dict[str, Any]) -> None:
    comparison = penalised["bench_report"]["comparison"]
    assert f"exact p = {comparison['p_value']:.4g}" in penalised["verdict"]
    assert f"{comparison['idea_wins']}/6 wins" in penalised["verdict"]
    assert f"{comparison['delta_mean']:+.4g}" in penalised["verdict"]


def test_a_penalty_of_zero_does_not_act() -> None:
    """Differences of exactly 0, p = 1, and the report says so."""
    still = copy.deepcopy(PENALTY)
    still["idea"]["fixed"]["weight"] = 0.0
    report = run(arms=still)
    comparison = report["bench_report"]["comparison"]
    assert comparison["per_seed_diffs"] == [0.0] * 6
    assert comparison["p_value"] == 1.0
    assert comparison["acted"] is False
    assert "the idea did not act: every difference is exactly 0 (exact p = 1)" in report["verdict"]
    assert report["practical_verdict"] == "inconclusive"
    assert report["worked"] is False


def test_grid_and_selected_give_the_same_scores() -> None:
    """Whether all configurations meet the evaluation seeds or the winners only."""
    grid, selected = (run(protocol={"evaluate": mode}) for mode in ("grid", "selected"))
    for arm in ("baseline", "idea"):
        one, other = (each["bench_report"]["arms"][arm] for each in (grid, selected))
        assert one["full"] == other["full"]
        assert one["sweep"] == other["sweep"]
    assert grid["bench_report"]["arms"]["idea"]["cost"]["runs"] == 2 * (2 + 6)
    assert selected["bench_report"]["arms"]["idea"]["cost"]["runs"] == 2 * 2 + 6


def test_v1_selects_on_test_scores_and_says_that_it_is_asymmetric() -> None:
    """The baseline by the mean of seeds 0-3, the idea by that of all, both on the test split."""
    report = run(protocol={"rules": "v1"})
    bench = report["bench_report"]
    assert bench["protocol"]["asymmetric"]
    assert bench["protocol"]["selected_on"] == "test"
    assert bench["protocol"]["tuning_seeds"] == []
    assert "biased in favour of the idea" in report["limitations"]
    for side, seen in (("baseline", 4), ("idea", 6)):
        chosen = next(trial for trial in bench[side]["sweep"] if trial["selected"])
        assert chosen["per_seed"] == bench[side]["full"]["per_seed"][:seen]


def test_parity_fills_the_smaller_grid() -> None:
    """The idea tunes weight too (2 x 2); the baseline's learning rates grow to four."""
    arms = {
        "baseline": {"intervention": "none"},
        "idea": {"intervention": "stability_penalty", "grid": {"weight": [0.1, 1.0]}},
    }
    bench = run(arms=arms)["bench_report"]
    assert bench["protocol"]["parity"]["trials"] == {"baseline": 4, "idea": 4}
    rates = [trial["cfg"]["learning_rate"] for trial in bench["baseline"]["sweep"]]
    assert rates[2] == pytest.approx(math.sqrt(0.003 * 0.03))
    assert len(bench["protocol"]["parity"]["added"]["baseline"]) == 2
    assert bench["mechanism_signature"]["measured"].keys() == {"idea", "baseline"}


def test_unequal_trials_are_refused_when_parity_is_strict() -> None:
    arms = {
        **PENALTY,
        "idea": {"intervention": "stability_penalty", "grid": {"weight": [1.0, 2.0]}},
    }
    with pytest.raises(JaxbenchError, match="2 for baseline and 4 for idea"):
        run(arms=arms, protocol={"parity": "strict"})


def test_extend_grid_widens_both_arms_until_the_best_is_inside_or_three_times() -> None:
    """Short training wants ever larger learning rates: 0.003 is left behind by factors of 3."""
    bench = run(grid={"learning_rate": [0.0001, 0.0003]}, protocol={"extend_grid": True})[
        "bench_report"
    ]
    for side in ("baseline", "idea"):
        rates = sorted(trial["cfg"]["learning_rate"] for trial in bench[side]["sweep"])
        assert rates == pytest.approx([0.0001, 0.0003, 0.0009, 0.0027, 0.0081])
        assert bench[side]["edge_of_grid"] == {"learning_rate": "high"}


def test_a_grid_grows_to_the_bounds_of_its_hyperparameter_and_no_further() -> None:
    """Best at an edge: the next value is three times as far, or the bound, or none at the bound."""
    document = copy.deepcopy(SMALL) | {"arms": copy.deepcopy(PENALTY)}
    document["arms"]["idea"] |= {"fixed": {"weight": 3.0}, "grid": {"sigma": [0.2, 0.4]}}

    def beyond(values: list[float], best: int) -> dict[str, list[float]]:
        document["arms"]["idea"]["grid"]["sigma"] = values
        plan = make_plan(config.from_run(document))
        scores = np.ones((len(values), 2))
        scores[best] = 0.0
        points = [{"learning_rate": 0.003, "sigma": value} for value in values]
        tuned = study.Tuning(points, scores, judging.select(scores, "lower"))
        return study.values_beyond(plan, {"idea": tuned})

    sigma = stability_penalty.build().hyper["sigma"]
    assert (sigma.low, sigma.high) == (0.0, 1.0)
    assert beyond([0.2, 0.3], 1) == {"sigma": [pytest.approx(0.9)]}
    assert beyond([0.2, 0.4], 1) == {"sigma": [1.0]}
    assert beyond([0.2, 1.0], 1) == {}
    assert beyond([0.3, 1.0], 0) == {"sigma": [pytest.approx(0.1)]}


def test_an_arm_that_always_diverges_cannot_be_tuned() -> None:
    with pytest.raises(JaxbenchError, match=r"arms.baseline: all 1 configurations .* diverged"):
        run(grid={"learning_rate": [1e6]})


BREAKING = """
import jax
import jax.numpy as jnp
from jaxbench.base import Intervention

def build(*, stream: int, below: float):
    def after_epoch(ctx, params, opt_state, state, epoch):
        broken = jax.random.uniform(jax.random.fold_in(ctx.key, stream)) < below
        params = jax.tree.map(lambda leaf: jnp.where(broken, jnp.nan, leaf), params)
        return params, opt_state, state, {}

    return Intervention(
        name="breaking",
        summary="breaks the runs of some seeds",
        static={"stream": stream, "below": below},
        after_epoch=after_epoch,
    )
"""


def test_a_diverged_run_is_null_with_its_step_and_counts_as_the_worst(tmp_path: Path) -> None:
    """One evaluation seed of the idea breaks after the first epoch; no tuning seed does."""

    def drawn(seed: int, stream: int) -> float:
        key = jax.random.fold_in(stage_key(seed, "method"), stream)
        return float(jax.random.uniform(key))

    for stream in itertools.count():
        evaluation = [drawn(seed, stream) for seed in range(6)]
        below = sum(sorted(evaluation)[:2]) / 2
        if min(drawn(seed, stream) for seed in (100, 101)) > below:
            break
    lost = evaluation.index(min(evaluation))
    path = tmp_path / "breaking.py"
    path.write_text(BREAKING)
    idea = {"intervention": str(path), "options": {"stream": stream, "below": below}}
    report = run(arms={"baseline": {"intervention": "none"}, "idea": idea})
    full = report["bench_report"]["idea"]["full"]
    assert full["diverged"] == [{"seed": lost, "step": 4}]  # four steps an epoch, counted from 0
    assert [score is None for score in full["per_seed"]] == [seed == lost for seed in range(6)]
    assert full["mean"] is None
    comparison = report["bench_report"]["comparison"]
    assert comparison["delta_mean"] is None
    assert comparison["idea_wins"] == 0
    assert comparison["p_value"] == 1.0  # one rank against zeros: no significance
    assert "0 baseline and 1 idea runs diverged, so ranks decide" in report["verdict"]


def test_too_few_seeds_are_told_before_training() -> None:
    """Three secondary comparisons at six seeds cannot pass: 2/64 times 4 is above 0.05."""
    told: list[str] = []

    class Ears(Progress):
        def stage(self, name: str) -> None:
            told.append(name)

    document = copy.deepcopy(SMALL)
    names = [f"idea{number}" for number in range(3)]
    document["arms"] |= {name: {"intervention": "none"} for name in names}
    document["comparisons"] += [
        {"idea": name, "baseline": "baseline", "role": "secondary"} for name in names
    ]
    report = study.run_study(config.from_run(document), progress=Ears())
    assert told[0].startswith("warning: 6 seeds cannot reach significance at 0.05 with 4 corrected")
    assert "use at least 8 seeds" in told[0]
    assert "use at least 8 seeds" in report["limitations"]
    assert [each["family_size"] for each in report["bench_report"]["comparisons"]] == [4] * 4


def test_controls_stay_out_of_the_family() -> None:
    document = copy.deepcopy(SMALL)
    document["arms"]["placebo"] = {"intervention": "none"}
    document["comparisons"].append({"idea": "idea", "baseline": "placebo", "role": "control"})
    report = study.run_study(config.from_run(document), progress=Progress())
    assert [each["family_size"] for each in report["bench_report"]["comparisons"]] == [1, 1]


def test_an_idea_whose_needs_are_not_met_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "needy.py"
    path.write_text(
        "from jaxbench.base import Intervention\n"
        "def build():\n"
        "    return Intervention(name='needy', summary='', requires=frozenset({'wings'}))\n"
    )
    arms = {"baseline": {"intervention": "none"}, "idea": {"intervention": str(path)}}
    with pytest.raises(
        JaxbenchError, match=r"arms\.idea\.intervention: needy needs a model or track that is wings"
    ):
        run(arms=arms)


DECAY = """
import jax
import jax.numpy as jnp
from jaxbench.base import Intervention


def build(*, power: float = 1.0) -> Intervention:
    def loss_term(ctx, params, state, batch, outputs, intermediates, step, key):
        return STRENGTH * power * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    return Intervention(name="decay", summary="", loss_term=loss_term)
"""


def test_ideas_of_one_name_or_with_undeclared_options_train_by_their_own_programs(
    tmp_path: Path,
) -> None:
    """`name` and `static` are what a file says of itself; its text and its options decide too."""
    files = {name: tmp_path / f"{name}.py" for name in ("weak", "strong")}
    files["weak"].write_text(DECAY.replace("STRENGTH", "1e-3"))
    files["strong"].write_text(DECAY.replace("STRENGTH", "1.0"))
    arms: dict[str, Any] = {
        "baseline": {"intervention": "none"},
        "weak": {"intervention": str(files["weak"])},
        "strong": {"intervention": str(files["strong"])},
        "again": {"intervention": str(files["weak"]), "options": {"power": 1000.0}},
    }
    comparisons = [
        {"idea": idea, "baseline": "baseline", "role": role}
        for idea, role in (("weak", "primary"), ("strong", "secondary"), ("again", "secondary"))
    ]
    report = run(arms=arms, comparisons=comparisons, grid={"learning_rate": [0.03]})
    scores = {name: arm["full"]["per_seed"] for name, arm in report["bench_report"]["arms"].items()}
    assert scores["weak"] != scores["strong"]
    assert scores["weak"] != scores["again"]
    np.testing.assert_allclose(scores["again"], scores["strong"], rtol=1e-4)


def test_references_are_scored_on_every_evaluation_seed(penalised: dict[str, Any]) -> None:
    references = penalised["bench_report"]["references"]
    assert set(references) == {"constant", "persistence", "linear"}
    for reference in references.values():
        assert len(reference["per_seed"]) == 6
        assert reference["mean"] == pytest.approx(np.mean(reference["per_seed"]))


def test_signature_rules_are_fixed_beforehand(penalised: dict[str, Any]) -> None:
    mechanism = penalised["bench_report"]["mechanism_signature"]
    assert mechanism["signatures"]
    for each in mechanism["signatures"]:
        assert each["rule_digest"] == mechanism["rule_digests"][each["name"]]
        assert len(each["rule_digest"]) == 64


SLOW_LEARNER = {
    "baseline": {"intervention": "none"},
    "idea": {"intervention": "none", "fixed": {"learning_rate": 1e-5}},
}
"""An idea that hardly trains, and so is worse on every seed."""


def test_seeds_are_added_until_it_is_decided_and_none_is_trained_twice(tmp_path: Path) -> None:
    """Looks at 4 and 8 seeds of at most 14; the scores are those of a study with 8 seeds."""
    engine = Engine()
    protocol = {"seeds": 4, "max_seeds": 14, "parity": "off"}
    report = run(engine, arms=SLOW_LEARNER, protocol=protocol)
    bench = report["bench_report"]
    used, comparison = bench["protocol"]["sequential"], bench["comparison"]
    assert (used["looks"], used["stopped_because"]) == ([4, 8], "decided")
    assert bench["n_seeds"] == comparison["n_pairs"] == len(bench["idea"]["full"]["per_seed"]) == 8
    assert bench["protocol"]["evaluation_seeds"] == list(range(8))
    p_values = comparison["sequential"]["p_values"]
    assert p_values[3] > 0.05 >= p_values[7] == comparison["p_corrected"]
    assert comparison["outcome"] == "worse"
    assert f"anytime-valid p = {p_values[7]:.4g}, which makes the verdict" in report["verdict"]
    assert "not valid where seeds are added" in report["limitations"]
    [group] = engine.groups.values()
    names = [program.name for program in group.programs]
    assert len(names) == len(set(names)), "a program was compiled twice"
    assert group.trained == group.runs == (2 + 1) * 2 + 2 * 8
    assert bench["arms"]["idea"]["cost"]["runs"] == 1 * 2 + 8
    fixed = run(arms=SLOW_LEARNER, protocol={"seeds": 8, "parity": "off"})["bench_report"]
    for side in ("baseline", "idea"):
        assert bench[side]["full"] == fixed[side]["full"]
        assert bench[side]["sweep"] == fixed[side]["sweep"]
    assert fixed["comparison"]["p_value"] == comparison["p_value"]
    path = tmp_path / "report.json"
    path.write_text(strict_json.dumps(report))
    assert [each.place for each in audit_file(path).by_status("contradicts")] == []
    report["bench_report"]["comparisons"][0]["sequential"]["e_values"][7] *= 1.01
    path.write_text(strict_json.dumps(report))
    places = [each.place[-3:] for each in audit_file(path).by_status("contradicts")]
    assert places == [("sequential", "e_values", 7)] * 2, "in the list, and against its copy"


def test_a_study_that_nothing_decides_ends_at_the_most_seeds() -> None:
    """Equal arms: looks at 4, 8 and 10 seeds, and the programs are those of the first look."""
    engine = Engine()
    report = run(engine, protocol={"seeds": 4, "max_seeds": 10})
    used = report["bench_report"]["protocol"]["sequential"]
    assert used["looks"] == [4, 8, 10]
    assert used["stopped_because"] == "max_seeds reached"
    assert report["bench_report"]["comparison"]["sequential"]["p_values"] == [1.0] * 10
    assert report["practical_verdict"] == "inconclusive"
    [group] = engine.groups.values()
    names = [program.name for program in group.programs]
    assert len(names) == len(set(names))


def test_seeds_are_added_until_the_corrected_p_of_the_primary_comparison_decides() -> None:
    """With a second comparison in the family it takes twice the evidence."""
    document = copy.deepcopy(SMALL)
    document["arms"] = {**SLOW_LEARNER, "other": {"intervention": "none"}}
    document["comparisons"].append({"idea": "other", "baseline": "baseline", "role": "secondary"})
    document["protocol"] |= {"seeds": 7, "max_seeds": 28, "parity": "off"}
    report = study.run_study(config.from_run(document), progress=Progress())
    bench = report["bench_report"]
    p_values = bench["comparison"]["sequential"]["p_values"]
    enough = next(n for n in (7, 14, 21, 28) if 2 * p_values[n - 1] <= 0.05)
    assert bench["n_seeds"] == enough
    assert bench["comparison"]["p_corrected"] == pytest.approx(2 * p_values[-1])
    assert bench["comparisons"][1]["outcome"] == "inconclusive", "no equivalence before the end"
