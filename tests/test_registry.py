"""Names are found, and options are exactly what a build function's signature says."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Interval
from pydantic import ValidationError

from jaxbench import registry
from jaxbench.base import Intervention, JaxbenchError

MINE = '''"""`mine`: an idea of my own.

More words.
"""
from jaxbench.base import Intervention

def build(*, strength: float = 1.0, outputs: int = 0) -> Intervention:
    """Make it."""
    return Intervention(name="mine", summary="mine", static={"strength": strength})
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_builtin_names_have_one_line_summaries_and_helpers_are_not_listed() -> None:
    assert registry.available("models")["rnn_small"] == "one GRU layer with a linear head"
    assert "dynamics" in registry.available("tracks")
    assert {"none", "stability_penalty"} <= registry.available("interventions").keys()
    for kind in registry.KINDS:
        for name, summary in registry.available(kind).items():
            assert summary, name
            assert "\n" not in summary
            assert callable(registry.load(kind, name).build)
    package = Path(registry.__file__).parent
    helpers = [
        path.stem
        for path in (package / "tracks").glob("*.py")
        if "\ndef build(" not in path.read_text()
    ]
    assert not registry.available("tracks").keys() & set(helpers)


def test_listing_imports_neither_jax_nor_any_component() -> None:
    code = (
        "import sys; from jaxbench import registry, config\n"
        "[registry.available(kind) for kind in registry.KINDS]; config.available()\n"
        "found = [m for m in sys.modules if m.startswith(('jax.', 'flax', 'jaxbench.tracks.'))]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lookup_imports_only_the_named_module() -> None:
    code = (
        "import sys; from jaxbench import registry; registry.load('interventions', 'none')\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lookup_parses_only_the_named_file_and_that_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep looks every arm's intervention up, twice with a quick table."""
    parse, parsed = ast.parse, []

    def counted(text: bytes) -> ast.Module:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(ast, "parse", counted)
    for _ in range(3):
        found = registry.load("interventions", "none")
    assert parsed in ([], [found.source_path.read_bytes()])


