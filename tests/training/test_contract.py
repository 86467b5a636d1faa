"""Each hook of the intervention contract, with a tiny intervention that uses it alone."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from factories import cpu_layout, runs_of, scores, small_recipe, train, vmap_layout

from jaxbench.base import Hyper, Intervention, JaxbenchError, Phase
from jaxbench.training.engine import Engine
from jaxbench.training.layout import Layout
from jaxbench.training.runs import Run

LAYOUTS = [cpu_layout(2), vmap_layout(8)]
both_layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=["map", "vmap"])


def tiny(**hooks: Any) -> Intervention:
    return Intervention(name="tiny", summary="for a test", **hooks)


@both_layouts
def test_prepare_reaches_every_hook_and_is_called_once(layout: Layout) -> None:
    calls = []

    def prepare(key: jax.Array) -> jax.Array:
        calls.append(key)
        return jnp.array([2.0, 3.0])

    idea = tiny(prepare=prepare, measure=lambda ctx, params, state, test: {"got": ctx.consts})
    engine = Engine(layout=layout)
    trained = engine.train(runs_of(small_recipe(idea), 4), keep=lambda run: True)
    for measurement in engine.measure(trained):
        assert measurement.measured["got"].tolist() == [2.0, 3.0]
    assert len(calls) == 1


@both_layouts
def test_wrap_model_changes_the_forward_pass(layout: Layout) -> None:
    """Outputs multiplied by 0 score as the constant 0 does."""

    def wrap(model: Any) -> Any:
        def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
            outputs, intermediates = model.apply(params, inputs, **kwargs)
            return 0.0 * outputs, intermediates

        return dataclasses.replace(model, apply=apply)

    recipe = small_recipe(tiny(wrap_model=wrap))
    engine = Engine(layout=layout)
    run = runs_of(recipe, 1)[0]
    test = engine.starts(recipe, run.hyper, [run.seed])[0].data.test
    assert engine.train([run])[0].test == pytest.approx(np.mean(test.targets**2), rel=1e-5)


@both_layouts
def test_state_is_kept_over_chunks_and_logged_by_after_epoch(layout: Layout) -> None:
    def after_epoch(ctx: Any, params: Any, opt_state: Any, state: Any, epoch: Any) -> Any:
        return params, opt_state, state + ctx.hyper["add"], {"total": state, "epoch": epoch}

    idea = tiny(
        hyper={"add": Hyper(1.0, 0.0, 9.0, "what to add")},
        init_state=lambda ctx: jnp.array(10.0),
        after_epoch=after_epoch,
    )
    runs = runs_of(small_recipe(idea, epochs=3), 3, add=2.0)
    for each in Engine(layout=layout).train(runs, keep=lambda run: True):
        assert each.curves["total"].tolist() == [10.0, 12.0, 14.0]
        assert each.curves["epoch"].tolist() == [0, 1, 2]
        assert each.state == 16.0


@both_layouts
def test_after_epoch_may_change_parameters(layout: Layout) -> None:
    def zero(ctx: Any, params: Any, opt_state: Any, state: Any, epoch: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, params), opt_state, state, {}

    engine = Engine(layout=layout)
    runs = runs_of(small_recipe(tiny(after_epoch=zero)), 2)
    for each in engine.train(runs, keep=lambda run: True):
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(each.params))


@both_layouts
def test_loss_term_is_added_and_its_weight_is_a_number_of_the_run(layout: Layout) -> None:
    """A strong pull to zero shrinks the parameters; at weight 0 the training is the plain one."""

    def pull(ctx: Any, params: Any, state: Any, batch: Any, outputs: Any, *rest: Any) -> Any:
        return ctx.hyper["pull"] * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))

    idea = tiny(hyper={"pull": Hyper(1.0, 0.0, 9.0, "weight", neutral=0.0)}, loss_term=pull)
    recipe = small_recipe(idea)
    strong, zero = (
        Engine(layout=layout).train(runs_of(recipe, 3, pull=value), keep=lambda run: True)
        for value in (1.0, 0.0)
    )
    plain = Engine(layout=layout).train(runs_of(small_recipe(), 3), keep=lambda run: True)
    assert np.allclose(scores(zero), scores(plain), rtol=1e-5)
    for big, small in zip(zero, strong, strict=True):
        assert optax.tree.norm(small.params) < optax.tree.norm(big.params)
        assert (small.curves["loss_term"] > 0).all()


@both_layouts
def test_loss_term_gets_the_step_and_a_key_of_its_own(layout: Layout) -> None:
    """Steps count through the epochs; the term's gradient is zero, so nothing else moves."""

    def term(*given: Any) -> Any:
        step, key = given[-2:]
        return step.astype(float) + 0 * jax.random.uniform(key)

    each = Engine(layout=layout).train(runs_of(small_recipe(tiny(loss_term=term)), 1))[0]
    assert each.curves["loss_term"].tolist() == [1.5, 5.5]  # means of steps 0..3 and 4..7


