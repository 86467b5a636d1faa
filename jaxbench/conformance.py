"""What every arm of a study must keep, as checks for the tests of an idea, a track or a model.

from jaxbench import conformance

def test_the_study_keeps_what_every_study_must():
conformance.check("my_idea.toml")
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxbench import api, registry
from jaxbench.base import JaxbenchError
from jaxbench.config import Config
from jaxbench.plan import Plan, PlannedArm, make_plan
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Recipe, Run, TrainedRun

SEEDS = 3
NEUTRAL_TOLERANCE = 1e-5
"""Relative: a term at strength 0 may change the order of sums."""

MakeEngine = Callable[[], Engine]


class ConformanceError(JaxbenchError, AssertionError):
    """An arm does not keep what every arm must; its text says which, what was found and why."""

    exit_code = 1


def check(study: Config | str | os.PathLike[str], *, quick: bool = True) -> None:
    """Check every arm of a study, each program once.

    A run in company gives the scores of the run alone; training again compiles nothing; hooks are
    pure, so that tracing again gives the same program; at neutral values an idea is the plain
    training; parameters keep their form; measurements are finite and of one form.

    Args:
        study: a config, or its name or path.
        quick: take the study's quick form.

    Raises:
        ConformanceError: an arm does not.
        JaxbenchError: the study cannot be run.
    """
    plan = make_plan(api.load_config(study, quick=quick))
    seen: set[str] = set()
    ideas_first = sorted(plan.arms.values(), key=lambda arm: arm.name not in plan.ideas)
    for arm in ideas_first:
        if arm.recipe.full_key not in seen:
            seen.add(arm.recipe.full_key)
            check_arm(arm.name, arm.recipe, runs_of(plan, arm))


def runs_of(plan: Plan, arm: PlannedArm, count: int = SEEDS) -> list[Run]:
    """List runs of an arm's first configuration on the first seeds."""
    configuration = plan.parity.configurations[arm.name][0]
    return [arm.run(0, configuration, seed) for seed in range(count)]


def check_arm(
    name: str, recipe: Recipe, runs: Sequence[Run], make_engine: MakeEngine = Engine
) -> None:
    """Check one arm.

    Args:
        name: of the arm, for messages.
        recipe: what it trains.
        runs: two or more of it.
        make_engine: makes an engine that has compiled nothing.

    Raises:
        ConformanceError: it does not keep what every arm must.
    """
    engine = make_engine()
    together = engine.train(runs, keep=lambda run: True)
    compiled = _programs(engine)
    [alone] = engine.train(runs[-1:])
    _same_scores(name, "a run alone", alone, "the same run among others", together[-1])
    if _programs(engine) != compiled:
        raise ConformanceError(f"{name}: training the same runs again compiled another program")
    check_pure(name, runs[0], engine)
    check_parameters(name, engine, together[0])
    check_neutral(name, recipe, runs[:1], engine, make_engine)
    if recipe.intervention.measure is not None:
        check_measurements(name, engine, together)


def check_pure(name: str, run: Run, engine: Engine) -> None:
    """Check that tracing the programs of training a second time gives the same programs.

    What is traced twice is an epoch of one run, its data and start included.
    """

    def traced() -> tuple[str, list[np.ndarray]]:
        found = engine.trace(run)
        return re.sub(r"0x[0-9a-f]+", "", str(found.jaxpr)), [np.asarray(c) for c in found.consts]

    (text, constants), (again, other) = traced(), traced()
    same = len(constants) == len(other) and all(map(np.array_equal, constants, other))
    if text != again or not same:
        raise ConformanceError(
            f"{name}: traced again, it is another program; a hook reads something else than its "
            f"arguments, such as numpy.random, the time or a counter: draw from ctx.key"
        )


def check_parameters(name: str, engine: Engine, trained: TrainedRun) -> None:
    """Check that trained parameters have the structure, shapes and types of the initial ones."""
    run = trained.run
    [start] = engine.starts(run.recipe, run.hyper, [run.seed])
    before, after = (
        jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)
        for tree in (start.params0, trained.params)
    )
    if before != after:
        raise ConformanceError(f"{name}: parameters of {before} became {after} by training")


def check_neutral(
    name: str, recipe: Recipe, runs: Sequence[Run], engine: Engine, make_engine: MakeEngine
) -> None:
    """Check that with each hyperparameter at its neutral value, if it has one, an idea is none."""
    declared = recipe.intervention.hyper.items()
    neutral = {key: hyper.neutral for key, hyper in declared if hyper.neutral is not None}
    if not neutral:
        return
    none = registry.load("interventions", "none").make({})
    plain = Recipe(recipe.track, recipe.model, none, recipe.schedule)
    off = [Run(run.arm, 0, {**run.hyper, **neutral}, run.seed, recipe) for run in runs]
    rate = "learning_rate"
    bare = [Run(run.arm, 0, {rate: run.hyper[rate]}, run.seed, plain) for run in runs]
    for found, expected in zip(engine.train(off), make_engine().train(bare), strict=True):
        if not np.allclose(found.test, expected.test, rtol=NEUTRAL_TOLERANCE, atol=0.0):
            values = ", ".join(f"{key} = {value:g}" for key, value in neutral.items())
            raise ConformanceError(
                f"{name}: at its neutral values ({values}) it scores {found.test:.9g} on seed "
                f"{found.run.seed}, but training without it {expected.test:.9g}"
            )


def check_measurements(name: str, engine: Engine, trained: Sequence[TrainedRun]) -> None:
    """Check that measurements are finite, and have the same form on every run that converged."""
    measured = engine.measure([each for each in trained if each.diverged_at is None])
    forms = []
    for each in measured:
        for key, value in each.measured.items():
            if not np.isfinite(value).all():
                raise ConformanceError(f"{name}: `measure` gave a {key} that is not finite")
        forms.append({key: np.shape(value) for key, value in each.measured.items()})
    if any(form != forms[0] for form in forms):
        raise ConformanceError(f"{name}: `measure` gave other shapes on other runs: {forms}")


def _programs(engine: Engine) -> int:
    return sum(len(group.programs) for group in engine.groups.values())


def _same_scores(name: str, one: str, first: TrainedRun, other: str, second: TrainedRun) -> None:
    """Compare scores: to the bit on CPU, to 1e-5 where runs are batched."""
    found = [(each.validation, each.test) for each in (first, second)]
    tolerance = 0.0 if jax.default_backend() == "cpu" else 1e-5
    if not np.allclose(found[0], found[1], rtol=tolerance, atol=0.0, equal_nan=True):
        raise ConformanceError(
            f"{name}: {one} scores {found[0]} (validation, test), {other} {found[1]}"
        )