def test_a_path_is_relative_to_the_config_then_to_the_working_directory(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = registry.load("interventions", "mine.py", tmp_path)
    assert (found.name, found.summary, found.source_path) == ("mine", "an idea of my own", mine)
    assert registry.load("interventions", str(mine)).build is found.build
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert registry.load("interventions", "mine.py", tmp_path / "other").build is found.build
    (tmp_path / "other" / "mine.py").write_text(MINE.replace("my own", "another"))
    other = registry.load("interventions", "mine.py", tmp_path / "other")
    assert other.summary == "an idea of another"
    assert other.source_digest() != found.source_digest()


def test_a_changed_file_is_loaded_anew(mine: Path) -> None:
    before = registry.load("interventions", str(mine))
    mine.write_text(MINE.replace("1.0", "2.0"))
    after = registry.load("interventions", str(mine))
    assert before.make({}).static == {"strength": 1.0}
    assert after.make({}).static == {"strength": 2.0}


def test_errors_name_the_nearest_and_all_valid_names(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(JaxbenchError, match=r"no track named 'dynamic'; did you mean dynamics\?"):
        registry.load("tracks", "dynamic")
    with pytest.raises(JaxbenchError, match=r"models: .*rnn_small"):
        registry.load("models", "zzz")
    with pytest.raises(JaxbenchError, match=r"no intervention file 'min.py'; did you mean mine.py"):
        registry.load("interventions", "min.py", tmp_path)
    with pytest.raises(JaxbenchError, match="no track named '__init__'"):
        registry.load("tracks", "__init__")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "has no function 'build'"),
        ("x = 1\nimport no_such_module\n", r"ModuleNotFoundError: .*broken.py, line 2\)"),
        ("def build(:\n", r"SyntaxError: .*broken.py, line 1"),
        ("def f():\n    return 1 / 0\n\nf()\n", r"ZeroDivisionError: .*broken.py, line 2\)"),
    ],
)
def test_a_broken_file_is_told_where_and_why(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(JaxbenchError, match=expected):
        registry.load("interventions", "broken.py", tmp_path)


def test_entry_points_are_found_but_never_shadow_what_is_built_in(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('listing must not import me')")
    (package / "theirs.py").write_text(MINE.replace("my own", "theirs"))
    points = [
        EntryPoint("theirs", "their_package.theirs", "jaxbench.interventions"),
        EntryPoint("made", "mine:build", "jaxbench.interventions"),
        EntryPoint("none", "mine", "jaxbench.interventions"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: points)
    monkeypatch.syspath_prepend(tmp_path)
    listed = registry.available("interventions")
    assert listed["theirs"] == "an idea of theirs"
    assert listed["made"] == "an idea of my own"
    assert registry.load("interventions", "made").make({}).name == "mine"
    assert registry.load("interventions", "none").make({}).name == "none"
    with pytest.raises(JaxbenchError, match="listing must not import me"):
        registry.load("interventions", "theirs")
    (package / "__init__.py").write_text("")
    assert registry.load("interventions", "theirs").make({"strength": 3}).static["strength"] == 3.0


def example(
    *,
    whole: Annotated[int, Ge(1)] = 3,
    level: Literal["norm", "power"] = "norm",
    share: Annotated[float, Interval(gt=0, le=1)] = 0.5,
    limit: Annotated[float, Ge(0)] | None = None,
    widths: tuple[int, ...] = (1, 2),
    flag: bool = False,
    copy: str = "shadows a method of pydantic's",
    outputs: int = 1,
) -> Intervention:
    """Have options of every sort."""
    return Intervention(name="e", summary="", static={"widths": widths, "share": share})


def check(options: dict[str, Any]) -> dict[str, Any]:
    model = registry.options_model(example)
    return model.model_validate_json(json.dumps(options)).model_dump()


def test_options_have_the_defaults_of_the_signature() -> None:
    assert check({}) == {
        "whole": 3, "level": "norm", "share": 0.5, "limit": None, "widths": (1, 2),
        "flag": False, "copy": "shadows a method of pydantic's",
    }  # fmt: skip


@pytest.mark.parametrize(
    "accepted",
    [{"share": 1}, {"limit": 0}, {"limit": None}, {"widths": []}, {"widths": [7]}, {"copy": "x"}],
)
def test_options_accept(accepted: dict[str, Any]) -> None:
    check(accepted)


@pytest.mark.parametrize(
    "refused",
    [
        {"whole": 0}, {"whole": 2.0}, {"whole": True}, {"whole": "3"}, {"whole": None},
        {"level": "nrom"}, {"share": 0}, {"share": 1.5}, {"share": float("nan")}, {"share": True},
        {"limit": -1}, {"limit": float("inf")}, {"widths": [1.5]}, {"widths": 3}, {"flag": 1},
        {"outputs": 2}, {"hole": 1},
    ],
)  # fmt: skip
def test_options_refuse(refused: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        check(refused)


def test_make_gives_build_its_own_types() -> None:
    module = sys.modules[__name__]
    component = registry.Component("e", "interventions", example, module, Path(__file__), "")
    static = component.make({"widths": [4, 5], "share": 1}, outputs=2).static
    assert static == {"widths": (4, 5), "share": 1.0}
    assert isinstance(static["share"], float)


def test_a_signature_without_names_or_types_is_refused() -> None:
    def untyped(*, width=3):  # type: ignore[no-untyped-def]
        return width

    def anything(**options: int) -> int:
        return len(options)

    with pytest.raises(JaxbenchError, match="the option 'width' has no type; annotate it"):
        registry.options_model(untyped)
    with pytest.raises(JaxbenchError, match=r"\*\*options: .*int.* is no named option"):
        registry.options_model(anything)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "idea.py"
    path.write_text(
        "from jaxbench.base import Intervention\n"
        "def build():\n"
        "    return Intervention(name='idea', summary='')\n"
    )
    with pytest.raises(JaxbenchError, match="builds no Track, but a Intervention"):
        registry.load("tracks", str(path)).make({})
