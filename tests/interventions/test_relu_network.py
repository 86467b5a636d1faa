"""Replaced units, folded and merged networks, in float64 on numpy arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import (
    SEEDS,
    WIDTHS,
    any_replacements,
    built,
    network,
    one_sided,
    points,
)

from jaxbench.base import JaxbenchError, UnitLayer, UnitSlice
from jaxbench.interventions import hidden_units
from jaxbench.interventions.relu_network import (
    Affine,
    Replacement,
    alive,
    compact_apply,
    dense_layers,
    flops,
    fold,
    fold_is_cheaper,
    masked_apply,
    merge_dependent,
    norm_bound,
    nothing_replaced,
    parameter_count,
    preacts,
    relu,
    replacement_bound,
    replacement_error,
)
from jaxbench.models import mlp_tiny

EXACT = {"rtol": 1e-12, "atol": 1e-12}


# The network


def test_layers_are_found_by_what_the_model_says_of_its_units():
    model = mlp_tiny.build(outputs=2, hidden=(4, 3))
    params = model.init(jax.random.key(0), jnp.zeros((1, 5)))
    layers = dense_layers(params, model.unit_layers)
    assert [layer.kernel.shape for layer in layers] == [(5, 4), (4, 3), (3, 2)]
    for place, layer in enumerate(layers):
        assert layer.kernel is params[f"Dense_{place}"]["kernel"]
        assert layer.bias is params[f"Dense_{place}"]["bias"]
    inputs = jax.random.normal(jax.random.key(1), (7, 5))
    outputs, intermediates = model.apply(params, inputs)
    found, values = masked_apply(layers, nothing_replaced(layers), inputs)
    np.testing.assert_array_equal(found, outputs)
    for a, expected in zip(values, intermediates.values(), strict=True):
        np.testing.assert_array_equal(a, expected)


def test_a_tree_without_the_leaves_is_refused():
    layer = mlp_tiny.build(outputs=1, hidden=(4,)).unit_layers
    with pytest.raises(JaxbenchError, match="no leaf 'Dense_0/kernel'; the nearest is"):
        dense_layers({"Dense_1": {"kernel": np.zeros((4, 4))}}, layer)
    bare = UnitLayer("bare", 4, (UnitSlice(("w",), 1, "incoming"),))
    with pytest.raises(JaxbenchError, match="one incoming kernel"):
        dense_layers({"w": np.zeros((2, 4))}, [bare])


def test_networks_that_do_not_fit_are_refused():
    good = network(np.random.default_rng(0), (3, 4, 2))
    with pytest.raises(JaxbenchError, match="at least two layers"):
        fold(good[:1], [])
    with pytest.raises(JaxbenchError, match="each as wide as the next one's inputs"):
        fold([good[0], good[0]], nothing_replaced(good))
    spoilt = [Affine(good[0].kernel * np.nan, good[0].bias), good[1]]
    with pytest.raises(JaxbenchError, match="not all finite"):
        fold(spoilt, nothing_replaced(good))
    with pytest.raises(JaxbenchError, match=r"have \[4\] units"):
        masked_apply(good, [Replacement(*[np.ones(3)] * 3)], np.zeros((1, 3)))


# Folding


@settings(deadline=None)
@given(SEEDS, WIDTHS)
def test_the_folded_network_equals_the_masked_one(seed, widths):
    rng = np.random.default_rng(seed)
    layers = network(rng, widths)
    by, inputs = any_replacements(rng, layers), points(rng, layers)
    expected, _ = masked_apply(layers, by, inputs)
    compact = fold(layers, by)
    np.testing.assert_allclose(compact_apply(compact, inputs), expected, rtol=1e-9, atol=1e-9)
    kept = [int((each.mask != 0).sum()) for each in by]
    assert [layer.bias.size for layer in compact] == [*(k for k in kept if k), widths[-1]]


@settings(deadline=None)
@given(SEEDS, WIDTHS)
def test_with_nothing_replaced_it_is_the_network_itself(seed, widths):
    layers = network(np.random.default_rng(seed), widths)
    for folded, layer in zip(fold(layers, nothing_replaced(layers)), layers, strict=True):
        ((_, kernel),) = folded.kernels.items()
        np.testing.assert_array_equal(kernel, layer.kernel)
        np.testing.assert_array_equal(folded.bias, layer.bias)


@settings(deadline=None)
@given(SEEDS, WIDTHS)
def test_units_that_become_zero_are_cut_out_as_hidden_units_does(seed, widths):
    rng = np.random.default_rng(seed)
    layers = network(rng, widths)
    masks = [rng.integers(0, 2, size=bias.size).astype(float) for _, bias in layers[:-1]]
    for mask in masks:
        mask[rng.integers(mask.size)] = 1
    by = [Replacement(mask, mask * 0, mask * 0) for mask in masks]
    params = {f"Dense_{i}": layer._asdict() for i, layer in enumerate(layers)}
    described = mlp_tiny.build(outputs=widths[-1], hidden=tuple(widths[1:-1])).unit_layers
    for layer, mask in zip(described, masks, strict=True):
        params = hidden_units.compact(params, layer, hidden_units.kept_units(mask))
    for place, folded in enumerate(fold(layers, by)):
        np.testing.assert_allclose(
            folded.kernels[place], params[f"Dense_{place}"]["kernel"], **EXACT
        )
        np.testing.assert_allclose(folded.bias, params[f"Dense_{place}"]["bias"], **EXACT)


@settings(deadline=None)
@given(SEEDS, WIDTHS)
def test_units_built_always_on_or_off_fold_exactly(seed, widths):
    rng = np.random.default_rng(seed)
    layers, kinds = built(rng, widths)
    inputs = points(rng, layers)
    for a, kind in zip(preacts(layers, inputs), kinds, strict=True):
        assert (a[:, kind == 1] > 0).all()
        assert (a[:, kind == -1] < 0).all()
    expected, _ = masked_apply(layers, nothing_replaced(layers), inputs)
    folded = compact_apply(fold(layers, one_sided(kinds)), inputs)
    np.testing.assert_allclose(folded, expected, rtol=1e-10, atol=1e-9)


def test_a_layer_that_is_on_collapses_into_one_affine_map():
    rng = np.random.default_rng(3)
    layers = network(rng, (4, 9, 3))
    layers[0] = Affine(layers[0].kernel, np.full(9, 50.0))
    (only,) = fold(layers, one_sided([np.ones(9, int)]))
    np.testing.assert_allclose(only.kernels[0], layers[0].kernel @ layers[1].kernel, **EXACT)
    inputs = points(rng, layers)
    expected = masked_apply(layers, nothing_replaced(layers), inputs)[0]
    np.testing.assert_allclose(compact_apply([only], inputs), expected, rtol=1e-10)


def test_a_network_of_units_that_are_off_is_its_bias():
    layers = network(np.random.default_rng(0), (2, 3, 2))
    (only,) = fold(layers, one_sided([np.full(3, -1)]))
    np.testing.assert_array_equal(compact_apply([only], np.ones((1, 2)))[0], layers[1].bias)


def test_a_skip_costs_what_the_notes_say():
    """10 to 64: from 9 units on; 64 to 64: from 32 on, counted on folded networks too."""
    assert [fold_is_cheaper(10, 64, count) for count in (8, 9)] == [False, True]
    assert [fold_is_cheaper(64, 64, count) for count in (31, 32)] == [False, True]
    rng = np.random.default_rng(0)
    for inputs, outputs in ((4, 3), (5, 5), (2, 7)):
        layers = network(rng, (inputs, 8, outputs))
        for removed in range(1, 8):
            kind = np.array([1] * removed + [0] * (8 - removed))
            compact, whole = fold(layers, one_sided([kind])), fold(layers, nothing_replaced(layers))
            saved = parameter_count(whole) - parameter_count(compact)
            assert saved == removed * (inputs + outputs + 1) - inputs * outputs
            assert (saved > 0) == fold_is_cheaper(inputs, outputs, removed)
            assert flops(whole) - flops(compact) == 2 * (saved - removed)


def test_folding_keeps_the_kind_and_dtype_of_arrays():
    rng = np.random.default_rng(0)
    layers = network(rng, (2, 4, 3, 1))
    by = any_replacements(rng, layers)
    as_jax = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (layers, by))
    for leaf in jax.tree.leaves(fold(*as_jax)):
        assert isinstance(leaf, jax.Array)
        assert leaf.dtype == jnp.float32
    inputs = points(rng, layers).astype(np.float32)
    expected, _ = masked_apply(*as_jax, jnp.asarray(inputs))
    compact = jax.jit(compact_apply)(fold(*as_jax), jnp.asarray(inputs))
    np.testing.assert_allclose(compact, expected, rtol=1e-4, atol=1e-5)


# Errors of replaced units


@settings(deadline=None)
@given(SEEDS, WIDTHS)
def test_outputs_move_by_at_most_the_bound(seed, widths):
    rng = np.random.default_rng(seed)
    layers = network(rng, widths)
    by, inputs = any_replacements(rng, layers), points(rng, layers)
    moved = (
        masked_apply(layers, by, inputs)[0]
        - masked_apply(layers, nothing_replaced(layers), inputs)[0]
    )
    bound = replacement_bound(layers, by, inputs)
    assert (np.linalg.norm(moved, axis=1) <= bound * (1 + 1e-9) + 1e-9).all()


@settings(deadline=None)
@given(SEEDS, st.integers(1, 5))
def test_the_bound_is_attained_where_one_unit_of_the_last_layer_errs(seed, outputs):
    rng = np.random.default_rng(seed)
    layers = network(rng, (3, 5, 6, outputs))
    mask = np.ones(6)
    mask[rng.integers(6)] = 0
    by = [nothing_replaced(layers)[0], Replacement(mask, (1 - mask) * rng.integers(2), mask * 0)]
    inputs = points(rng, layers)
    moved = (
        masked_apply(layers, by, inputs)[0]
        - masked_apply(layers, nothing_replaced(layers), inputs)[0]
    )
    bound = replacement_bound(layers, by, inputs)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), bound, rtol=1e-9, atol=1e-12)


def test_errors_are_the_positive_and_the_negative_part():
    a = np.array([[-2.0, -2.0, -2.0], [3.0, 3.0, 3.0]])
    by = Replacement(np.array([1.0, 0, 0]), np.array([0.0, 1, 0]), np.zeros(3))
    np.testing.assert_array_equal(replacement_error(a, by), [[0, 2, 0], [0, 0, 3]])
    np.testing.assert_array_equal(alive(by), [1, 1, 0])


@settings(deadline=None)
@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
def test_the_norm_bound_is_one_and_exact_for_vectors(seed, rows, columns):
    kernel = np.random.default_rng(seed).normal(size=(rows, columns))
    norm = np.linalg.norm(kernel, 2)
    assert norm_bound(kernel) >= norm * (1 - 1e-12)
    if 1 in kernel.shape:
        assert norm_bound(kernel) == pytest.approx(norm, rel=1e-12)


# Merging dependent units


@settings(deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 7), st.integers(0, 3))
def test_merging_is_exact_and_leaves_as_many_units_as_the_rank(seed, inputs, on, others):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, min(inputs, on) + 1))
    dependent = rng.normal(size=(inputs, rank)) @ rng.normal(size=(rank, on))
    kernel = np.hstack([dependent, rng.normal(size=(inputs, others))])
    positive = np.abs(dependent).sum(0) + rng.uniform(size=on)
    bias = np.concatenate([positive, rng.normal(size=others)])
    order = rng.permutation(on + others)
    layers = [
        Affine(kernel[:, order], bias[order]),
        Affine(rng.normal(size=(on + others, 3)), rng.normal(size=3)),
        Affine(rng.normal(size=(3, 2)), rng.normal(size=2)),
    ]
    smaller, gone = merge_dependent(layers, 0, order < on)
    assert gone.size == on - rank
    assert smaller[0].bias.size == rank + others
    inputs = points(rng, layers)
    expected, found = (
        masked_apply(each, nothing_replaced(each), inputs)[0] for each in (layers, smaller)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_merging_nothing_and_constant_units():
    layers = network(np.random.default_rng(0), (3, 4, 1))
    smaller, gone = merge_dependent(layers, 0, np.zeros(4, bool))
    assert gone.size == 0
    np.testing.assert_array_equal(smaller[0].kernel, layers[0].kernel)
    layers[0] = Affine(np.zeros((3, 4)), np.arange(4.0))
    smaller, gone = merge_dependent(layers, 0, np.ones(4, bool))
    assert gone.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(
        smaller[1].bias, np.arange(4.0) @ layers[1].kernel + layers[1].bias, **EXACT
    )
    with pytest.raises(JaxbenchError, match="has 4 units"):
        merge_dependent(layers, 0, np.ones(3, bool))


def test_relu_has_no_slope_at_zero():
    assert jax.grad(relu)(0.0) == 0
