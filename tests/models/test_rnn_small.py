"""`rnn_small` against flax, and what it says about itself against what it does."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy import stats

from jaxbench.models import rnn_small

HIDDEN, OUTPUTS, BATCH, TIME, FEATURES = 5, 2, 4, 7, 3


class Reference(nn.Module):
    """The same network from flax's own cell, one step after another."""

    @nn.compact
    def __call__(self, inputs):
        """Run over [batch, time, features]."""
        cell, head = nn.GRUCell(HIDDEN), nn.Dense(OUTPUTS)
        hidden = jnp.zeros((len(inputs), HIDDEN), inputs.dtype)
        outputs = []
        for time in range(inputs.shape[1]):
            hidden, _ = cell(hidden, inputs[:, time])
            outputs.append(head(hidden))
        return jnp.stack(outputs, axis=1)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def setting(float64):
    """Make the model, parameters of which none is zero, and inputs, in float64."""
    del float64
    rng = np.random.default_rng(0)
    model = rnn_small.build(outputs=OUTPUTS, hidden=HIDDEN)
    model = dataclasses.replace(model, apply=jax.jit(model.apply))
    inputs = rng.normal(size=(BATCH, TIME, FEATURES))
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    return model, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes), inputs


def leaf_at(params, path):
    for name in path:
        params = params[name]
    return params


