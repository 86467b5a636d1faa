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

PLATFORMS = ("tpu", "cuda")
RUNS = 3
SLOW = (
    "axis_pruning_sweep", "cluster_updates", "cluster_updates_gru",
    "cluster_updates_partitions", "cluster_updates_ringsolve", "cluster_updates_sweep",
    "reversal_checkpointing_graded", "sensitivity_pruning_60", "sensitivity_pruning_gates",
    "sensitivity_pruning_sweep", "stability_long", "stability_quantisation", "stability_robustness",
    "stability_width",
)  # fmt: skip
"""Studies of many arms or other sizes whose intervention another study lowers too."""


def recipes(study: str) -> list[Recipe]:
    """The distinct recipes of a study, in its quick form."""
    plan = make_plan(config.load(study, quick=True))
    return list({arm.recipe.full_key: arm.recipe for arm in plan.arms.values()}.values())


def lower(recipe: Recipe, lowered: dict[tuple[str, str], Any]) -> None:
    """Export a recipe's programs, as a block of runs, from shapes alone; each once, as in training.

    Args:
        recipe: of an arm.
        lowered: what was exported before, by program key and name, to which it adds.
    """
    layout = Layout((jax.devices()[0],), RUNS, vectorized=True)
    hyper = {name: np.zeros(RUNS, np.float32) for name in recipe.intervention.hyper}
    seeds = np.zeros(RUNS, np.int32)
    runs = RunInput(seeds, seeds, {"learning_rate": np.zeros(RUNS, np.float32), **hyper})
    active = np.ones(RUNS, bool)
    consts = recipe.intervention.prepare(jax.random.key(0))

    def export(name: str, shared: Any, *trees: Any) -> Any:
        training = name in ("start", "epoch", "evaluate")
        key = (recipe.training_key if training else recipe.full_key, name)
        if key not in lowered:
            program = layout.over_runs(function_of(recipe, name))
            lowered[key] = jax.export.export(program, platforms=PLATFORMS)(
                shared, active, runs, *trees
            )
        shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in lowered[key].out_avals]
        return jax.tree.unflatten(lowered[key].out_tree, shapes)

    fixed, carry = export("start", consts)
    carry, _ = export("epoch", (consts, np.int32(0)), fixed, carry)
    for number, phase in enumerate(recipe.phases):
        if phase.surgery is not None:
            carry = export(f"surgery{number}", consts, fixed, carry)
    export("evaluate", consts, fixed, carry)
    if recipe.intervention.measure is not None:
        export("measure", consts, fixed, carry)


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(study, marks=[pytest.mark.slow] * (study in SLOW))
        for study in sorted(config.available())
    ],
)
def test_programs_lower_for_tpu_and_cuda(study: str) -> None:
    """Nothing in training or measuring needs a CPU (eigenvalues of nonsymmetric matrices would)."""
    lowered: dict[tuple[str, str], Any] = {}
    for recipe in recipes(study):
        lower(recipe, lowered)
    for key, program in lowered.items():
        assert program.platforms == PLATFORMS, key
        assert program.mlir_module_serialized, key
