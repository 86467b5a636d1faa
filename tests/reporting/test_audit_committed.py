"""The audit of committed reports of several arms: nothing contradicts, and what is forged is."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest

from jaxbench.reporting.audit import Audit, audit
from jaxbench.reporting.report_fields import Fields
from jaxbench.reporting.score_tables import from_report
from jaxbench.reporting.written import Written, read_document
from jaxbench.toml_text import Place, dotted

RESULTS = pathlib.Path(__file__).parents[2] / "results"
SEVERAL = RESULTS / "axis_pruning" / "d09f9b6cfd9f"
SWEEP = RESULTS / "axis_pruning_sweep" / "f3c896c31a82"
REPORT = read_document(SEVERAL)
for table in REPORT["bench_report"]["arms"].values():  # long lists that no check is about
    table["curves"], table["measured"] = {}, {}
for side in ("baseline", "idea"):
    REPORT["bench_report"][side] |= {"curves": {}, "measured": {}}
REPORT["bench_report"]["mechanism_signature"]["measured"] = {}


def contradicted(result: Audit) -> list[str]:
    return [dotted(check.place) for check in result.by_status("contradicts")]


def forged(changes: dict[str, Any]) -> Any:
    """Give the report with other values at places such as `a.0.b`."""
    document = copy.deepcopy(REPORT)
    for path, value in changes.items():
        place: Place = tuple(int(p) if p.isdigit() else p for p in path.split("."))
        table = document
        for part in place[:-1]:
            table = table[part]
        assert table[place[-1]] != value, "the forgery changes something"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        table[place[-1]] = Written(json.dumps(value)) if number else value
    return document


def test_the_report_has_more_arms_than_two_and_does_not_contradict_itself() -> None:
    assert len(REPORT["bench_report"]["arms"]) > 2
    assert contradicted(audit(REPORT)) == []


def found_in(changes: dict[str, Any]) -> list[str]:
    return contradicted(audit(forged(changes)))


@pytest.mark.parametrize("name", ["outcome", "p_corrected", "family_size", "negligible"])
def test_a_forged_field_of_every_comparison_is_found(name: str) -> None:
    bench = REPORT["bench_report"]
    places = [f"comparisons.{index}" for index in range(len(bench["comparisons"]))]
    changes = {}
    for where, table in zip(
        ["comparison", *places], [bench["comparison"], *bench["comparisons"]], strict=True
    ):
        other = "worse" if table["outcome"] == "better" else "better"
        value = {"outcome": other, "p_corrected": 1e-6, "family_size": 77}
        changes[f"bench_report.{where}.{name}"] = value.get(name, not table["negligible"])
    found = contradicted(audit(forged(changes)))
    for index in range(len(places)):
        assert f"bench_report.comparisons[{index}].{name}" in found
    assert f"bench_report.comparison.{name}" in found


SINGLE: dict[str, Any] = {
    "confidence": 10,
    "system_judged": False,
    "bench_report.comparisons.1.outcome": "worse",
    "bench_report.metric.direction": "higher",
    "bench_report.metric_direction": "higher is better",
    "bench_report.comparisons.0.direction": "higher",
    "bench_report.protocol.parity.equal": False,
    "bench_report.protocol.asymmetric": True,
    "bench_report.protocol.selected_on": "test",
    "bench_report.protocol.alpha": 0.04,
    "bench_report.pairing.same_data": False,
    "bench_report.pairing.same_initial_parameters": False,
    "bench_report.arms.kink.static.score": "random",
    "bench_report.comparisons.0.role": "secondary",
    "bench_report.run_id": "0123456789ab",
}


@pytest.mark.parametrize("path", list(SINGLE))
def test_a_single_forged_value_is_found_where_it_stands(path: str) -> None:
    assert path in [p.replace("[", ".").replace("]", "") for p in found_in({path: SINGLE[path]})]


def test_a_forged_setting_of_the_config_is_found_by_its_digest() -> None:
    assert found_in({"bench_report.config.protocol.extend_grid": True}) == [
        "bench_report.config_digest"
    ]


def test_every_truth_value_and_label_is_listed() -> None:
    listed = {check.place: check.status for check in audit(REPORT).checks}
    for place, value in Fields(REPORT).everything:
        if isinstance(value, bool) or (isinstance(value, str) and len(value.split()) == 1):
            assert place in listed, dotted(place)
    assert listed["bench_report", "programs", 0, "at_once"] == "unchecked"


@pytest.mark.parametrize("path", [SEVERAL, SWEEP])
def test_every_arm_has_its_scores(path: pathlib.Path) -> None:
    document = read_document(path)
    arms = document["bench_report"]["arms"]
    found = Fields(document).arms
    for name, table in arms.items():
        assert found[name].scores == table["full"]["per_seed"]
        scores = from_report(str(path), document, name, "idea")
        assert list(scores.by_seed.values()) == [float(s) for s in table["full"]["per_seed"]]


def test_the_model_that_a_report_names_is_that_of_the_primary_ideas_arm() -> None:
    """The graded study's own model is a GRU; its primary idea's arm brings another."""
    (folder,) = (RESULTS / "reversal_checkpointing_graded").iterdir()
    document = read_document(folder)
    bench = document["bench_report"]
    assert bench["model"] == "rev_gru_small" != bench["config"]["model"]["name"]
    assert contradicted(audit(document)) == []
    bench["model_options"]["hidden"] = Written("33")
    assert contradicted(audit(document)) == ["bench_report.model_options.hidden"]
