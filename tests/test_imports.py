"""Arrows between the parts go one way, and importing jaxbench is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import jaxbench

PACKAGE = Path(jaxbench.__file__).parent

ALLOWED = {
    "base": set(),
    "graphs": {"base"},
    "tracks": {"base", "graphs", "tracks"},
    "models": {"base", "graphs", "models"},
    "interventions": {"base", "graphs", "interventions"},
    "training": {"base", "training"},
    "judging": {"base", "judging"},
}


def imported(path: Path) -> set[str]:
    """The parts of jaxbench that a file imports, wherever in it."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        parts |= {name.split(".")[1] for name in names if name.startswith("jaxbench.")}
    return parts


@pytest.mark.parametrize("part", ALLOWED)
def test_each_part_imports_only_what_it_may(part: str) -> None:
    file = PACKAGE / f"{part}.py"
    files = [file] if file.exists() else sorted((PACKAGE / part).glob("*.py"))
    assert files
    for path in files:
        assert imported(path) <= ALLOWED[part], path


def test_orbax_is_imported_when_something_is_saved_only() -> None:
    code = (
        "import sys, jaxbench.study, jaxbench.interrupted, jaxbench.trained_params\n"
        "print(any(name.split('.')[0] == 'orbax' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_only_models_import_flax() -> None:
    for path in PACKAGE.rglob("*.py"):
        names = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        uses_flax = any(name.split(".")[0] == "flax" for name in names)
        assert not uses_flax or path.parent.name == "models", path


@pytest.mark.parametrize(
    "module", ["jaxbench", "jaxbench.judging", "jaxbench.base", "jaxbench.cli"]
)
def test_importing_it_loads_no_jax(module: str) -> None:
    code = f"import sys, {module}; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
