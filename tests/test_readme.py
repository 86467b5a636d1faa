"""What the README shows is run: its Python, its config, its commands' names."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from results_table import (
    README,
    REFERENCE,
    RESULTS,
    every_comparison,
    reports,
    texts,
)

from jaxbench import cli, config, study
from jaxbench.base import Progress


def blocks(language: str) -> list[str]:
    """The fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.M | re.S)


def test_the_library_examples_run() -> None:
    """Every Python block but the idea's file is a script of its own."""
    scripts = [block for block in blocks("python") if "def build" not in block]
    assert len(scripts) == 2
    for script in scripts:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def test_the_example_config_loads(tmp_path: Path) -> None:
    (block,) = blocks("toml")
    path = tmp_path / "my_study.toml"
    path.write_text(block)
    loaded = config.load(str(path))
    assert loaded.protocol.seeds == 16
    assert loaded.grid_of("idea")["weight"] == (0.3, 1.0, 3.0)


def test_the_example_idea_runs(tmp_path: Path) -> None:
    """The file that the README shows, in a small study, acts and is judged."""
    (idea,) = [block for block in blocks("python") if "def build" in block]
    (tmp_path / "my_idea.py").write_text(idea)
    document: dict[str, Any] = {
        "name": "mine",
        "track": {"name": "dynamics", "preset": "quick", "train_size": 32},
        "model": {"name": "rnn_small", "hidden": 4},
        "training": {"epochs": 3},
        "protocol": {"seeds": 2, "tuning_seeds": 1},
        "grid": {"learning_rate": [0.01]},
        "arms": {
            "baseline": {"intervention": "my_idea.py", "fixed": {"weight": 0.0}},
            "idea": {"intervention": "my_idea.py", "fixed": {"weight": 10.0}},
        },
        "comparisons": [{"idea": "idea", "baseline": "baseline", "role": "primary"}],
    }
    report = study.run_study(config.from_run(document, tmp_path), progress=Progress())
    assert report["bench_report"]["comparison"]["acted"]


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_the_commands_exist(line: str) -> None:
    """Each `jaxbench` command and option in a shell block is one that the program has."""
    for command in re.findall(r"jaxbench (.*?)(?:\s+#|&&|$)", line):
        words = command.split()
        if words[0].startswith("--"):
            options, known = words[:1], cli.cli
        else:
            known = cli.cli.commands[words[0]]
            options = [word for word in words[1:] if word.startswith("--")]
        names = {option for parameter in known.params for option in parameter.opts}
        assert set(options) <= names


def test_the_tables_are_those_of_the_committed_reports() -> None:
    """`PYTHONPATH=tests:. python -m results_table` writes them."""
    for path, text in texts().items():
        assert path.read_text() == text


@pytest.mark.parametrize("study", REFERENCE)
def test_a_study_stands_beside_its_reference_report(study: str) -> None:
    assert reports(study)
    assert f"<!-- results: {study} -->\n| `{study}` | reference report" in README.read_text()


def test_every_committed_report_is_shown_in_a_table() -> None:
    """A report of a study that no table names would be left out in silence."""
    shown = {row.split("`")[1] for row in every_comparison().splitlines() if row.startswith("| `")}
    committed = RESULTS.glob("*/*/report.json")
    assert {path.parts[-3] for path in committed} == shown


@pytest.mark.parametrize(
    ("study", "arms", "quantity"),
    [
        ("sensitivity_pruning", ("baseline", "idea"), "mean_pearson"),
        ("axis_pruning", ("baseline", "idea", "crossing_zero"), "error"),
    ],
)
def test_the_figures_beside_the_reference_reports_are_those_of_the_committed_reports(
    study: str, arms: tuple[str, ...], quantity: str
) -> None:
    """Tuning scores, signatures and the linear reference, from the report of eight seeds."""
    bench = reports(study)[0]["bench_report"]
    assert bench["n_seeds"] == 8
    text = README.read_text()
    for arm in arms:
        means = " / ".join(f"{trial['mean']:.3g}" for trial in bench["arms"][arm]["sweep"])
        assert f"| {means} |" in text, arm
    linear = bench["references"]["linear"]["mean"]
    assert f"| linear least squares on the same data | not reported | {linear:.3g} |" in text
    for each in bench["mechanism_signature"]["signatures"]:
        found = each["subject"]["values"].get(quantity)
        if each["state"] is None:
            assert f"| {found:.3g}, {'holds' if each['confirmed_legacy'] else 'fails'}" in text
        elif found is not None and quantity == "mean_pearson":
            assert f"| {each['state']}, {found:.3g}" in text
