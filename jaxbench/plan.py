"""A study's plan: what will be trained and compared, fixed before anything is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench import judging, registry
from jaxbench.base import Metric, Signature, Track
from jaxbench.config import Comparison, Config
from jaxbench.counted import counted
from jaxbench.training.runs import Recipe, Run, Schedule, Source


@dataclasses.dataclass(frozen=True)
class PlannedArm:
    """One side of a study: what it trains, and the values that no grid varies."""

    name: str
    recipe: Recipe
    fixed: Mapping[str, float]

    def run(self, index: int, configuration: Mapping[str, float], seed: int) -> Run:
        """Describe the run of one configuration and seed."""
        return Run(self.name, index, {**self.fixed, **configuration}, seed, self.recipe)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A study, ready to train.

    Attributes:
        config: the study's config.
        track: its track.
        arms: its arms by name.
        grids: what each arm tunes.
        parity: the configurations of each arm, matched in number.
        rule_digests: of each signature's rule, by idea, taken before anything is trained.
    """

    config: Config
    track: Track
    arms: Mapping[str, PlannedArm]
    grids: Mapping[str, Mapping[str, Sequence[float]]]
    parity: judging.Parity
    rule_digests: Mapping[str, Mapping[str, str]]

    @property
    def ideas(self) -> set[str]:
        """Which arms stand for an idea in some comparison."""
        return {comparison.idea for comparison in self.config.comparisons}

    @property
    def explained(self) -> list[Comparison]:
        """The comparisons whose idea is asked for its explanation: of scores, but no controls."""
        return [each for each in self.family if each.endpoint is None]

    @property
    def family(self) -> list[Comparison]:
        """The comparisons that share one correction: all but the controls."""
        return [each for each in self.config.comparisons if each.role != "control"]

    def signatures(self, arm: str) -> tuple[Signature, ...]:
        """What an arm's explanation predicts."""
        return self.arms[arm].recipe.intervention.signatures

    @property
    def warnings(self) -> list[str]:
        """What should be known before training."""
        protocol = self.config.protocol
        family = self.family
        if protocol.max_seeds is None:
            most, option = protocol.seeds, "--seeds"
            fewest, smallest = judging.seeds_to_reach_significance, judging.attainable_p
        else:
            most, option = protocol.max_seeds, "--max-seeds"
            fewest, smallest = judging.seeds_to_decide, judging.attainable_p_anytime
        needed = fewest(len(family), alpha=protocol.alpha)
        if most >= needed:
            return []
        return [
            f"{most} seeds cannot reach significance at {protocol.alpha} with "
            f"{counted(len(family), 'corrected comparison')}: the smallest p-value they allow is "
            f"{smallest(most):.3g}, so no outcome can be better or worse; "
            f"use at least {needed} seeds ({option} {needed})."
        ]

    def metric_of(self, comparison: Comparison) -> Metric:
        """Say what a comparison compares: the score, or an endpoint that its idea declares."""
        metric = self.track.metric
        declared = self.arms[comparison.idea].recipe.intervention.endpoints
        for each in declared:
            if each.name == comparison.endpoint:
                unit, direction = each.unit or metric.unit, each.direction or metric.direction
                return Metric(each.name, unit, direction)
        return metric

    def runs(self, arm: str, seeds: Sequence[int]) -> list[Run]:
        """List an arm's runs, every configuration on every seed."""
        planned = self.arms[arm]
        return [
            planned.run(index, configuration, seed)
            for index, configuration in enumerate(self.parity.configurations[arm])
            for seed in seeds
        ]

    def range_of(self, name: str) -> tuple[float, float]:
        """Give the values of a hyperparameter that make sense in every arm that tunes it."""
        declared = [
            self.arms[arm].recipe.intervention.hyper[name]
            for arm, grid in self.grids.items()
            if name in grid and name in self.arms[arm].recipe.intervention.hyper
        ]
        lows, highs = [each.low for each in declared], [each.high for each in declared]
        return max(lows, default=-math.inf), min(highs, default=math.inf)

    def extended(self, beyond: Mapping[str, Sequence[float]]) -> Plan:
        """Add values to the grids of all arms that tune these hyperparameters."""
        grids = {
            arm: {name: [*values, *beyond.get(name, ())] for name, values in grid.items()}
            for arm, grid in self.grids.items()
        }
        parity = judging.match_trials(grids, self.config.protocol.parity)
        return dataclasses.replace(self, grids=grids, parity=parity)


def make_plan(config: Config) -> Plan:
    """Build a study's track, models and interventions, and match its tuning trials.

    Raises:
        JaxbenchError: unequal trials where `parity = "strict"`.
    """
    folder = config.base_folder
    from_track = registry.load("tracks", config.track.name, folder)
    track = from_track.make(config.track.options)
    arms: dict[str, PlannedArm] = {}
    for name, arm in config.arms.items():
        choice = config.model_of(name)
        from_model = registry.load("models", choice.name, folder)
        model = from_model.make(choice.options, outputs=track.output_size)
        component = registry.load("interventions", arm.intervention, folder)
        intervention = component.make(arm.options)
        sources = {
            "track": source_of(from_track, config.track.options),
            "model": source_of(from_model, choice.options),
            "intervention": source_of(component, arm.options),
        }
        training = config.training.model_dump()
        schedule = Schedule(**{**training, "epochs": arm.epochs or config.training.epochs})
        recipe = Recipe(track, model, intervention, schedule, sources)
        arms[name] = PlannedArm(name, recipe, arm.fixed)
    grids = {name: config.grid_of(name) for name in config.arms}
    signatures = {
        each.idea: arms[each.idea].recipe.intervention.signatures
        for each in config.comparisons
        if each.role != "control"
    }
    return Plan(
        config=config,
        track=track,
        arms=arms,
        grids=grids,
        parity=judging.match_trials(grids, config.protocol.parity),
        rule_digests={
            arm: {each.name: judging.rule_digest(each) for each in rules}
            for arm, rules in signatures.items()
        },
    )


def source_of(component: registry.Component, options: Mapping[str, Any]) -> Source:
    """Say what a component was built from; options that were not given are left out."""
    given = {name: value for name, value in options.items() if value is not None}
    return Source(component.source_digest(), given)


def key_of(configuration: Mapping[str, Any]) -> tuple[Any, ...]:
    """Make a configuration's values a dictionary key."""
    return tuple(sorted(configuration.items()))
