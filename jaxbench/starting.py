"""Writes the starter files of an idea, a track or a model."""

from __future__ import annotations

import importlib.util
import keyword
import os
import sys
from pathlib import Path

from jaxbench.base import JaxbenchError
from jaxbench.counted import listed

STARTERS = Path(__file__).parent / "starters"
STEMS = {"idea": "my_idea", "track": "my_track", "model": "my_model"}

RESERVED = {"conftest": "the file of fixtures to pytest"}


def write_starter(name: str, kind: str, into: str | os.PathLike[str] = ".") -> list[Path]:
    """Write `NAME.py`, `NAME.toml` and `test_NAME.py`: all of them, or nothing.

    Args:
        name: of the component, a Python identifier.
        kind: `idea`, `track` or `model`.
        into: the folder; it is made where missing.

    Raises:
        JaxbenchError: a name that Python cannot import, or that hides a module which can be
            imported; a file that is there already; a folder that cannot be written to.
    """
    stem = STEMS[kind]
    reserved = "a word of Python's grammar" if keyword.issoftkeyword(name) else RESERVED.get(name)
    if reserved or (name.startswith("__") and name.endswith("__")):
        why = reserved or "a name that Python keeps for itself"
        raise JaxbenchError(f"{name!r} is {why}; choose another name, such as {stem}")
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
    package = folder / name / "__init__.py"  # Python finds it before the file of that name
    taken = [str(path) for path in (*texts, package) if os.path.lexists(path)]
    if taken:
        exist = "exists" if len(taken) == 1 else "exist"
        raise JaxbenchError(f"{listed(taken)} {exist} already; choose another name or --into")
    for module in (name, f"test_{name}"):
        hidden = hidden_by(module, folder)
        if hidden:
            raise JaxbenchError(f"{module}.py would hide {hidden}; choose another name")
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


def hidden_by(name: str, folder: Path) -> str | None:
    """Say which module a file of this name would hide from what is run in its folder, if any.

    Args:
        name: of the module.
        folder: the file's; a module that lies there itself is not hidden.
    """
    if name in sys.stdlib_module_names:
        return f"Python's own module {name}"
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module without a spec is in use all the same
        return f"the module {name}"
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if all(Path(place).parent.resolve() == folder.resolve() for place in places):
        return None
    return f"the module {name} of {places[0]}"
