"""A model that cannot read a track, or an idea that lacks what it needs, is refused beforehand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jaxbench import config, fit, registry
from jaxbench.base import JaxbenchError

STUDY = """
[track]
name = "tabular"
[model]
name = "{model}"
[grid]
learning_rate = [0.01]
[arms.baseline]
intervention = "none"
[arms.idea]
intervention = "{idea}"
"""


def refused(folder: Path, model: str, idea: str, track: str = "tabular") -> str:
    path = folder / "study.toml"
    path.write_text(STUDY.format(model=model, idea=idea).replace("tabular", track))
    with pytest.raises(config.ConfigError) as caught:
        config.load(path)
    return str(caught.value).removeprefix(f"{path}, ")


def test_a_model_that_cannot_read_the_track_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, "rnn_small", "none")
    assert said.startswith(
        "line 5: model.name: the model rnn_small does not fit the track tabular, which gives "
        "inputs float32[400, 10] and targets float32[400, 1] (regression, tabular); rnn_small "
        "reads sequences [samples, steps, features]. Models that fit: linear, mlp_tiny, "
        "residual_mlp (jaxbench/models/rnn_small.py, line "
    )
    assert "in apply of the model rnn_small" in said


def test_an_arms_own_model_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    text = STUDY.format(model="mlp_tiny", idea="none") + '[arms.idea.model]\nname = "node_small"\n'
    path.write_text(text)
    with pytest.raises(config.ConfigError, match=r"line 13: arms.idea.model.name: the model node_"):
        config.load(path)


def test_an_idea_that_its_model_cannot_carry_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "mlp_tiny", "stability_penalty") == (
        "line 11: arms.idea.intervention: stability_penalty needs a model or track that is "
        "recurrent; mlp_tiny on tabular is hidden_units, regression, relu_mlp, tabular. Models on "
        "tabular that have it: none of those known"
    )
    said = refused(tmp_path, "rnn_small", "axis_pruning", track="dynamics")
    assert said.endswith("Models on dynamics that have it: mlp_tiny")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\n", r"track.name: .*mine.py has no function 'build': a file of tracks defines"),
        ("def build():\n    return 3\n", "track.name: 'mine' builds no Track, but a int; name"),
        ("def build():\n    return 1 / 0\n", "track.name: mine.build: ZeroDivisionError"),
        (
            "def build(:\n",
            r"track.name: the track 'mine.py' cannot be imported: SyntaxError: "
            r"[^()]*\([^()]*mine.py, line 1\)$",
        ),
    ],
)
def test_a_file_of_another_kind_is_refused_with_its_place(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(AssertionError, match=rf"(?s)line 3: {why}"):
        raise AssertionError(refused(tmp_path, "mlp_tiny", "none", track="mine.py"))


def test_a_bug_in_a_users_model_is_no_misfit(tmp_path: Path) -> None:
    """Its place is told; which other models would fit is not the question."""
    source = Path(registry.load("models", "mlp_tiny").source_path).read_text()
    wrong = source.replace("    def init(", "    def init(key, inputs):\n        return nothing\n\n"
                           "    def unused(")  # fmt: skip
    assert wrong != source
    (tmp_path / "mine.py").write_text(wrong)
    said = refused(tmp_path, "mine.py", "none")
    assert "in init of the model mlp_tiny (`return nothing`): NameError: name 'nothing' is" in said
    assert "Models that fit" not in said


def test_a_file_that_both_arms_name_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import no_such_module\n")
    text = STUDY.replace('"none"', '"mine.py"').format(model="mlp_tiny", idea="mine.py")
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(config.ConfigError) as caught:
        config.load(tmp_path / "study.toml")
    said = str(caught.value).removeprefix(f"{tmp_path / 'study.toml'}, ")
    assert said.startswith("line 9: arms.baseline.intervention: the intervention 'mine.py' cannot ")
    assert said.count("no_such_module") == 1


def test_a_track_that_improves_in_no_direction_is_refused_with_its_file(tmp_path: Path) -> None:
    source = Path(registry.load("tracks", "tabular").source_path).read_text()
    (tmp_path / "mine.py").write_text(source.replace('"lower"', '"low"'))
    assert refused(tmp_path, "mlp_tiny", "none", track="mine.py") == (
        f"line 3: track.name: {tmp_path / 'mine.py'}: the direction of the metric of the track "
        "tabular must be 'lower' or 'higher', but is 'low'; did you mean lower?"
    )


@pytest.mark.slow
def test_every_model_says_what_it_reads_and_fits_some_track() -> None:
    """Tracks of files that the user brings are left out."""
    without_files = sorted(set(registry.available("tracks")) - {"csv", "smnist"})
    for name in registry.available("models"):
        fitting = []
        for kind in without_files:
            track = registry.load("tracks", kind).make({})
            model = registry.load("models", name).make({}, outputs=track.output_size)
            assert model.reads
            try:
                fit.check_fit(model, track)
            except JaxbenchError:
                continue
            fitting.append(kind)
        assert fitting, name


def test_the_command_ends_with_code_2_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.format(model="rnn_small", idea="none"))
    code = f"from jaxbench.cli import main; import sys; sys.argv = {json.dumps(['jaxbench', 'run', 'study.toml'])}; main()"  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "compiling" not in done.stderr
    assert not (tmp_path / "results").exists()
