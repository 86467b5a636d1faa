"""`jaxbench new` writes files whose tests all pass, here and from an installed wheel elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from click.testing import CliRunner

from jaxbench import cli, starting
from jaxbench.base import JaxbenchError
from jaxbench.conformance import ConformanceError, check

ROOT = Path(__file__).parent.parent
KINDS = sorted(starting.STEMS)


@pytest.mark.parametrize(
    "kind", ["idea", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("model", "track"))]
)
def test_the_tests_that_are_written_pass(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"fresh_{kind}"
    done = CliRunner().invoke(cli.cli, ["new", name, "--kind", kind, "--into", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    assert [Path(line).name for line in done.output.split()[:3]] == [
        f"{name}.py", f"{name}.toml", f"test_{name}.py",
    ]  # fmt: skip
    for path in (tmp_path / "a").iterdir():
        assert f"my_{kind}" not in path.read_text()
    monkeypatch.syspath_prepend(tmp_path / "a")
    tests = importlib.import_module(f"test_{name}")
    functions = [each for key, each in vars(tests).items() if key.startswith("test_")]
    assert len(functions) >= 3
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):  # as users have
        for function in functions:
            function()


def test_nothing_is_overwritten_or_half_written(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("keep me")
    with pytest.raises(JaxbenchError, match=r"mine.toml exists already"):
        starting.write_starter("mine", "idea", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    (tmp_path / "mine.py").write_text("keep me")
    with pytest.raises(JaxbenchError, match=r"mine.py and .*mine.toml exist already"):
        starting.write_starter("mine", "idea", tmp_path)
    (tmp_path / "mine.py").unlink()
    for wrong in ("my-idea", "1st", "class", "a b", "../up", ""):
        with pytest.raises(JaxbenchError, match="no name of a Python module"):
            starting.write_starter(wrong, "idea", tmp_path)
    with pytest.raises(JaxbenchError, match="cannot be written to"):
        starting.write_starter("mine", "idea", tmp_path / "mine.toml" / "below")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("numpy", "numpy.py would hide the module numpy of "), ("jax", "hide the module jax of"),
        ("jaxbench", "hide the module jaxbench of "), ("json", "hide Python's own module json"),
        ("typing", "hide Python's own"), ("conftest", "is the file of fixtures to pytest"),
        ("__init__", "is a name that Python keeps"), ("match", "is a word of Python's grammar"),
        ("there", "hide the module there of "), ("other", "test_other.py would hide the module"),
    ],
)  # fmt: skip
def test_no_module_is_hidden(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    for file in ("there.py", "test_other.py"):
        (tmp_path / "path" / file).touch()
    monkeypatch.syspath_prepend(tmp_path / "path")
    into = tmp_path / "new"
    done = CliRunner().invoke(cli.cli, ["new", name, "--into", str(into)])
    assert done.exit_code == 2
    assert said in done.stderr
    assert not into.exists()


def test_a_module_of_the_folder_itself_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "near").mkdir()  # a folder that Python takes for a package without a file
    assert len(starting.write_starter("near", "idea", tmp_path)) == 3
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "__init__.py").touch()
    with pytest.raises(JaxbenchError, match=r"far.__init__\.py exists already"):
        starting.write_starter("far", "idea", tmp_path)


IMPURE = """
import numpy as np
import jax.numpy as jnp
from jaxbench.base import Hyper, Intervention

def build() -> Intervention:
    def loss_term(ctx, params, state, batch, outputs, intermediates, step, key):
        return ctx.hyper["weight"] * {term}
    def measure(ctx, params, state, test):
        return {{"value": {measured}}}
    return Intervention(
        name="mine", summary="", hyper={{"weight": Hyper(1.0, 0.0, 9.0, "", neutral={neutral})}},
        loss_term=loss_term, measure=measure,
    )
"""


@pytest.mark.parametrize(
    ("term", "measured", "neutral", "said"),
    [
        ("np.random.default_rng().random()", "1.0", "None", "it is another program; a hook reads"),
        pytest.param(
            "(outputs**2).mean()", "1.0", "2.0", r"neutral values \(weight = 2\) it scores",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "(outputs**2).mean()", "jnp.log(-1.0)", "None", "a value that is not finite",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_conformance_finds_what_an_arm_does_not_keep(
    term: str, measured: str, neutral: str, said: str, tmp_path: Path
) -> None:
    starting.write_starter("mine", "idea", tmp_path)
    text = IMPURE.format(term=term, measured=measured, neutral=neutral)
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ConformanceError, match=said):
        check(tmp_path / "mine.toml")


@pytest.mark.slow
def test_they_pass_from_a_wheel_outside_of_the_checkout(tmp_path: Path) -> None:
    """And what another package registers as an entry point is found by its name."""
    run = {"check": True, "capture_output": True, "text": True}
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", str(ROOT)]
    subprocess.run([*wheel, "-w", str(tmp_path)], **run)  # type: ignore[call-overload]
    [built] = tmp_path.glob("jaxbench-*.whl")
    site, outside = tmp_path / "site", tmp_path / "outside"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(built)], **run)  # type: ignore[call-overload]
    outside.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def here(*words: str) -> str:
        line = [sys.executable, "-P", *words]
        done = subprocess.run(line, cwd=outside, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    assert str(site) in here("-c", "import jaxbench; print(jaxbench.__file__)")
    command = ("-c", "from jaxbench.cli import main; main()")
    for kind in KINDS:
        here(*command, "new", f"own_{kind}", "--kind", kind)
    done = here("-m", "pytest", "-q", ".")
    assert re.search(r"\b1[01] passed", done), done
    theirs = site / "theirs"
    theirs.mkdir()
    for kind in KINDS:
        (theirs / f"{kind}.py").write_text((outside / f"own_{kind}.py").read_text())
    information = site / "theirs-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "".join(
            f"[jaxbench.{group}]\nown_{kind} = theirs.{kind}\n"
            for group, kind in (("interventions", "idea"), ("tracks", "track"), ("models", "model"))
        )
    )
    listed = here(*command, "list")
    assert all(f"\n  own_{kind} " in listed for kind in KINDS)
    text = (outside / "own_model.toml").read_text()
    text = text.replace("own_model.py", "own_model").replace('"tabular"', '"own_track"')
    text = text.replace('intervention = "none"', 'intervention = "own_idea"')
    (outside / "together.toml").write_text(text)
    assert "On my_track with my_model over" not in listed
    assert " over 4 paired seeds" in here(*command, "run", "together.toml", "--quick")
