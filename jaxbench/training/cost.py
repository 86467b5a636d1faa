"""What training cost: program groups, compiled programs, steps, operations, memory."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Sequence
from typing import Any

import jax

from jaxbench.training.layout import Layout
from jaxbench.training.program import Program
from jaxbench.training.runs import Recipe


@dataclasses.dataclass
class ProgramCost:
    """One compiled program.

    Attributes:
        name: of the program.
        compile_seconds: wall time to trace, lower and compile it; other programs compile and run
            on the same cores meanwhile, so that the sum over programs is more than what was waited.
        wait_seconds: for how long training stood still until it was compiled.
        temporary_bytes: its temporary memory on all devices, if the backend tells.
        run_seconds, calls: how long it ran, and how often.
    """

    name: str
    compile_seconds: float
    wait_seconds: float = 0.0
    temporary_bytes: int | None = None
    run_seconds: float = 0.0
    calls: int = 0


@dataclasses.dataclass
class Group:
    """Runs that share one training program.

    Attributes:
        key: the program key.
        layout: how its blocks lie on the devices.
        runs: how many were asked for.
        trained: how many were trained from the start; the others share the first phase of those.
        programs: what was compiled for it in this process.
    """

    key: str
    layout: Layout
    runs: int = 0
    trained: int = 0
    programs: list[ProgramCost] = dataclasses.field(default_factory=list)

    def summary(self, number: int) -> dict[str, Any]:
        """Give the report's entry."""
        return {
            "group": number,
            "key": self.key,
            "runs": self.runs,
            "trained": self.trained,
            "devices": len(self.layout.devices),
            "runs_a_device": self.layout.slots,
            "at_once": self.layout.vectorized,
            "programs": [dataclasses.asdict(program) for program in self.programs],
        }


def steps_of(recipe: Recipe) -> int:
    """Count the optimizer steps of one run."""
    return recipe.schedule.epochs * Program(recipe).steps_per_epoch


def model_flops(recipe: Recipe) -> float:
    """Count the floating-point operations of one run's training, analytically.

    A backward pass is taken for two forward passes: 3 x forward x batch x steps.  What the
    intervention computes beside the model is not in it.
    """
    forward = recipe.model.flops(recipe.train_shape[1:])
    return 3.0 * forward * recipe.schedule.batch_size * steps_of(recipe)


def arm_cost(recipe: Recipe, runs: int, group: Group, number: int) -> dict[str, Any]:
    """Sum up what an arm's `runs` cost; seconds of running are its share of its program group."""
    return {
        "runs": runs,
        "optimizer_steps": runs * steps_of(recipe),
        "model_flops": runs * model_flops(recipe),
        "run_seconds": sum(each.run_seconds for each in group.programs) * runs / group.runs,
        "compile_seconds": sum(each.compile_seconds for each in group.programs),
        "program_group": number,
        "temporary_bytes": max((each.temporary_bytes or 0 for each in group.programs), default=0),
    }


def peak_bytes(devices: Sequence[jax.Device]) -> dict[str, int | None]:
    """Give the peak memory of this process on the host, and of the fullest device if it tells."""
    unit = 1 if sys.platform == "darwin" else 1024
    stats = [device.memory_stats() or {} for device in devices]
    known = [stat["peak_bytes_in_use"] for stat in stats if "peak_bytes_in_use" in stat]
    return {
        "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "device": max(known, default=None),
    }
