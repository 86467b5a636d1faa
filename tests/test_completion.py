"""Shells complete commands, options, and names of studies and components."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxbench import cli
from jaxbench.commands.completion import VARIABLE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    done = CliRunner().invoke(cli.cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in done.stdout


def completed(line: str, folder: Path) -> list[str]:
    """What bash is told for this line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        VARIABLE: "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
    }
    code = "from jaxbench.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return [item.partition(",")[2] for item in done.stdout.split()]


def test_names_are_completed_without_jax(tmp_path: Path) -> None:
    (tmp_path / "stable.toml").touch()
    assert "stability_penalty" in completed("jaxbench run stab", tmp_path)
    assert "stable.toml" in completed("jaxbench run stab", tmp_path)
    assert completed("jaxbench list mlp_t", tmp_path) == ["mlp_tiny"]
    assert completed("jaxbench compl", tmp_path) == ["completion"]
    assert "--max-seconds" in completed("jaxbench run stability_penalty --max", tmp_path)


def test_every_command_has_examples() -> None:
    for name, command in cli.cli.commands.items():
        done = CliRunner().invoke(cli.cli, [name, "--help"])
        assert done.exit_code == 0
        assert f"  jaxbench {name}" in done.stdout, f"{name} shows no example"
        assert command.help
