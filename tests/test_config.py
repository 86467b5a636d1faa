"""A config is read as written, filled with every default, and refused with every reason at once."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jaxbench import config, toml_text
from jaxbench.config import ConfigError, digest, load

IDEA = '''"""`idea`: a test idea."""
from typing import Annotated, Literal
from annotated_types import Ge
from jaxbench.base import Hyper, Intervention, JaxbenchError

def build(
    *,
    level: Literal["norm", "power"] = "norm",
    samples: Annotated[int, Ge(1)] = 8,
    times: tuple[int, ...] = (1, 2),
    cap: float | None = None,
) -> Intervention:
    """Make it."""
    if samples == 13:
        raise JaxbenchError("13 samples bring bad luck")
    if samples == 14:
        raise ZeroDivisionError("oh no")
    hyper = {
        "weight": Hyper(1.0, 0.0, 10.0, "weight of the penalty", neutral=0.0),
        "sigma": Hyper(0.2, 0.0, 1.0, "noise"),
    }
    return Intervention(name="idea", summary="", hyper=hyper)
'''
MODEL = '''"""`net`: a test model."""
from typing import Annotated
import jax.numpy as jnp
from annotated_types import Ge
from jaxbench.base import Model

def build(*, outputs: int, hidden: Annotated[int, Ge(1)] = 32) -> Model:
    """Make a product with one kernel."""
    return Model(
        name="net", summary="", options={"hidden": hidden}, features=frozenset(),
        init=lambda key, inputs: {"kernel": jnp.ones((inputs.shape[-1], outputs))},
        apply=lambda params, inputs, **_: (inputs @ params["kernel"], {}),
        flops=lambda shape: 1.0,
    )
'''
TRACK = '''"""`task`: a test track."""
import jax.numpy as jnp
from jaxbench.base import Batch, Metric, Splits, Track

def build(*, length: int = 80, preset: str = "default") -> Track:
    """Make zeros."""
    batch = Batch(jnp.zeros((4, 2)), jnp.zeros((4, 1)))
    error = lambda outputs, targets: ((outputs - targets) ** 2).mean()
    return Track(
        name="task", summary="", options={}, metric=Metric("MSE", "", "lower"), output_size=1,
        features=frozenset(), generate=lambda key: Splits(batch, batch, batch), loss=error,
        score=error, constant_loss=lambda targets: targets.var(), references=lambda splits: {},
    )
'''
GOOD = """\
name = "good"
title = "A good one"

[track]
name = "task.py"

[model]
name = "net.py"
hidden = 8

[training]
epochs = 3

[protocol]
seeds = 4

[grid]
learning_rate = [
  0.001,
  0.01,
]

[arms.baseline]
intervention = "idea.py"
fixed = { weight = 0 }

[arms.idea]
intervention = "idea.py"

[arms.idea.options]
level = "power"

[arms.idea.grid]
weight = [0.1, 1]

