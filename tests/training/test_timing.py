"""What a smaller network saves: counts that can be checked by hand, and times taken fairly."""

import time

import jax
import numpy as np
import pytest
from factories import affine_model

from jaxbench.base import JaxbenchError
from jaxbench.interventions.hidden_units import compact
from jaxbench.models import mlp_tiny, node_small, rnn_small
from jaxbench.training import timing

MODEL = mlp_tiny.build(outputs=1, hidden=(8, 6))


def test_each_batch_and_width_is_timed_and_counted() -> None:
    left, limits = {"Dense_0": 2, "Dense_1": 3}, timing.Limits(seconds=1e6)
    rows = timing.time_units_left(MODEL, left, (5,), batches=(1, 4), wide=40, limits=limits)
    assert [row.batch for row in rows] == [1, 4, 1, 4]
    assert rows[0].units == {"Dense_0": 8, "Dense_1": 6}
    assert rows[2].units == {"Dense_0": 40, "Dense_1": 40}
    assert rows[2].units_left == {"Dense_0": 10, "Dense_1": 20}
    dense, small = (5 * a + a + a * b + b + b + 1 for a, b in ((8, 6), (2, 3)))
    assert rows[0].parameters == (dense, small)
    assert rows[1].flops == (4 * 2 * (5 * 8 + 8 * 6 + 6), 4 * 2 * (5 * 2 + 2 * 3 + 3))
    for row in rows:
        assert row.left_out is None
        assert row.repeats == timing.REPEATS
        assert row.ratio == row.seconds[0] / row.seconds[1] > 0


def test_a_wide_network_alone_is_not_timed_twice() -> None:
    model = mlp_tiny.build(outputs=1, hidden=(8,))
    rows = timing.time_units_left(model, {"Dense_0": 2}, (5,), batches=(1,), wide=8)
    assert len(rows) == 1


def test_too_large_a_batch_is_left_out_and_says_why() -> None:
    limits = timing.Limits(operations=1000.0)
    (row,) = timing.time_units_left(
        MODEL, {"Dense_0": 2}, (5,), batches=(100,), wide=8, limits=limits
    )
    assert row.seconds is row.ratio is None
    assert row.repeats == 0
    assert "more than 1e+03" in row.left_out


def test_slow_passes_are_repeated_less_and_in_turn() -> None:
    order = []

    def sleeper(name, seconds):
        def call():
            order.append(name)
            time.sleep(seconds)

        return call

    passes = [sleeper("dense", 0.02), sleeper("small", 0.01)]
    medians, repeats = timing.time_in_turn(passes, 0.15)
    assert timing.FEWEST <= repeats <= 5
    assert order == ["dense", "small"] * (2 + repeats)
    assert medians[0] >= 0.02
    assert medians[1] >= 0.01
    assert timing.time_in_turn(passes, 0.0)[1] == timing.FEWEST


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (rnn_small.build(outputs=2, hidden=6), (4, 3)),
        (node_small.build(outputs=2, hidden=6), (4, 3)),
        (MODEL, (3,)),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_models_resize_to_the_network_that_they_would_have_built(model, shape) -> None:
    """The parameters of the resized model have the shapes that `compact` gives."""
    (layer, *_) = model.unit_layers
    smaller = model.resized({layer.name: 2})
    assert smaller.name == model.name
    sizes = {each.name: each.size for each in smaller.unit_layers}
    assert sizes == {each.name: each.size for each in model.unit_layers} | {layer.name: 2}
    inputs = np.zeros((1, *shape), np.float32)
    found = jax.eval_shape(smaller.init, jax.random.key(0), inputs)
    expected = compact(timing.random_params(model, shape), layer, [1, 4])
    assert jax.tree.map(lambda leaf: leaf.shape, found) == jax.tree.map(np.shape, expected)


def test_what_cannot_be_resized_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="cannot resize 'hidden' of 'affine'"):
        timing.time_units_left(affine_model(), {"hidden": 2}, (3,))
    with pytest.raises(JaxbenchError, match="which has the layers 'Dense_0', 'Dense_1'"):
        timing.time_units_left(MODEL, {"hidden": 2}, (3,))
