"""How a block of runs is laid out over devices; the numbers do not depend on it.

On CPU each device (one a core) trains its runs one after another, because XLA:CPU computes a
batched small product on one core only and slower than run by run.  On accelerators each device
trains all its runs at once, by `vmap`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

RUNS = "runs"
CPU_SLOTS = 16


@dataclasses.dataclass(frozen=True)
class Layout:
    """A block of `slots` runs on each of `devices`.

    Attributes:
        devices: where the runs go.
        slots: runs a device; short blocks are padded with inactive runs.
        vectorized: train a device's runs at once (`vmap`), or one after another (`lax.map`).
    """

    devices: tuple[jax.Device, ...]
    slots: int
    vectorized: bool

    @property
    def capacity(self) -> int:
        """Runs a block."""
        return len(self.devices) * self.slots

    @cached_property
    def mesh(self) -> Mesh:
        """The one-dimensional mesh over runs."""
        return Mesh(np.array(self.devices), (RUNS,))

    def positions(self, count: int) -> np.ndarray:
        """Where `count` runs of a block go, dealt out to the devices in turn: positions [count]."""
        order = np.arange(count)
        devices = len(self.devices)
        return (order % devices) * self.slots + order // devices

    def blocks(self, count: int) -> list[range]:
        """Cut `count` runs into the fewest blocks, as even as they can be."""
        number = max(1, math.ceil(count / self.capacity))
        edges = [round(i * count / number) for i in range(number + 1)]
        return [range(a, b) for a, b in itertools.pairwise(edges)]

    def put(self, tree: Any) -> Any:
        """Send host arrays [capacity, ...] to the devices, sharded over runs."""
        return jax.device_put(tree, NamedSharding(self.mesh, P(RUNS)))

    def replicate(self, tree: Any) -> Any:
        """Send host arrays to every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, P()))

    def describe(self, tree: Any) -> Any:
        """Describe arrays [capacity, ...] that a program will give: shapes, types, sharding."""
        sharding = NamedSharding(self.mesh, P(RUNS))
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    def over_runs(self, function: Callable[..., Any]) -> jax.stages.Wrapped:
        """Lift `function(shared, active, *run)` of one run to a whole block, sharded over devices.

        `active` is a boolean scalar of each run; inactive runs cost nothing on CPU.
        """
        once_traced = jax.jit(function)

        def one(shared: Any, active: jax.Array, *run: Any) -> Any:
            nothing = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                jax.eval_shape(once_traced, shared, *run),
            )
            return jax.lax.cond(active, lambda: once_traced(shared, *run), lambda: nothing)

        def on_one_device(shared: Any, active: jax.Array, *runs: Any) -> Any:
            if self.vectorized:
                return jax.vmap(function, in_axes=(None, *[0] * len(runs)))(shared, *runs)
            return jax.lax.map(lambda run: one(shared, *run), (active, *runs))

        def lifted(shared: Any, active: jax.Array, *runs: Any) -> Any:
            return jax.shard_map(
                on_one_device,
                mesh=self.mesh,
                in_specs=(P(), P(RUNS), *[P(RUNS)] * len(runs)),
                out_specs=P(RUNS),
                check_vma=False,
            )(shared, active, *runs)

        return jax.jit(lifted)


def free_bytes(device: jax.Device) -> int | None:
    """Free memory of an accelerator, or None where the backend does not tell (CPU)."""
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))


def automatic(
    devices: Sequence[jax.Device],
    count: int,
    run_bytes: Callable[[], int],
    width: int | None = None,
) -> Layout:
    """The layout for `count` runs on these devices, each of about `run_bytes()`.

    On CPU the block's shape is always the same, so that a run's numbers do not depend on how many
    others there are.  `width` forces the number of runs that a device trains at once; more than
    one means `vmap` on CPU too, and one device there: XLA:CPU computes batches of decompositions on
    the threads that its devices wait on, and several devices can wait for ever.
    """
    each = math.ceil(count / len(devices))
    on_cpu = devices[0].platform == "cpu"
    if width is not None:
        used = devices[:1] if on_cpu and width > 1 else devices
        return Layout(tuple(used), width, vectorized=width > 1)
    if on_cpu:
        return Layout(tuple(devices), CPU_SLOTS, vectorized=False)
    free = free_bytes(devices[0])
    bound = each if free is None else max(1, int(0.6 * free / run_bytes()))
    return Layout(tuple(devices), min(each, bound), vectorized=True)
