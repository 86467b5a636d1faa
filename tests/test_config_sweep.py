"""A sweep makes arms and comparisons over a product, and says where it cannot."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from jaxbench import config
from jaxbench.config import Config, ConfigError, digest
from jaxbench.plan import make_plan

SWEEP = """\
name = "swept"

[track]
name = "tabular"

[model]
name = "mlp_tiny"
hidden = [8, 8]

[training]
epochs = 16

[grid]
learning_rate = [0.01]

[arms.baseline]
intervention = "axis_pruning"
options = { score = "magnitude" }

[arms.idea]
intervention = "axis_pruning"

[[comparisons]]
idea = "idea"
baseline = "baseline"
role = "primary"

[sweep]
primary = { keep = 0.5, alpha = 0.1 }

[sweep.options]
keep = [0.75, 0.5]
alpha = [0.05, 0.1, 0.2]

[quick.sweep.options]
keep = [0.5]
"""


def load(tmp_path: Path, text: str, **options: Any) -> Config:
    path = tmp_path / "swept.toml"
    path.write_text(text)
    return config.load(path, **options)


def changed(old: str, new: str) -> str:
    assert SWEEP.count(old) == 1
    return SWEEP.replace(old, new)


def test_arms_and_comparisons_are_made_over_the_product(tmp_path: Path) -> None:
    swept = load(tmp_path, SWEEP)
    points = [(keep, alpha) for keep in (0.75, 0.5) for alpha in (0.05, 0.1, 0.2)]
    expected = [f"{arm}.keep-{k}.alpha-{a}" for arm in ("baseline", "idea") for k, a in points]
    assert list(swept.arms) == expected
    for name, arm in swept.arms.items():
        stem, keep, alpha = name.split(".", 1)[0], *points[expected.index(name) % 6]
        assert (arm.options["keep"], arm.options["alpha"]) == (keep, alpha)
        assert arm.options["score"] == ("magnitude" if stem == "baseline" else "crossing")
    assert [each.idea for each in swept.comparisons] == expected[6:]
    assert [each.baseline for each in swept.comparisons] == expected[:6]
    assert swept.primary.idea == "idea.keep-0.5.alpha-0.1"
    assert [each.role for each in swept.comparisons].count("secondary") == 5


def test_the_config_as_run_loads_again(tmp_path: Path) -> None:
    swept = load(tmp_path, SWEEP)
    assert digest(config.from_run(swept.as_run())) == digest(swept)
    assert digest(config.from_run(tomllib.loads(swept.to_toml()))) == digest(swept)


def test_quick_and_the_command_line_change_the_sweep(tmp_path: Path) -> None:
    assert len(load(tmp_path, SWEEP, quick=True).comparisons) == 3
    one = [("sweep.options.alpha", "[0.1]"), ("arms.idea.options.score", '"kink"')]
    swept = load(tmp_path, SWEEP, overrides=one)
    assert [arm.options["score"] for arm in swept.arms.values()] == ["magnitude"] * 2 + ["kink"] * 2


def test_a_sweep_may_leave_arms_alone_and_keeps_controls(tmp_path: Path) -> None:
    """One baseline for all points, and a control that is swept with the idea."""
    text = changed("[sweep]\n", '[sweep]\narms = ["idea"]\n') + "\n"
    text = text.replace("[sweep]\n", '[arms.placebo]\nintervention = "none"\n\n[sweep]\n')
    control = '[[comparisons]]\nidea = "idea"\nbaseline = "placebo"\nrole = "control"\n\n[sweep]\n'
    swept = load(tmp_path, text.replace("[sweep]\n", control))
    assert {"baseline", "placebo"} < set(swept.arms)
    assert {each.baseline for each in swept.comparisons} == {"baseline", "placebo"}
    roles = [each.role for each in swept.comparisons]
    assert [roles.count(role) for role in ("primary", "secondary", "control")] == [1, 5, 6]


def test_models_and_hyperparameters_are_swept_too(tmp_path: Path) -> None:
    text = """
        name = "swept"
        track = { name = "dynamics" }
        model = { name = "rnn_small" }
        grid = { learning_rate = [0.01] }
        arms.baseline = { intervention = "stability_penalty", fixed = { weight = 0.0 } }
        arms.idea = { intervention = "stability_penalty" }
        [sweep]
        primary = { sigma = 0.2, hidden = 16 }
        [sweep.fixed]
        sigma = [0.1, 0.2]
        [sweep.model]
        hidden = [16, 32]
    """
    swept = load(tmp_path, text)
    arm = swept.arms["idea.sigma-0.1.hidden-32"]
    assert arm.fixed == {"sigma": 0.1, "weight": 1.0}
    assert swept.model_of("idea.sigma-0.1.hidden-32").options["hidden"] == 32
    assert swept.primary.baseline == "baseline.sigma-0.2.hidden-16"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "keep = [0.75, 0.5]",
            "kep = [0.75, 0.5]",
            ["line 32: sweep.options.kep: unknown key; did you mean keep?"],
        ),
        ("keep = [0.75, 0.5]", "keep = []", ["sweep.options.keep: expected 1 or more entries"]),
        ("keep = [0.75, 0.5]", "keep = 0.5", ["sweep.options.keep: expected a list, got 0.5"]),
        (
            "keep = [0.75, 0.5]",
            "keep = [0.5, 0.5]",
            ["sweep.options.keep: expected different values, got 0.5 twice"],
        ),
        (
            "keep = [0.75, 0.5]",
            "keep = [0.5, 1.5]",
            ["line 32: sweep.options.keep[1]: expected a number of at most 1, got 1.5"],
        ),
        (
            "keep = 0.5, alpha = 0.1",
            "keep = 0.6, alpha = 0.1",
            [
                "line 29: sweep.primary.keep: expected one of the values swept, 0.75 or 0.5, "
                "got 0.6",
            ],
        ),
        (
            "keep = 0.5, alpha = 0.1",
            "keep = 0.5, alfa = 0.1",
            [
                "sweep.primary.alfa: not swept; did you mean alpha?",
                "sweep.primary.alpha: missing: expected which of the values",
            ],
        ),
        (
            '{ score = "magnitude" }',
            '{ score = "magnitude", keep = 0.5 }',
            ["line 18: arms.baseline.options.keep: also in sweep.options"],
        ),
        ("[sweep]\n", '[sweep]\narms = ["ide"]\n', ["sweep.arms[0]: no arm named 'ide'"]),
        ("[sweep]\n", '[sweep]\narm = ["idea"]\n', ["sweep.arm: unknown key; did you mean arms?"]),
        (
            'idea = "idea"\n',
            'idea = "ida"\n',
            ["comparisons[0].idea: no arm named 'ida'; did you mean idea? (baseline, idea)"],
        ),
        (
            '[arms.idea]\nintervention = "axis_pruning"',
            '[arms.idea]\nintervention = "axis_pruning"\noptions = { scor = "kink" }',
            ["line 22: arms.idea.options.scor: unknown key; did you mean score?"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once_with_its_place_in_the_file(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, changed(old, new))
    text = str(caught.value)
    for each in expected:
        assert text.count(each) == 1, text


def test_nothing_swept_is_refused(tmp_path: Path) -> None:
    text = SWEEP[: SWEEP.index("[sweep]")] + "[sweep]\n"
    with pytest.raises(ConfigError, match=r"sweep: missing: expected values to sweep"):
        load(tmp_path, text)


@pytest.mark.parametrize("study", ["sensitivity_pruning_sweep", "axis_pruning_sweep"])
def test_the_arms_of_a_shipped_sweep_train_by_the_same_programs(study: str) -> None:
    plan = make_plan(config.load(study))
    recipes = [arm.recipe for arm in plan.arms.values()]
    assert len({recipe.training_key for recipe in recipes}) == 1
    assert len({recipe.full_key for recipe in recipes}) == len(recipes)


def test_nine_comparisons_at_eight_seeds_are_warned_of() -> None:
    """2 / 2^8 times 9 is above 0.05, 2 / 2^9 times 9 is not."""
    assert not make_plan(config.load("sensitivity_pruning_sweep")).warnings
    (told,) = make_plan(config.load("sensitivity_pruning_sweep", seeds=8)).warnings
    assert "with 9 corrected comparisons" in told
    assert "at least 9 seeds" in told
    assert not make_plan(config.load("sensitivity_pruning_sweep", seeds=9)).warnings


def test_a_study_whose_sequential_test_cannot_decide_is_told_so() -> None:
    """With six comparisons a fixed number of 8 seeds can reach significance, a sequence cannot."""
    few = {"seeds": 4, "max_seeds": 8}
    (told,) = make_plan(config.load("stability_robustness", **few)).warnings
    assert told.startswith("8 seeds cannot reach significance at 0.05 with 6 corrected comparisons")
    assert "they allow is 0.0113" in told
    assert told.endswith("use at least 9 seeds (--max-seeds 9).")
    assert not make_plan(config.load("stability_robustness", seeds=8)).warnings
    assert not make_plan(config.load("stability_robustness", **few | {"max_seeds": 9})).warnings