[quick.training]
epochs = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"idea": IDEA, "net": MODEL, "task": TRACK}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "good.toml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(text: str, *arguments: Any, **options: Any) -> str:
    """Load a config that cannot be used; return what is said about it."""
    Path("bad.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load("bad.toml", *arguments, **options)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


# --------------------------------------------------------------------------------------------------
# What is read
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_every_default_is_filled_in() -> None:
    read = load("good.toml")
    assert read.track.name == "task.py"
    assert read.track.options == {"length": 80, "preset": "default"}
    assert read.model.options == {"hidden": 8}
    assert (read.training.epochs, read.training.batch_size, read.training.clip_norm) == (
        3,
        32,
        None,
    )
    assert read.protocol.model_dump() == {
        "rules": "modern", "seeds": 4, "tuning_seeds": 4, "parity": "fill", "evaluate": "auto",
        "extend_grid": False, "alpha": 0.05, "margin": 0.05, "max_seeds": None,
    }  # fmt: skip
    assert read.arms["idea"].options == {"level": "power", "samples": 8, "times": [1, 2]}
    assert read.arms["baseline"].fixed == {"weight": 0.0, "sigma": 0.2}
    assert read.arms["idea"].fixed == {"sigma": 0.2}
    assert read.grid_of("baseline") == {"learning_rate": (0.001, 0.01)}
    assert read.grid_of("idea") == {"learning_rate": (0.001, 0.01), "weight": (0.1, 1.0)}
    assert read.model_of("idea") == read.model
    only = {"idea": "idea", "baseline": "baseline", "role": "primary", "endpoint": None}
    assert [each.model_dump() for each in read.comparisons] == [only]
    assert read.primary is read.comparisons[0]


@pytest.mark.usefixtures("folder")
def test_seeds_for_tuning_and_evaluation_are_disjoint() -> None:
    protocol = load("good.toml", seeds=100).protocol
    assert protocol.evaluation_seed_list == tuple(range(100))
    assert protocol.tuning_seed_list == (100, 101, 102, 103)


@pytest.mark.usefixtures("folder")
def test_quick_then_set_then_seeds_lie_over_the_file() -> None:
    changes = [("training.epochs", "7"), ("protocol.seeds", "5"), ("title", "it's [new]")]
    assert load("good.toml", quick=True).training.epochs == 1
    read = load("good.toml", changes, seeds=6, quick=True)
    assert (read.training.epochs, read.protocol.seeds, read.title) == (7, 6, "it's [new]")
    assert load("good.toml").training.epochs == 3


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("0.5", 0.5), ("true", True), ("[1, 2]", [1, 2]), ('"8"', "8"), ("power", "power"),
     ("", ""), ("1\nother = 2", "1\nother = 2"), ("{a = 1}", {"a": 1}), ("1e-3", 0.001)],
)  # fmt: skip
def test_a_value_from_the_command_line_is_toml_or_else_text(text: str, value: Any) -> None:
    assert toml_text.parse_value(text) == value


@pytest.mark.usefixtures("folder")
def test_how_to_run_survives_the_shell() -> None:
    read = load("./good.toml", [("title", "it's a; rm -rf $HOME")], seeds=5, quick=True)
    assert shlex.split(read.how_to_run()) == [
        "jaxbench", "run", "./good.toml", "--quick", "--set", "title=it's a; rm -rf $HOME",
        "--seeds", "5",
    ]  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_a_config_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load("good.toml").training.epochs = 4  # type: ignore[misc]


@pytest.mark.usefixtures("folder")
def test_an_arm_may_train_another_model() -> None:
    text = GOOD + "\n[arms.idea.model]\nhidden = 64\n"
    Path("two.toml").write_text(text)
    read = load("two.toml")
    assert read.model_of("idea").options == {"hidden": 64}
    assert read.model_of("baseline").options == {"hidden": 8}
    said = refusal(text.replace("hidden = 64", "hiden = 64"))
    assert "line 40: arms.idea.model.hiden: unknown key; did you mean hidden?" in said


@pytest.mark.usefixtures("folder")
def test_a_config_needs_no_name_of_its_own() -> None:
    Path("nameless.toml").write_text(changed('name = "good"\n', ""))
    assert load("nameless.toml").name == "nameless"


@pytest.mark.slow
def test_the_shipped_studies_load_by_name_in_full_and_quick() -> None:
    assert "stability_penalty" in config.available()
    for name, title in config.available().items():
        assert title
        full, quick = load(name), load(name, quick=True)
        assert full.name == name
        assert digest(full) != digest(quick)
        assert full.how_to_run() == f"jaxbench run {name}"


# --------------------------------------------------------------------------------------------------
# Canonical form
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_config_as_run_is_itself_a_config() -> None:
    read = load("good.toml", [("track.preset", 'a "b" \\ ü')], quick=True)
    Path("as_run.toml").write_text(read.to_toml())
    again = load("as_run.toml")
    assert again.as_run() == read.as_run()
    assert digest(again) == digest(read)
    through_json = json.loads(json.dumps(read.as_run(), allow_nan=False))
    assert digest(config.from_run(through_json)) == digest(read)


