"""The audit: what the reference reports get wrong is found, and so is every change to a number."""

from __future__ import annotations

import copy
import io
import json
import math
import pathlib
import random
from typing import Any

import pytest
from rich.console import Console

from jaxbench import judging
from jaxbench.base import JaxbenchError
from jaxbench.reporting import strict_json
from jaxbench.reporting.audit import Audit, audit, audit_file, render
from jaxbench.reporting.audit_findings import Check
from jaxbench.reporting.written import Written, read_document, roundings, shown
from jaxbench.toml_text import Place, dotted
from reporting.mutants import mutant
from reporting.sample import sample_report

FOLDER = pathlib.Path(__file__).parent / "reference_reports"
PATHS = {path.name[:2]: path for path in sorted(FOLDER.glob("*.json"))}
REPORTS = {name: read_document(path) for name, path in PATHS.items()}


def parsed(document: Any) -> Any:
    """Give a document with numbers as they would be written in a file."""
    return strict_json.loads(json.dumps(document), Written)


def audited(document: Any) -> Audit:
    return audit(parsed(document))


def consistent() -> dict[str, Any]:
    """Make a report of ours of which every number follows from its scores."""
    report = sample_report()
    bench = report["bench_report"]
    chance = random.Random(0)
    for name, arm in bench["arms"].items():
        scores = [score + 1e-9 * chance.random() for score in arm["full"]["per_seed"]]
        mean = sum(scores) / len(scores)
        spread = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
        arm["full"] |= {"per_seed": scores, "mean": mean, "std": spread}
        arm["full_mean"] = mean
        for place, trial in enumerate(arm["sweep"]):
            tried = [(2 - place) * (0.01 + 0.001 * chance.random()) for _ in range(2)]
            half = abs(tried[0] - tried[1]) / 2
            trial |= {"per_seed": tried, "mean": sum(tried) / 2, "std": half}
        bench[name] = arm
    judged = judging.compare(
        bench["baseline"]["full"]["per_seed"], bench["idea"]["full"]["per_seed"], direction="lower"
    )
    for each in (bench["comparison"], *bench["comparisons"]):
        each |= judged.to_dict()
    rated = judging.confidence(judged, equal_trials=True, signature="confirmed")
    bench["protocol"]["parity"]["equal"] = True
    report |= {"confidence": rated.value, "confidence_parts": dict(rated.parts)}
    report["verdict"] = f"It is worse, exact p = {judged.p_value:.4g}, 0/8 wins."
    return json.loads(json.dumps(report))


REPORTS["ours"] = parsed(consistent())


def kinds(result: Audit) -> list[str]:
    return [weakness.kind for weakness in result.weaknesses]


def contradicted(result: Audit) -> list[str]:
    return [dotted(check.place) for check in result.by_status("contradicts")]


# --------------------------------------------------------------------------------------------------
# The reference reports
# --------------------------------------------------------------------------------------------------


def test_r0_states_a_mean_that_is_not_the_mean() -> None:
    result = audit(REPORTS["R0"])
    [found] = result.by_status("contradicts")
    assert dotted(found.place) == "metrics.mechanism_signature.mean_importance_ablation_correlation"
    assert found.stated == "0.4416"
    assert float(found.expected) == pytest.approx(0.44413, abs=5e-6)
    assert not result.clean


@pytest.mark.parametrize("name", ["R1", "R3", "ours"])
def test_nothing_else_contradicts(name: str) -> None:
    result = audit(REPORTS[name])
    assert contradicted(result) == []
    assert result.clean


@pytest.mark.parametrize("name", ["R0", "R1", "R3"])
def test_both_optima_lie_at_the_edge_of_their_grids(name: str) -> None:
    texts = [w.text for w in audit(REPORTS[name]).weaknesses if "edge" in w.kind]
    assert len(texts) == 2
    for arm, text in zip(("baseline", "idea"), texts, strict=True):
        assert text.startswith(f"the best lr of the {arm} (0.0")
        assert "high edge" in text


