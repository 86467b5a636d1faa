"""What a smaller network saves: parameters, operations and measured time, beside the dense one's.

Values do not change how long a network takes, so the weights are random.  Both networks are
compiled beforehand, called once to warm up, and then called in turn, so that whatever else the
machine does meets both alike; the ratio of their medians is what to look at.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxbench.base import JaxbenchError, Model

BATCHES = (1, 64, 4096)
WIDE = 1024
REPEATS, FEWEST = 30, 3


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much to measure.

    Attributes:
        operations: a batch whose dense pass has more is left out.
        seconds: of the repeats of one batch; they are fewer than `REPEATS` where they would take
            longer, but never fewer than `FEWEST`.
    """

    operations: float = 3e9
    seconds: float = 0.5


@dataclasses.dataclass(frozen=True)
class Timing:
    """A dense and a smaller network on batches of one size.

    Attributes:
        units, units_left: of each layer, in the dense and in the smaller network.
        batch: samples in a pass.
        parameters, flops: of the dense and of the smaller network; operations a pass, counted
            analytically.
        seconds: the medians over the repeats, or None where nothing was measured.
        ratio: the dense network's median over the smaller one's.
        repeats: of each network.
        left_out: why nothing was measured, or None.
    """

    units: Mapping[str, int]
    units_left: Mapping[str, int]
    batch: int
    parameters: tuple[int, int]
    flops: tuple[float, float]
    seconds: tuple[float, float] | None
    ratio: float | None
    repeats: int
    left_out: str | None


def time_units_left(
    model: Model,
    left: Mapping[str, int],
    sample_shape: tuple[int, ...],
    *,
    batches: Sequence[int] = BATCHES,
    wide: int = WIDE,
    limits: Limits | None = None,
) -> list[Timing]:
    """Time a model against the one with these units left, and a wide one with the same share left.

    Args:
        model: the dense network.
        left: units that stay, by layer.
        sample_shape: the shape of one sample's inputs.
        batches: how many samples in a pass.
        wide: units of each of these layers in the wide network.
        limits: how much to measure.

    Raises:
        JaxbenchError: a model that cannot be resized, or has no such layer.
    """
    sizes = {layer.name: layer.size for layer in model.unit_layers}
    if model.resized is None or not left.keys() <= sizes.keys():
        raise JaxbenchError(
            f"cannot resize {', '.join(map(repr, left))} of {model.name!r}, which has the layers "
            f"{', '.join(map(repr, sizes)) or 'none'}; give Model(resized=...) for its layers"
        )
    share = {name: kept / sizes[name] for name, kept in left.items()}
    dense = {name: sizes[name] for name in left}
    wider = dict.fromkeys(left, wide)
    pairs = [(dense, dict(left))]
    if wider != dense:
        pairs.append((wider, {name: max(1, round(wide * share[name])) for name in left}))
    return [
        time_pair(model.resized, units, units_left, sample_shape, batch, limits or Limits())
        for units, units_left in pairs
        for batch in batches
    ]


def time_pair(
    resized: Callable[[Mapping[str, int]], Model],
    units: Mapping[str, int],
    units_left: Mapping[str, int],
    sample_shape: tuple[int, ...],
    batch: int,
    limits: Limits,
) -> Timing:
    """Time the network with `units` against that with `units_left` on one batch."""
    networks = resized(units), resized(units_left)
    params = [random_params(network, sample_shape) for network in networks]
    flops = [batch * network.flops(sample_shape) for network in networks]
    medians: tuple[float, float] | None = None
    repeats, left_out = 0, None
    if flops[0] > limits.operations:
        left_out = f"a pass takes {flops[0]:.2g} operations, more than {limits.operations:.2g}"
    else:
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(batch, *sample_shape)).astype(np.float32)
        passes = [compiled_pass(*each, inputs) for each in zip(networks, params, strict=True)]
        (dense, smaller), repeats = time_in_turn(passes, limits.seconds)
        medians = dense, smaller
    return Timing(
        units=units,
        units_left=units_left,
        batch=batch,
        parameters=(count(params[0]), count(params[1])),
        flops=(flops[0], flops[1]),
        seconds=medians,
        ratio=medians[0] / medians[1] if medians else None,
        repeats=repeats,
        left_out=left_out,
    )


def time_in_turn(passes: Sequence[Callable[[], Any]], seconds: float) -> tuple[list[float], int]:
    """Call functions in turn after a warm-up: the medians of their times, and how often."""
    warm = [measure_pass(call) for call in (*passes, *passes)][len(passes) :]
    allowed = int(seconds / sum(warm))
    repeats = min(REPEATS, max(FEWEST, allowed))
    taken = [[measure_pass(call) for call in passes] for _ in range(repeats)]
    return np.median(taken, axis=0).tolist(), repeats


def measure_pass(call: Callable[[], Any]) -> float:
    """How long a call takes until its result is there (s)."""
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def compiled_pass(model: Model, params: Any, inputs: np.ndarray) -> Callable[[], Any]:
    """A compiled forward pass on one device, its arguments there."""
    device = jax.local_devices()[0]
    placed = jax.device_put((params, inputs), device)
    program = jax.jit(lambda params, inputs: model.apply(params, inputs)[0])
    compiled = program.lower(*placed).compile()
    return lambda: compiled(*placed)


def random_params(model: Model, sample_shape: tuple[int, ...]) -> Any:
    """Normal weights of the size that keeps sums of order 1."""
    example = np.zeros((1, *sample_shape), np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), example)
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: (rng.normal(size=leaf.shape) / leaf.shape[0] ** 0.5).astype(leaf.dtype), shapes
    )


def count(params: Any) -> int:
    """How many parameters there are."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