@pytest.mark.usefixtures("folder")
def test_the_digest_is_of_what_decides_the_numbers() -> None:
    known = digest(load("good.toml"))
    assert len(known) == 64
    assert digest(load("good.toml", [("title", "another")])) == known
    assert digest(load("good.toml", [("arms.baseline.fixed.weight", "0.0")])) == known
    assert digest(load("good.toml", [("model.hidden", "9")])) != known
    assert digest(load("good.toml", seeds=5)) != known
    Path("idea.py").write_text(IDEA + "\n# changed\n")
    assert digest(load("good.toml")) != known


@pytest.mark.usefixtures("folder")
def test_seeds_until_decided_are_part_of_the_study_and_of_its_command() -> None:
    read = load("good.toml", [("title", "x")], seeds=5, max_seeds=20)
    assert (read.protocol.seeds, read.protocol.max_seeds) == (5, 20)
    assert read.how_to_run() == (
        "jaxbench run good.toml --set title=x --seeds 5 --until-decided --max-seeds 20"
    )
    assert digest(read) != digest(load("good.toml", seeds=5))
    assert "max_seeds" not in load("good.toml").as_run()["protocol"]


scalars = st.one_of(
    st.text(st.characters(codec="utf-8")), st.integers(-(2**63), 2**63 - 1), st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), values, max_size=4))
def test_what_is_written_as_toml_is_read_back(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text.dumps(document)) == document