@pytest.mark.parametrize("name", ["R1", "R3"])
def test_the_arms_were_selected_on_test_scores_and_on_different_seeds(name: str) -> None:
    result = audit(REPORTS[name])
    texts = " | ".join(weakness.text for weakness in result.weaknesses)
    assert "the baseline was chosen on the scores of the first 4 seeds that are compared" in texts
    assert "the idea was chosen on the scores of the first 8 seeds that are compared" in texts
    assert "baseline on 4 seeds, idea on 8 seeds" in texts


def test_the_retyped_score_of_r1_is_weak_and_no_contradiction() -> None:
    [found] = [w for w in audit(REPORTS["R1"]).weaknesses if w.kind == "imprecise number"]
    assert "bench_report.comparison.per_seed_diffs[5]" in found.text
    assert "bench_report.baseline.full.mean" in found.text
    assert "imprecise number" not in kinds(audit(REPORTS["R3"]))


def test_a_confirmation_without_a_null_is_vacuous() -> None:
    assert "vacuous signature" in kinds(audit(REPORTS["R3"]))
    assert "vacuous signature" not in kinds(audit(REPORTS["R1"])), "it was refuted"


@pytest.mark.parametrize("name", ["R0", "R1", "R3"])
def test_p_values_are_recognised_as_the_reports_monte_carlo(name: str) -> None:
    [check] = [c for c in audit(REPORTS[name]).checks if c.place[-1] == "p_value"]
    assert check.status == "agrees"
    assert "default_rng(0)" in check.because


def test_an_exact_p_value_is_recognised_too() -> None:
    changed = copy.deepcopy(REPORTS["R1"])
    changed["bench_report"]["comparison"]["p_value"] = Written("0.015625")
    [check] = [c for c in audit(changed).checks if c.place[-1] == "p_value"]
    assert (check.status, check.because) == ("agrees", "the exact sign-flip test")


# --------------------------------------------------------------------------------------------------
# Every number
# --------------------------------------------------------------------------------------------------


def number_places(document: Any, place: Place = ()) -> list[Place]:
    if isinstance(document, dict):
        return [p for key, value in document.items() for p in number_places(value, (*place, key))]
    if isinstance(document, list):
        return [p for i, value in enumerate(document) for p in number_places(value, (*place, i))]
    return [place] if isinstance(document, Written) else []


@pytest.mark.parametrize("name", list(REPORTS))
def test_every_number_is_listed_once(name: str) -> None:
    listed = [check.place for check in audit(REPORTS[name]).checks]
    assert len(listed) == len(set(listed))
    assert set(number_places(REPORTS[name])) <= set(listed)


def checked_numbers(name: str) -> list[Check]:
    places = set(number_places(REPORTS[name]))
    return [c for c in audit(REPORTS[name]).by_status("agrees") if c.place in places]


def replaced(document: Any, place: Place, value: Any) -> Any:
    """Give a document with another value at a place, sharing the rest."""
    if not place:
        return value
    changed = copy.copy(document)
    changed[place[0]] = replaced(document[place[0]], place[1:], value)
    return changed


def beyond_rounding(stated: Written, within: float, sign: int) -> Written:
    """Move a number by a little more than it may be off, and write it with as many digits."""
    step = max(2.2 * within, 1e-6 * abs(stated)) or 1e-6
    if stated.whole and "." not in stated.text:
        step = 1.0
    decimals = max(0, -math.floor(math.log10(stated.rounding or 1e-17)) - 1)
    moved = f"{float(stated) + sign * step:.{min(decimals, 25)}f}"
    return Written(moved if float(moved) != stated else repr(float(stated) + sign * step))


MUTATIONS = [
    pytest.param(name, check, sign, id=f"{name}:{dotted(check.place)}:{sign:+d}")
    for name in ("R1", "R3")
    for check in checked_numbers(name)
    for sign in (1, -1)
]


