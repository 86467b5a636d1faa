"""The intervention: what one cluster, all clusters and two implementations must agree on."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import recurrent_recipe, ring_recipe

from jaxbench.base import Context, JaxbenchError
from jaxbench.interventions import cluster_updates
from jaxbench.interventions.gathered_sweeps import make_plan, node_evaluations
from jaxbench.interventions.node_partitions import make_partition
from jaxbench.models import mlp_tiny, ring_mp, rnn_small

RING = ring_mp.build(outputs=2, nodes=8, width=3)
INPUTS = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
PARAMS = RING.init(jax.random.key(0), INPUTS)


def gradient_and_outputs(model, ctx=None):
    """Of the mean square output of `RING`'s parameters."""

    def loss(params):
        outputs, intermediates = model.apply(params, INPUTS, ctx=ctx)
        return jnp.mean(outputs**2), (outputs, intermediates.get("clusters"))

    return jax.jit(jax.grad(loss, has_aux=True))(PARAMS)


def assert_same(found, expected, tolerance=1e-6):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance), found, expected
    )


def test_one_cluster_is_the_model_itself_outputs_and_gradients():
    wrapped = cluster_updates.build(clusters=1).wrap_model(RING)
    gradient, (outputs, chosen) = gradient_and_outputs(wrapped)
    plain, (expected, _) = gradient_and_outputs(RING)
    assert_same((outputs, gradient), (expected, plain))
    assert chosen.shape == (4, 5, 3), "samples, time, sweeps"


def context(intervention, model):
    return Context(
        jax.random.key(3), {}, model, PARAMS, None, intervention.prepare(jax.random.key(0)), 1
    )


SLOW = [pytest.param(policy, marks=pytest.mark.slow) for policy in ("max", "q", "roundrobin")]


@pytest.mark.parametrize("policy", ["hist", "random", *SLOW])
def test_masked_and_gathered_updates_agree_outputs_and_gradients(policy):
    found = []
    for implementation in ("mask", "gathered"):
        intervention = cluster_updates.build(
            policy=policy, sweeps=5, implementation=implementation, episodes=40
        )
        model = intervention.wrap_model(RING)
        found.append(gradient_and_outputs(model, context(intervention, model)))
    (one, (out, chosen)), (two, (other_out, other_chosen)) = found
    assert (chosen == other_chosen).all()
    assert_same((out, one), (other_out, two))
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one)) > 1e-3


def test_gathering_agrees_where_neighbours_have_no_order_and_clusters_no_shape():
    model = ring_mp.build(outputs=2, graph="random_regular", nodes=8, width=3, degree=3)
    params = model.init(jax.random.key(1), INPUTS)
    outputs = [
        jax.jit(
            cluster_updates.build(partition="random", implementation=each).wrap_model(model).apply
        )(params, INPUTS)[0]
        for each in ("mask", "gathered")
    ]
    assert_same(*outputs)


def test_all_clusters_in_turn_are_a_sequential_sweep_in_every_time_step():
    intervention = cluster_updates.build(policy="roundrobin", sweeps=4)
    outputs, _ = jax.jit(intervention.wrap_model(RING).apply)(PARAMS, INPUTS)
    nodes, partition = RING.message_passing, make_partition("contiguous", 4, 8)
    hidden = nodes.initial_hidden(PARAMS, (4,))
    for time in range(5):
        drive = nodes.drive(PARAMS, INPUTS[:, time])
        hidden = cluster_updates.sweep_seq(
            lambda h, drive=drive: nodes.update(PARAMS, h, drive), hidden, partition, 4, 0.5
        )
        assert_same(outputs[:, time], nodes.readout(PARAMS, hidden))


def test_hidden_units_of_a_gru_move_in_the_chosen_cluster_only():
    model = rnn_small.build(outputs=2, hidden=8)
    params = model.init(jax.random.key(0), INPUTS)
    everything = cluster_updates.build(of="hidden_units", clusters=1).wrap_model(model)
    assert_same(
        jax.jit(everything.apply)(params, INPUTS)[0], jax.jit(model.apply)(params, INPUTS)[0]
    )
    some = cluster_updates.build(of="hidden_units", clusters=4).wrap_model(model)
    _, seen = jax.jit(some.apply)(params, INPUTS)
    hidden = np.concatenate([np.zeros((4, 1, 8), np.float32), seen["hidden"]], axis=1)
    moved = np.abs(np.diff(hidden, axis=1)).reshape(4, 5, 4, 2).max(axis=-1) > 0
    assert (moved.sum(axis=-1) == 1).all()
    assert (moved.argmax(axis=-1) == seen["clusters"][..., 0]).all()
    full = model.recurrence.step(params, jnp.asarray(hidden[:, 2]), INPUTS[:, 2])
    units = np.repeat(moved[:, 2], 2, axis=-1)
    assert_same(np.where(units, full, hidden[:, 2]), hidden[:, 3])