@pytest.mark.usefixtures("folder")
def test_lines_are_those_of_the_file() -> None:
    places: list[toml_text.Place] = [
        ("name",), ("grid",), ("grid", "learning_rate"), ("arms", "baseline", "fixed", "weight"),
        ("arms", "idea", "no_such"), ("nowhere", "at", "all"),
    ]  # fmt: skip
    lines = GOOD.splitlines()
    found = toml_text.lines_of(GOOD, places)
    expected = ['name = "good"', "[grid]", "learning_rate = [", "fixed = { weight = 0 }"]
    assert [lines[found[place] - 1] for place in places[:4]] == expected
    assert lines[found[places[4]] - 1] == "[arms.idea]"
    assert places[5] not in found


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("learning_rate = [", "learing_rate = [",
         "line 18: grid.learing_rate: unknown hyperparameter; did you mean learning_rate?"),
        ("  0.001,\n  0.01,\n", "",
         "line 18: grid.learning_rate: expected 1 or more entries, got []"),
        ("  0.01,\n", "  0.001,\n",
         "line 18: grid.learning_rate: expected different values, got 0.001 twice"),
        ("  0.01,\n", "  0,\n",
         "line 18: grid.learning_rate[1]: expected a number above 0, got 0"),
        ("  0.01,\n", "  nan,\n",
         "line 18: grid.learning_rate[1]: expected a finite number, got nan"),
        ("  0.01,\n", "  1e300,\n",
         "line 18: grid.learning_rate[1]: expected a magnitude of at most 3.4e+38, that of"
         " float32, got 1e+300"),
        ("  0.01,\n", "  1e-300,\n",
         "line 18: grid.learning_rate[1]: expected a magnitude of at least 1.18e-38"),
        ("weight = 0 ", "weight = -4e38 ", "arms.baseline.fixed.weight: expected a magnitude of"),
        ("weight = [0.1, 1]", f"weight = [0.1, 1{'0' * 400}]",
         "line 34: arms.idea.grid.weight[1]: expected a magnitude of at most"),
        ("epochs = 3", "clip_norm = 1e39", "line 12: training.clip_norm: expected a magnitude of"),
        ('level = "power"', "cap = -1e300", "arms.idea.options.cap: expected a magnitude of at"),
        ("  0.01,\n", "  true,\n", "grid.learning_rate[1]: expected a number, got true"),
        ("seeds = 4", "seeds = 1",
         "line 15: protocol.seeds: expected a number of at least 2, got 1"),
        ("seeds = 4", "seeds = 101", "expected a number of at most 100, got 101"),
        ("seeds = 4", "max_seeds = 101", "line 15: protocol.max_seeds: expected a number of at m"),
        ("seeds = 4", "max_seeds = 7",
         "line 15: protocol.max_seeds: expected at least protocol.seeds = 8, got 7"),
        ("seeds = 4", 'max_seeds = 64\nevaluate = "grid"',
         "line 15: protocol.max_seeds: seeds can be added only where configurations are selected"),
        ("seeds = 4", 'max_seeds = 64\nrules = "v1"', "leave out rules = 'v1' and evaluate"),
        ("seeds = 4", "seeds = 4.0", "line 15: protocol.seeds: expected an integer, got 4.0"),
        ("seeds = 4", 'rules = "modrn"',
         "protocol.rules: expected 'modern' or 'v1', got \"modrn\"; did you mean modern?"),
        ("seeds = 4", "alpha = inf", "line 15: protocol.alpha: expected a finite number, got inf"),
        ("seeds = 4", "margin = 0", "line 15: protocol.margin: expected a number above 0, got 0"),
        ("hidden = 8", "hidden = -8",
         "line 9: model.hidden: expected a number of at least 1, got -8"),
        ('name = "net.py"\nhidden = 8', 'name = "mlp_tiny"\nhidden = [0]',
         "bad.toml, line 9: model.hidden[0]: expected a number of at least 1, got 0"),
        ('name = "net.py"\nhidden = 8', 'name = "mlp_tiny"\nhidden = []',
         "line 9: model.hidden: expected 1 or more entries, got []"),
        ("hidden = 8", "hiden = 8",
         "line 9: model.hiden: unknown key; did you mean hidden? (valid: hidden) (model net)"),
        ("hidden = 8", "outputs = 8", "line 9: model.outputs: unknown key"),
        ("epochs = 3", "epochs = 0", "training.epochs: expected a number of at least 1, got 0"),
        ("epochs = 3", "epochs = 1979-05-27", "got the date or time 1979-05-27"),
        ("epochs = 3", "clip_norm = true", "training.clip_norm: expected a number, got true"),
        ("[training]", "[trainin]", "line 11: trainin: unknown key; did you mean training?"),
        ('title = "A good one"', "title = 3", "line 2: title: expected text in quotes, got 3"),
        ('name = "good"', 'name = "../good"', "line 1: name: expected letters, digits"),
        ('name = "good"', 'name = "ledger.jsonl"',
         "line 1: name: 'ledger.jsonl' is the ledger of looks in the results folder"),
        ('"task.py"', '"dynamic"',
         "line 5: track.name: no track named 'dynamic'; did you mean dynamics?"),
        ('"net.py"', '"nat.py"', "model.name: no model file 'nat.py'; did you mean net.py?"),
        ("weight = 0 ", "weight = -1 ",
         "arms.baseline.fixed.weight: expected a number from 0 to 10 (weight of the penalty)"),
        ("weight = 0 ", "wieght = 0 ",
         "line 25: arms.baseline.fixed.wieght: unknown hyperparameter; did you mean weight?"
         " (idea: learning_rate, weight, sigma)"),
        ("fixed = { weight = 0 }", "fixed = 3", "arms.baseline.fixed: expected a table, got 3"),
        ("fixed = { weight = 0 }", "options = 3", "arms.baseline.options: expected a table, got 3"),
        ('level = "power"', 'level = "powr"',
         "line 31: arms.idea.options.level: expected 'norm' or 'power', got \"powr\";"
         " did you mean power?"),
        ('level = "power"', 'lewel = "power"',
         "arms.idea.options.lewel: unknown key; did you mean level?"
         " (valid: level, samples, times, cap) (intervention idea)"),
        ('level = "power"', "times = [1, 2.5]",
         "line 31: arms.idea.options.times[1]: expected an integer, got 2.5"),
        ('level = "power"', "samples = 13",
         "line 30: arms.idea.options: 13 samples bring bad luck"),
        ('level = "power"', "samples = 14",
         "line 30: arms.idea.options: idea.build: ZeroDivisionError: oh no"),
        ("weight = [0.1, 1]", "weight = [0.1, 11]",
         "line 34: arms.idea.grid.weight[1]: expected a number from 0 to 10"),
        ("weight = [0.1, 1]", "weight = 1", "arms.idea.grid.weight: expected a list, got 1"),
        ('intervention = "idea.py"\n\n[arms.idea.options]', "[arms.idea.options]",
         "arms.idea.intervention: missing: expected a registered name, or a path ending in .py"),
        ('intervention = "idea.py"\n\n[arms.idea.options]',
         'intervention = "idea.py"\nfixed = { weight = 1 }\n\n[arms.idea.options]',
         "line 29: arms.idea.fixed.weight: also in arms.idea.grid; give it in one of them"),
        ("[quick.training]\nepochs = 1", "[quick.training]\nepoch = 1",
         "line 37: quick.training.epoch: unknown key; did you mean epochs?"),
        ("[quick.training]\nepochs = 1", "[quick.protocol]\nseeds = 1",
         "line 37: quick.protocol.seeds: expected a number of at least 2, got 1"),
    ],
)  # fmt: skip
def test_one_mistake_is_told_with_its_place(old: str, new: str, expected: str) -> None:
    assert expected in refusal(changed(old, new))


