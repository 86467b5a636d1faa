"""What a hook raises or returns wrongly is said with the file, the line, the hook and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from factories import cpu_layout, runs_of, small_recipe
from test_study import SMALL

from jaxbench import config, explanation, hooks, registry, study
from jaxbench.base import Intervention, Progress, Signature
from jaxbench.causes import TRACED
from jaxbench.training.engine import Engine
from jaxbench.training.failures import TracingError
from jaxbench.training.runs import Measurement

HEAD = """
import jax
import jax.numpy as jnp
import numpy as np, optax
from jaxbench.base import Finding, Hyper, Intervention, Phase, Signature

"""
HYPER = 'hyper={"weight": Hyper(1.0, 0.0, 10.0, "weight")}'
LOSS = "def loss_term(ctx, params, state, batch, outputs, intermediates, step, key):"
SURGERY = "def surgery(ctx, params, opt_state, state):"
AFTER = "def after_epoch(ctx, params, opt_state, state, epoch):"


def idea(tmp_path: Path, hook: str, *, given: str = "") -> Intervention:
    """An intervention from a file with one hook, the first lines of which are HEAD's."""
    name = hook.partition("(")[0].removeprefix("def ").strip()
    given = given or f"{name}={name}"
    built = f'Intervention(name="mine", summary="wrong", {HYPER}, {given})'
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}{hook}\n\n\ndef build() -> Intervention:\n    return {built}\n")
    return registry.load("interventions", str(path)).make({})


def failure(intervention: Intervention) -> str:
    """Train it, and give what it fails with."""
    recipe = small_recipe(intervention)
    engine = Engine(layout=cpu_layout(1, slots=2))
    with pytest.raises(hooks.HookError) as caught:
        engine.train(runs_of(recipe, 2, weight=1.0))
    assert caught.value.exit_code == 1
    return str(caught.value)


WRONG = {
    f"{LOSS}\n    return ctx.hyper['wieght'] * outputs.mean()": (
        "line 8, in loss_term of the intervention mine (`return ctx.hyper['wieght'] * "
        "outputs.mean()`): KeyError: there is no 'wieght'; did you mean weight? "
        "(ctx.hyper has learning_rate, weight)"
    ),
    f"{LOSS}\n    strength = 'wieght'\n    return (\n        ctx\n        .hyper[strength])": (
        "line 10, in loss_term of the intervention mine (`ctx`): KeyError: there is no "
        "'wieght'; did you mean weight? (ctx.hyper has learning_rate, weight)"
    ),
    f"{LOSS}\n    return params['kernal'].sum()": (
        "line 8, in loss_term of the intervention mine (`return params['kernal'].sum()`): KeyError:"
        " there is no 'kernal'; did you mean kernel? (params has "
    ),
    f"{LOSS}\n    return dict(a=params).pop('learning_rat')": (
        "line 8, in loss_term of the intervention mine (`return dict(a=params).pop('learning_rat')`"
        "): KeyError: 'learning_rat'"
    ),
    f"{LOSS}\n    return batch.y.mean()": (
        "line 8, in loss_term of the intervention mine (`return batch.y.mean()`): AttributeError: "
        "'Batch' object has no attribute 'y' (it has inputs, targets)"
    ),
    f"{LOSS}\n    return ctx.hyperr['weight']": (
        "line 8, in loss_term of the intervention mine (`return ctx.hyperr['weight']`): "
        "AttributeError: 'Context' object has no attribute 'hyperr'; did you mean hyper? (it has "
        "key, hyper, model, "
    ),
    f"{LOSS}\n    return 1.0 if ctx.hyper['weight'] > 0 else 0.0": (
        "line 8, in loss_term of the intervention mine (`return 1.0 if ctx.hyper['weight'] > 0 else"
        f" 0.0`): TracerBoolConversionError: {TRACED}"
    ),
    f"{LOSS}\n    return float(outputs.mean())": (
        "line 8, in loss_term of the intervention mine (`return float(outputs.mean())`): "
        f"ConcretizationTypeError: {TRACED}"
    ),
    f"{LOSS}\n    return np.mean(np.asarray(outputs))": (
        "line 8, in loss_term of the intervention mine (`return np.mean(np.asarray(outputs))`): "
        f"TracerArrayConversionError: {TRACED}"
    ),
    f"{LOSS}\n    exit(0)": (
        "line 8, in loss_term of the intervention mine (`exit(0)`): SystemExit: 0"
    ),
    f"{LOSS}\n    return 1 / 0": (
        "line 8, in loss_term of the intervention mine (`return 1 / 0`): "
        "ZeroDivisionError: division by zero"
    ),
    f"{LOSS}\n    return (outputs**2).mean(axis=1)": (
        "line 7: loss_term of the intervention mine must return a scalar of a floating type, but "
        "returned float32[8]; reduce it, for example by .mean()"
    ),
    f"{LOSS}\n    outputs.mean()": (
        "line 7: loss_term of the intervention mine must return a scalar of a floating type, but "
        "returned None"
    ),
    f"{AFTER}\n    return params, opt_state, state": (
        "line 7: after_epoch of the intervention mine must return (params, opt_state, state, log), "
        "but returned a tuple of 3"
    ),
    f"{AFTER}\n    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params)\n"
    "    return half, opt_state, state, {}": (
        "line 7: after_epoch of the intervention mine must keep the shapes and types of params, "
        "but made params['kernel'] float16[3, 1] instead of float32[3, 1]"
    ),
    f"{AFTER}\n    return params, opt_state, jnp.zeros(2), {{}}": (
        "line 7: after_epoch of the intervention mine must keep state as it is, but added state, "
        "float32[2]"
    ),
    f"{AFTER}\n    return params, opt_state, state, {{'norm': params['kernel']}}": (
        "line 7: after_epoch of the intervention mine must log scalars, but 'norm' of its log is "
        "float32[3, 1]"
    ),
    "def wrap_optimizer(optimizer, ctx):\n    return ctx": (
        "line 7: wrap_optimizer of the intervention mine must return an optax optimizer (init, "
        "update), but returned a Context"
    ),
    "def wrap_model(model):\n    return model.apply": (
        "line 7: wrap_model of the intervention mine must return a jaxbench.base.Model, but "
        "returned a function"
    ),
    "def init_state(ctx):\n    return jnp.ones(3) @ jnp.ones(4)": (
        "line 8, in init_state of the intervention mine (`return jnp.ones(3) @ jnp.ones(4)`): "
        "TypeError: dot_general requires"
    ),
    "def prepare(key):\n    return key.no_such": "line 8, in prepare of the intervention mine",
}  # fmt: skip


