"""`mlp_tiny` against flax, and what it says about itself against what it does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import pytest
from flax import linen as nn
from scipy import stats

from jaxbench import registry
from jaxbench.models import mlp_tiny

HIDDEN, OUTPUTS, BATCH, FEATURES = (5, 4), 2, 6, 3
MODEL = mlp_tiny.build(outputs=OUTPUTS, hidden=HIDDEN)
INPUTS = np.random.default_rng(0).normal(size=(BATCH, FEATURES)).astype(np.float32)


class Reference(nn.Module):
    """The same network from flax's own layers."""

    @nn.compact
    def __call__(self, inputs):
        """Run over [batch, features]."""
        for width in HIDDEN:
            inputs = nn.relu(nn.Dense(width)(inputs))
        return nn.Dense(OUTPUTS)(inputs)


@pytest.fixture(scope="module")
def params():
    """Parameters of which none is zero."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), INPUTS)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)


def test_equals_flax_and_has_its_tree(params):
    expected = Reference().apply({"params": params}, INPUTS)
    np.testing.assert_array_equal(MODEL.apply(params, INPUTS)[0], expected)
    ours = jax.eval_shape(MODEL.init, jax.random.key(0), INPUTS)
    theirs = jax.eval_shape(Reference().init, jax.random.key(0), INPUTS)["params"]
    describe = functools.partial(jax.tree.map, lambda leaf: (leaf.shape, leaf.dtype))
    assert describe(ours) == describe(theirs)


def test_initial_parameters_have_the_distributions_of_flax():
    draws = 500
    keys = jax.random.split(jax.random.key(3), draws)
    params = jax.jit(jax.vmap(lambda key: MODEL.init(key, INPUTS)))(keys)
    entries = []
    for name, fan_in in (("Dense_0", FEATURES), ("Dense_1", 5), ("Dense_2", 4)):
        parent = np.sqrt(1 / fan_in) / stats.truncnorm(-2, 2).std()
        kernel = np.asarray(params[name]["kernel"])
        entries += [kernel[:, 0, 0], kernel[:, -1, -1]]
        for entry in entries[-2:]:
            assert stats.kstest(entry, stats.truncnorm(-2, 2, scale=parent).cdf).pvalue > 1e-3
        assert not params[name]["bias"].any()
    correlation = np.corrcoef(entries) - np.eye(len(entries))
    assert np.abs(correlation).max() < 5 / np.sqrt(draws), "two kernels share their draws"


def test_intermediates_are_the_preactivations_of_each_layer(params):
    outputs, intermediates = MODEL.apply(params, INPUTS)
    assert list(intermediates) == [layer.name for layer in MODEL.unit_layers]
    first = INPUTS @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]
    second = np.maximum(first, 0) @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    head = np.maximum(second, 0) @ params["Dense_2"]["kernel"] + params["Dense_2"]["bias"]
    np.testing.assert_allclose(intermediates["Dense_0"], first, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(intermediates["Dense_1"], second, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs, head, rtol=1e-5, atol=1e-5)


def test_permuting_the_units_through_their_slices_changes_no_output(params):
    expected, values = MODEL.apply(params, INPUTS)
    for layer in MODEL.unit_layers:
        order = np.random.default_rng(2).permutation(layer.size)
        permuted = jax.tree.map(np.copy, params)
        for piece in layer.slices:
            group, leaf = piece.leaf
            permuted[group][leaf] = np.take(permuted[group][leaf], order, axis=piece.axis)
        outputs, moved = MODEL.apply(permuted, INPUTS)
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(moved[layer.name], values[layer.name][:, order], rtol=1e-5)


def test_a_constant_unit_moves_to_the_bias_that_its_slice_names(params):
    """A unit without incoming weights gives max(b, 0): its outgoing row times that is a bias."""
    for layer in MODEL.unit_layers:
        constant, moved = jax.tree.map(np.copy, params), jax.tree.map(np.copy, params)
        kernel, bias, outgoing = layer.slices
        for changed in (constant, moved):
            changed[kernel.leaf[0]]["kernel"][:, 1] = 0
            changed[bias.leaf[0]]["bias"][1] = 1.5
        moved[outgoing.bias[0]][outgoing.bias[1]] += 1.5 * params[outgoing.leaf[0]]["kernel"][1]
        moved[outgoing.leaf[0]]["kernel"][1] = 0
        np.testing.assert_allclose(
            MODEL.apply(moved, INPUTS)[0], MODEL.apply(constant, INPUTS)[0], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("hidden", [(1,), (3, 2, 4)])
def test_any_number_of_layers(hidden):
    model = mlp_tiny.build(outputs=1, hidden=hidden)
    params = model.init(jax.random.key(0), INPUTS)
    assert [layer.size for layer in model.unit_layers] == list(hidden)
    assert model.apply(params, INPUTS)[0].shape == (BATCH, 1)
    entries = sum(leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim == 2)
    assert model.flops((FEATURES,)) == 2 * entries
    assert jnp.isfinite(model.apply(params, INPUTS)[0]).all()


def test_its_widths_are_checked():
    component = registry.load("models", "mlp_tiny")
    assert component.make({}, outputs=1).options == {"hidden": (64, 64)}
    assert component.make({"hidden": [8]}, outputs=1).options == {"hidden": (8,)}
    for wrong in ([], [8, 0], [2.5]):
        with pytest.raises(pydantic.ValidationError):
            component.make({"hidden": wrong}, outputs=1)