@pytest.mark.parametrize(("name", "check", "sign"), MUTATIONS)
def test_a_change_beyond_rounding_is_found(name: str, check: Check, sign: int) -> None:
    stated = Written(check.stated)
    changed = replaced(REPORTS[name], check.place, beyond_rounding(stated, check.within, sign))
    assert dotted(check.place) in contradicted(audit(changed))


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["R0", "ours"])
def test_a_change_beyond_rounding_is_found_in_the_others_too(name: str, sign: int) -> None:
    missed = []
    for check in checked_numbers(name):
        moved = beyond_rounding(Written(check.stated), check.within, sign)
        if dotted(check.place) not in contradicted(
            audit(replaced(REPORTS[name], check.place, moved))
        ):
            missed.append((dotted(check.place), check.stated, shown(moved)))
    assert missed == []


@pytest.mark.parametrize("share", [1e-11, 1e-12])
@pytest.mark.parametrize("name", ["R3", "ours"])
def test_a_tiny_change_of_a_long_number_is_a_weakness(name: str, share: float) -> None:
    place = ("bench_report", "comparison", "delta_mean")
    stated = REPORTS[name]["bench_report"]["comparison"]["delta_mean"]
    changed = replaced(REPORTS[name], place, Written(repr(float(stated) * (1.0 + share))))
    result = audit(changed)
    assert result.clean
    assert "imprecise number" in kinds(result)


@pytest.mark.parametrize("name", ["R1", "R3"])
def test_a_changed_score_is_found_in_what_is_made_of_it(name: str) -> None:
    for seed in range(8):
        place = ("bench_report", "idea", "per_seed", seed)
        stated = REPORTS[name]["bench_report"]["idea"]["per_seed"][seed]
        changed = replaced(REPORTS[name], place, Written(repr(float(stated) * 1.0001)))
        found = contradicted(audit(changed))
        assert "bench_report.idea.mean" in found
        assert f"bench_report.comparison.per_seed_diffs[{seed}]" in found


# --------------------------------------------------------------------------------------------------
# Rounding
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rounding"),
    [
        ("0.4416", 5e-5), ("4.434e-4", 5e-8), ("7.6", 0.05), ("8", 0.5), ("-12.50", 0.005),
        ("0", 0.0), ("0.0", 0.0), ("0.00", 0.005), ("1E+3", 500.0), ("NaN", 0.0), ("1e999", 0.0),
        ("9" * 5000, 0.0), ("1e-99999999999999999999", 0.0), ("0.0e" + "9" * 5000, 0.0),
    ],
)  # fmt: skip
def test_the_rounding_is_half_a_unit_of_the_last_decimal(text: str, rounding: float) -> None:
    written = Written(text)
    assert written.rounding == pytest.approx(rounding, rel=1e-12)
    assert written.text == text


def test_the_numbers_of_a_list_are_rounded_alike() -> None:
    decimals = [Written("3.5"), None, Written("12.25"), Written("0")]
    assert roundings(decimals) == pytest.approx([0.005, 0.0, 0.005, 0.0])
    digits = [Written("0.010281"), Written("0.0036365"), Written("0.01")]
    assert roundings(digits) == pytest.approx([5e-7, 5e-8, 5e-7])
    assert roundings([]) == []


def rounded(document: Any, digits: int) -> Any:
    """Round every number with a decimal point that is longer."""
    if isinstance(document, dict):
        return {key: rounded(value, digits) for key, value in document.items()}
    if isinstance(document, list):
        return [rounded(value, digits) for value in document]
    if isinstance(document, Written) and len(document.text) > digits + 3:
        return Written(f"{float(document):.{digits}g}")
    return document


@pytest.mark.parametrize("digits", [8, 5, 4])
@pytest.mark.parametrize("name", ["R1", "R3"])
def test_a_report_that_rounds_everything_does_not_contradict_itself(name: str, digits: int) -> None:
    assert contradicted(audit(rounded(REPORTS[name], digits))) == []


# --------------------------------------------------------------------------------------------------
# Other layouts
# --------------------------------------------------------------------------------------------------


