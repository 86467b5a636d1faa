"""Writes the starter files of an idea, a track or a model."""

from __future__ import annotations

import keyword
import os
from pathlib import Path

from jaxbench.base import JaxbenchError

STARTERS = Path(__file__).parent / "starters"
STEMS = {"idea": "my_idea", "track": "my_track", "model": "my_model"}


def write_starter(name: str, kind: str, into: str | os.PathLike[str] = ".") -> list[Path]:
    """Write `NAME.py`, `NAME.toml` and `test_NAME.py`: all of them, or nothing.

    Args:
        name: of the component, a Python identifier.
        kind: `idea`, `track` or `model`.
        into: the folder; it is made where missing.

    Raises:
        JaxbenchError: a name that Python cannot import, a file that is there already, or a folder
            that cannot be written to.
    """
    stem = STEMS[kind]
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        raise JaxbenchError(
            f"{name!r} is no name of a Python module; take letters, digits and '_', beginning "
            f"with a letter, such as {stem}"
        )
    folder = Path(into)
    sources = [STARTERS / kind / f for f in (f"{stem}.py", f"{stem}.toml", f"test_{stem}.py")]
    texts = {
        folder / source.name.replace(stem, name): source.read_text("utf-8").replace(stem, name)
        for source in sources
    }
    taken = [str(path) for path in texts if os.path.lexists(path)]
    if taken:
        raise JaxbenchError(f"{' and '.join(taken)} exists already; choose another name or --into")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise JaxbenchError(f"{folder} cannot be written to: {error.strerror}") from error
    return written
