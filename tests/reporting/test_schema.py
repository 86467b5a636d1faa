"""Reports have the stable fields, and say more where they like."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from jaxbench import cli, config
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


@pytest.mark.parametrize("of", ["config", "report"])
def test_the_command_prints_a_schema_that_is_one(of: str) -> None:
    done = CliRunner().invoke(cli.cli, ["schema", of])
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert printed["$schema"] == schema.DRAFT
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(printed)


def committed() -> list[Path]:
    return sorted((Path(__file__).parents[2] / "results").glob("*/*/report.json"))


def test_every_committed_report_is_valid_by_the_schema() -> None:
    """By another implementation than the models that made the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema.report_schema())
    assert committed()
    for path in committed():
        report = json.loads(path.read_bytes())
        assert [error.message for error in validator.iter_errors(report)] == []
    report["practical_verdict"] = "cures"
    [error] = validator.iter_errors(report)
    assert list(error.path) == ["practical_verdict"]


def test_every_config_is_valid_by_the_schema_and_a_typo_is_not() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema.config_schema())
    for name in config.available():
        document = tomllib.loads((config.shipped_folder() / f"{name}.toml").read_text())
        assert [error.message for error in validator.iter_errors(document)] == [], name
    for place, value in (("training", {"epoch": 3}), ("protocol", {"seeds": 1}), ("trak", {})):
        assert list(validator.iter_errors({**document, place: value})), place