def test_an_arm_may_keep_its_scores_under_full_or_beside_its_mean() -> None:
    bench = copy.deepcopy(REPORTS["R3"]["bench_report"])
    bench["idea"] = {"full": bench["idea"], "best_cfg": {"lr": Written("0.01")}}
    bench["idea"]["sweep"] = bench.pop("protocol_notes")["idea_grid"]
    result = audit({**REPORTS["R3"], "bench_report": bench})
    assert result.clean
    agreeing = [dotted(check.place) for check in result.by_status("agrees")]
    for path in ("idea.full.mean", "comparison.mde", "idea.best_cfg.lr"):
        assert f"bench_report.{path}" in agreeing


def test_a_bench_report_alone_is_audited_as_well() -> None:
    result = audit(REPORTS["R3"]["bench_report"])
    assert "comparison.p_value" in [dotted(check.place) for check in result.by_status("agrees")]


def test_fields_that_are_left_out_are_no_contradiction() -> None:
    for name in ("mde", "mde_rel_pct", "per_seed_diffs", "n_pairs", "delta_mean", "verdict"):
        changed = copy.deepcopy(REPORTS["R1"])
        del changed["bench_report"]["comparison"][name]
        assert audit(changed).clean, name


def test_without_scores_the_differences_are_used_and_without_those_the_means() -> None:
    changed = copy.deepcopy(REPORTS["R3"])
    for arm in (changed["bench_report"]["baseline"]["full"], changed["bench_report"]["idea"]):
        del arm["per_seed"]
    status = {dotted(c.place): c.status for c in audit(changed).checks}
    for name in ("delta_mean", "mde", "p_value", "idea_wins", "mde_rel_pct"):
        assert status[f"bench_report.comparison.{name}"] == "agrees", name
    del changed["bench_report"]["comparison"]["per_seed_diffs"]
    status = {dotted(c.place): c.status for c in audit(changed).checks}
    for name in ("delta_mean", "mde_rel_pct", "p_value"):
        assert status[f"bench_report.comparison.{name}"] == "agrees", name
    assert status["bench_report.comparison.mde"] == "unchecked"


def test_differences_alone_are_enough() -> None:
    differences = [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, -0.1, -0.2]
    table = {"per_seed_diffs": differences, "p_value": 44 / 256, "delta_mean": 0.1125, "n_pairs": 8}
    status = {c.place[-1]: c.status for c in audited({"comparison": table}).checks}
    assert [status[name] for name in ("p_value", "delta_mean", "n_pairs")] == ["agrees"] * 3
    for p_value, wrong in ((0.18, []), (0.9, ["comparison.p_value"])):  # rounding moves p as well
        assert contradicted(audited({"comparison": {**table, "p_value": p_value}})) == wrong


def test_a_p_value_from_other_random_flips_is_not_checked_and_a_far_one_contradicts() -> None:
    chance = random.Random(0)
    differences = [chance.gauss(0.2, 1.0) for _ in range(30)]
    table = {"per_seed_diffs": differences, "n_pairs": 30}
    p_value = judging.sign_flip_test(differences).p_value
    for stated, status in ((p_value + 0.001, "unchecked"), (p_value + 0.2, "contradicts")):
        result = audited({"comparison": {**table, "p_value": stated}})
        [check] = [c for c in result.checks if c.place[-1] == "p_value"]
        assert check.status == status


def test_a_mean_is_held_against_the_list_that_its_name_says() -> None:
    signature = {
        "per_seed_gaps": [1.0, 2.0, 4.5], "mean_gap": 2.5, "gap_max": 4.5, "growth": [2.0, 4.0],
        "growth_mean": 3.2, "growth_max": 9.0,
    }  # fmt: skip
    result = audited({"mechanism_signature": signature})
    status = {check.place[-1]: check.status for check in result.checks}
    assert (status["mean_gap"], status["gap_max"]) == ("agrees", "agrees")
    assert (status["growth_mean"], status["growth_max"]) == ("contradicts", "unchecked")


