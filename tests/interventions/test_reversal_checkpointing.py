"""The intervention in training: dense parity, the controller's path, errors, and its config."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pydantic
import pytest
from factories import cpu_layout, recurrent_recipe, train, vmap_layout

from jaxbench import config, registry
from jaxbench.base import JaxbenchError
from jaxbench.interventions import reversal_checkpointing as rc
from jaxbench.models import leapfrog_small, rev_gru_small
from jaxbench.training.runs import Run

ROOT = Path(__file__).resolve().parents[2]


def runs_of(recipe, count=2, **hyper):
    names = recipe.intervention.hyper
    given = {
        "learning_rate": 0.01,
        **{name: hyper.get(name, names[name].default) for name in names},
    }
    return [Run("arm", 0, given, seed, recipe) for seed in range(count)]


def test_every_state_stored_trains_as_the_plain_model_does() -> None:
    """In float64, where sums in another order cannot hide a wrong gradient.

    A threshold of 0 stores every state from the start, and so does an interval held at 1.
    """
    with jax.enable_x64(True):
        dense = train(runs_of(recurrent_recipe(rc.build(mode="dense"))), cpu_layout(1))
        adaptive = recurrent_recipe(rc.build(first_interval=2, longest_interval=5))
        stored = train(runs_of(adaptive, threshold=0.0), cpu_layout(1))
        recompute = rc.build(mode="recompute", first_interval=2, longest_interval=5)
        again = train(runs_of(recurrent_recipe(recompute), threshold=0.08), cpu_layout(1))
        reversed_ = train(runs_of(adaptive, threshold=1e3), cpu_layout(1))
    for one, other, third, wrong in zip(dense, stored, again, reversed_, strict=True):
        assert other.test == pytest.approx(one.test, rel=1e-10)
        assert third.test == pytest.approx(one.test, rel=1e-10)
        assert wrong.test != pytest.approx(one.test, rel=1e-6)
        np.testing.assert_array_equal(other.curves["interval"], 1)
        np.testing.assert_allclose(other.curves["gradient_cosine"], 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", [cpu_layout(2), vmap_layout(2)], ids=["map", "vmap"])
def test_each_run_has_its_own_interval_by_its_own_threshold(layout) -> None:
    """The interval of the next epoch is the controller's, from the defect that was logged."""
    recipe = recurrent_recipe(rc.build(first_interval=4, longest_interval=8), epochs=4)
    thresholds = (1e-9, 1e3)
    runs = [runs_of(recipe, 1, threshold=value)[0] for value in thresholds]
    trained = train(runs, layout)
    for each, expected in zip(trained, ([4, 2, 1, 1], [4, 8, 8, 8]), strict=True):
        np.testing.assert_array_equal(each.curves["interval"], expected)
        np.testing.assert_array_equal(
            each.curves["checkpoints"], np.ceil(10 / np.array(expected)) + 1
        )
        exact = np.array(expected) == 1
        assert (each.curves["segment_defect"][exact] == 0).all()
        assert (each.curves["gradient_disagreement"][exact] < 1e-10).all()
        assert (each.curves["segment_defect"][~exact] > 0).all()
        assert (each.curves["gradient_disagreement"][~exact] > 1e-8).all()
        assert (each.curves["defect"] > 0).all()


@pytest.mark.parametrize("module", [rev_gru_small, leapfrog_small])
def test_a_reversible_cell_trains_with_its_own_inverse(module) -> None:
    recipe = recurrent_recipe(
        rc.build(inverse="exact", controlled="segment", first_interval=2, longest_interval=8)
    )
    recipe = dataclasses.replace(recipe, model=module.build(outputs=2, hidden=6))
    (each,) = train(runs_of(recipe, 1), cpu_layout(1))
    assert (each.curves["interval"] == [2, 4]).all()
    assert (each.curves["segment_defect"] < 1e-5).all()
    assert (each.curves["gradient_disagreement"] < 1e-9).all()


# Errors -------------------------------------------------------------------------------------------


def test_an_interval_longer_than_the_sequence_is_refused() -> None:
    recipe = recurrent_recipe(rc.build(longest_interval=32))
    with pytest.raises(JaxbenchError, match=r"interval of 32 steps .* sequence of 10 steps"):
        train(runs_of(recipe, 1), cpu_layout(1))


def test_reversing_a_cell_without_the_inverse_is_refused() -> None:
    recipe = recurrent_recipe(rc.build(inverse="exact", longest_interval=8))
    with pytest.raises(JaxbenchError, match="rnn_small has no exact inverse"):
        train(runs_of(recipe, 1), cpu_layout(1))


def test_a_first_interval_above_the_longest_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="first_interval is 9, above longest_interval = 8"):
        rc.build(first_interval=9, longest_interval=8)


@pytest.mark.parametrize(
    ("kind", "name", "option"),
    [
        ("interventions", "reversal_checkpointing", {"z_min": 0.0}),
        ("interventions", "reversal_checkpointing", {"first_interval": 0}),
        ("models", "rev_gru_small", {"z_min": 1.5}),
        ("models", "rev_gru_small", {"hidden": 5}),
        ("models", "leapfrog_small", {"dt": 0.0}),
        ("models", "leapfrog_small", {"dt": 2.0}),
    ],
)
def test_options_out_of_range_are_refused(kind, name, option) -> None:
    given = {"outputs": 2} if kind == "models" else {}
    with pytest.raises(pydantic.ValidationError, match=next(iter(option))):
        registry.load(kind, name).make(option, **given)


def test_a_threshold_below_0_is_refused_in_a_config() -> None:
    change = [("arms.idea.fixed.threshold", "-0.1")]
    with pytest.raises(config.ConfigError, match=r"arms\.idea\.fixed\.threshold"):
        config.load("reversal_checkpointing", change)


# The graded study ---------------------------------------------------------------------------------


def test_the_threshold_of_the_graded_study_is_that_of_its_file() -> None:
    """It is derived from tuning seeds alone, by the rule that the file states."""
    study = config.load("reversal_checkpointing_graded")
    found = json.loads((ROOT / "results/thresholds/reversal_checkpointing_graded.json").read_text())
    ideas = [each.idea for each in study.comparisons]
    assert list(found["segment_defects"]) == ideas
    logs = [np.mean(np.log(values)) for values in found["segment_defects"].values()]
    assert found["threshold"] == float(f"{np.exp(np.median(logs)):.1e}")
    assert {study.arms[idea].fixed["threshold"] for idea in ideas} == {found["threshold"]}
    assert not set(found["tuning_seeds"]) & set(study.protocol.evaluation_seed_list)
    assert set(found["tuning_seeds"]) == set(study.protocol.tuning_seed_list)