@pytest.mark.usefixtures("folder")
def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace("hidden = 8", "hidden = -8").replace("seeds = 4", "seeds = 1")
    text = text.replace("learning_rate", "learing_rate").replace("epochs = 3", "epoks = 3")
    lines = refusal(text, [("protocol.alpha", "2"), ("a b", "1"), ("quick.x", "1")]).splitlines()
    assert lines[0] == "bad.toml has 8 problems:"
    assert [line.strip().split(": ")[:2] for line in lines[1:]] == [
        ["from the command line", "a b"],
        ["from the command line", "quick.x"],
        ["from the command line", "protocol.alpha"],
        ["line 9", "model.hidden"],
        ["line 12", "training.epoks"],
        ["line 15", "protocol.seeds"],
        ["line 17", "grid.learning_rate"],
        ["line 18", "grid.learing_rate"],
    ]


@pytest.mark.usefixtures("folder")
def test_a_mistake_on_the_command_line_has_no_line() -> None:
    said = refusal(GOOD, [("training.epoch", "3")])
    assert said.startswith("bad.toml, from the command line: training.epoch: unknown key; did you")
    assert "protocol.seeds: expected a number of at least 2" in refusal(GOOD, seeds=1)
    assert "expected a list, got 0.1" in refusal(GOOD, [("grid.learning_rate", "0.1")])


@pytest.mark.usefixtures("folder")
def test_a_shared_grid_must_suit_every_arm() -> None:
    text = changed("[grid]\n", "[grid]\nweight = [1, 2]\n")
    text = text.replace('"idea.py"\nfixed = { weight = 0 }', '"none"')
    assert "line 18: grid.weight: baseline (none) has no such hyperparameter" in refusal(text)
    assert "learning_rate: missing: arm 'baseline' needs it" in refusal(
        changed("[grid]\nlearning_rate = [\n  0.001,\n  0.01,\n]\n", "")
    )


COMPARISONS = """
[[comparisons]]
idea = "idea"
baseline = "baseline"
role = "primary"
"""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("added", "expected"),
    [
        (COMPARISONS.replace('"idea"', '"ide"'),
         "comparisons[0].idea: no arm named 'ide'; did you mean idea? (baseline, idea)"),
        (COMPARISONS.replace("primary", "control"), "expected exactly one primary role, got 0"),
        (COMPARISONS + COMPARISONS, "expected exactly one primary role, got 2"),
        (COMPARISONS + COMPARISONS.replace("primary", "secondary"),
         "comparisons[1]: these two arms are compared already"),
        (COMPARISONS.replace('"idea"', '"baseline"'), "expected two different arms"),
        (COMPARISONS.replace('role = "primary"', ""), "comparisons[0].role: missing"),
        (COMPARISONS + '[arms.third]\nintervention = "none"\n',
         "arms.third: no comparison uses this arm"),
        ('[arms.third]\nintervention = "none"\n',
         "arms.third: no comparison uses this arm; without [[comparisons]] the arms are"),
        ("[[comparisons]]\nrol = 1\n", "comparisons[0].rol: unknown key; did you mean role?"),
    ],
)  # fmt: skip
def test_comparisons_that_make_no_sense_are_refused(added: str, expected: str) -> None:
    assert expected in refusal(GOOD + added)