def test_higher_may_be_better() -> None:
    scores = [0.5, 0.6, 0.7, 0.65, 0.55, 0.61, 0.72, 0.68]
    better = [score + 0.1 + 0.01 * i for i, score in enumerate(scores)]
    report = {
        "metric_direction": "higher is better",
        "baseline": {"per_seed": scores},
        "idea": {"per_seed": better},
        "comparison": {"idea_wins": 8, "p_value": 0.0078, "verdict": "idea better (significant)"},
    }
    assert audited(report).clean
    report["metric_direction"] = "lower is better"
    assert contradicted(audited(report)) == ["comparison.idea_wins", "comparison.verdict"]


# --------------------------------------------------------------------------------------------------
# Claims and weaknesses
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("practical_verdict", "helps"),
        ("mechanism_ok", 1),
        ("system_verdict", "partial"),
        ("worked", True),
        ("confidence", 3),
        ("verdict", "It is worse, exact p = 0.0091, 0/8 wins."),
        ("bench_report.comparison.outcome", "better"),
        ("bench_report.comparison.negligible", True),
        ("bench_report.comparisons.0.family_size", 2),
        ("bench_report.arms.idea.edge_of_grid.learning_rate", None),
        ("bench_report.arms.idea.sweep.0.selected", True),
        ("bench_report.arms.idea.best_cfg.learning_rate", 0.001),
        ("bench_report.protocol.parity.trials.idea", 3),
        ("bench_report.mechanism_signature.state", "vacuous"),
        ("bench_report.mechanism_signature.signatures.0.skill", 0.85),
        ("bench_report.idea.full.mean", 0.0062),
        ("bench_report.n_seeds", 9),
    ],
)
def test_a_claim_that_does_not_follow_is_found(place: str, value: Any) -> None:
    document = consistent()
    parts: list[Any] = [int(part) if part.isdigit() else part for part in place.split(".")]
    table = document
    for part in parts[:-1]:
        table = table[part]
    table[parts[-1]] = value
    result = audited(document)
    found = contradicted(result)
    if value is None:  # null instead of a label is passed over
        assert result.clean
    else:
        assert dotted(tuple(parts)) in found


def test_a_linear_reference_is_compared_with_and_missed() -> None:
    document = consistent()
    assert "no better than linear" in kinds(audited(document))
    document["bench_report"]["references"] = {"linear": {"mean": 1.0}}
    assert not {"no better than linear", "no linear reference"} & set(kinds(audited(document)))
    document["bench_report"]["references"] = {}
    assert "no linear reference" in kinds(audited(document))


def test_unequal_tuning_is_found() -> None:
    document = consistent()
    assert "unequal tuning" not in kinds(audited(document))
    for arm in (document["bench_report"]["idea"], document["bench_report"]["arms"]["idea"]):
        del arm["sweep"][0]
    assert "unequal tuning" in kinds(audited(document))
    for arm in (document["bench_report"]["idea"], document["bench_report"]["arms"]["idea"]):
        arm["sweep"] = []
    texts = [w.text for w in audited(document).weaknesses if w.kind == "unequal tuning"]
    assert texts == ["the tuning of idea is not reported, so parity cannot be checked"]


def test_what_parity_added_is_no_unequal_tuning() -> None:
    document = consistent()
    bench = document["bench_report"]
    for arm in (bench["baseline"], bench["arms"]["baseline"]):
        arm["sweep"][0]["cfg"]["learning_rate"] = 0.0123
    texts = [w.text for w in audited(document).weaknesses if w.kind == "unequal tuning"]
    assert texts == ["the arms tried different values of learning_rate"]
    # the idea tried two values at the other's one rate, so that the baseline got another rate
    for arm in (bench["idea"], bench["arms"]["idea"]):
        for place, trial in enumerate(arm["sweep"]):
            trial["cfg"] = {"learning_rate": 0.003, "weight": float(place)}
    for arm in (bench["baseline"], bench["arms"]["baseline"]):
        for trial, rate in zip(arm["sweep"], (0.0123, 0.003), strict=True):
            trial["cfg"] = {"learning_rate": rate}
    assert "unequal tuning" in kinds(audited(document))
    parity = bench["protocol"]["parity"]
    parity["added"] = {"baseline": [dict(bench["baseline"]["sweep"][0]["cfg"])], "idea": []}
    assert "unequal tuning" not in kinds(audited(document))
    del bench["idea"]["sweep"][0], bench["arms"]["idea"]["sweep"][0]
    assert "unequal tuning" in kinds(audited(document))


