"""`scripts/reproduce`: reports run again are compared, and every committed config still loads."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from jaxbench import config, storage, study
from jaxbench.base import Progress

ROOT = Path(__file__).parent.parent
DOCUMENT: dict[str, Any] = {
    "name": "tiny",
    "track": {"name": "tabular", "train_size": 32, "validation_size": 8, "test_size": 8},
    "model": {"name": "mlp_tiny", "hidden": [4]},
    "training": {"epochs": 1},
    "protocol": {"seeds": 3, "tuning_seeds": 1},
    "grid": {"learning_rate": [0.01]},
    "arms": {
        "baseline": {"intervention": "none"},
        "idea": {"intervention": "none", "fixed": {"learning_rate": 0.03}},
    },
    "comparisons": [{"idea": "idea", "baseline": "baseline", "role": "primary"}],
}


@pytest.fixture(scope="module")
def command() -> click.Command:
    """The script, loaded as a module."""
    loader = importlib.machinery.SourceFileLoader("reproduce", str(ROOT / "scripts" / "reproduce"))
    spec = importlib.util.spec_from_loader("reproduce", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    found = module.reproduce
    assert isinstance(found, click.Command)
    return found


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A tiny study, as it was committed."""
    return study.run_study(config.from_run(DOCUMENT), progress=Progress())


def reproduce(command: click.Command, *arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments])


def test_a_report_run_again_agrees_to_the_bit(
    command: click.Command, report: dict[str, Any], tmp_path: Path
) -> None:
    """And the new report, kept in another folder, has the same run id."""
    path = storage.write_report(tmp_path / "then", report)
    done = reproduce(command, "--results", tmp_path / "then", "--out", tmp_path / "now")
    assert done.exit_code == 0, done.output
    (row,) = [line for line in done.output.splitlines() if "idea - baseline (primary)" in line]
    assert "exact" in row
    assert row.endswith("yes")
    assert "1 of 1 agree" in done.output
    assert (tmp_path / "now" / path.relative_to(tmp_path / "then")).exists()


def test_what_changed_is_said_and_ends_with_1(
    command: click.Command, report: dict[str, Any], tmp_path: Path
) -> None:
    """A score that moved by its spread, and an outcome that is another."""
    was = json.loads(json.dumps(report))
    (comparison,) = was["bench_report"]["comparisons"]
    comparison["idea"]["per_seed"][0] += comparison["spread"]["paired_sd"]
    comparison["per_seed_diffs"][0] += comparison["spread"]["paired_sd"]
    comparison["outcome"] = "worse"  # which 3 seeds cannot be
    storage.write_report(tmp_path, was)
    done = reproduce(command, "--results", tmp_path)
    assert done.exit_code == 1, done.output
    assert "within" in done.output
    outcome = report["bench_report"]["comparison"]["outcome"]
    assert f"outcome was worse, is {outcome}" in done.output
    assert "0 of 1 agree" in done.output


def test_every_committed_config_loads_with_its_digest_and_every_row_is_in_the_readme(
    command: click.Command,
) -> None:
    done = reproduce(command, "--quick-check")
    assert done.exit_code == 0, done.output
    committed = list((ROOT / "results").glob("*/*/report.json"))
    assert done.output.count("loads, same digest") == len(committed)
    joint = list((ROOT / "results").glob("tracks/*/*.json"))
    assert done.output.count(": that of its reports") == len(joint)
    count = len(committed) + len(joint) + 1
    assert f"{count} of {count} agree" in done.output


def test_a_joint_table_that_its_reports_do_not_give_is_told_of(
    command: click.Command, report: dict[str, Any], tmp_path: Path
) -> None:
    path = storage.write_report(tmp_path, report).relative_to(tmp_path)
    compared = report["bench_report"]["comparison"]
    row = {"path": str(path), "delta": compared["delta_mean"], "p": compared["p_value"]}
    for p, code in ((compared["p_value"], 0), (compared["p_value"] / 2, 1)):
        table = {"tracks": [{"result": {**row, "p_family": p}}, {"result": None}]}
        storage.write_json(tmp_path / "tracks" / "tiny" / "0.json", table)
        done = reproduce(command, "--results", tmp_path, "--quick-check")
        assert done.exit_code == code, done.output


def test_a_config_that_changed_or_does_not_load_is_named(
    command: click.Command, report: dict[str, Any], tmp_path: Path
) -> None:
    was = json.loads(json.dumps(report))
    del was["bench_report"]["config"]["track"]["noise"]
    was["bench_report"]["config_digest"] = "0" * 64
    storage.write_report(tmp_path, was)
    done = reproduce(command, "--results", tmp_path, "--quick-check")
    assert done.exit_code == 1
    assert "track.noise is new" in done.output
    was["bench_report"]["config"]["track"]["name"] = "no_such_track"
    storage.write_report(tmp_path, was)
    done = reproduce(command, "--results", tmp_path, "--quick-check", "--only", "tiny")
    assert done.exit_code == 1
    assert "does not load any more" in done.output


def test_the_list_has_everything_under_results(command: click.Command) -> None:
    done = reproduce(command, "--list")
    assert done.exit_code == 0, done.output
    for path in (ROOT / "results").rglob("*.json"):
        part = path.relative_to(ROOT / "results")
        name = part.parent if path.name == storage.REPORT else part.with_suffix("")
        assert str(name) in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "stability_penalt"), "did you mean stability_penalty?"),
        (("--all", "--quick-check"), "--all goes with"),
        (("--list", "--quick-check"), "two different things"),
    ],
)
def test_bad_usage_ends_with_2(
    command: click.Command, arguments: tuple[str, ...], message: str
) -> None:
    done = reproduce(command, *arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_an_empty_folder_is_refused(command: click.Command, tmp_path: Path) -> None:
    done = reproduce(command, "--results", tmp_path)
    assert done.exit_code == 2
    assert "no reports in" in done.output
