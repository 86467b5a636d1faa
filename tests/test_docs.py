"""What the documents show is run, each block by itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
IN_ORDER = ("your_own_idea",)
"""Documents whose blocks belong together, which have a test of their own."""
BLOCKS = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in sorted(DOCS.glob("*.md"))
    if path.stem not in IN_ORDER
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_python_blocks_run(block: str, tmp_path: Path) -> None:
    """Each gets an empty folder as its argument."""
    command = [sys.executable, "-W", "error", "-c", block, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
