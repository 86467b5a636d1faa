"""`jaxbench reproduce` runs a report again; provenance says what it was made with."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reporting.sample import sample_report
from test_api import STUDY

import jaxbench
from jaxbench import cli, config, registry, reproduction
from jaxbench.base import JaxbenchError
from jaxbench.reporting import provenance, strict_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder under git with an idea of one's own and the report of its study."""
    folder = tmp_path_factory.mktemp("mine")
    none = registry.load("interventions", "none").source_path
    (folder / "idea.py").write_text(none.read_text())
    (folder / ".gitignore").write_text("results/\nagain/\n__pycache__/\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "An idea"]):
        who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True)
    study = copy.deepcopy(STUDY)
    study["arms"]["idea"] = {"intervention": "idea.py", "fixed": {"learning_rate": 0.03}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        jaxbench.run_study(study).save("results")
    return folder


def reproduce(folder: Path, *options: str) -> Any:
    [path] = folder.glob("results/*/*/report.json")
    arguments = ["reproduce", str(path), "--quiet", "--folder", str(folder), *options]
    return CliRunner().invoke(cli.cli, arguments)


def test_a_report_is_the_same_to_the_bit_again(folder: Path) -> None:
    done = reproduce(folder, "--json", "--out", str(folder / "again"))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["agrees"], found["exact"]) == (True, True)
    assert found["surroundings"] == {}
    assert list((folder / "again").glob("*/*/report.json"))


def test_another_source_and_other_scores_are_told(folder: Path, tmp_path: Path) -> None:
    """The idea's file was edited, and the report's scores were too."""
    [path] = folder.glob("results/*/*/report.json")
    report = strict_json.loads(path.read_bytes())
    compared = report["bench_report"]["comparisons"][0]
    compared["idea"]["per_seed"][0] += 1.0
    compared["per_seed_diffs"][0] += 1.0
    (tmp_path / "results" / "study" / "other").mkdir(parents=True)
    (tmp_path / "results" / "study" / "other" / "report.json").write_text(json.dumps(report))
    (tmp_path / "idea.py").write_text((folder / "idea.py").read_text() + "\n# edited\n")
    done = reproduce(tmp_path)
    assert done.exit_code == 1
    assert "1 of 1 comparisons do not agree." in done.stdout
    assert "NO" in done.stdout
    assert "provenance.sources" not in done.stdout
    assert "  sources.idea.intervention was " in done.stdout
    assert "  git.commit was " not in done.stdout, "a folder without git has none to compare"


def test_another_folder_than_the_configs_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = folder.glob("results/*/*/report.json")
    monkeypatch.chdir(tmp_path)
    done = reproduce_path(path)
    assert done.exit_code == 2
    assert "names idea.py, which" in done.stderr
    assert "run this in the folder of the study's config" in done.stderr
    assert "no intervention file" not in done.stderr


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JaxbenchError, match=r"has no bench_report.config"):
        reproduction.config_as_run({"verdict": "yes"})
    with pytest.raises(JaxbenchError, match="missing: expected"):
        reproduction.config_as_run(sample_report())
    assert reproduce_path(tmp_path / "none.json").exit_code == 2


def reproduce_path(path: Path) -> Any:
    return CliRunner().invoke(cli.cli, ["reproduce", str(path)])


def test_a_report_says_what_it_was_made_with(folder: Path) -> None:
    [path] = folder.glob("results/*/*/report.json")
    bench = strict_json.loads(path.read_bytes())["bench_report"]
    made = bench["provenance"]
    assert made["versions"].keys() >= {"python", "jaxbench", "jax", "numpy"}
    assert made["devices"] == "8 x cpu"
    assert "device_count=8" in made["xla_flags"]
    component = registry.load("interventions", "idea.py", folder)
    assert made["sources"]["idea"]["intervention"] == component.source_digest()
    assert made["sources"]["idea"]["track"] == made["sources"]["baseline"]["track"]
    assert len(made["git"]["commit"]) == 40
    assert made["git"]["changed"] is False
    assert bench["pairing"]["digests"]["idea"]["data"]
    assert bench["config"]["arms"]["idea"]["intervention"] == "idea.py"


def test_the_git_state_sees_changes_and_the_lack_of_git(folder: Path, tmp_path: Path) -> None:
    assert provenance.git_state(tmp_path) is None
    (folder / "untracked.txt").touch()
    state = provenance.git_state(folder)
    (folder / "untracked.txt").unlink()
    assert state is not None
    assert state["changed"] is True
    shipped = provenance.git_state(config.shipped_folder())
    assert shipped == provenance.git_state(Path.cwd())
