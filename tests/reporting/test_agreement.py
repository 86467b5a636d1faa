"""Two reports agree by their labels and by how far paired differences moved in their spread."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from jaxbench.reporting.agreement import TOLERANCE, Agreement, agreements

REPORT = json.loads(
    next((Path(__file__).parents[2] / "results" / "stability_penalty").glob("*/report.json"))
    .read_text()
)  # fmt: skip


def changed(**primary: Any) -> dict[str, Any]:
    """The report with other values in its primary comparison."""
    report = copy.deepcopy(REPORT)
    report["bench_report"]["comparisons"][0].update(primary)
    return report


def shifted(by: float) -> dict[str, Any]:
    """The report with the idea's first score moved by so many paired standard deviations."""
    report = copy.deepcopy(REPORT)
    (comparison,) = report["bench_report"]["comparisons"]
    step = by * comparison["spread"]["paired_sd"]
    comparison["idea"]["per_seed"][0] += step
    comparison["per_seed_diffs"][0] += step
    return report


def only(found: list[Agreement]) -> Agreement:
    (agreement,) = found
    return agreement


def test_a_report_agrees_with_itself_exactly() -> None:
    found = only(agreements(REPORT, REPORT))
    assert found.exact
    assert found.agrees
    assert found.drift == 0
    assert found.p_values[0] == found.p_values[1]


@pytest.mark.parametrize("by", [1e-6, 0.9 * TOLERANCE, 1.1 * TOLERANCE, 1.0])
def test_drift_is_measured_in_the_paired_spread(by: float) -> None:
    found = only(agreements(REPORT, shifted(by)))
    assert not found.exact
    assert found.drift == pytest.approx(by, rel=1e-6)
    assert found.agrees == (by <= TOLERANCE)
    assert not found.changed


def test_a_label_that_changed_is_named_and_does_not_agree() -> None:
    assert REPORT["bench_report"]["comparisons"][0]["outcome"] != "worse"
    found = only(agreements(REPORT, changed(outcome="worse")))
    assert found.exact
    assert set(found.changed) == {"outcome"}
    assert found.changed["outcome"][1] == "worse"
    assert not found.agrees
    report = copy.deepcopy(REPORT)
    report["bench_report"]["mechanism_signature"]["signatures"][-1]["state"] = "confirmed"
    name = report["bench_report"]["mechanism_signature"]["signatures"][-1]["name"]
    assert set(only(agreements(REPORT, report)).changed) == {name}


def test_a_run_that_diverged_in_one_report_only_does_not_agree() -> None:
    diffs = list(REPORT["bench_report"]["comparisons"][0]["per_seed_diffs"])
    found = only(agreements(REPORT, changed(per_seed_diffs=[None, *diffs[1:]])))
    assert math.isinf(found.drift)
    assert not found.agrees
    both = changed(per_seed_diffs=[None, *diffs[1:]])
    assert only(agreements(both, both)).agrees


def test_another_number_of_seeds_and_a_missing_comparison_do_not_agree() -> None:
    diffs = REPORT["bench_report"]["comparisons"][0]["per_seed_diffs"]
    assert not only(agreements(REPORT, changed(per_seed_diffs=diffs[:-1]))).agrees
    found = only(agreements(REPORT, changed(idea_arm="another")))
    assert "comparison" in found.changed
    assert not found.agrees


def test_arms_that_are_one_computation_may_drift_by_rounding() -> None:
    """Where the paired spread is rounding, a thousandth of the unpaired spread is the measure."""
    spread = {**REPORT["bench_report"]["comparisons"][0]["spread"], "paired_sd": 0.0}
    before = changed(spread=spread)
    after = copy.deepcopy(before)
    after["bench_report"]["comparisons"][0]["per_seed_diffs"][0] += 1e-5 * spread["unpaired_sd"]
    assert only(agreements(before, after)).drift == pytest.approx(0.01)
    assert only(agreements(before, after)).agrees
