"""What gradients cost by how states are kept: XLA's figures for the scans that an idea names."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.interventions import reversal_checkpointing as rc
from jaxbench.models import mlp_tiny, rnn_small
from jaxbench.training.gradient_cost import gradient_costs

MODEL = rnn_small.build(outputs=2, hidden=4)


def costs(length, **options):
    scans = rc.build(first_interval=2, longest_interval=16, **options).scans(MODEL)
    return {
        each.method: each for each in gradient_costs(MODEL, scans, length, 3, batch=8, seconds=0.01)
    }


def test_memory_of_the_dense_scan_grows_with_its_length_and_of_checkpoints_a_fraction() -> None:
    """States of 4 units for 8 sequences are 128 bytes; what is stored beside them is gates."""
    short, long = costs(64), costs(512)
    assert list(long) == [
        "dense",
        "segments of sqrt(T)",
        "reverse, interval 2",
        "reverse, interval 16",
    ]
    grown = {name: long[name].temporary_bytes - short[name].temporary_bytes for name in long}
    assert grown["dense"] >= 448 * 128  # all states at the least
    assert grown["reverse, interval 16"] < grown["reverse, interval 2"] < grown["dense"]
    assert grown["segments of sqrt(T)"] < grown["dense"] / 2
    for each in long.values():
        assert each.memory_ratio == each.temporary_bytes / long["dense"].temporary_bytes
        assert each.time_ratio == each.seconds / long["dense"].seconds
        assert each.repeats >= 3


def test_every_way_has_the_gradient_that_it_stands_for() -> None:
    """`segments` and `recompute` are exact, so that what is timed is the same work."""
    params = MODEL.init(jax.random.key(0), jnp.zeros((1, 1, 3)))
    inputs = jax.random.normal(jax.random.key(1), (32, 8, 3))

    def emit(params, hidden, now):
        return jnp.mean(hidden**2)

    def gradient(make_scan):
        start = jnp.zeros((8, 4))
        return jax.grad(lambda params: make_scan(emit)(params, start, inputs)[1].mean())(params)

    scans = rc.build(mode="recompute", first_interval=2, longest_interval=16).scans(MODEL)
    dense, *others = (jax.tree.leaves(gradient(each)) for each in scans.values())
    for other in others:
        for found, expected in zip(other, dense, strict=True):
            assert jnp.allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_a_model_without_a_recurrence_is_refused() -> None:
    model = dataclasses.replace(mlp_tiny.build(outputs=1), name="flat")
    with pytest.raises(JaxbenchError, match="'flat' has no recurrence"):
        gradient_costs(model, {}, 8, 3)
