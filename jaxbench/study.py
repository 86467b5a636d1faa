"""A study from config to report, in reading order: plan, tune, evaluate, explain, judge."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench import hooks, judging, trained_params
from jaxbench.base import JaxbenchError
from jaxbench.config import FIRST_TUNING_SEED
from jaxbench.explanation import (
    Explanation,
    Found,
    endpoint_scores,
    explain,
    measure_arms,
    to_be_measured,
)
from jaxbench.judging.selection import ADVICE
from jaxbench.plan import Plan, key_of, make_plan
from jaxbench.reporting.provenance import tree_digest
from jaxbench.reporting.report import make_report
from jaxbench.training.engine import Engine
from jaxbench.training.failures import not_finite
from jaxbench.training.gradient_cost import MULTIPLES, GradientCost, gradient_costs
from jaxbench.training.runs import Measurement, TrainedRun
from jaxbench.training.timing import Timing, time_units_left

if TYPE_CHECKING:
    from pathlib import Path

    from jaxbench.base import Progress
    from jaxbench.config import Comparison, Config
    from jaxbench.training.checkpoints import Checkpoints
    from jaxbench.training.executables import Compiled

GRID_RUNS = 1000
GRID_EXTENSIONS = 3


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How an arm was tuned.

    Attributes:
        configurations: what was tried, in order.
        scores: of each on each seed, [configurations, seeds]; NaN where a run diverged.
        selection: the one that won.
    """

    configurations: Sequence[Mapping[str, float]]
    scores: np.ndarray
    selection: judging.Selection

    @property
    def best(self) -> Mapping[str, float]:
        """The configuration that won."""
        return self.configurations[self.selection.index]

    @property
    def edges(self) -> dict[str, Any]:
        """At which edge of its grid each hyperparameter of the winner lies."""
        return judging.edge_of_grid(self.configurations, self.best)


@dataclasses.dataclass(frozen=True)
class Results:
    """All that a study found, before it is written down.

    Attributes:
        plan: what was trained.
        evaluate: `grid` or `selected`, as it was done.
        tunings: how each arm was tuned.
        evaluated: each arm's runs on the evaluation seeds.
        looks: how many evaluation seeds there were when the arms were compared; several where
            seeds were added until it was decided.
        explanations: what became of each comparison's explanation, by its place in the config;
            controls have none.
        by_arm: what each measured arm was measured to do.
        comparisons: in the config's order, corrected for their family.
        references: {name: scores [seeds]} of methods without a neural network.
        pairing: whether the arms had the same data and initial parameters.
        compact: the networks that the primary idea leaves, timed against the dense ones.
        gradients: what the primary idea's backward passes cost, by sequence length.
        engine: for costs and program groups.
        seconds: wall time of the whole study.
    """

    plan: Plan
    evaluate: str
    tunings: Mapping[str, Tuning]
    evaluated: Mapping[str, Sequence[TrainedRun]]
    looks: Sequence[int]
    explanations: Mapping[int, Explanation]
    by_arm: Mapping[str, Sequence[Measurement]]
    comparisons: Sequence[judging.Comparison]
    references: Mapping[str, Sequence[float]]
    pairing: Mapping[str, Any]
    compact: Sequence[Timing]
    gradients: Sequence[GradientCost]
    engine: Engine
    seconds: float


