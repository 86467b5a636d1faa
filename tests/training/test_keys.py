"""Keys of stages: one stream each, whatever else is derived with them."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.training.keys import stage_key, stage_keys


def test_keys_derived_together_are_those_derived_alone() -> None:
    """Each with its own seed, traced or not, so that batching them moves no run's data."""
    seeds = {"data": 3, "init": 3, "batch": 7, "method": 0}

    def together(*each):
        return stage_keys(dict(zip(seeds, each, strict=True)))

    arrays = [jnp.int32(seed) for seed in seeds.values()]
    for keys in (together(*arrays), jax.jit(together)(*arrays)):
        assert keys.keys() == seeds.keys()
        for stage, key in keys.items():
            alone = stage_key(seeds[stage], stage)
            np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(alone))
