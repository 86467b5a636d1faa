"""The tutorial's blocks are run in order, in an empty folder, as a reader would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parent.parent / "docs" / "your_own_idea.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```", re.M | re.S)


@pytest.mark.slow
def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Blocks that name a file are written there, others are run; the last one is of another file.

    Compiled programs are kept from block to block, and commands are this tree's.
    """
    home = Path(__file__).parent.parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(home),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    folder = tmp_path / "mine"
    folder.mkdir()
    commands = {
        "jaxbench": f"{sys.executable} -c 'from jaxbench.cli import main; main()'",
        "python": sys.executable,
    }
    done = 0
    for language, file, text in BLOCK.findall(TUTORIAL.read_text()):
        if file:
            (folder / file).write_text(text)
            continue
        lines: list[list[str]] = []
        if language == "python":
            lines = [[sys.executable, "-c", text]]
        elif language == "sh":
            words = (line.split(" ", 1) for line in text.splitlines())
            lines = [["sh", "-c", f"{commands[first]} {rest}"] for first, rest in words]
        for line in lines:
            ran = subprocess.run(
                line, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"
            assert ran.stdout.strip()
            done += 1
    assert done == 8
    assert sorted(path.name for path in folder.glob("*.toml")) == ["broken.toml", "my_idea.toml"]
    shutil.rmtree(tmp_path / "compiled", ignore_errors=True)