def run_study(
    config: Config,
    *,
    progress: Progress,
    engine: Engine | None = None,
    width: int | None = None,
    checkpoints: Checkpoints | None = None,
    keep_params: Path | None = None,
    compiled: Compiled | None = None,
) -> dict[str, Any]:
    """Train every run of a study and return its report.

    Args:
        config: the study.
        progress: whom to tell how far it is.
        engine: what trains; by default one over all devices.
        width: runs that a device trains at once, by that engine; chosen from its memory if None.
        checkpoints: where that engine writes down what it found, and reads what it found before.
        keep_params: the folder in which to keep the evaluation runs' trained parameters.
        compiled: programs of earlier studies of this process; new ones are added.

    Raises:
        JaxbenchError: the study cannot be run as configured.
    """
    began = time.perf_counter()
    plan = make_plan(config)
    for warning in plan.warnings:
        progress.stage(f"warning: {warning}")
    engine = engine or Engine(
        width=width,
        measures=to_be_measured(plan),
        progress=progress,
        checkpoints=checkpoints,
        compiled=compiled,
    )
    trainer = Trainer(plan, engine, choose_evaluate(plan, engine))
    plan, tunings = tune(trainer)
    evaluated, looks = evaluate(trainer, plan, tunings)
    if keep_params is not None:
        trained_params.save_params(keep_params, evaluated)
    found = measure_arms(plan, engine, evaluated)
    references, pairing = look_at_data(plan, engine, evaluated)
    results = Results(
        plan=plan,
        evaluate=trainer.evaluate,
        tunings=tunings,
        evaluated=evaluated,
        explanations=explain(plan, found),
        by_arm={arm: taken for (arm, _), taken in found.items()},
        looks=looks,
        comparisons=compare_arms(plan, evaluated, found),
        references=references,
        pairing=pairing,
        compact=time_compact(plan, progress),
        gradients=measure_gradients(plan, progress),
        engine=engine,
        seconds=time.perf_counter() - began,
    )
    report = make_report(results)
    kept = [trained_params.FOLDER] if keep_params is not None else []
    return {**report, "files": [*report["files"], *kept]}


def choose_evaluate(plan: Plan, engine: Engine) -> str:
    """Decide whether to train the whole grid on the evaluation seeds too, or the winners only."""
    protocol = plan.config.protocol
    if protocol.rules == "v1":
        return "grid"
    if protocol.evaluate != "auto":
        return protocol.evaluate
    if protocol.max_seeds is not None:
        return "selected"
    configurations = sum(plan.parity.counts.values())
    runs = configurations * (protocol.seeds + protocol.tuning_seeds)
    on_cpu = engine.devices[0].platform == "cpu"
    return "selected" if on_cpu or runs > GRID_RUNS else "grid"


class Trainer:
    """Trains what is asked for and was not trained before."""

    def __init__(self, plan: Plan, engine: Engine, evaluate: str) -> None:
        self.plan = plan
        self.engine = engine
        self.evaluate = evaluate
        self._trained: dict[tuple[Any, ...], TrainedRun] = {}

    def train(
        self, wanted: Mapping[str, Sequence[Mapping[str, float]]], seeds: Sequence[int]
    ) -> None:
        """Train these configurations of each arm on these seeds, as one list."""
        runs, keys = [], []
        for arm, configurations in wanted.items():
            for index, configuration in enumerate(configurations):
                for seed in seeds:
                    key = (arm, key_of(configuration), seed)
                    if key not in self._trained:
                        runs.append(self.plan.arms[arm].run(index, configuration, seed))
                        keys.append(key)
        if runs:
            trained = self.engine.train(runs, keep=lambda run: run.seed < FIRST_TUNING_SEED)
            self._trained |= zip(keys, trained, strict=True)

    def scored(
        self, arm: str, configurations: Sequence[Mapping[str, float]], seeds: Sequence[int]
    ) -> list[list[TrainedRun]]:
        """Give an arm's trained runs, one row a configuration and one column a seed."""
        return [
            [self._trained[arm, key_of(configuration), seed] for seed in seeds]
            for configuration in configurations
        ]


def tune(trainer: Trainer) -> tuple[Plan, dict[str, Tuning]]:
    """Train every arm's grid and select each arm's configuration.

    With `extend_grid`, a grid whose best value is at an edge grows by a factor of 3, for all arms,
    three times at most.
    """
    plan, protocol = trainer.plan, trainer.plan.config.protocol
    tuning_seeds: tuple[int, ...] = protocol.tuning_seed_list if protocol.rules != "v1" else ()
    evaluation_seeds = protocol.evaluation_seed_list
    for extension in range(GRID_EXTENSIONS + 1):
        on_grid = evaluation_seeds if trainer.evaluate == "grid" else ()
        trainer.train(plan.parity.configurations, (*tuning_seeds, *on_grid))
        tunings = {arm: select(trainer, plan, arm) for arm in plan.arms}
        beyond = values_beyond(plan, tunings) if protocol.extend_grid else {}
        if not beyond or extension == GRID_EXTENSIONS:
            break
        plan = plan.extended(beyond)
    return plan, tunings


