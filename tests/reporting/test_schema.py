"""Reports have the stable fields, and say more where they like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from jaxbench.base import JaxbenchError
from jaxbench.reporting import schema
from reporting.sample import sample_report

ENVELOPE = {
    "worked", "confidence", "verdict", "metrics", "bench_report", "how_to_run", "files",
    "limitations", "system_verdict", "practical_verdict", "mechanism_ok", "system_judged",
}  # fmt: skip
BENCH = {
    "bench_version", "track", "model", "metric_direction", "n_seeds", "baseline", "idea",
    "comparison", "mechanism_signature",
}  # fmt: skip


def test_the_fields_of_the_reference_reports_are_stable() -> None:
    assert schema.Report.model_fields.keys() >= ENVELOPE
    assert schema.BenchReport.model_fields.keys() >= BENCH
    comparison = {"delta_mean", "idea_wins", "n_pairs", "per_seed_diffs", "p_value", "mde"}
    assert comparison | {"verdict", "system_worked"} <= schema.ComparisonResult.model_fields.keys()


def test_a_report_of_ours_has_them_and_may_say_more() -> None:
    report = sample_report()
    schema.check_report(report)
    schema.check_report({**report, "more": 1})


def paths(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if field.is_required():
            yield (*place, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from paths(field.annotation, (*place, name))


@pytest.mark.parametrize("path", list(paths(schema.Report)), ids=".".join)
def test_a_report_without_one_of_them_is_refused(path: tuple[str, ...]) -> None:
    report: Any = sample_report()
    inner = report
    for part in path[:-1]:
        inner = inner[part]
    del inner[path[-1]]
    with pytest.raises(JaxbenchError, match=f"no jaxbench report: {'.'.join(path)}: "):
        schema.check_report(report)


@pytest.mark.parametrize(
    ("field", "wrong"), [("mechanism_ok", 2), ("worked", 1), ("practical_verdict", "cures")]
)
def test_a_field_of_the_wrong_kind_is_refused(field: str, wrong: Any) -> None:
    with pytest.raises(JaxbenchError, match=f"no jaxbench report: {field}: "):
        schema.check_report({**sample_report(), field: wrong})


def test_the_schemas_are_of_one_draft_and_plain_json() -> None:
    for document in (schema.report_schema(), schema.config_schema()):
        assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert json.loads(json.dumps(document)) == document
    assert "quick" in schema.config_schema()["properties"]
    assert set(schema.config_schema()["required"]) == {"track", "model", "arms"}
