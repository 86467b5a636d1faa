"""Random keys: one independent stream for each stage of a run."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Literal

import jax

if TYPE_CHECKING:
    from jaxbench.base import Key

Stage = Literal["data", "init", "batch", "method", "noise"]


def stage_key(seed: int | jax.Array, stage: Stage) -> Key:
    """The key of one stage of one seed, `fold_in(key(seed), crc32(stage))`.

    An idea may consume only `method` and `noise`, so that arms share data, initial weights and
    batch order.
    """
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(stage.encode()))