@both_layouts
def test_wrap_optimizer_sees_loss_state_step_and_key(layout: Layout) -> None:
    """Updates masked by the state leave every parameter where it was."""

    def wrap(optimizer: Any, ctx: Any) -> Any:
        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            assert {"value", "intervention_state", "step", "key"} <= set(extra)
            updates, state = optimizer.update(updates, state, params, **extra)
            return jax.tree.map(lambda u: u * extra["intervention_state"], updates), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    idea = tiny(init_state=lambda ctx: jnp.array(0.0), wrap_optimizer=wrap)
    recipe = small_recipe(idea)
    engine = Engine(layout=layout)
    run = runs_of(recipe, 1)[0]
    each = engine.train([run], keep=lambda run: True)[0]
    start = engine.starts(recipe, run.hyper, [run.seed])[0]
    same = jax.tree.map(lambda a, b: (a == b).all(), each.params, start.params0)
    assert all(jax.tree.leaves(same))


def halving(kind: str, log: list[str] | None = None) -> Intervention:
    """Two epochs, then surgery that keeps or zeroes the kernel, then two more epochs."""

    def surgery(ctx: Any, params: Any, opt_state: Any, state: Any) -> Any:
        factor = 0.0 if kind == "zero" else 1.0
        return {"kernel": factor * params["kernel"]}, opt_state, state + 1

    def term(*given: Any) -> Any:
        if log is not None:
            log.append("traced")
        return jnp.zeros(())

    return tiny(
        static={"kind": kind},
        surgery_static=("kind",),
        init_state=lambda ctx: jnp.array(0, jnp.int32),
        loss_term=term,
        phases=(Phase(2, surgery), Phase(2)),
    )


@both_layouts
def test_arms_that_differ_in_surgery_share_their_training(layout: Layout) -> None:
    """The first phase is trained once for both arms, and each arm gets what it gets alone."""
    recipes = {kind: small_recipe(halving(kind), epochs=4) for kind in ("keep", "zero")}
    runs = [run for recipe in recipes.values() for run in runs_of(recipe, 3)]
    engine = Engine(layout=layout)
    together = engine.train(runs, keep=lambda run: True)
    (group,) = engine.groups.values()
    assert (group.runs, group.trained) == (6, 3)
    alone = [
        each
        for recipe in recipes.values()
        for each in Engine(layout=layout).train(runs_of(recipe, 3), keep=lambda run: True)
    ]
    assert (scores(together) == scores(alone)).all()
    keep, zero = together[:3], together[3:]
    for one, other in zip(keep, zero, strict=True):
        assert one.state == other.state == 1
        assert one.curves["train_loss"].shape == (4,)
        assert (one.curves["train_loss"][:2] == other.curves["train_loss"][:2]).all()
        assert (one.curves["train_loss"][2:] != other.curves["train_loss"][2:]).all()
    assert [program.name for program in group.programs].count("epoch") == 1