def evaluate(
    trainer: Trainer, plan: Plan, tunings: Mapping[str, Tuning]
) -> tuple[dict[str, list[TrainedRun]], list[int]]:
    """Train the tuned arms on the evaluation seeds; with `max_seeds`, on more until it is decided.

    Seeds are added `protocol.seeds` at a time, so that no program has a new shape, until the
    primary comparison's anytime-valid p-value, corrected for its family, is at most alpha.

    Returns:
        Each arm's runs, and how many seeds there were at each look.
    """
    protocol = plan.config.protocol
    primary = list(plan.config.comparisons).index(plan.config.primary)
    looks = [protocol.seeds]
    while True:
        seeds = range(looks[-1])
        trainer.train({arm: [tuning.best] for arm, tuning in tunings.items()}, seeds)
        evaluated = {
            arm: trainer.scored(arm, [tuning.best], seeds)[0] for arm, tuning in tunings.items()
        }
        if protocol.max_seeds is None or looks[-1] == protocol.max_seeds:
            return evaluated, looks
        compared = compare_arms(plan, evaluated)[primary]
        if compared.p_corrected <= protocol.alpha:
            return evaluated, looks
        trainer.engine.progress.stage(
            f"undecided after {looks[-1]} seeds (p = {compared.p_corrected:.3g}): adding seeds"
        )
        looks.append(min(looks[-1] + protocol.seeds, protocol.max_seeds))


def select(trainer: Trainer, plan: Plan, arm: str) -> Tuning:
    """Select an arm's configuration: on validation scores of tuning seeds, or as `v1` did."""
    protocol = plan.config.protocol
    direction = plan.track.metric.direction
    configurations = plan.parity.configurations[arm]
    try:
        if protocol.rules == "v1":
            rows = trainer.scored(arm, configurations, protocol.evaluation_seed_list)
            scores = np.array([[run.test for run in row] for row in rows])
            side = "idea" if arm in plan.ideas else "baseline"
            selection = judging.select_v1(scores, direction, arm=side)
        else:
            rows = trainer.scored(arm, configurations, protocol.tuning_seed_list)
            scores = np.array([[run.validation for run in row] for row in rows])
            selection = judging.select(scores, direction)
    except JaxbenchError as error:
        lost = [run for row in rows for run in row if run.diverged_at is not None]
        raise divergence(trainer, arm, lost, error) from error
    return Tuning(configurations, scores, selection)


def divergence(
    trainer: Trainer, arm: str, lost: Sequence[TrainedRun], error: Exception
) -> JaxbenchError:
    """Say why an arm could not be tuned, and which hook made its runs diverge, if one did."""
    text = f"arms.{arm}: {error}"
    cause = trainer.engine.cause_of_divergence(lost[0]) if lost else None
    if cause is None:
        return JaxbenchError(text)
    hook = f"{hooks.place_of(cause.hook)}: {cause.name} of the {cause.owner}"
    return hooks.HookError(f"{hook} {cause.text} ({text.removesuffix(f' {ADVICE}')})")


def values_beyond(plan: Plan, tunings: Mapping[str, Tuning]) -> dict[str, list[float]]:
    """Give the next value of every hyperparameter that some arm has best at an edge.

    It stays inside the range of every arm that tunes it: a step beyond a bound ends on the bound,
    and from the bound there is none.
    """
    beyond: dict[str, set[float]] = {}
    for tuning in tunings.values():
        for name, side in tuning.edges.items():
            if side is not None and tuning.best[name] > 0:
                values = sorted({point[name] for point in tuning.configurations})
                low, high = plan.range_of(name)
                further = min(max(judging.geometric_extension(values, side), low), high)
                if not values[0] <= further <= values[-1]:
                    beyond.setdefault(name, set()).add(further)
    return {name: sorted(values) for name, values in beyond.items()}


