"""Scores in closed form on linear networks, and pruning of trained ones."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from factories import cpu_layout, mlp_recipe, recurrent_recipe, train
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxbench import judging
from jaxbench.base import Batch, Context, JaxbenchError, UnitLayer, UnitSlice
from jaxbench.interventions import hidden_units as hu
from jaxbench.interventions import sensitivity_pruning as sp
from jaxbench.interventions import sensitivity_signatures as signatures
from jaxbench.interventions import unit_scores as us
from jaxbench.interventions.forward_mode import forward_of
from jaxbench.models import node_small, rnn_small
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Run

UNITS, SAMPLES, OUTPUTS = 5, 30, 2


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def linear(params, inputs):
    """Fixed features of the inputs, `h = x` (the units' values), and a linear readout."""
    return inputs @ params["readout"]


READOUT = UnitLayer("features", UNITS, (UnitSlice(("readout",), 0, "outgoing"),))


def linear_case(seed=0, optimal=True):
    """A linear readout, at its least-squares optimum in the masks where `optimal`."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(SAMPLES, UNITS)) @ rng.normal(size=(UNITS, UNITS))
    params = {"readout": jnp.asarray(rng.normal(size=(UNITS, OUTPUTS)))}
    S = columns_of(inputs, np.asarray(params["readout"]))
    noise = rng.normal(size=SAMPLES * OUTPUTS)
    if optimal:
        noise -= S @ np.linalg.lstsq(S, noise)[0]
    targets = inputs @ params["readout"] + noise.reshape(SAMPLES, OUTPUTS)
    return params, Batch(jnp.asarray(inputs), jnp.asarray(targets)), S, -noise


def columns_of(inputs, readout):
    return (inputs[:, None, :] * readout.T[None]).reshape(-1, UNITS)


def fisher_case(seed, units=UNITS):
    """A well-conditioned Fisher matrix in float64."""
    S = np.random.default_rng(seed).normal(size=(4 * units, units))
    return jnp.asarray(S.T @ S / len(S))


# Scores -------------------------------------------------------------------------------------------


def test_sensitivities_of_a_linear_readout_are_its_features_times_its_weights(float64) -> None:
    del float64
    params, batch, S, e = linear_case()
    found = us.mask_jacobian(linear, params, READOUT, batch)
    np.testing.assert_allclose(found[0], S, atol=1e-12)
    np.testing.assert_allclose(found[1], e, atol=1e-12)
    F, g = us.fisher(*found)
    np.testing.assert_allclose(F, 2 * S.T @ S / len(S), atol=1e-12)
    np.testing.assert_allclose(g, 0, atol=1e-12)


def test_conditional_information_is_the_residual_of_a_regression_and_the_refitted_cost(
    float64,
) -> None:
    """`R_j` = residual sum of squares of column j on the others = cost after the refit."""
    del float64
    _, _, S, e = linear_case()
    F, _ = us.fisher(jnp.asarray(S), jnp.asarray(e))
    R = us.conditional(F, 0.0)
    for unit in range(UNITS):
        others = np.delete(S, unit, axis=1)
        for target, base in ((S[:, unit], 0.0), (S @ np.ones(UNITS) - e, e @ e)):
            residual = target - others @ np.linalg.lstsq(others, target)[0]
            cost = (residual @ residual - base) / len(S)
            np.testing.assert_allclose(R[unit], cost, rtol=1e-10)


def test_the_second_order_prediction_of_an_ablation_is_exact_for_a_linear_readout(float64) -> None:
    del float64
    params, batch, S, e = linear_case(optimal=False)
    F, g = us.fisher(jnp.asarray(S), jnp.asarray(e))
    loss = us.masked_loss(linear, params, READOUT, batch)
    costs = [loss(1 - unit) - loss(jnp.ones(UNITS)) for unit in jnp.eye(UNITS)]
    np.testing.assert_allclose(us.ablation(F, g), costs, rtol=1e-10)
    np.testing.assert_allclose(us.taylor(g), np.abs(2 * S.T @ e / len(e)))


def test_the_prediction_of_a_refitted_ablation_is_exact_where_the_gradient_is_not_zero(
    float64,
) -> None:
    """The residual of least squares without the unit, less the loss as it is."""
    del float64
    _, _, S, e = linear_case(optimal=False)
    F, g = us.fisher(jnp.asarray(S), jnp.asarray(e))
    target = S @ np.ones(UNITS) - e
    for unit, found in enumerate(us.refitted_ablation(F, g, 0.0)):
        others = np.delete(S, unit, axis=1)
        residual = target - others @ np.linalg.lstsq(others, target)[0]
        np.testing.assert_allclose(found, (residual @ residual - e @ e) / len(S), rtol=1e-9)
    np.testing.assert_allclose(
        us.refitted_ablation(F, 0 * g, 0.1), us.conditional(F, 0.1), rtol=1e-12
    )


def test_a_copied_unit_is_redundant_and_a_silent_one_worthless(float64) -> None:
    del float64
    S = np.random.default_rng(0).normal(size=(40, UNITS))
    S[:, 1], S[:, 3] = S[:, 0], 0
    F, _ = us.fisher(jnp.asarray(S), jnp.zeros(40))
    I, R = us.marginal(F), us.conditional(F, 1e-10)  # noqa: E741
    assert (I[:2] > 0.5).all()
    assert (R[np.array([0, 1, 3])] < 1e-9).all()
    assert I[3] == 0
    assert (R[np.array([2, 4])] > 0.5).all()


def test_sensitivities_of_the_gru_are_its_differences(float64) -> None:
    """Central differences of the port mask folded into a GRU."""
    del float64
    model = rnn_small.build(outputs=OUTPUTS, hidden=4)
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(3, 5, 2)))
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shapes)
    batch = Batch(inputs, jnp.zeros((3, 5, OUTPUTS)))
    (layer,) = model.unit_layers

    @jax.jit
    def both(params, batch):
        S, e = us.mask_jacobian(forward_of(model), params, layer, batch)
        steps = jnp.concatenate([jnp.eye(4), -jnp.eye(4)]) * 1e-5
        moved = jax.lax.map(
            lambda step: model.apply(hu.fold(params, layer, 1 + step), batch.inputs)[0], steps
        )
        return S, e, (moved[:4] - moved[4:]).reshape(4, -1).T / 2e-5

    S, e, differences = both(params, batch)
    np.testing.assert_allclose(S, differences, atol=1e-8)
    np.testing.assert_allclose(e, model.apply(params, inputs)[0].ravel(), atol=1e-12)


@settings(deadline=None, max_examples=5)
@given(st.integers(0, 1000))
def test_the_greedy_surgeon_is_brute_force(seed: int) -> None:
    """At each step, of all further removals with the refit of all others, the cheapest."""
    with jax.enable_x64(True):
        F = fisher_case(seed)
        inverse = np.linalg.inv(F)

        def cost(units):
            at = np.ix_(units, units)
            return np.linalg.inv(inverse[at]).sum() / 2

        removed = []
        for keep in range(UNITS - 1, 0, -1):
            left = [unit for unit in range(UNITS) if unit not in removed]
            removed.append(min(left, key=lambda unit: cost([*removed, unit])))
            found = us.greedy_obs(F, keep)
            assert sorted(removed) == np.flatnonzero(found.mask == 0).tolist()
            delta = -inverse[:, removed] @ np.linalg.inv(inverse[np.ix_(removed, removed)]).sum(1)
            np.testing.assert_allclose(found.delta, delta, atol=1e-9)
            np.testing.assert_allclose(found.delta @ F @ found.delta / 2, cost(removed), rtol=1e-9)
            compensated = us.compensation(F, found.mask, 0.0)
            np.testing.assert_allclose(compensated - (1 - found.mask), found.delta, atol=1e-9)
        assert [int(found.step[unit]) for unit in removed] == list(range(UNITS - 1))


def test_refits_reach_least_squares_and_keep_what_was_removed(float64) -> None:
    del float64
    params, batch, S, e = linear_case(optimal=False)
    F, _ = us.fisher(jnp.asarray(S), jnp.asarray(e))
    loss = us.masked_loss(linear, params, READOUT, batch)
    start = jnp.ones(UNITS).at[2].set(0)
    fitted = jax.jit(lambda start: us.refit(loss, F, start, 1e-9, 12))(start)
    others, target = np.delete(S, 2, axis=1), S @ np.ones(UNITS) - e
    np.testing.assert_allclose(np.delete(fitted, 2), np.linalg.lstsq(others, target)[0], atol=1e-6)
    assert fitted[2] == 0
    assert loss(us.refit(loss, F, start, 1e-9, 0)) == loss(start)


def test_conditioning_is_that_of_the_fisher_matrix(float64) -> None:
    del float64
    S = np.random.default_rng(1).normal(size=(50, UNITS)) @ np.diag([1, 2, 3, 4, 5.0])
    condition, collinearity = us.conditioning(jnp.asarray(S))
    np.testing.assert_allclose(condition, np.linalg.cond(S.T @ S))
    normal = S / np.linalg.norm(S, axis=0)
    np.testing.assert_allclose(collinearity, np.linalg.eigvalsh(normal.T @ normal)[0] ** -0.5)
    orthogonal, _ = np.linalg.qr(S)
    np.testing.assert_allclose(us.conditioning(jnp.asarray(orthogonal)), (1, 1))
    S[:, 0] = 0
    assert np.isfinite(us.conditioning(jnp.asarray(S))).all()


# Pruning a network of one's own -------------------------------------------------------------------


def test_a_network_that_jaxbench_did_not_make(float64) -> None:
    """The copies of a unit go first by what they add, and by their weights not at all."""
    del float64
    rng = np.random.default_rng(0)
    first = rng.normal(size=(3, 4))
    first[:, 1] = first[:, 0]
    params = {"in": jnp.asarray(first), "out": jnp.asarray([[3.0], [3.0], [1.0], [1.0]])}
    layer = UnitLayer(
        "hidden", 4, (UnitSlice(("in",), 1, "incoming"), UnitSlice(("out",), 0, "outgoing"))
    )

    def network(params, inputs):
        return jnp.tanh(inputs @ params["in"]) @ params["out"]

    inputs = jnp.asarray(rng.normal(size=(50, 3)))
    batch = Batch(inputs, network(params, inputs))
    pruned, mask = sp.prune(network, params, layer, batch, keep=3, compensate=True, ridge=1e-9)
    assert mask[:2].sum() == 1
    assert mask[2:].all()
    small = sp.compact(pruned, layer, sp.kept_units(mask))
    assert small["in"].shape == (3, 3)
    np.testing.assert_allclose(network(small, inputs), batch.targets, atol=1e-6)
    _, by_weights = sp.prune(network, params, layer, batch, keep=2, kind="magnitude")
    assert by_weights.tolist() == [1, 1, 0, 0]

    broken = {**params, "in": params["in"].at[0, 0].set(jnp.nan)}
    empty = Batch(inputs[:0], batch.targets[:0])
    for wrong, text in [
        ((params, layer, batch, 0), "keep is 0"),
        ((params, layer, batch, 5), "keep is 5, but the layer has 4 units"),
        ((broken, layer, batch, 2), "'in' are not all finite"),
        ((params, layer, empty, 2), "at least one sample"),
        (({"in": params["in"], "ou": params["out"]}, layer, batch, 2), "nearest is 'ou'"),
    ]:
        *given, keep = wrong
        with pytest.raises(JaxbenchError, match=text):
            sp.prune(network, *given, keep=keep)
    for kind, needed in (("movement", "movement accumulated"), ("random", "a key")):
        with pytest.raises(JaxbenchError, match=needed):
            sp.prune(network, params, layer, batch, keep=2, kind=kind)


def test_every_kind_is_its_score(float64) -> None:
    del float64
    params, _, S, e = linear_case(optimal=False)
    F, g = us.fisher(jnp.asarray(S), jnp.asarray(e))
    moved, key = jnp.arange(5.0), jax.random.key(3)
    expected = {
        "conditional": us.conditional(F, 0.1),
        "marginal": us.marginal(F),
        "greedy": us.greedy_obs(F, 1, 0.1).step,
        "taylor": us.taylor(g),
        "magnitude": np.linalg.norm(params["readout"], axis=1),
        "movement": moved,
        "random": jax.random.uniform(key, (UNITS,)),
    }
    for kind, score in expected.items():
        found = sp.scores(kind, params, READOUT, F, g, ridge=0.1, movement=moved, key=key)
        np.testing.assert_allclose(found, score)


@given(st.integers(1, 100), st.data())
def test_rounds_shrink_geometrically_to_keep(units: int, data) -> None:
    keep, rounds = data.draw(st.integers(1, units)), data.draw(st.integers(1, 6))
    schedule = sp.keep_schedule(units, keep, rounds)
    assert len(schedule) == rounds
    assert schedule[-1] == keep
    assert all(a >= b for a, b in itertools.pairwise((units, *schedule)))
    assert sp.keep_schedule(64, 8, 3) == (32, 16, 8)
    assert sum(sp.split_evenly(units, rounds)) == units


# The intervention ---------------------------------------------------------------------------------

SMALL = {"keep": 2, "dense_epochs": 1, "finetune_epochs": 1, "refit_steps": 1}


def pruning_runs(seeds=2, **options):
    options = SMALL | options
    epochs = options["dense_epochs"] + options["finetune_epochs"]
    recipe = recurrent_recipe(sp.build(**options), epochs=epochs)
    return [Run("arm", 0, {"learning_rate": 0.01}, seed, recipe) for seed in range(seeds)]


def unit_layer(run):
    return run.recipe.model.unit_layers[0]


def test_arms_share_the_dense_training_and_part_at_the_removal() -> None:
    """Three scores, and an arm that removes nothing, which is the plain training."""
    kinds = ("conditional", "magnitude", "random")
    engine = Engine(layout=cpu_layout(1))
    runs = [run for kind in kinds for run in pruning_runs(kind=kind)]
    everything = pruning_runs(keep=6, kind="magnitude")
    trained = engine.train([*runs, *everything], keep=lambda run: True)
    (group,) = engine.groups.values()
    assert (group.runs, group.trained) == (8, 2)

    layer = unit_layer(runs[0])
    for each in trained[: len(runs)]:
        kept = hu.kept_units(each.state.mask)
        assert kept.tolist() == hu.kept_units(hu.top_k(each.state.score, 2)).tolist()
        gone = each.state.mask == 0
        assert gone.sum() == 4
        assert (np.asarray(hu.unit_norms(each.params, layer))[gone] == 0).all()
        for mine, dense in zip(
            jax.tree.leaves(each.state.dense),
            jax.tree.leaves(trained[each.run.seed].state.dense),
            strict=True,
        ):
            assert (mine == dense).all()
    by_kind = np.array([each.test for each in trained]).reshape(4, 2).tolist()
    assert len(set(map(tuple, by_kind))) == 4
    norms = hu.unit_norms(trained[2].state.dense, layer, ("outgoing",))
    np.testing.assert_allclose(trained[2].state.score, norms, rtol=1e-5)

    plain = [dataclasses.replace(run, recipe=recurrent_recipe(epochs=2)) for run in everything]
    np.testing.assert_allclose(
        [each.test for each in trained[len(runs) :]],
        [each.test for each in train(plain, cpu_layout(1))],
        rtol=1e-5,
    )
    check_measurements(runs[0], trained[0], engine.measure(trained[:1])[0])


def check_measurements(run, trained, measurement) -> None:
    """The costs of removals, taken again unit by unit on the host."""
    found, model = measurement.measured, run.recipe.model
    start = Engine(layout=cpu_layout(1)).starts(run.recipe, run.hyper, [run.seed])[0]
    test, layer = start.data.test, unit_layer(run)
    apply = jax.jit(
        lambda params: jnp.mean((model.apply(params, test.inputs)[0] - test.targets) ** 2)
    )
    dense = trained.state.dense
    np.testing.assert_allclose(found["dense_loss"], apply(dense), rtol=1e-5)
    for unit, cost in enumerate(found["raw_ablation"]):
        mask = 1 - np.eye(6, dtype=np.float32)[unit]
        loss = apply(hu.fold(dense, layer, mask))
        np.testing.assert_allclose(found["dense_loss"] + cost, loss, rtol=1e-4)
    np.testing.assert_allclose(found["tuned_loss"], trained.test, rtol=1e-4)
    np.testing.assert_allclose(
        found["pruned_loss"], apply(hu.fold(dense, layer, trained.state.mask)), rtol=1e-4
    )
    np.testing.assert_allclose(found["score"], found["conditional"], rtol=1e-2)
    assert not measurement.untrained["score"].any()
    assert (measurement.untrained["mask"] == 1).all()


def test_rounds_take_as_many_steps_and_end_with_keep() -> None:
    runs = pruning_runs(1, rounds=2, finetune_epochs=3, kind="marginal", compensate=True)
    assert [phase.epochs for phase in runs[0].recipe.phases] == [1, 2, 1]
    (each,) = train(runs, cpu_layout(1))
    assert each.curves["train_loss"].shape == (4,)
    assert each.state.mask.sum() == 2
    assert np.isfinite(each.test)
    with pytest.raises(JaxbenchError, match="4 rounds need at least as many epochs"):
        sp.build(rounds=4, finetune_epochs=3)


def test_movement_is_the_descent_along_the_masks(float64) -> None:
    """`-sum over steps of dL/dm_j`, from the gradient of the parameters."""
    del float64
    params, batch, _, _ = linear_case(optimal=False)
    loss = us.masked_loss(linear, params, READOUT, batch)
    optimizer = sp.track_movement(optax.sgd(0.0), READOUT)
    state = optimizer.init(params)
    gradient = jax.grad(lambda p: jnp.mean((linear(p, batch.inputs) - batch.targets) ** 2))(params)
    for _ in range(2):
        _, state = optimizer.update(gradient, state, params)
    np.testing.assert_allclose(state.movement, -2 * jax.grad(loss)(jnp.ones(UNITS)))
    with pytest.raises(JaxbenchError, match="needs the parameters"):
        optimizer.update(gradient, state)


def test_a_model_without_the_layer_or_with_too_few_units_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="'typo' of hidden units; 'rnn_small' has hidden"):
        train(pruning_runs(1, layer="typo"), cpu_layout(1))
    with pytest.raises(JaxbenchError, match="keep is 7, but the layer has 6 units"):
        train(pruning_runs(1, keep=7), cpu_layout(1))


# Signatures ---------------------------------------------------------------------------------------


def samples(noise, runs=4, units=20):
    rng = np.random.default_rng(0)
    marginal, conditional = rng.exponential(size=(2, runs, units))
    single = {name: np.ones(runs) for name in (*signatures.CONDITIONING, *signatures.LOSSES)}
    return single | {
        "score": conditional,
        "marginal": marginal,
        "conditional": conditional,
        "magnitude": rng.exponential(size=(runs, units)),
        "raw_ablation": 2 * marginal + noise * rng.normal(size=(runs, units)),
        "refitted_ablation": 0.5 * conditional + noise * rng.normal(size=(runs, units)),
    }


def test_correlations_are_scipy_s() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, size=(2, 3, 12)).astype(float)
    pearson = signatures.correlations(x, y)
    spearman = signatures.correlations(signatures.ranks(x), signatures.ranks(y))
    for run in range(3):
        np.testing.assert_allclose(pearson[run], stats.pearsonr(x[run], y[run]).statistic)
        np.testing.assert_allclose(spearman[run], stats.spearmanr(x[run], y[run]).statistic)
    x[0, 0], y[1] = np.nan, 1.0
    assert np.isnan(signatures.correlations(x, y)).tolist() == [True, True, False]


def test_signatures_hold_where_costs_follow_scores_and_not_elsewhere() -> None:
    reported, marginal, conditional = signatures.SIGNATURES
    good, bad = samples(0.05), samples(30.0)
    for signature in (marginal, conditional):
        states = [
            judging.judge(signature, {"idea": subject}, {"idea": control}).state
            for subject, control in ((good, bad), (bad, bad), (good, good))
        ]
        assert states == ["confirmed", "refuted", "vacuous"]
    assert reported.evaluate({**good, "raw_ablation": good["conditional"]}).passed
    assert not reported.evaluate(good).passed
    nothing = {name: np.full_like(value, np.nan) for name, value in good.items()}
    assert marginal.evaluate(nothing).passed is None
    follows_marginal = {
        **good,
        "refitted_ablation": good["marginal"],
        "conditional": good["marginal"],
    }
    assert judging.judge(conditional, {"idea": follows_marginal}, {"idea": bad}).state == "vacuous"


# Other networks and groups ------------------------------------------------------------------------


def pruned_run(recipe):
    """One trained run of a recipe, with its engine."""
    engine = Engine(layout=cpu_layout(1))
    run = Run("arm", 0, {"learning_rate": 0.01}, 0, recipe)
    (trained,) = engine.train([run], keep=lambda run: True)
    assert np.isfinite(trained.test)
    return engine, trained


def test_a_layer_of_the_perceptron_is_pruned_and_becomes_a_smaller_one() -> None:
    """The tabular track: masks stay through fine-tuning, the compact network is the masked one."""
    recipe = mlp_recipe(sp.build(**SMALL, layer="Dense_0"))
    assert recipe.intervention.requires <= recipe.model.features | recipe.track.features
    engine, trained = pruned_run(recipe)
    layer = recipe.model.unit_layers[0]
    mask, params = np.asarray(trained.state.mask), trained.params
    assert mask.sum() == 2
    assert (np.asarray(hu.unit_norms(params, layer))[mask == 0] == 0).all()
    inputs = engine.starts(recipe, trained.run.hyper, [0])[0].data.test.inputs
    smaller = recipe.model.resized({"Dense_0": 2})
    dense, fill = trained.state.dense, np.full(6, 0.5, np.float32)
    for masked, whole, at in (
        (params, params, None),
        (hu.fold(dense, layer, mask, fill), dense, fill),
    ):
        small = hu.compact(whole, layer, hu.kept_units(mask), at)
        found = smaller.apply(small, inputs)[0]
        np.testing.assert_allclose(found, recipe.model.apply(masked, inputs)[0], atol=1e-5)
    assert recipe.intervention.units_left(recipe.model) == {"Dense_0": 2}
    with pytest.raises(
        JaxbenchError, match="one named layer of hidden units; 'mlp_tiny' has Dense_0"
    ):
        sp.build(**SMALL).units_left(recipe.model)


def test_gates_stay_masked_and_are_scored_by_their_parameters() -> None:
    recipe = recurrent_recipe(sp.build(**SMALL | {"keep": 7}, groups="gates", kind="parameters"))
    engine, trained = pruned_run(recipe)
    start = engine.starts(recipe, trained.run.hyper, [0])[0]
    gates = recipe.model.parameter_groups["gates"](trained.params)
    mask = np.asarray(trained.state.mask)
    assert mask.shape == (18,)
    assert mask.sum() == 7
    assert (np.asarray(hu.unit_norms(trained.params, gates))[mask == 0] == 0).all()
    assert (np.asarray(hu.unit_norms(trained.params, gates))[mask == 1] > 0).all()

    @jax.jit
    def information(params):
        return sp.parameter_information(forward_of(recipe.model), params, gates, start.data.train)

    expected = information(trained.state.dense)
    np.testing.assert_allclose(trained.state.score, expected, rtol=1e-2)
    assert recipe.intervention.units_left is None
    ctx = Context(jax.random.key(0), {}, recipe.model, trained.params, start.data.train, (), 0)
    with pytest.raises(JaxbenchError, match="keep is 19, but the layer has 18 gates"):
        sp.build(keep=19, groups="gates").init_state(ctx)
    assert sp.build(groups="inputs", keep=2).requires == {"inputs", "regression"}


def test_the_solver_s_evaluations_before_and_after_are_measured() -> None:
    model = node_small.build(outputs=2, hidden=6)
    intervention = sp.build(**SMALL)
    recipe = dataclasses.replace(recurrent_recipe(intervention), model=model)
    engine, trained = pruned_run(recipe)
    (layer,) = model.unit_layers
    assert (np.asarray(hu.unit_norms(trained.params, layer)) == 0).sum() == 4
    test = engine.starts(recipe, trained.run.hyper, [0])[0].data.test
    ctx = Context(jax.random.key(0), {}, model, trained.params, test, (), 0)
    found = intervention.measure_host(ctx, trained.params, trained.state, test)
    small = hu.compact(trained.params, layer, hu.kept_units(trained.state.mask))
    for name, of in (("pruned", small), ("dense", trained.state.dense)):
        expected = model.solver_evaluations(of, test.inputs)
        assert found[f"solver_evaluations_{name}"] == expected.mean() >= 2 * 8
    others = dataclasses.replace(ctx, model=rnn_small.build(outputs=2))
    assert intervention.measure_host(others, trained.params, trained.state, test) == {}
