"""What every registered intervention must keep; new ones join by themselves."""

import jax
import numpy as np
import pytest
from factories import (
    cpu_layout,
    leapfrog_recipe,
    mlp_recipe,
    recurrent_recipe,
    ring_recipe,
    scores,
    small_recipe,
)

from jaxbench import registry
from jaxbench.base import Intervention
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Recipe, Run

NAMES = sorted(registry.available("interventions"))
SMALL = {
    "lottery_ticket": {"rounds": 1},
    "reversal_checkpointing": {"first_interval": 2, "longest_interval": 8},
    "sensitivity_pruning": {"keep": 3, "dense_epochs": 1, "finetune_epochs": 1},
}
"""Options for small networks, where the defaults are for large ones."""


def recipe_of(name: str) -> Recipe:
    """The first of a few small recipes that offers what the intervention requires."""
    component = registry.load("interventions", name)
    intervention: Intervention = component.make(SMALL.get(name, {}))
    makes = small_recipe, recurrent_recipe, mlp_recipe, ring_recipe, leapfrog_recipe
    for make in makes:
        recipe = make(intervention)
        if intervention.requires <= recipe.model.features | recipe.track.features:
            return recipe
    raise AssertionError(f"no small recipe offers {set(intervention.requires)}; add one")


def runs_of(recipe: Recipe, count: int, **changes: float) -> list[Run]:
    hyper = {name: each.default for name, each in recipe.intervention.hyper.items()}
    hyper |= {"learning_rate": 0.01, **changes}
    return [Run("arm", 0, hyper, seed, recipe) for seed in range(count)]


@pytest.fixture(scope="module", params=NAMES)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return recipe_of(request.param)


@pytest.fixture(scope="module")
def engine(recipe: Recipe) -> Engine:
    """An engine that keeps the recipe's compiled programs from test to test."""
    return Engine(layout=cpu_layout(2))


@pytest.fixture(scope="module")
def plain_engine() -> Engine:
    """An engine for trainings without an intervention, which several recipes share."""
    return Engine(layout=cpu_layout(2))


def test_parameters_keep_structure_shape_and_dtype(recipe: Recipe, engine: Engine) -> None:
    runs = runs_of(recipe, 1)
    (trained,) = engine.train(runs, keep=lambda run: True)
    start = engine.starts(recipe, runs[0].hyper, [0])[0]

    def form(tree: object) -> object:
        return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)

    assert form(trained.params) == form(start.params0)


def test_a_run_in_company_equals_the_run_alone(recipe: Recipe, engine: Engine) -> None:
    runs = runs_of(recipe, 5)
    together, alone = engine.train(runs), engine.train(runs[-1:])
    assert (scores(together)[-1] == scores(alone)[0]).all()


def test_a_second_call_compiles_nothing(recipe: Recipe, engine: Engine) -> None:
    engine.train(runs_of(recipe, 2))
    (group,) = engine.groups.values()
    before = len(group.programs)
    engine.train(runs_of(recipe, 5))
    assert len(group.programs) == before


def test_neutral_values_give_the_plain_training(
    recipe: Recipe, engine: Engine, plain_engine: Engine
) -> None:
    """With every hyperparameter that has a neutral value at it, the scores are the baseline's."""
    declared = recipe.intervention.hyper
    neutral = {name: h.neutral for name, h in declared.items() if h.neutral is not None}
    if not neutral and recipe.intervention.name != "none":
        pytest.skip("it has no neutral strength")
    plain = Recipe(
        recipe.track,
        recipe.model,
        registry.load("interventions", "none").make({}),
        recipe.schedule,
    )
    expected = scores(plain_engine.train(runs_of(plain, 3)))
    found = scores(engine.train(runs_of(recipe, 3, **neutral)))
    assert np.allclose(found, expected, rtol=1e-5, atol=0)


def test_measurements_are_finite_and_have_the_same_form_on_every_run(
    recipe: Recipe, engine: Engine
) -> None:
    if recipe.intervention.measure is None:
        pytest.skip("it measures nothing")
    measured = engine.measure(engine.train(runs_of(recipe, 2), keep=lambda run: True))
    for each in measured:
        assert each.measured.keys() == measured[0].measured.keys()
        for name, value in each.measured.items():
            assert np.isfinite(value).all(), name
            assert value.shape == measured[0].measured[name].shape, name