def test_an_interior_optimum_is_not_flagged() -> None:
    document = consistent()
    for table in (document["bench_report"], document["bench_report"]["arms"]):
        for arm in ("baseline", "idea"):
            worse = copy.deepcopy(table[arm]["sweep"][0])
            worse["cfg"]["learning_rate"] = 0.1
            table[arm]["sweep"].append(worse)
            table[arm]["edge_of_grid"] = {"learning_rate": None}
    assert "optimum at the edge of the grid" not in kinds(audited(document))


def test_a_p_value_that_the_pairs_cannot_give_is_flagged() -> None:
    report = {"comparison": {"delta_mean": 0.1, "n_pairs": 8, "idea_wins": 3, "p_value": 0.001}}
    assert "p-value not attainable" in kinds(audited(report))
    report["comparison"]["n_pairs"] = 4
    assert "too few seeds" in kinds(audited(report))


def test_a_paired_spread_above_the_unpaired_one_is_flagged() -> None:
    document = consistent()
    assert "paired spread above unpaired" not in kinds(audited(document))
    crossed = {"baseline": {"per_seed": [1, 2, 3, 4]}, "idea": {"per_seed": [4, 3, 2, 1.5]}}
    assert "paired spread above unpaired" in kinds(audited(crossed))
    digests = {"baseline": {"data": "a"}, "idea": {"data": "a"}}
    known = {"same_data": True, "same_initial_parameters": False, "digests": digests}
    crossed |= {"pairing": known}
    (said,) = (w.text for w in audited(crossed).weaknesses if w.kind.startswith("paired"))
    assert said.endswith("did not help, although the arms share data by their digests")


def test_a_ratio_that_one_predicts_better_is_vacuous_and_a_constant_one_saturated() -> None:
    report = {
        "mechanism_signature": {
            "confirmed": True, "null": "none", "predicted_growth_ratio": 1.0243,
            "observed_growth_ratio": 1.0002, "checkpoints": [81, 81, 81, 81],
            "rows": [{"defect": 0.1, "stored": 7}, {"defect": 0.2, "stored": 7},
                     {"defect": 0.3, "stored": 7}],
        }
    }  # fmt: skip
    result = audited(report)
    assert kinds(result).count("vacuous signature") == 1
    assert kinds(result).count("saturated signature") == 2


def test_diverged_runs_are_flagged_and_have_no_mean() -> None:
    arm = {"per_seed": [1.0, None, 2.0], "mean": None, "std": None, "diverged": 1}
    result = audited({"baseline": arm, "idea": {**arm, "mean": 1.5, "diverged": 0}})
    assert kinds(result).count("diverged runs") == 2
    assert contradicted(result) == ["idea.mean", "idea.diverged"]


# --------------------------------------------------------------------------------------------------
# Output, and files that are no reports
# --------------------------------------------------------------------------------------------------


def rendered(result: Audit, *, everything: bool = False) -> str:
    stream = io.StringIO()
    render(result, Console(file=stream, markup=False, width=100), everything=everything)
    return stream.getvalue()


