"""What the documents show is run, each block by itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCKS = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_python_blocks_run(block: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
