"""Executables: programs of a block, traced at once and compiled in the background."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from jaxbench.training import compilation_cache
from jaxbench.training.cost import ProgramCost
from jaxbench.training.layout import Layout

CPU_OPTIONS = {"xla_backend_optimization_level": 1}
"""The compiler's on CPU: level 1 runs as fast as level 3 and compiles a quarter faster."""

CPU_OPTIONS_BY_PROGRAM = {"start": {"xla_backend_optimization_level": 0}}
"""Where a program's differ: `start` runs once a block, and compiles twice as fast like this."""

COMPILER = ThreadPoolExecutor(2, thread_name_prefix="jaxbench-compile")
"""Compiles in the order asked for, two programs at once: XLA compiles on little more than one core.

The first programs run while later ones compile.
"""


compilation_cache.write_whole_entries()


class Executable:
    """One program for blocks of one layout, compiled in the background.

    It is traced by the caller, whose settings of jax (precision, promotion) a thread would not
    inherit; while it traces the next program, this one compiles.

    Args:
        layout: of the blocks.
        function: `(shared, *run)`, of one run.
        name: of the program.
        arguments: of the lifted function, as arrays or as descriptions of them.
    """

    def __init__(
        self, layout: Layout, function: Callable[..., Any], name: str, arguments: tuple[Any, ...]
    ) -> None:
        self._layout = layout
        began = time.perf_counter()
        self._lowered = layout.over_runs(function).lower(*arguments)
        self.cost = ProgramCost(name, time.perf_counter() - began)
        self._compiled = COMPILER.submit(self._compile)

    def again(self) -> Executable:
        """The same program for another study, which does not pay for compiling it."""
        other = copy.copy(self)
        other.cost = ProgramCost(self.cost.name, 0.0, temporary_bytes=self.cost.temporary_bytes)
        return other

    def _compile(self) -> jax.stages.Compiled:
        began = time.perf_counter()
        options: dict[str, Any] = {}
        if self._layout.devices[0].platform == "cpu":
            options = CPU_OPTIONS | CPU_OPTIONS_BY_PROGRAM.get(self.cost.name, {})
            options = left_open(options)
        compiled = self._lowered.compile(options)
        self.cost.compile_seconds += time.perf_counter() - began
        analysis = compiled.memory_analysis()
        self.cost.temporary_bytes = getattr(analysis, "temp_size_in_bytes", None)
        return compiled

    @property
    def outputs(self) -> Any:
        """A description of what it returns, known before it is compiled."""
        return self._layout.describe(self._lowered.out_info)

    @property
    def ready(self) -> bool:
        """Whether it is compiled."""
        return self._compiled.done()

    def __call__(self, *arguments: Any) -> Any:
        """Run it and wait for its results."""
        asked = time.perf_counter()
        compiled = self._compiled.result()
        began = time.perf_counter()
        self.cost.wait_seconds += began - asked
        results = jax.block_until_ready(compiled(*arguments))
        self.cost.run_seconds += time.perf_counter() - began
        self.cost.calls += 1
        return results


Compiled = dict[tuple[str, str, Layout], Executable]
"""Programs by what makes them equal: their recipes' key, their name and their layout."""


def left_open(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give those options of the compiler that the user did not set in `XLA_FLAGS`."""
    set_by_user = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if f"--{name}=" not in set_by_user}
