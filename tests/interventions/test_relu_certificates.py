"""Bounds contain samples, exact ones lie inside interval bounds, and rounding breaks neither."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import SEEDS, built, network, points

from jaxbench.base import JaxbenchError
from jaxbench.interventions.relu_certificates import (
    CROSSING,
    MILP_MARGIN,
    OFF,
    ON,
    Interval,
    everywhere,
    gamma,
    hull_bounds,
    ibp,
    milp_bounds,
    sample_bounds,
    signs,
)
from jaxbench.interventions.relu_network import Affine, preacts

WIDTHS = st.lists(st.integers(1, 5), min_size=3, max_size=4)
examples = settings(deadline=None, max_examples=30)


def box(layers, size=1.0):
    ends = np.full(layers[0].kernel.shape[0], size)
    return -ends, ends


# Interval bounds


@examples
@given(SEEDS, WIDTHS)
def test_the_box_contains_samples_and_is_exact_in_the_first_layer(seed, widths):
    rng = np.random.default_rng(seed)
    layers = network(rng, widths)
    low, high = box(layers)
    bounds = ibp(layers, low, high)
    for (least, most), inside in zip(
        bounds[:-1], sample_bounds(layers, points(rng, layers)), strict=True
    ):
        assert (least <= inside.low).all()
        assert (most >= inside.high).all()
    kernel, bias = layers[0]
    corners = np.sign(kernel)  # one corner a unit
    reached = np.einsum("iu,iu->u", corners, kernel) + bias
    np.testing.assert_allclose(bounds[0].high, reached, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(bounds[0].low, 2 * bias - reached, rtol=1e-12, atol=1e-12)


@examples
@given(SEEDS, st.sampled_from([np.float16, np.float32]), WIDTHS)
def test_bounds_hold_for_exact_and_for_computed_values_in_any_order_of_sums(seed, dtype, widths):
    rng = np.random.default_rng(seed)
    layers = [Affine(*(leaf.astype(dtype) for leaf in layer)) for layer in network(rng, widths)]
    center = rng.uniform(-1, 1, size=widths[0]).astype(dtype)
    low, high = center, center + dtype(rng.choice([0, 1e-3, 0.5]))
    inputs = np.clip((low + (high - low) * rng.uniform(size=(20, widths[0]))), low, high)
    inputs = np.concatenate([inputs.astype(dtype), low[None], high[None]])
    exact = [Affine(*(leaf.astype(np.float64) for leaf in layer)) for layer in layers]
    order = rng.permutation(widths[0])
    shuffled = [Affine(layers[0].kernel[order], layers[0].bias), *layers[1:]]
    for values in (
        preacts(layers, inputs),
        preacts(shuffled, inputs[:, order]),
        preacts(exact, inputs.astype(np.float64)),
    ):
        for (least, most), a in zip(ibp(layers, low, high)[:-1], values, strict=True):
            assert least.dtype == dtype
            assert (a >= least).all()
            assert (a <= most).all()


def test_a_sign_within_the_rounding_error_is_not_certified():
    """`x_1 - x_2 + 1e-9` at one point: float32 cannot tell its sign apart from 0, float64 can."""
    for dtype, expected in ((np.float32, CROSSING), (np.float64, ON)):
        layer = Affine(np.array([[1], [-1]], dtype), np.array([1e-9], dtype))
        head = Affine(np.ones((1, 1), dtype), np.zeros(1, dtype))
        point = np.full(2, 0.7, dtype)
        assert signs(ibp([layer, head], point, point)[0]).tolist() == [expected]
        assert signs(hull_bounds([layer, head], point[None])).tolist() == [expected]


def test_gamma_is_highams():
    assert gamma(10, np.float64) == pytest.approx(10 * 2.0**-53, rel=1e-14)
    assert gamma(1024, np.float16) == pytest.approx(0.5 / (1 - 0.5))
    with pytest.raises(JaxbenchError, match="wider type"):
        gamma(2048, np.float16)


def test_boxes_that_do_not_fit_are_refused():
    layers = network(np.random.default_rng(0), (2, 3, 1))
    with pytest.raises(JaxbenchError, match="2 lows and as many highs"):
        ibp(layers, np.zeros(3), np.ones(3))
    with pytest.raises(JaxbenchError, match="none below its low"):
        ibp(layers, np.ones(2), np.zeros(2))


# Hulls and everything


@examples
@given(SEEDS, WIDTHS)
def test_the_hull_holds_for_convex_combinations_and_is_reached_by_data(seed, widths):
    rng = np.random.default_rng(seed)
    layers = [Affine(*(leaf.astype(np.float32) for leaf in l)) for l in network(rng, widths)]  # noqa: E741
    data = points(rng, layers).astype(np.float32)
    weights = rng.dirichlet(np.full(len(data), 0.1), size=30)
    inside = weights @ data.astype(float)
    least, most = hull_bounds(layers, data)
    a = preacts([Affine(*(leaf.astype(float) for leaf in each)) for each in layers], inside)[0]
    assert (a >= least).all()
    assert (a <= most).all()
    sampled = sample_bounds(layers, data)[0]
    np.testing.assert_allclose(least, sampled.low, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(most, sampled.high, rtol=1e-4, atol=1e-4)


def test_signs_of_weights_decide_for_all_inputs():
    first = Affine(np.array([[0.0, 0, 0, 1e-9]]), np.array([2.0, 0, -1, 50]))
    second = Affine(
        np.array([[1.0, 1, -1, -1], [0, 0, 0, 0], [3, -3, -3, -3], [1, 1, -1, -1]]),
        np.array([0.0, 9, 0, 1]),
    )
    head = Affine(np.ones((4, 1)), np.zeros(1))
    one, two = everywhere([first, second, head])
    assert one.tolist() == [ON, OFF, OFF, CROSSING]
    assert two.tolist() == [ON, CROSSING, OFF, CROSSING]
    values = preacts([first, second, head], np.array([[-1e30], [-1.0], [0.0], [1e30]]))
    for kind, a in zip((one, two), values, strict=True):
        assert (a[:, kind == ON] >= 0).all()
        assert (a[:, kind == OFF] <= 0).all()


def test_what_is_zero_throughout_is_off():
    bounds = Interval(np.array([0.0, 0, -1, -1]), np.array([0.0, 1, 0, 1]))
    assert signs(bounds).tolist() == [OFF, ON, OFF, CROSSING]


# Mixed-integer programming


@settings(deadline=None, max_examples=12)
@given(SEEDS, st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_exact_bounds_lie_between_samples_and_the_box(seed, widths):
    rng = np.random.default_rng(seed)
    layers = network(rng, widths)
    low, high = box(layers)
    bounds, inside = ibp(layers, low, high), sample_bounds(layers, points(rng, layers, 500))
    for layer in (0, 1):
        unit = int(rng.integers(widths[layer + 1]))
        exact = milp_bounds(layers, low, high, layer, unit)
        assert exact.exact_low
        assert exact.exact_high
        assert bounds[layer].low[unit] <= exact.low <= inside[layer].low[unit]
        assert bounds[layer].high[unit] >= exact.high >= inside[layer].high[unit]
        if layer == 0:
            margin = 1e-9 * (1 + abs(bounds[0].high[unit]) + abs(bounds[0].low[unit]))
            assert exact.low == pytest.approx(bounds[0].low[unit], abs=margin)
            assert exact.high == pytest.approx(bounds[0].high[unit], abs=margin)


@settings(deadline=None, max_examples=12)
@given(SEEDS)
def test_exact_bounds_are_the_extremes_among_all_breakpoints(seed):
    """On a line, a second layer's extremes lie at the ends or where a first unit's axis is."""
    rng = np.random.default_rng(seed)
    layers = network(rng, (1, 5, 2, 1))
    kinks = -layers[0].bias / layers[0].kernel[0]
    at = np.array([-1.0, 1.0, *kinks[np.abs(kinks) < 1]])[:, None]
    extremes = sample_bounds(layers, at)[1]
    for unit in range(2):
        found = milp_bounds(layers, *box(layers), 1, unit)
        margin = 3 * MILP_MARGIN * (1 + 5 * np.abs(layers[1].kernel).sum() * 5)
        assert found.low == pytest.approx(extremes.low[unit], abs=margin)
        assert found.high == pytest.approx(extremes.high[unit], abs=margin)


def test_built_units_are_certified_and_a_crossing_one_is_not():
    rng = np.random.default_rng(5)
    layers, kinds = built(rng, (3, 6, 9, 2))
    assert all({ON, OFF, CROSSING} <= set(kind.tolist()) for kind in kinds)
    low, high = box(layers)
    for layer, kind in enumerate(kinds):
        crosses = np.sign(preacts(layers, points(rng, layers, 5000))[layer])
        for unit, expected in enumerate(kind):
            least, most, *_ = milp_bounds(layers, low, high, layer, unit)
            found = signs(Interval(np.array(least), np.array(most)))
            if expected != CROSSING:
                assert found == expected
            elif abs(crosses[:, unit].mean()) < 1:
                assert found == CROSSING


def test_a_run_cut_short_gives_sound_bounds():
    rng = np.random.default_rng(0)
    layers = network(rng, (6, 30, 3, 1))
    low, high = box(layers)
    cut = milp_bounds(layers, low, high, 1, 0, seconds=0.0)
    inside = sample_bounds(layers, points(rng, layers, 2000))[1]
    assert not cut.exact_low
    assert not cut.exact_high
    assert cut.low <= inside.low[0]
    assert cut.high >= inside.high[0]


def test_a_unit_that_is_not_there_is_refused():
    layers = network(np.random.default_rng(0), (2, 3, 1))
    for layer, unit in ((0, 3), (1, 0), (-1, 0)):
        with pytest.raises(JaxbenchError, match=r"the hidden layers have \[3\] units"):
            milp_bounds(layers, np.zeros(2), np.ones(2), layer, unit)