@pytest.mark.usefixtures("folder")
def test_arms_of_other_names_need_comparisons() -> None:
    text = GOOD.replace("arms.baseline", "arms.base")
    assert "arms.baseline: no arm named 'baseline'; did you mean base?" in refusal(text)
    said = refusal(GOOD.split("[arms.idea]")[0])
    assert "arms: expected 2 or more entries" in said or "no arm named 'idea'" in said


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("part", ["track", "model", "arms", "grid", "protocol", "quick"])
@pytest.mark.parametrize("wrong", ["3", '"text"', "[1]", "[[1]]"])
def test_a_table_of_the_wrong_kind_is_told_as_such(part: str, wrong: str) -> None:
    rest = tomllib.loads(GOOD) | {part: tomllib.loads(f"x = {wrong}")["x"]}
    said = refusal(toml_text.dumps(rest))
    assert f"{part}: expected a table, got" in said


@pytest.mark.usefixtures("folder")
def test_quick_does_not_hide_what_is_wrong_behind_it(folder: Path) -> None:
    said = refusal(changed("epochs = 3", 'epochs = "20"'), quick=True)
    assert said == 'bad.toml, line 12: training.epochs: expected an integer, got "20"'


def test_quick_is_not_refused_for_what_only_the_full_study_could_not_do(folder: Path) -> None:
    Path("good.toml").write_text(GOOD + "[quick.protocol]\nseeds = 2\n")
    found = load("good.toml", [("protocol.max_seeds", "3")], quick=True)
    assert found.protocol.max_seeds == 3


def test_one_pair_of_brackets_around_comparisons_is_told(folder: Path) -> None:
    table = '[comparisons]\nidea = "idea"\nbaseline = "baseline"\nrole = "primary"\n'
    assert refusal(GOOD + table).endswith(
        "comparisons: expected a list of tables, got one table; write [[comparisons]] above it"
    )


def test_quick_needs_a_table() -> None:
    without = changed("[quick.training]\nepochs = 1\n", "")
    assert "quick: missing: --quick needs this table" in refusal(without, quick=True)


@pytest.mark.usefixtures("folder")
def test_files_that_are_no_configs_are_refused(folder: Path) -> None:
    def said(name: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(name)
        return str(caught.value)

    assert said("stability_penaltie").startswith(
        "no study named 'stability_penaltie'; did you mean stability_penalty? (studies: "
    )
    assert said("no_such").startswith("no study named 'no_such' (studies: ")
    assert said("goood.toml") == "no file goood.toml; did you mean good.toml?"
    assert said("nowhere/x.toml") == "no file nowhere/x.toml"
    assert said(str(folder)).endswith("is a folder; expected a TOML file or the name of a study")
    (folder / "folder.toml").mkdir()
    assert "is a folder" in said("folder.toml")
    (folder / "broken.toml").write_text("a = 1\nb = \n")
    assert said("broken.toml") == "broken.toml is not TOML: Invalid value (at line 2, column 5)"
    (folder / "twice.toml").write_text("a = 1\na = 2\n")
    assert "twice.toml is not TOML: Cannot overwrite a value (at line 2" in said("twice.toml")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert said("bytes.toml").startswith("bytes.toml is not TOML: it is not UTF-8 text")
    assert "is not TOML" in said("./idea.py")


def test_a_bad_number_of_seeds_is_told_as_the_command_lines(folder: Path) -> None:
    """`--seeds` lies over `[quick]` too, and must not be blamed on that table's line."""
    path = folder / "good.toml"
    path.write_text(f"{path.read_text()}\n[quick.protocol]\nseeds = 3\n")
    with pytest.raises(config.ConfigError, match=r"from the command line: protocol.seeds: expect"):
        load("good.toml", seeds=1)
