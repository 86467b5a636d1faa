"""What data see of axes, what is chosen and measured, and the idea in training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import pytest
from factories import cpu_layout, mlp_recipe, scores
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import SEEDS, network

from jaxbench import judging, registry
from jaxbench.base import JaxbenchError
from jaxbench.interventions import axis_pruning as ap
from jaxbench.interventions.axis_measures import (
    DOMAINS,
    THRESHOLDS,
    bound_measures,
    class_measures,
    compact_measures,
    milp_measures,
)
from jaxbench.interventions.axis_pruning import CROSSING, OFF, ON
from jaxbench.interventions.axis_signatures import SIGNATURES
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Run

examples = settings(deadline=None, max_examples=20)
choose = jax.jit(ap.choose, static_argnames=("score", "keep", "alpha", "fill"))
visibility = jax.jit(ap.visibility)


def in_float32(layers):
    return [ap.Affine(*(jnp.asarray(leaf, jnp.float32) for leaf in layer)) for layer in layers]


# Visibility


def test_classes_and_scores_of_units_seen_through_and_through():
    """Ten samples: below 0 lie none, one, five, nine and all of them."""
    below = np.array([0, 1, 5, 9, 10])
    a = np.where(np.arange(10)[:, None] < below, -2.0, 3.0).astype(np.float32)
    seen = visibility(a, 0.1)
    assert seen.kind.tolist() == [ON, ON, CROSSING, OFF, OFF]
    np.testing.assert_allclose(seen.crossing, [0, 0.1, 0.5, 0.1, 0], rtol=1e-6)
    np.testing.assert_allclose(seen.kink, [0, 0.2, 1.0, 0.3, 0], rtol=1e-6)
    assert visibility(a, 0.0).kind.tolist() == [ON, CROSSING, CROSSING, CROSSING, OFF]
    assert visibility(0 * a, 0.0).kind.tolist() == [OFF] * 5


@examples
@given(SEEDS, st.sampled_from([1, 20]), st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.4]))
def test_classes_are_those_of_quantiles(seed, samples, alpha):
    rng = np.random.default_rng(seed)
    a = (rng.normal(size=(samples, 6)) + rng.normal(size=6)).astype(np.float32)
    seen = visibility(a, alpha)
    few = int(np.floor(alpha * samples + 1e-9))
    ordered = np.sort(a, axis=0)
    on = ordered[few] > 0  # the alpha quantile, the `few` lowest values left out
    off = ordered[samples - 1 - few] <= 0
    assert (seen.kind == np.where(on, ON, np.where(off, OFF, CROSSING))).all()
    share = (a > 0).mean(axis=0)
    np.testing.assert_allclose(seen.crossing, np.minimum(share, 1 - share), atol=1e-6)
    better = np.minimum(np.maximum(a, 0).mean(0), np.maximum(-a, 0).mean(0))
    np.testing.assert_allclose(seen.kink, better, rtol=1e-5, atol=1e-6)


def test_scores_are_as_defined():
    incoming, outgoing = np.array([[3.0, 0], [4, 1]]), np.array([[1.0, 2, 2], [0, 0, 2]])
    seen = ap.Visibility(None, jnp.array([0.5, 0.25]), jnp.array([2.0, 4]))
    given_scores = {"crossing": [1.5, 0.5], "kink": [6, 8], "magnitude": [15, 2]}
    for score, expected in given_scores.items():
        np.testing.assert_allclose(ap.axis_score(incoming, outgoing, seen, score), expected)


@examples
@given(SEEDS)
def test_a_fitted_line_is_the_least_squares_one(seed):
    a = np.random.default_rng(seed).normal(size=(30, 3)).astype(np.float32)
    slope, intercept = ap.affine_fit(a)
    for unit in range(3):
        expected = np.polyfit(a[:, unit], np.maximum(a[:, unit], 0), 1)
        np.testing.assert_allclose([slope[unit], intercept[unit]], expected, atol=1e-5)


def test_a_constant_unit_is_fitted_by_its_value():
    slope, intercept = ap.affine_fit(np.array([[2.0, -1], [2, -1]], np.float32))
    assert slope.tolist() == [0, 0]
    assert intercept.tolist() == [2, 0]


# Choosing


@examples
@given(SEEDS, st.sampled_from([(0.1, "zero"), (0.5, "affine"), (0.5, "fit")]))
def test_the_units_with_the_lowest_scores_are_replaced_by_their_class(seed, how):
    keep, fill = how
    rng = np.random.default_rng(seed)
    layers = in_float32(network(rng, (3, 7, 5, 2)))
    data = rng.uniform(-0.3, 0.3, size=(40, 3)).astype(np.float32)
    choice = choose(layers, data, score="kink", keep=keep, fill=fill)
    for place, (seen, by) in enumerate(zip(choice.visibility, choice.replacements, strict=True)):
        kept = np.asarray(by.mask) == 1
        assert kept.sum() == max(1, np.floor(keep * kept.size + 0.5))
        worth = seen.kink * np.linalg.norm(layers[place + 1].kernel, axis=1)
        assert worth[kept].min() >= worth[~kept].max()
        slopes = np.where(~kept & (seen.kind == ON) & (fill != "zero"), 1, 0)
        crosses = ~kept & (seen.kind == CROSSING)
        assert (np.asarray(by.slope) == slopes)[~crosses].all()
        assert not np.asarray(by.intercept)[~crosses].any()
        if fill != "fit":
            assert not np.asarray(by.slope)[crosses].any()


def test_ties_go_to_the_lower_index():
    """Every unit is on, so that every score is 0."""
    layers = [ap.Affine(np.zeros((2, 6)), np.ones(6)), ap.Affine(np.ones((6, 1)), np.zeros(1))]
    choice = ap.choose(in_float32(layers), np.zeros((4, 2), np.float32), keep=0.5)
    assert choice.replacements[0].mask.tolist() == [1, 1, 1, 0, 0, 0]


def test_units_are_drawn_at_random_from_the_key_alone():
    """The control: equally often kept, other units in each layer and by each key."""
    layers = [ap.Affine(np.zeros((2, 8)), np.ones(8)), ap.Affine(np.ones((8, 8)), np.zeros(8))]
    layers.append(ap.Affine(np.ones((8, 1)), np.zeros(1)))
    layers, data = in_float32(layers), np.zeros((4, 2), np.float32)
    draw = jax.jit(lambda key: [
        by.mask for by in ap.choose(layers, data, score="random", keep=0.5, key=key).replacements
    ])  # fmt: skip
    masks = np.array([draw(jax.random.key(seed)) for seed in range(200)])
    assert (masks.sum(axis=2) == 4).all()
    assert (masks == [draw(jax.random.key(seed)) for seed in range(200)]).all()
    assert (masks[:, 0] != masks[:, 1]).any(axis=1).mean() > 0.9
    # the standard deviation of a share of 200 draws is 0.035
    assert np.abs(masks.mean(axis=0) - 0.5).max() < 0.15
    with pytest.raises(JaxbenchError, match="'random' needs a key"):
        ap.choose(layers, data, score="random")


def test_what_cannot_be_chosen_is_refused():
    layers, data = network(np.random.default_rng(0), (2, 3, 1)), np.zeros((4, 2))
    for keep in (0.0, 1.5, -1.0):
        with pytest.raises(JaxbenchError, match="above 0 and at most 1"):
            ap.choose(layers, data, keep=keep)
    with pytest.raises(JaxbenchError, match="the batch is empty"):
        ap.choose(layers, data[:0])
    with pytest.raises(JaxbenchError, match=r"below 0\.5"):
        ap.choose(layers, data, alpha=0.5)
    layers[0].bias[1] = np.nan
    with pytest.raises(JaxbenchError, match="not all finite"):
        ap.choose(layers, data)


def test_a_network_of_ones_own_is_pruned_without_jaxbench():
    """A plain dict of numpy arrays: half of its units go, and the smaller network is the same."""
    rng = np.random.default_rng(1)
    mine = {
        "W1": rng.normal(size=(4, 8)), "b1": np.array([9.0] * 3 + [-9.0] * 3 + [0.1] * 2),
        "W2": rng.normal(size=(8, 1)), "b2": np.zeros(1),
    }  # fmt: skip
    layers = [(mine["W1"], mine["b1"]), (mine["W2"], mine["b2"])]
    data = rng.uniform(-1, 1, size=(100, 4))
    choice = ap.choose(layers, data, keep=0.25)
    assert choice.replacements[0].mask.tolist() == [0] * 6 + [1] * 2
    by = [ap.Replacement(*(np.asarray(part, float) for part in choice.replacements[0]))]
    smaller = ap.fold(layers, by)
    expected = np.maximum(data @ mine["W1"] + mine["b1"], 0) @ mine["W2"] + mine["b2"]
    np.testing.assert_allclose(ap.compact_apply(smaller, data), expected, rtol=1e-12, atol=1e-12)
    assert [layer.bias.size for layer in smaller] == [2, 1]


# What is measured


@pytest.fixture(scope="module")
def constructed():
    """A network with units on, off and crossing, what is removed from it, and data."""
    rng = np.random.default_rng(6)
    layers = network(rng, (3, 8, 6, 1))
    (_, bias), (onwards, next_bias), _ = layers
    bias[:2], bias[2:4] = 20, -20  # on and off on the box
    onwards[:, :2], next_bias[:2] = np.abs(onwards[:, :2]), 0.5  # on everywhere
    next_bias[2:] = 2 * rng.normal(size=4) - 20 * onwards[:2, 2:].sum(axis=0)  # about 0
    layers = in_float32(layers)
    data, test = (rng.uniform(size=(n, 3)).astype(np.float32) for n in (60, 500))
    return layers, choose(layers, data, alpha=0.2), data, test


@pytest.fixture(scope="module")
def measured(constructed):
    classes = jax.jit(class_measures, static_argnums=(4, 5))(*constructed, 0.0, 1.0)
    return jax.tree.map(np.asarray, {**classes, **jax.jit(bound_measures)(*constructed)})


def test_counts_by_layer_domain_and_class(constructed, measured):
    _, choice, _, _ = constructed
    assert measured["units"].shape == (2, len(DOMAINS), 3)
    assert (measured["units"].sum(axis=2) == [[8], [6]]).all()
    assert (measured["removed"].sum(axis=2) == [[4], [3]]).all()
    for place, seen in enumerate(choice.visibility):
        expected = [(np.asarray(seen.kind) == each).sum() for each in (OFF, CROSSING, ON)]
        assert measured["units"][place, 0].tolist() == expected
    off, _, on = np.moveaxis(measured["units"], 2, 0)
    one_sided = dict(zip(DOMAINS, (off + on).T, strict=True))
    assert (one_sided["quantile"] >= one_sided["sample"]).all()
    assert (one_sided["sample"] >= one_sided["box"]).all()
    assert one_sided["sample"][0] >= one_sided["hull"][0] >= one_sided["box"][0] >= 4
    assert one_sided["hull"][1] == 0
    assert one_sided["everywhere"].tolist() == [0, 2]
    assert measured["outside_box"] == 0


def test_errors_are_those_of_the_removed_units(constructed, measured):
    layers, choice, _, test = constructed
    worst = 0.0
    for a, seen, by in zip(
        ap.preacts(layers, test), choice.visibility, choice.replacements, strict=True
    ):
        a, kind = np.asarray(a), np.asarray(seen.kind)
        for unit in np.flatnonzero((np.asarray(by.mask) == 0) & (kind != CROSSING)):
            value = -a[:, unit] if kind[unit] == ON else a[:, unit]
            worst = max(worst, value.max())
    assert worst > 0.1
    assert measured["one_sided_error"] == pytest.approx(worst, rel=1e-5)
    assert measured["certified_units"] >= 4
    assert measured["certified_error"] == measured["certified_relative_error"] == 0


def test_moves_are_those_of_the_networks_with_units_replaced(constructed, measured):
    layers, _, data, test = constructed
    outputs = ap.masked_apply(layers, ap.nothing_replaced(layers), test)[0]
    for place in (0, len(THRESHOLDS) - 1):
        kinds = [visibility(a, THRESHOLDS[place]).kind for a in ap.preacts(layers, data)]
        by = ap.one_sided_replaced(kinds, jnp.float32)
        moved = jnp.linalg.norm(ap.masked_apply(layers, by, test)[0] - outputs, axis=1)
        assert measured["threshold_move"][place] == pytest.approx(float(moved.mean()), rel=1e-3)
        assert measured["threshold_units"][place] == sum((kind != 0).sum() for kind in kinds)
    assert (measured["threshold_excess"] <= 1e-5 * measured["output_scale"]).all()
    assert (np.diff(measured["threshold_units"]) >= 0).all()
    assert measured["single_errors"] > 0
    assert measured["tightness"] == pytest.approx(1, abs=1e-2)


def test_the_compact_network_is_counted_and_the_same(constructed):
    layers, choice, _, test = constructed
    found = compact_measures(layers, choice.replacements, test)
    assert found["dense_parameters"] == 4 * 8 + 9 * 6 + 7
    assert found["dense_flops"] == 2 * (3 * 8 + 8 * 6 + 6)
    assert found["compact_difference"] <= 1e-12 * max(1, np.abs(found["dense_flops"]))
    assert found["unfolded_parameters"] <= found["dense_parameters"]


def test_mixed_integer_programming_certifies_no_less_than_intervals(constructed):
    layers, choice, _, test = constructed
    found = milp_measures(layers, choice, test, 0.0, 1.0, units=9, seconds=5.0)
    tried, off, on, cut = found["milp"].T
    assert found["milp"].shape == (2, 4)
    assert (off + on <= tried).all()
    assert tried[0] == 0 or off[0] + on[0] == 0  # intervals are exact in the first layer
    assert cut.sum() == 0
    assert found["milp_units"] == (off + on).sum()
    assert found["milp_relative_error"] <= 1e-5


# Signatures


def judged(samples, untrained=None):
    arms = {"idea": samples}
    control = {"idea": untrained or samples}
    return {each.name: judging.judge(each, arms, control) for each in SIGNATURES}


def stacked(measured, **changes):
    samples = {name: np.stack([np.asarray(value, float)] * 3) for name, value in measured.items()}
    return {**samples, **{name: np.asarray(value, float) for name, value in changes.items()}}


def test_signatures_are_those_of_a_theorem_where_the_control_passes_too(measured):
    results = judged(stacked(measured))
    assert results["bound_holds"].state == "vacuous"
    assert results["certified_units_lose_nothing"].state == "vacuous"
    assert results["one_sided_axes_are_affine"].state is None
    counted = results["certified_units_lose_nothing"].subject.values
    assert counted["removed_units"] == (3 * measured["removed"]).tolist()


def test_a_certificate_is_confirmed_where_looks_deceive_and_untrained_networks_have_none(measured):
    samples = stacked(measured, sampled_relative_error=[0, 0.01, 0], sampled_units=[5, 5, 5])
    untrained = stacked(measured, certified_units=[0, 0, 0])
    name = "certified_units_lose_nothing"
    assert judged(samples, untrained)[name].state == "confirmed"
    assert judged(untrained, untrained)[name].state == "untestable"
    wrong = {**samples, "certified_relative_error": np.array([0, 2e-5, 0])}
    assert judged(wrong, untrained)[name].state == "refuted"
    by_programming = {
        **untrained,
        "milp_units": np.array([np.nan, 2, 0]),
        "milp_relative_error": np.array([np.nan, 0, 0]),
        "sampled_relative_error": np.array([0, 0.01, 0]),
    }
    assert judged(by_programming, untrained)[name].state == "confirmed"


def test_the_bound_is_refuted_by_an_excess_or_by_slack(measured):
    excess = np.stack([measured["threshold_excess"]] * 3)
    excess[1, 2] = 1e-4 * measured["output_scale"]
    assert judged(stacked(measured, threshold_excess=excess))["bound_holds"].state == "refuted"
    loose = stacked(measured, tightness=[1, 0.4, 1], single_errors=[3, 3, 3])
    assert judged(loose)["bound_holds"].state == "refuted"
    none = stacked(measured, single_errors=[0, 0, 0])
    assert judged(none)["bound_holds"].state == "untestable"


def test_moves_in_proportion_to_the_bound_are_confirmed_against_counts(measured):
    rng = np.random.default_rng(0)
    bound = rng.exponential(size=(3, len(THRESHOLDS)))
    samples = stacked(measured, threshold_bound=bound, threshold_move=bound / 3)
    untrained = stacked(measured, threshold_bound=bound, threshold_move=bound[::-1])
    assert judged(samples, untrained)["bound_predicts_move"].state == "confirmed"
    assert judged(untrained, samples)["bound_predicts_move"].state == "refuted"
    still = stacked(measured, threshold_move=0 * bound)
    assert judged(still, samples)["bound_predicts_move"].state == "untestable"


def test_the_reported_rule_fails_where_one_sided_units_err(measured):
    samples = stacked(measured, one_sided_relative_error=[0, 0.1, 0], one_sided_units=[4, 4, 4])
    result = judged(samples)["one_sided_axes_are_affine"]
    assert result.confirmed_legacy is False
    assert result.subject.values["runs_without_error"] == 2
    dropped = {**samples, "one_sided_relative_error": np.array([0, np.nan, 0])}
    assert judged(dropped)["one_sided_axes_are_affine"].subject.values["runs_dropped"] == 1


# In training


def arm(**options):
    return mlp_recipe(ap.build(dense_epochs=2, finetune_epochs=2, samples=32, **options))


def runs_of(recipe, count=2):
    return [Run("arm", 0, {"learning_rate": 0.01}, seed, recipe) for seed in range(count)]


@pytest.fixture(scope="module")
def trained():
    """Both arms, and the idea with nothing removed, in one engine."""
    engine = Engine(layout=cpu_layout(1))
    recipes = {
        "baseline": arm(score="magnitude", replacement="zero"),
        "idea": arm(alpha=0.2),
        "whole": arm(keep=1.0),
    }
    runs = [run for recipe in recipes.values() for run in runs_of(recipe)]
    done = engine.train(runs, keep=lambda run: True)
    return engine, dict(zip(recipes, (done[:2], done[2:4], done[4:]), strict=True))


def test_arms_share_the_dense_training(trained):
    engine, arms = trained
    (group,) = engine.groups.values()
    assert (group.runs, group.trained) == (6, 2)
    for one, other in zip(arms["baseline"], arms["idea"], strict=True):
        first, second = one.curves["train_loss"], other.curves["train_loss"]
        assert (first[:2] == second[:2]).all()
        for a, b in zip(*(jax.tree.leaves(each.state.dense) for each in (one, other)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_removed_units_are_zero_and_the_others_train_on(trained):
    _, arms = trained
    for name, each in [(name, run) for name, runs in arms.items() for run in runs]:
        layers = each.run.recipe.model.unit_layers
        kept = {"whole": [6, 5]}.get(name, [3, 3])
        for layer, by, count in zip(layers, each.state.replacements, kept, strict=True):
            alive = (by.mask != 0) | (by.slope != 0)
            assert int(by.mask.sum()) == count
            assert name != "baseline" or not by.slope.any()
            for (group, leaf), axis in [(piece.leaf, piece.axis) for piece in layer.slices]:
                now = np.moveaxis(each.params[group][leaf], axis, 0)
                dense = np.moveaxis(each.state.dense[group][leaf], axis, 0)
                assert not now[~alive].any()
                assert leaf == "kernel" or (now[alive] != dense[alive]).any() or not alive.any()


def test_with_every_unit_kept_it_is_the_plain_training(trained):
    _, arms = trained
    plain = mlp_recipe(epochs=4)
    expected = scores(Engine(layout=cpu_layout(1)).train(runs_of(plain)))
    np.testing.assert_allclose(scores(arms["whole"]), expected, rtol=1e-5)


def test_a_trained_network_is_measured_as_it_was_before_pruning(trained):
    engine, arms = trained
    (first, _) = engine.measure(arms["idea"])
    each = arms["idea"][0]
    start = engine.starts(each.run.recipe, each.run.hyper, [0])[0]
    layers = ap.dense_layers(each.state.dense, each.run.recipe.model.unit_layers)
    choice = choose(layers, start.data.train.inputs, alpha=0.2)
    for found, expected in zip(each.state.replacements, choice.replacements, strict=True):
        np.testing.assert_array_equal(found.mask, expected.mask)
    removed = first.measured["removed"][:, 0]
    for place, (seen, by) in enumerate(zip(choice.visibility, choice.replacements, strict=True)):
        gone = np.asarray(seen.kind)[np.asarray(by.mask) == 0]
        assert removed[place].tolist() == [(gone == kind).sum() for kind in (OFF, CROSSING, ON)]
    assert first.measured["compact_difference"] <= 1e-12 * first.measured["output_scale"]
    assert first.measured["compact_parameters"] > 0
    assert (first.untrained["removed"].sum(axis=2) == [[3], [2]]).all()


def test_on_sequences_each_step_is_a_sample(trained):
    """Where samples have time steps, all of them show the axes: here one a sample, as without."""
    engine, arms = trained
    recipe = arm(alpha=0.2)
    track = recipe.track

    def generate(key):
        return jax.tree.map(lambda leaf: leaf[:, None], track.generate(key))

    recipe = dataclasses.replace(recipe, track=dataclasses.replace(track, generate=generate))
    done = engine.train(runs_of(recipe), keep=lambda run: True)
    np.testing.assert_allclose(scores(done), scores(arms["idea"]), rtol=1e-5)
    for one, other in zip(engine.measure(done), engine.measure(arms["idea"]), strict=True):
        np.testing.assert_array_equal(one.measured["removed"], other.measured["removed"])


def test_its_model_without_a_state_is_the_plain_one():
    recipe = mlp_recipe()
    wrapped = ap.with_replacements(recipe.model)
    assert dataclasses.replace(wrapped, apply=recipe.model.apply) == recipe.model
    inputs = np.ones((2, 10), np.float32)
    params = recipe.model.init(jax.random.key(0), inputs)
    expected, _ = recipe.model.apply(params, inputs)
    np.testing.assert_array_equal(wrapped.apply(params, inputs)[0], expected)


def test_options_are_checked():
    component = registry.load("interventions", "axis_pruning")
    for wrong in ({"keep": 0.0}, {"keep": 1.1}, {"alpha": 0.5}, {"score": "size"}, {"samples": 0}):
        with pytest.raises(pydantic.ValidationError):
            component.make(wrong)
    with pytest.raises(JaxbenchError, match="from low to high"):
        component.make({"low": 1.0, "high": 0.0})
