"""Random keys: one independent stream for each stage of a run."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxbench.base import Key

Stage = Literal["data", "init", "batch", "method", "noise"]


def stage_key(seed: int | jax.Array, stage: Stage) -> Key:
    """The key of one stage of one seed, `fold_in(key(seed), crc32(stage))`.

    An idea may consume only `method` and `noise`, so that arms share data, initial weights and
    batch order.
    """
    return jax.random.fold_in(jax.random.key(seed), _number(stage))


def stage_keys(seeds: Mapping[Stage, jax.Array]) -> dict[Stage, Key]:
    """The `stage_key` of several stages, each with its seed, by one derivation.

    A derivation is a loop of a dozen small programs, which XLA:CPU compiles slowly.
    """
    numbers = jnp.array([_number(stage) for stage in seeds], jnp.uint32)
    keys = jax.vmap(jax.random.key)(jnp.stack(list(seeds.values())))
    return dict(zip(seeds, jax.vmap(jax.random.fold_in)(keys, numbers), strict=True))


def _number(stage: Stage) -> int:
    return zlib.crc32(stage.encode())
