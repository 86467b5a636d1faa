"""The network of nodes against its equations, written out node by node."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench import graphs
from jaxbench.base import JaxbenchError
from jaxbench.models import ring_mp

SMALL = {"nodes": 9, "width": 3, "sweeps": 2, "eta": 0.25}


def make(graph="ring", features=2, outputs=2, **options):
    model = ring_mp.build(outputs=outputs, graph=graph, **(SMALL | options))
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(4, 5, features)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    return model, params, inputs


def by_hand(params, inputs, neighbours, ordered, sweeps=2, eta=0.25):
    """One sample [time, features], node by node, in float64."""
    cell, head = params["cell"], params["head"]
    W, V, b = (np.asarray(cell[name], float) for name in ("hidden", "input", "bias"))
    hidden = np.zeros_like(b)
    outputs = []
    for x in np.asarray(inputs, float):
        for _ in range(sweeps):
            new = np.zeros_like(hidden)
            for i in range(len(b)):
                around = hidden[neighbours[i]]
                around = around.ravel() if ordered else around.mean(axis=0)
                new[i] = np.tanh(np.concatenate([hidden[i], around]) @ W + x @ V + b[i])
            hidden = hidden + eta * (new - hidden)
        outputs.append(hidden.ravel() @ head["kernel"] + head["bias"])
    return np.array(outputs)


@pytest.mark.parametrize("graph", ["ring", "torus", "random_regular"])
def test_it_computes_its_equations(graph):
    model, params, inputs = make(graph)
    outputs, intermediates = jax.jit(model.apply)(params, inputs)
    neighbours = graphs.make_graph(graph, 9)
    for sample in range(4):
        expected = by_hand(params, inputs[sample], neighbours, graph != "random_regular")
        np.testing.assert_allclose(outputs[sample], expected, atol=1e-4)
    assert intermediates["hidden"].shape == (4, 5, 9, 3)


@pytest.mark.parametrize("graph", ["ring", "torus", "random_regular"])
def test_the_rule_of_a_node_is_the_update_of_all(graph):
    model, params, _ = make(graph)
    nodes = model.message_passing
    hidden = jax.random.normal(jax.random.key(0), (4, 9, 3))
    drive = nodes.drive(params, jnp.ones((4, 2)))
    some = np.array([7, 0, 4])
    found = nodes.rule(params, hidden[:, some], hidden[:, nodes.neighbours[some]], drive[:, some])
    np.testing.assert_allclose(found, nodes.update(params, hidden, drive)[:, some], atol=1e-6)


def test_local_nodes_see_and_give_their_own_part_only():
    model, params, inputs = make(features=9, outputs=9, local=True, sweeps=1)
    one_step = inputs[:, :1]
    before, _ = model.apply(params, one_step)
    after, _ = model.apply(params, np.array(jnp.asarray(one_step).at[:, 0, 4].add(1.0)))
    moved = np.flatnonzero(np.abs(before - after).max(axis=(0, 1)) > 1e-6)
    assert moved.tolist() == [4], "with one sweep no message has arrived elsewhere"
    two = make(features=9, outputs=9, local=True, sweeps=2)[0]
    before, _ = two.apply(params, one_step)
    after, _ = two.apply(params, np.array(jnp.asarray(one_step).at[:, 0, 4].add(1.0)))
    moved = np.flatnonzero(np.abs(before - after).max(axis=(0, 1)) > 1e-6)
    assert moved.tolist() == [3, 4, 5]


def test_nodes_begin_different():
    """With equal biases all nodes would be one, and messages would say nothing."""
    model, _, inputs = make()
    params = model.init(jax.random.key(0), inputs)
    hidden = model.apply(params, inputs)[1]["hidden"]
    assert np.std(hidden, axis=2).min() > 0.01


def test_operations_are_counted_by_the_formula():
    model = ring_mp.build(outputs=2)
    sweep, seen, head = 16 * 24 * 8, 3 * 8, 16 * 8 * 2
    assert model.flops((80, 3)) == 2 * 80 * (3 * sweep + seen + head)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"local": True, "outputs": 5}, "has 5; make the model's nodes"),
        ({"graph": "torus", "nodes": 10}, "no such product"),
        ({"graph": "random_regular", "nodes": 4, "degree": 5}, "degree from 2"),
    ],
)
def test_graphs_and_outputs_that_do_not_fit_are_refused(options, words):
    with pytest.raises(JaxbenchError, match=words):
        ring_mp.build(**({"outputs": 2} | options))


def test_local_inputs_that_do_not_divide_are_refused():
    model = ring_mp.build(outputs=9, **SMALL, local=True)
    with pytest.raises(JaxbenchError, match="the track has 4"):
        model.init(jax.random.key(0), jnp.zeros((1, 5, 4)))
