"""The code blocks of a document, and a runner that does what a reader would do with them.

A block whose fence has a title is a file of that name; others are run in order, in one folder.  The
comment `<!-- not run: why -->` above a fence says why one is not.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parent.parent
DOCS = HOME / "docs"
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n)?"
    r'^```(?P<language>\w+)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        language: as the fence says.
        text: what is in it.
        file: the file that it is, if it is one.
        reason: why it is not run, if it is not.
    """

    language: str
    text: str
    file: str | None = None
    reason: str | None = None

    @property
    def runs(self) -> bool:
        """Whether it is a command or program that is run."""
        return self.language in ("sh", "python") and self.file is None and self.reason is None


def documents() -> list[Path]:
    """List the pages that are written by hand."""
    return sorted(DOCS.rglob("*.md"))


def blocks(path: Path) -> list[Block]:
    """Read the blocks of a document."""
    text = path.read_text("utf-8")
    found = [
        Block(each["language"], each["text"], each["file"], each["reason"])
        for each in FENCE.finditer(text)
    ]
    assert len(re.findall(r"^ *```", text, re.M)) == 2 * len(found), f"a fence of {path} is lost"
    return found


def commands_in(folder: Path) -> Path:
    """Make a folder with the commands `jaxbench` and `python` of this tree, for shells."""
    folder.mkdir()
    for name, arguments in {
        "jaxbench": '-c "from jaxbench.cli import main; main()"',
        "python": "",
    }.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def run(path: Path, folder: Path) -> int:
    """Write a document's files and run its blocks, in order, in a folder; count those that ran.

    Compiled programs are kept from block to block.  A Python block gets the folder as its argument.
    """
    place = folder / "reader"
    place.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{commands_in(folder / 'bin')}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(HOME),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    count = 0
    for block in blocks(path):
        if block.file is not None:
            (place / block.file).write_text(block.text)
        if not block.runs:
            continue
        command = [sys.executable, "-W", "error", "-c", block.text, str(place)]
        if block.language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", block.text]
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), f"{block.text}\nprints nothing"
        count += 1
    return count