@pytest.mark.parametrize("hook", WRONG)
def test_a_wrong_hook_is_told_with_its_place(tmp_path: Path, hook: str) -> None:
    said = failure(idea(tmp_path, hook))
    assert said.startswith(f"{tmp_path / 'mine.py'}, {WRONG[hook]}")
    assert "\n" not in said


def test_surgery_must_keep_the_structure(tmp_path: Path) -> None:
    wrong = f"{SURGERY}\n    return {{}}, opt_state, state"
    phases = "phases=(Phase(1, surgery), Phase(1))"
    said = failure(idea(tmp_path, wrong, given=phases))
    assert "line 7: surgery of the intervention mine must keep params as it is, but left" in said
    assert said.endswith("left out params['kernel'], float32[3, 1]")


def test_the_update_of_an_optimizer_must_keep_its_state(tmp_path: Path) -> None:
    wrong = (
        "def update(updates, state, params=None, **extra):\n    return updates, jnp.ones(3)\n\n\n"
        "def wrap_optimizer(optimizer, ctx):\n"
        "    return optax.GradientTransformationExtraArgs(lambda params: jnp.ones(2), update)"
    )
    said = failure(idea(tmp_path, wrong, given="wrap_optimizer=wrap_optimizer"))
    assert "line 7: wrap_optimizer (update) of the intervention mine must keep the shapes" in said
    assert said.endswith("made opt_state float32[3] instead of float32[2]")


SCALED = """def wrap_optimizer(optimizer, ctx):
    def update(updates, state, params=None, **extra):
        scaled = {}
        return optimizer.update(scaled, state, params, **extra)

    return optax.GradientTransformationExtraArgs(optimizer.init, update)"""
IN_UPDATE = {
    "jax.tree.map(lambda leaf: leaf * ctx.hyper['wieght'], updates)": (
        "KeyError: there is no 'wieght'; did you mean weight? (ctx.hyper has learning_rate, weight)"
    ),
    "{**updates, 'kernel': updates['kernel'][:2]}": (
        "it must keep the shapes and types of updates, but made updates['kernel'] float32[2, 1] "
        "instead of float32[3, 1]"
    ),
    "{**updates, 'bias': jnp.ones(1)}": (
        "it must keep updates as it is, but added updates['bias'], float32[1]"
    ),
}