@both_layouts
def test_arms_with_more_rounds_of_surgery_share_their_first_stretch(layout: Layout) -> None:
    """One, two and three rounds train the first epoch once; a longer first stretch is another."""

    def halve(ctx: Any, params: Any, opt_state: Any, state: Any) -> Any:
        return jax.tree.map(lambda leaf: 0.5 * leaf, params), opt_state, state

    def rounds(first: int, count: int) -> Intervention:
        later = (Phase(1, halve),) * (count - 1) + (Phase(5 - first - count),)
        return tiny(
            static={"first": first, "rounds": count},
            surgery_static=("first", "rounds"),
            phases=(Phase(first, halve), *later),
        )

    recipes = [small_recipe(rounds(*each), epochs=4) for each in ((1, 1), (1, 2), (1, 3), (2, 1))]
    engine = Engine(layout=layout)
    together = engine.train([run for recipe in recipes for run in runs_of(recipe, 3)])
    (group,) = engine.groups.values()
    assert (group.runs, group.trained) == (12, 6)
    assert [program.name for program in group.programs].count("epoch") == 1
    alone = [each for recipe in recipes for each in Engine(layout=layout).train(runs_of(recipe, 3))]
    assert (scores(together) == scores(alone)).all()
    assert len({each.test for each in together}) == 12
    for each in together:
        assert each.curves["train_loss"].shape == (4,)


def test_surgery_that_changes_nothing_is_the_plain_training() -> None:
    phased = train(runs_of(small_recipe(halving("keep"), epochs=4), 3), cpu_layout(2))
    plain = train(runs_of(small_recipe(epochs=4), 3), cpu_layout(2))
    assert np.allclose(scores(phased), scores(plain), rtol=1e-5)


def test_phases_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(JaxbenchError, match=r"2 \+ 2 = 4 epochs, but training.epochs is 5"):
        train(runs_of(small_recipe(halving("keep"), epochs=5), 1), cpu_layout(1))


@both_layouts
def test_measure_sees_the_trained_and_the_initial_network_and_the_test_split(
    layout: Layout,
) -> None:
    def measure(ctx: Any, params: Any, state: Any, test: Any) -> Any:
        outputs, _ = ctx.model.apply(params, test.inputs)
        moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), params, ctx.params0)
        return {
            "score": ((outputs - test.targets) ** 2).mean(),
            "moved": jnp.stack(jax.tree.leaves(moved)).max(),
            "scaled": 2.0 * params["kernel"],
        }

    def measure_host(ctx: Any, params: Any, state: Any, test: Any) -> Any:
        kernel = params["kernel"]
        assert isinstance(kernel, np.ndarray)
        np.testing.assert_array_equal(ctx.measured["scaled"], 2 * kernel)
        return {"eigenvalues": np.linalg.eigvals(kernel @ kernel.T).real}

    engine = Engine(layout=layout)
    idea = tiny(measure=measure, measure_host=measure_host, host_only=("scaled",))
    trained = engine.train(runs_of(small_recipe(idea), 4), keep=lambda run: True)
    for each, measurement in zip(trained, engine.measure(trained), strict=True):
        assert measurement.measured["score"] == pytest.approx(each.test, rel=1e-5)
        assert measurement.measured["moved"] > 0
        assert measurement.untrained["moved"] == 0
        assert "scaled" not in measurement.measured | measurement.untrained
        assert measurement.measured["eigenvalues"].shape == (3,)
        assert "eigenvalues" not in measurement.untrained
    some = engine.measure(trained, control=lambda each: each is trained[1])
    assert [bool(measurement.untrained) for measurement in some] == [False, True, False, False]
    assert some[1].untrained["moved"] == 0
    assert some[0].measured["score"] == pytest.approx(trained[0].test, rel=1e-5)


def test_hooks_are_traced_once_whatever_the_numbers() -> None:
    """Other seeds, learning rates and block counts never trace a hook again."""
    log: list[str] = []
    recipe = small_recipe(halving("keep", log), epochs=4)
    engine = Engine(layout=cpu_layout(2, slots=2))
    engine.train(runs_of(recipe, 9))
    traced = len(log)
    assert traced > 0
    engine.train([Run("other", 0, {"learning_rate": 0.1}, 77, recipe)])
    assert len(log) == traced