def map_leaves(params, function):
    """Apply `function(path, leaf)` to every leaf of the nested dict."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(tuple(entry.key for entry in path), leaf), params
    )


# The network


def test_equals_flax_step_by_step(setting):
    model, params, inputs = setting
    expected = jax.jit(Reference().apply)({"params": params}, inputs)
    np.testing.assert_allclose(model.apply(params, inputs)[0], expected, rtol=0, atol=1e-12)


def test_parameters_have_the_tree_of_flax():
    inputs = jnp.zeros((BATCH, 1, FEATURES))
    init = rnn_small.build(outputs=OUTPUTS, hidden=HIDDEN).init
    ours = jax.eval_shape(init, jax.random.key(0), inputs)
    theirs = jax.eval_shape(Reference().init, jax.random.key(0), inputs)["params"]
    describe = functools.partial(jax.tree.map, lambda leaf: (leaf.shape, leaf.dtype))
    assert describe(ours) == describe(theirs)


def lecun_normal(fan_in):
    """Give the normal of variance 1/fan_in, cut at two standard deviations of its parent."""
    parent = np.sqrt(1 / fan_in) / stats.truncnorm(-2, 2).std()
    return stats.truncnorm(-2, 2, scale=parent)


def test_initial_parameters_have_the_distributions_of_flax():
    draws, inputs = 500, jnp.zeros((BATCH, 1, FEATURES))
    init = rnn_small.build(outputs=OUTPUTS, hidden=HIDDEN).init
    keys = jax.random.split(jax.random.key(3), draws)
    params = jax.jit(jax.vmap(lambda key: init(key, inputs)))(keys)

    # An entry of a uniform orthogonal n x n matrix is 2 B - 1 with B ~ Beta((n-1)/2, (n-1)/2).
    orthogonal = stats.beta((HIDDEN - 1) / 2, (HIDDEN - 1) / 2, loc=-1, scale=2)
    entries = []
    for names, expected in [
        (("ir", "iz", "in"), lecun_normal(FEATURES)),
        (("hr", "hz", "hn"), orthogonal),
        ((rnn_small.HEAD,), lecun_normal(HIDDEN)),
    ]:
        for name in names:
            affine = params[name] if name in params else params[rnn_small.CELL][name]
            kernel = np.asarray(affine["kernel"])
            entries.append(kernel[:, 0, 0])
            assert stats.kstest(entries[-1], expected.cdf).pvalue > 1e-3
            assert "bias" not in affine or not affine["bias"].any()
            if expected is orthogonal:
                identity = np.broadcast_to(np.eye(HIDDEN), kernel.shape)
                np.testing.assert_allclose(kernel @ kernel.swapaxes(1, 2), identity, atol=1e-5)
    correlation = np.corrcoef(entries) - np.eye(len(entries))
    assert np.abs(correlation).max() < 5 / np.sqrt(draws), "two kernels share their draws"


def test_the_backward_pass_is_that_of_the_recurrence_iterated(setting):
    """`apply` has a backward pass of its own; gradients and their tangents, against autodiff."""
    model, params, inputs = setting

    def iterated(params, inputs):
        def advance(hidden, now):
            hidden = model.recurrence.step(params, hidden, now)
            return hidden, (model.recurrence.readout(params, hidden), hidden)

        start = model.recurrence.initial_hidden(params, inputs.shape[:1])
        outputs, hidden = jax.lax.scan(advance, start, inputs.swapaxes(0, 1))[1]
        return outputs.swapaxes(0, 1), {"hidden": hidden.swapaxes(0, 1)}

    def gradients(apply):
        def loss(both):
            outputs, intermediates = apply(*both)
            return jnp.sum(jnp.sin(outputs) ** 2) + jnp.sum(intermediates["hidden"] ** 3)

        both = (params, inputs)
        direction = jax.tree.map(jnp.cos, both)
        return jax.jit(lambda: jax.jvp(jax.grad(loss), (both,), (direction,)))()

    ours, theirs = gradients(model.apply), gradients(iterated)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-11), ours, theirs)


def test_apply_is_the_recurrence_iterated(setting):
    model, params, inputs = setting
    step, readout = jax.jit(model.recurrence.step), jax.jit(model.recurrence.readout)
    hidden = model.recurrence.initial_hidden(params, (BATCH,))
    assert hidden.dtype == jnp.float64
    outputs, intermediates = model.apply(params, inputs)
    for time in range(TIME):
        hidden = step(params, hidden, inputs[:, time])
        np.testing.assert_allclose(intermediates["hidden"][:, time], hidden, atol=1e-13)
        np.testing.assert_allclose(outputs[:, time], readout(params, hidden), atol=1e-13)


def test_recurrence_takes_any_batch_shape(setting):
    model, params, inputs = setting
    step, readout = jax.jit(model.recurrence.step), jax.jit(model.recurrence.readout)
    start = model.recurrence.initial_hidden(params, (BATCH, TIME))
    batched = readout(params, step(params, start, inputs))
    alone = readout(params, step(params, start[1, 2], inputs[1, 2]))
    np.testing.assert_allclose(batched[1, 2], alone, atol=1e-13)


def test_outputs_do_not_depend_on_later_inputs(setting):
    model, params, inputs = setting
    changed = np.concatenate([inputs[:, :4], inputs[:, 4:] + 1], axis=1)
    before, after = model.apply(params, inputs)[0], model.apply(params, changed)[0]
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).all()


# Its hidden units


def test_unit_slices_lie_within_their_leaves(setting):
    model, params, _ = setting
    (layer,) = model.unit_layers
    assert layer.size == HIDDEN
    for piece in layer.slices:
        assert 0 <= piece.start <= leaf_at(params, piece.leaf).shape[piece.axis] - layer.size
    assert len(set(layer.slices)) == len(layer.slices)


def test_permuting_the_units_through_their_slices_changes_no_output(setting):
    model, params, inputs = setting
    (layer,) = model.unit_layers
    order = np.array([2, 0, 1, 4, 3])

    def permute(path, leaf, roles):
        for piece in layer.slices:
            if piece.leaf == path and piece.role in roles:
                index = np.arange(leaf.shape[piece.axis])
                index[piece.start : piece.start + layer.size] = piece.start + order
                leaf = np.take(leaf, index, axis=piece.axis)
        return leaf

    def outputs(roles):
        return model.apply(map_leaves(params, lambda *leaf: permute(*leaf, roles)), inputs)

    expected, intermediates = model.apply(params, inputs)
    permuted, permuted_intermediates = outputs(("incoming", "outgoing"))
    np.testing.assert_allclose(permuted, expected, atol=1e-12)
    np.testing.assert_allclose(
        permuted_intermediates["hidden"], intermediates["hidden"][..., order], atol=1e-12
    )
    assert np.abs(outputs(("incoming",))[0] - expected).max() > 0.1


@pytest.mark.parametrize("unit", [0, HIDDEN - 2])
def test_a_unit_without_outgoing_weights_can_be_removed(setting, unit):
    model, params, inputs = setting
    (layer,) = model.unit_layers

    def silence(path, leaf):
        for piece in layer.slices:
            if piece.leaf == path and piece.role == "outgoing":
                leaf = leaf.copy()
                leaf[(slice(None),) * piece.axis + (piece.start + unit,)] = 0
        return leaf

    def remove(path, leaf):
        for piece in layer.slices:
            if piece.leaf == path:
                leaf = np.delete(leaf, piece.start + unit, axis=piece.axis)
        return leaf

    smaller = rnn_small.build(outputs=OUTPUTS, hidden=HIDDEN - 1)
    removed, silent = map_leaves(params, remove), map_leaves(params, silence)
    shapes = jax.eval_shape(smaller.init, jax.random.key(0), inputs)
    assert jax.tree.map(np.shape, removed) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    expected = model.apply(silent, inputs)[0]
    np.testing.assert_allclose(smaller.apply(removed, inputs)[0], expected, atol=1e-12)
    assert np.abs(model.apply(params, inputs)[0] - expected).max() > 0.01


# Its cost


def test_flops_of_the_smallest_network():
    # One unit, one input, one output, one step: three gates with two products each, and the head.
    assert rnn_small.build(outputs=1, hidden=1).flops((1, 1)) == 2 * (3 * 2 + 1)


def test_flops_count_every_kernel_entry_once_a_step(setting):
    model, params, _ = setting
    entries = sum(leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim == 2)
    assert model.flops((TIME, FEATURES)) == 2 * entries * TIME


def test_scaled_step_is_the_step_with_scaled_leaves() -> None:
    """Gains on products equal gains on kernels and biases, a different one for each sample."""
    with jax.enable_x64(True):
        model = rnn_small.build(outputs=2, hidden=5)
        params = model.init(jax.random.key(0), jnp.zeros((1, 1, 3)))
        params = jax.tree.map(lambda leaf: leaf + 0.1, params)  # biases that are not 0
        leaves, structure = jax.tree.flatten(params)
        drawn = 1 + 0.5 * jax.random.normal(jax.random.key(1), (len(leaves), 7))
        gains = jax.tree.unflatten(structure, list(drawn))
        hidden = jax.random.normal(jax.random.key(2), (7, 5))
        inputs = jax.random.normal(jax.random.key(3), (7, 3))
        recurrence = model.recurrence
        assert recurrence is not None
        assert recurrence.scaled_step is not None
        found = recurrence.scaled_step(params, gains, hidden, inputs)
        for row in range(7):
            scaled = jax.tree.map(lambda leaf, gain, row=row: leaf * gain[row], params, gains)
            expected = recurrence.step(scaled, hidden[row], inputs[row])
            assert jnp.allclose(found[row], expected, rtol=1e-12, atol=0)


def test_no_decomposition_is_batched() -> None:
    """XLA:CPU with several devices may wait for ever on a batch of large ones (64 units)."""
    init = jax.jit(rnn_small.build(outputs=OUTPUTS, hidden=HIDDEN).init)
    text = init.lower(jax.random.key(0), jnp.zeros((BATCH, TIME, FEATURES))).as_text()
    calls = [line for line in text.splitlines() if "@lapack" in line]
    assert calls
    for call in calls:
        assert f"tensor<{len(rnn_small.GATES)}x{HIDDEN}x{HIDDEN}x" not in call