@pytest.mark.parametrize("scaled", IN_UPDATE)
def test_what_a_wrapped_optimizer_does_wrong_is_told_by_leaf_and_key(
    tmp_path: Path, scaled: str
) -> None:
    said = failure(
        idea(tmp_path, SCALED.replace("{}", scaled), given="wrap_optimizer=wrap_optimizer")
    )
    line = 9 if "wieght" in scaled else 10
    assert f"line {line}, in wrap_optimizer (update) of the intervention mine (`" in said
    assert said.endswith(IN_UPDATE[scaled])


def test_what_cannot_be_differentiated_names_the_idea(tmp_path: Path) -> None:
    loop = "jax.lax.while_loop(lambda x: x < 9.0, lambda x: 2.0 * x, outputs.mean() ** 2 + 1.0)"
    recipe = small_recipe(idea(tmp_path, f"{LOSS}\n    return {loop}"))
    with pytest.raises(TracingError, match=r"'epoch' of mine with affine on line .*Reverse-mode"):
        Engine(layout=cpu_layout(1, slots=2)).train(runs_of(recipe, 1, weight=1.0))


def test_guards_change_nothing_that_is_right(tmp_path: Path) -> None:
    """Defaults stay what they are, and a guarded hook is the same function behind a wrapper."""
    right = idea(tmp_path, f"{LOSS}\n    return ctx.hyper['weight'] * (outputs**2).mean()")
    plain = Intervention(name="mine", summary="wrong")
    for field in dataclasses.fields(plain):
        if field.name not in ("hyper", "loss_term"):
            assert getattr(right, field.name) == getattr(plain, field.name), field.name
    assert right.loss_term is not None
    assert right.loss_term.__name__ == "loss_term"
    trained = Engine(layout=cpu_layout(1, slots=2)).train(
        runs_of(small_recipe(right), 1, weight=0.0)
    )
    base = small_recipe(registry.load("interventions", "none").make({}))
    [alone] = Engine(layout=cpu_layout(1, slots=2)).train(runs_of(base, 1))
    assert trained[0].test == pytest.approx(alone.test, rel=1e-6)


def outcome(tmp_path: Path, hook: str, given: str = "") -> Any:
    """Run a study with an idea from a file."""
    idea(tmp_path, hook, given=given)
    document = SMALL | {
        "track": {"name": "tabular", "train_size": 32, "validation_size": 8, "test_size": 8},
        "model": {"name": "mlp_tiny", "hidden": [4]},
        "arms": {
            "baseline": {"intervention": "none"},
            "idea": {"intervention": str(tmp_path / "mine.py")},
        },
    }
    return study.run_study(config.from_run(document), progress=Progress())


NOT_FINITE = {
    f"{LOSS}\n    return jnp.log(-jnp.ones(()))": (
        "line 7: loss_term of the intervention mine must be finite, but is nan at the initial "
        "parameters of seed 100, where the track's loss is "
    ),
    f"{LOSS}\n    return jnp.sqrt(0.0 * (outputs**2).mean())": (
        "line 7: loss_term of the intervention mine is finite (0) at the initial parameters of "
        "seed 100, but its gradient is not; a square root, norm, logarithm or quotient at 0"
    ),
    "def update(updates, state, params=None, **extra):\n"
    "    return jax.tree.map(lambda leaf: leaf / 0.0, updates), state\n\n\n"
    "def wrap_optimizer(optimizer, ctx):\n"
    "    return optax.GradientTransformationExtraArgs(lambda params: (), update)": (
        "line 11: wrap_optimizer of the intervention mine makes updates that are not finite"
    ),
    f"{AFTER}\n    lost = jax.tree.map(lambda leaf: leaf * jnp.nan, params)\n"
    "    return lost, opt_state, state, {}": (
        "line 7: after_epoch of the intervention mine ran just before step 4, where seed 100"
    ),
}  # fmt: skip


@pytest.mark.parametrize("hook", NOT_FINITE)
def test_a_hook_that_makes_every_run_diverge_is_named(tmp_path: Path, hook: str) -> None:
    name = "wrap_optimizer" if "wrap_optimizer" in hook else ""
    with pytest.raises(hooks.HookError) as caught:
        outcome(tmp_path, hook, given=f"{name}={name}" if name else "")
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'mine.py'}, {NOT_FINITE[hook]}")
    assert "(arms.idea: all 2 configurations have a run that diverged" in said
    assert said.endswith("so none can be selected.)")


