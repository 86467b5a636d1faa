"""What training cost: for the report."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Sequence
from typing import Any

from jaxbench.training.engine import Engine
from jaxbench.training.program import Program
from jaxbench.training.runs import Recipe


def steps_of(recipe: Recipe) -> int:
    """Count the optimizer steps of one run."""
    return recipe.schedule.epochs * Program(recipe).steps_per_epoch


def model_flops(recipe: Recipe) -> float:
    """Count the floating-point operations of one run's training, analytically.

    A backward pass is taken for two forward passes: 3 x forward x batch x steps.  What the
    intervention computes beside the model is not in it.
    """
    program = Program(recipe)
    forward = recipe.model.flops(program.train_shape[1:])
    return 3.0 * forward * recipe.schedule.batch_size * steps_of(recipe)


def arm_cost(recipe: Recipe, runs: int, engine: Engine) -> dict[str, Any]:
    """Sum up what an arm's `runs` cost; seconds are its share of its program group."""
    group = engine.groups[recipe.training_key]
    number = list(engine.groups).index(recipe.training_key)
    costs = [cost for cost in engine.costs if cost.group == number]
    return {
        "runs": runs,
        "optimizer_steps": runs * steps_of(recipe),
        "model_flops": runs * model_flops(recipe),
        "run_seconds": sum(cost.run_seconds for cost in costs) * runs / max(group.runs, 1),
        "compile_seconds": sum(cost.compile_seconds for cost in costs),
        "program_group": number,
        "temporary_bytes": max((cost.temporary_bytes or 0 for cost in costs), default=0),
    }


def programs(engine: Engine) -> list[dict[str, Any]]:
    """List the program groups: runs, how many were trained, layout, and what each program cost."""
    return [
        {
            "group": number,
            "key": group.key,
            "runs": group.runs,
            "trained": group.trained,
            "devices": len(engine.layouts[key].devices),
            "runs_a_device": engine.layouts[key].slots,
            "at_once": engine.layouts[key].vectorized,
            "programs": [
                dataclasses.asdict(cost) for cost in engine.costs if cost.group == number
            ],
        }
        for number, (key, group) in enumerate(engine.groups.items())
    ]


def peak_bytes(engine: Engine) -> dict[str, int | None]:
    """Give the peak memory of this process on the host, and of the fullest device if it tells."""
    unit = 1 if sys.platform == "darwin" else 1024
    stats: Sequence[dict[str, Any]] = [device.memory_stats() or {} for device in engine.devices]
    known = [stat["peak_bytes_in_use"] for stat in stats if "peak_bytes_in_use" in stat]
    return {
        "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "device": max(known, default=None),
    }