def test_evaluations_are_those_of_the_clusters_and_their_halos():
    """On a ring, 4 of 16 nodes have a halo of 2: 6 residuals change with each update."""
    plan = make_plan(ring_mp.build(outputs=2).message_passing.neighbours, np.repeat(range(4), 4), 4)
    assert node_evaluations(plan, 3, sees_residuals=True) == 16 + 3 * (4 + 6)
    assert node_evaluations(plan, 3, sees_residuals=False) == 3 * 4


def measured(recipe, **options):
    """Measure the initial parameters of a recipe's first seed."""
    intervention = cluster_updates.build(**options)
    model = intervention.wrap_model(recipe.model)
    data = recipe.track.generate(jax.random.key(0))
    params = recipe.model.init(jax.random.key(1), data.train.inputs[:1])
    ctx = Context(jax.random.key(2), {}, model, params, data.train, (), 1)
    measure = jax.jit(lambda params: intervention.measure(ctx, params, (), data.test))
    return jax.tree.map(np.asarray, measure(params))


@pytest.mark.parametrize(
    "make", [ring_recipe, pytest.param(recurrent_recipe, marks=pytest.mark.slow)]
)
def test_measurements_obey_the_law_and_count_the_work(make):
    of = "nodes" if make is ring_recipe else "hidden_units"
    found = measured(make(), of=of, clusters=2, sweeps=3)
    assert found["observed"][0] / 0.05**2 == pytest.approx(found["predicted_coefficient"], rel=0.1)
    nodes = 8 if of == "nodes" else 6
    assert found["node_updates"] == pytest.approx(3 * nodes / 2)
    assert found["node_updates_synchronous"] == (24 if of == "nodes" else 6)
    assert found["share_of_updates"].sum() == pytest.approx(1)
    for name in ("policy", "in_turn", "random"):
        assert 0 <= found[f"reached_{name}"] <= 1
        assert 0 < found[f"updates_{name}"] <= 16 * nodes
    assert ("cut_edges" in found) == (of == "nodes")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "q", "clusters": 9}, "9 clusters; use 8 or fewer"),
        ({"of": "hidden_units", "implementation": "gathered"}, "no halo to gather"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, words):
    with pytest.raises(JaxbenchError, match=words):
        cluster_updates.build(**options)


@pytest.mark.parametrize(
    ("options", "model", "words"),
    [
        ({"clusters": 9}, RING, "9 clusters of 8 nodes"),
        ({"clusters": 2, "partition": [[0, 1, 2], [4, 5, 6, 7]]}, RING, "misses 3"),
        ({"clusters": 3, "implementation": "gathered"}, RING, "equal size"),
        ({}, rnn_small.build(outputs=1), "'rnn_small' has no nodes"),
        ({"of": "hidden_units"}, mlp_tiny.build(outputs=1), "'mlp_tiny' is none"),
        ({"of": "hidden_units", "partition": "spectral"}, rnn_small.build(outputs=1), "a graph"),
    ],
)
def test_models_that_do_not_fit_are_refused(options, model, words):
    with pytest.raises(JaxbenchError, match=words):
        cluster_updates.build(**options).wrap_model(model)


def test_partitions_that_follow_edges_need_a_connected_graph():
    halves = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    nodes = dataclasses.replace(RING.message_passing, neighbours=halves)
    model = dataclasses.replace(RING, message_passing=nodes)
    with pytest.raises(JaxbenchError, match="spectral partition needs a connected graph"):
        cluster_updates.build(clusters=2, partition="spectral").wrap_model(model)


def test_time_steps_of_a_random_policy_are_the_runs_own():
    """Other keys, other clusters; the same key, the same."""
    model = cluster_updates.build(policy="random").wrap_model(RING)
    chosen = jax.jit(lambda key: model.apply(PARAMS, INPUTS, key=key)[1]["clusters"])
    first, again, other = (chosen(jax.random.key(seed)) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    assert all(len(set(np.ravel(each).tolist())) > 1 for each in itertools.chain(first))