@pytest.mark.parametrize(("split", "part"), [("train", "targets"), ("test", "inputs")])
def test_data_that_are_not_finite_are_the_tracks_fault(split: str, part: str) -> None:
    recipe = small_recipe()

    def generate(key: Any) -> Any:
        made = recipe.track.generate(key)
        batch = getattr(made, split)
        lost = getattr(batch, part).at[1].set(jnp.nan)
        return made._replace(**{split: batch._replace(**{part: lost})})

    track = dataclasses.replace(recipe.track, generate=generate)
    engine = Engine(layout=cpu_layout(1, slots=2))
    [trained] = engine.train(runs_of(dataclasses.replace(recipe, track=track), 1))
    cause = engine.cause_of_divergence(trained)
    assert cause is not None
    assert (cause.name, cause.owner) == ("generate", f"track {track.name}")
    assert cause.text.startswith("must make finite data, but ")
    assert cause.text.endswith(f" numbers are NaN or infinite in {split}.{part} of seed 0")


def test_a_loss_that_is_not_finite_is_the_tracks_fault() -> None:
    recipe = small_recipe()
    track = dataclasses.replace(recipe.track, loss=lambda outputs, _: jnp.log(0.0 * outputs).mean())
    engine = Engine(layout=cpu_layout(1, slots=2))
    [trained] = engine.train(runs_of(dataclasses.replace(recipe, track=track), 1))
    cause = engine.cause_of_divergence(trained)
    assert cause is not None
    assert (cause.name, cause.owner) == ("loss", f"track {track.name}")
    assert cause.text.startswith("must be finite, but is -inf at the initial parameters of seed 0")


IN_SIGNATURE = {
    "Finding(True, {}, 0.0, str(samples['nrom']))": (
        "line 8, in the signature grows of the intervention mine (`return Finding(True, {}, 0.0, "
        "str(samples['nrom']))`): a signature reads the quantity 'nrom', which was not measured; "
        "did you mean norm? there are norm. Return it from"
    ),
    "dict(passed=True)": (
        "line 7: the signature grows of the intervention mine: evaluate must return a "
        "jaxbench.base.Finding, but returned a dict"
    ),
    "Finding(samples['norm'] > 0, {}, 0.0, '')": (
        "line 7: the signature grows of the intervention mine: evaluate must return a Finding whose"
        " `passed` is True, False or None, but it is a ndarray"
    ),
}


@pytest.mark.parametrize("returned", IN_SIGNATURE)
def test_a_wrong_signature_is_told_with_its_name_and_place(tmp_path: Path, returned: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}def evaluate(samples):\n    return {returned}\n")
    evaluate = registry._import_file("interventions", path).evaluate
    rule = Signature(
        name="grows", claim="", formula="", tolerance={}, evaluate=evaluate, pool=("idea",)
    )
    recipe = small_recipe(Intervention(name="mine", summary="", signatures=(rule,)))
    plan: Any = SimpleNamespace(arms={"idea": SimpleNamespace(recipe=recipe)})
    measured = {("idea", "idea"): [Measurement({"norm": np.ones(())}, {})] * 2}
    with pytest.raises(hooks.HookError) as caught:
        explanation.judged(plan, "idea", rule, {"idea": [("idea", "idea")]}, measured)
    assert str(caught.value).startswith(f"{path}, {IN_SIGNATURE[returned]}")
    assert caught.value.exit_code == 1


def test_a_signature_that_raises_is_told_with_its_place(tmp_path: Path) -> None:
    wrong = (
        "def evaluate(samples):\n    return Finding(True, {}, 0.0, samples['norm'].no_such)\n\n\n"
        "def measure(ctx, params, state, test):\n    return {'norm': jnp.zeros(())}"
    )
    signature = 'Signature(name="grows", claim="", formula="", tolerance={}, evaluate=evaluate)'
    with pytest.raises(hooks.HookError) as caught:
        outcome(tmp_path, wrong, given=f"measure=measure, signatures=({signature},)")
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'mine.py'}, line 8, in the signature grows of the inter")
    assert "AttributeError: 'numpy.ndarray' object has no attribute 'no_such'" in said
