"""Every study's programs lower for TPU and CUDA; studies and arms join by themselves."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxbench import config
from jaxbench.plan import make_plan
from jaxbench.training.engine import function_of
from jaxbench.training.layout import Layout
from jaxbench.training.program import RunInput
from jaxbench.training.runs import Recipe

RUNS = 3
SLOW = ("cluster_updates", "cluster_updates_gru", "cluster_updates_sweep")
"""Studies of many arms whose intervention another study lowers too."""


def recipes(study: str) -> list[Recipe]:
    """The distinct recipes of a study, in its quick form."""
    plan = make_plan(config.load(study, quick=True))
    return list({arm.recipe.full_key: arm.recipe for arm in plan.arms.values()}.values())


def lower(recipe: Recipe, platforms: tuple[str, ...]) -> dict[str, Any]:
    """Export each of a recipe's programs, as a block of runs, from shapes alone."""
    layout = Layout((jax.devices()[0],), RUNS, vectorized=True)
    hyper = {name: np.zeros(RUNS, np.float32) for name in recipe.intervention.hyper}
    seeds = np.zeros(RUNS, np.int32)
    runs = RunInput(seeds, seeds, {"learning_rate": np.zeros(RUNS, np.float32), **hyper})
    active = np.ones(RUNS, bool)
    consts = recipe.intervention.prepare(jax.random.key(0))
    exported: dict[str, Any] = {}

    def export(name: str, shared: Any, *trees: Any) -> Any:
        program = layout.over_runs(function_of(recipe, name))
        exported[name] = jax.export.export(program, platforms=platforms)(
            shared, active, runs, *trees
        )
        return jax.eval_shape(program, shared, active, runs, *trees)

    fixed, carry = export("start", consts)
    carry, _ = export("epoch", (consts, np.int32(0)), fixed, carry)
    for number, phase in enumerate(recipe.phases):
        if phase.surgery is not None:
            carry = export(f"surgery{number}", consts, fixed, carry)
    export("evaluate", consts, fixed, carry)
    if recipe.intervention.measure is not None:
        export("measure", consts, fixed, carry)
    return exported


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(study, marks=[pytest.mark.slow] * (study in SLOW))
        for study in sorted(config.available())
    ],
)
def test_programs_lower_for_tpu_and_cuda(study: str) -> None:
    """Nothing in training or measuring needs a CPU (eigenvalues of nonsymmetric matrices would)."""
    for recipe in recipes(study):
        for name, program in lower(recipe, ("tpu", "cuda")).items():
            assert program.platforms == ("tpu", "cuda"), name
            assert program.mlir_module_serialized, name
