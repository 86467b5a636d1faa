"""Blocks are bounded: by a device's free memory, or as the user says; studies need no more."""

from __future__ import annotations

import resource
import sys
from typing import Any

import jax
import numpy as np
import pytest
from factories import cpu_layout, recurrent_recipe, runs_of, scores, small_recipe

from jaxbench.training import layout
from jaxbench.training.cost import Group
from jaxbench.training.engine import Engine
from jaxbench.training.layout import automatic
from jaxbench.training.memory import run_bytes, tree_bytes
from jaxbench.training.program import Program, RunInput
from jaxbench.training.runs import Run


class Accelerator:
    """Stands for a device with so much memory, some of it taken."""

    platform = "gpu"

    def __init__(self, limit: int, used: int) -> None:
        self.limit, self.used = limit, used

    def memory_stats(self) -> dict[str, int]:
        """As jax's devices tell it."""
        return {"bytes_limit": self.limit, "bytes_in_use": self.used}


def chosen(count: int, each: int, *, devices: int = 1, free: int = 1000) -> layout.Layout:
    fake: Any = [Accelerator(free + 500, 500)] * devices
    return automatic(fake, count, lambda: each)


@pytest.mark.parametrize("count", [1, 7, 100, 500 * 16])
@pytest.mark.parametrize("devices", [1, 3])
def test_a_block_fits_into_free_memory_however_many_runs_there_are(
    count: int, devices: int
) -> None:
    """At most 60 % of what is free, at least one run, never more slots than runs."""
    for each in (1, 9, 100, 599, 5000):
        found = chosen(count, each, devices=devices)
        assert found.slots == 1 or found.slots * each <= 600
        assert found.slots <= -(-count // devices)
        blocks = found.blocks(count)
        assert sum(map(len, blocks)) == count
        assert max(map(len, blocks)) <= found.capacity
        assert len(blocks) == -(-count // found.capacity)


def test_on_cpu_a_block_has_one_shape_whatever_the_number_of_runs() -> None:
    found = {automatic(jax.devices(), count, lambda: 1) for count in (1, 8, 500 * 16)}
    assert len(found) == 1
    assert found.pop().slots == layout.CPU_SLOTS


@pytest.mark.parametrize("width", [1, 3])
def test_a_forced_width_is_kept(width: int) -> None:
    """More than one run at once on CPU goes to one device; the scores agree."""
    engine = Engine(width=width)
    runs = runs_of(small_recipe(), 7)
    found = scores(engine.train(runs))
    (group,) = engine.groups.values()
    assert isinstance(group, Group)
    assert (group.layout.slots, group.layout.vectorized) == (width, width > 1)
    assert np.allclose(found, scores(Engine(layout=cpu_layout(1)).train(runs)), rtol=1e-5)


def test_the_estimate_of_a_run_covers_what_training_keeps() -> None:
    """Its data, its parameters and Adam's two moments twice, and a hidden state a step."""
    recipe = recurrent_recipe()
    estimate = run_bytes(Program(recipe), ())
    hyper = {"learning_rate": np.float32(0.1)}
    start = jax.eval_shape(Program(recipe).start, (), RunInput(np.int32(0), np.int32(0), hyper))
    fixed, carry = start
    states = 8 * 10 * 6 * 4  # batch, steps, units, bytes
    assert estimate >= tree_bytes(fixed.data) + 2 * 3 * tree_bytes(carry.params) + states
    longer = run_bytes(Program(recurrent_recipe(sequence_length=20)), ())
    assert longer > 1.5 * (estimate - tree_bytes(fixed.data))


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def test_five_hundred_configurations_on_sixteen_seeds_take_the_memory_of_a_few() -> None:
    """8,000 trainings: 4 kB a run at most for its scores and curves, and no more."""
    recipe = small_recipe(epochs=1)
    rates = np.geomspace(1e-4, 1e-1, 500)
    runs = [
        Run("arm", place, {"learning_rate": float(rate)}, seed, recipe)
        for place, rate in enumerate(rates)
        for seed in range(16)
    ]
    engine = Engine(layout=cpu_layout(2, slots=16))
    engine.train(runs[:500])
    before = peak()
    found = engine.train(runs)
    assert peak() - before < 4096 * len(runs)
    assert len(found) == 8000
    assert all(each.params is None for each in found)