def look_at_data(
    plan: Plan, engine: Engine, evaluated: Mapping[str, Sequence[TrainedRun]]
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Score the references on the evaluation seeds, and check that arms are paired."""
    seeds = [each.run.seed for each in evaluated[plan.config.primary.idea]]
    references: dict[str, list[float]] = {}
    digests: dict[str, dict[str, str]] = {}
    seen: dict[str, dict[str, str]] = {}
    for arm, planned in plan.arms.items():
        key = planned.recipe.training_key
        if key not in seen:
            starts = engine.starts(planned.recipe, evaluated[arm][0].run.hyper, seeds)
            seen[key] = {
                "data": tree_digest([start.data for start in starts]),
                "initial_parameters": tree_digest([start.params0 for start in starts]),
            }
            for start, trained in zip(starts, evaluated[arm], strict=True):
                wrong = None if trained.diverged_at is None else not_finite(start.data)
                if wrong is not None:
                    place = f"{hooks.place_of(plan.track.generate)}: generate of the track"
                    raise hooks.HookError(
                        f"{place} {plan.track.name} must make finite data, but {wrong} of seed "
                        f"{trained.run.seed}"
                    )
            if not references:
                scores = [plan.track.references(start.data) for start in starts]
                references = {name: [score[name] for score in scores] for name in scores[0]}
        digests[arm] = seen[key]
    primary = plan.config.primary
    idea, baseline = digests[primary.idea], digests[primary.baseline]
    if idea["data"] != baseline["data"]:
        raise JaxbenchError(
            f"the arms {primary.idea!r} and {primary.baseline!r} did not get the same data; a "
            f"track's `generate` must depend on its key alone"
        )
    return references, {
        "same_data": True,
        "same_initial_parameters": idea["initial_parameters"] == baseline["initial_parameters"],
        "digests": digests,
    }


def time_compact(plan: Plan, progress: Progress) -> list[Timing]:
    """Time what is left of the network where the primary idea removes units of it."""
    recipe = plan.arms[plan.config.primary.idea].recipe
    units_left = recipe.intervention.units_left
    if units_left is None or recipe.model.resized is None:
        return []
    progress.stage("timing the smaller network")
    return time_units_left(recipe.model, units_left(recipe.model), recipe.train_shape[1:])


def measure_gradients(plan: Plan, progress: Progress) -> list[GradientCost]:
    """Measure the backward passes of the primary idea, where it is about them."""
    recipe = plan.arms[plan.config.primary.idea].recipe
    scans = recipe.intervention.scans
    if scans is None or recipe.model.recurrence is None:
        return []
    progress.stage("measuring memory and time of gradients")
    _, length, features = recipe.train_shape
    return [
        row
        for times in MULTIPLES
        for row in gradient_costs(recipe.model, scans(recipe.model), times * length, features)
    ]


def compare_arms(
    plan: Plan, evaluated: Mapping[str, Sequence[TrainedRun]], found: Found | None = None
) -> list[judging.Comparison]:
    """Compare the arms as the config names them; controls stay out of the family's correction.

    Before anything is measured (`found` is None), comparisons of endpoints have a p-value of 1.
    """
    protocol = plan.config.protocol

    def scores(named: Comparison, arm: str) -> list[float]:
        if named.endpoint is None:
            return [run.test for run in evaluated[arm]]
        if found is None:
            return [math.nan] * len(evaluated[arm])
        measured = endpoint_scores(plan, found, named, arm)
        runs = zip(evaluated[arm], measured, strict=True)
        return [value if run.diverged_at is None else math.nan for run, value in runs]

    compared = [
        judging.compare(
            scores(each, each.baseline),
            scores(each, each.idea),
            direction=plan.metric_of(each).direction,
            alpha=protocol.alpha,
            margin=protocol.margin,
            max_pairs=protocol.max_seeds,
        )
        for each in plan.config.comparisons
    ]
    family = [place for place, each in enumerate(plan.config.comparisons) if each.role != "control"]
    corrected = judging.correct([compared[place] for place in family])
    for place, comparison in zip(family, corrected, strict=True):
        compared[place] = comparison
    return compared