def test_everything_is_printed_and_strict_json() -> None:
    for name, report in REPORTS.items():
        result = audit(report)
        text = rendered(result)
        assert result.summary[:20] in text
        as_json = strict_json.loads(strict_json.dumps(result.to_dict()))
        assert as_json["clean"] is (name != "R0")
        counts = [len(as_json[status]) for status in ("agrees", "contradicts", "unchecked")]
        assert sum(counts) == len(result.checks)
    ours = audit(REPORTS["ours"])
    short, whole = rendered(ours), rendered(ours, everything=True)
    assert "more; --all prints them, --json too" in short
    assert "more; --all" not in whole
    assert len(whole.splitlines()) > len(short.splitlines())
    assert whole.index("Weak (") < whole.index("Agrees (") < whole.index("Cannot be checked (")
    left = len(ours.by_status("unchecked"))
    assert f"Cannot be checked: {left} numbers and labels; no more was read of" in short
    assert dotted(ours.by_status("unchecked")[-1].place) not in short
    for each in ours.weaknesses:
        assert " ".join(each.text.split())[:60] in " ".join(short.split())


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '"text"', "3", "null", "[1, 2]", '{"bench_report": []}', "[[[]]]", '{"a": NaN}',
     '{"subject": {"error": 1.5}, "null": {"error": 5e-324}, "skill": 0.5}',
     '{"comparison": {"p_value": 1e999, "delta_mean": -1e999}}', '{"n": ' + "9" * 5000 + "}"],
)  # fmt: skip
def test_any_json_can_be_audited(text: str) -> None:
    result = audit(strict_json.loads(text.encode(), Written))
    assert rendered(result)
    strict_json.dumps(result.to_dict())


JOINT = min((pathlib.Path(__file__).parents[2] / "results" / "tracks").rglob("*.json"))


@pytest.mark.parametrize("text", ["[]", "{}", '{"a": NaN}', '{"n": 3}', JOINT.read_text()])
def test_a_file_without_anything_to_check_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(JaxbenchError, match="nothing in it that audit could check; expected a rep"):
        audit_file(path)


@pytest.mark.parametrize(
    "place",
    [
        "verdict", "bench_report.comparison", "bench_report.comparisons", "bench_report.metric",
        "bench_report.arms.idea.full.per_seed", "bench_report.comparison.p_value",
        "bench_report.comparisons.0.p_value", "bench_report.mechanism_signature.state",
    ],
)  # fmt: skip
@pytest.mark.parametrize("null", [True, False])
def test_a_report_of_ours_without_a_required_part_contradicts(place: str, null: bool) -> None:
    """A foreign report may lack any of them."""
    document = consistent()
    *parts, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    table: Any = document
    for part in parts:
        table = table[part]
    del table[last]
    if null:
        table[last] = None  # type: ignore[index]
    result = audited(document)
    assert not result.clean
    [check] = [each for each in result.checks if each.place == (*parts, last)]
    assert (check.status, check.stated) == ("contradicts", "null" if null else "nothing")
    assert "Contradicts (" in rendered(result)
    for name in ("study", "run_id", "config_digest"):
        document["bench_report"].pop(name, None)
    assert all(each.because != check.because for each in audited(document).checks)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "not strict JSON"), (b"{", "not strict JSON"), (b"\xff\xfe\x00", "not strict JSON"),
     (b'{"a": 1, "a": 2}', "a key stands twice"), (b"[" * 100_000, "nested too deeply"),
     (b"[" * 150 + b"]" * 150, "nested too deeply")],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(
    tmp_path: pathlib.Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(JaxbenchError, match=reason):
        audit_file(path)
    with pytest.raises(JaxbenchError, match="is a folder without"):
        audit_file(tmp_path)


def fuzz(tmp_path: pathlib.Path, seeds: range) -> None:
    """Audit mutated files; anything but a JaxbenchError fails."""
    documents = [consistent(), *(json.loads(path.read_text()) for path in PATHS.values())]
    path = tmp_path / "mutant.json"
    read = 0
    for seed in seeds:
        chance = random.Random(seed)
        path.write_bytes(mutant(chance.choice(documents), chance))
        try:
            result = audit_file(path)
        except JaxbenchError:
            continue
        read += 1
        strict_json.dumps(result.to_dict())
        if read % 10 == 0:  # the slowest part by far
            rendered(result)
    assert read > len(seeds) / 2, "most mutants are still JSON"


def test_mutated_files_give_no_traceback(tmp_path: pathlib.Path) -> None:
    fuzz(tmp_path, range(200))


@pytest.mark.slow
def test_ten_thousand_mutated_files_give_no_traceback(tmp_path: pathlib.Path) -> None:
    fuzz(tmp_path, range(1_000, 11_000))
