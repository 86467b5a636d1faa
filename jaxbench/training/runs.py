"""Runs: what the engine is asked to train, and what it returns."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxbench.base import Intervention, JaxbenchError, Model, Phase, Track


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What every run of a study shares: `epochs` of minibatches of `batch_size`, Adam.

    `clip_norm` bounds the global norm of the gradient; None leaves it alone.
    """

    epochs: int
    batch_size: int
    clip_norm: float | None = None


class Source(NamedTuple):
    """The digest of a component's source file, and every option that it was built with."""

    digest: str
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """Everything that is compiled into an arm's programs.

    `sources` names the code of `track`, `model` and `intervention`, so that two files that call
    their idea by one name, or leave an option out of its static values, never share a program.
    """

    track: Track
    model: Model
    intervention: Intervention
    schedule: Schedule
    sources: Mapping[str, Source] = dataclasses.field(default_factory=dict)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The intervention's phases, or one phase of all epochs."""
        phases = self.intervention.phases or (Phase(self.schedule.epochs),)
        total = sum(phase.epochs for phase in phases)
        if total != self.schedule.epochs:
            parts = " + ".join(str(phase.epochs) for phase in phases)
            raise JaxbenchError(
                f"the phases of {self.intervention.name!r} last {parts} = {total} epochs, but "
                f"training.epochs is {self.schedule.epochs}; make them equal"
            )
        return phases

    @cached_property
    def train_shape(self) -> tuple[int, ...]:
        """The shape of the training inputs, [samples, ...]."""
        return jax.eval_shape(self.track.generate, jax.random.key(0)).train.inputs.shape

    @cached_property
    def full_key(self) -> str:
        """What makes two arms' programs the same throughout."""
        return self._key(()) + json.dumps([phase.epochs for phase in self.phases])

    @cached_property
    def training_key(self) -> str:
        """What makes two arms train by the same programs: the program key."""
        return self._key(self.intervention.surgery_static)

    @property
    def code(self) -> tuple[str, str | None]:
        """Which intervention it is, whatever its options: its name and its source's digest."""
        source = self.sources.get("intervention")
        return self.intervention.name, source.digest if source else None

    def _key(self, without: tuple[str, ...]) -> str:
        def kept(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: each for name, each in values.items() if name not in without}

        parts: dict[str, Any] = {
            "track": [self.track.name, dict(self.track.options)],
            "model": [self.model.name, dict(self.model.options)],
            "intervention": [self.intervention.name, kept(self.intervention.static)],
            "schedule": dataclasses.asdict(self.schedule),
        }
        for kind, source in self.sources.items():
            options = source.options if kind != "intervention" else kept(source.options)
            parts[kind] += [source.digest, options]
        return json.dumps(parts, sort_keys=True, default=repr)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One training: (arm, configuration, seed).

    `seed` makes the data; `training_seed` (by default the same) makes initial weights, batch order
    and the idea's own randomness, so that studies of chance alone can vary it by itself.
    """

    arm: str
    configuration: int
    hyper: Mapping[str, float]
    seed: int
    recipe: Recipe
    training_seed: int | None = None

    @property
    def streams(self) -> tuple[int, int]:
        """The seeds of data and of training."""
        return self.seed, self.seed if self.training_seed is None else self.training_seed

    @property
    def trunk(self) -> tuple[Any, ...] | None:
        """What makes two runs of a program key identical up to their first surgery, if any."""
        first = self.recipe.phases[0]
        if first.surgery is None and len(self.recipe.phases) == 1:
            return None
        later = self.recipe.intervention.surgery_static
        hyper = ((name, value) for name, value in self.hyper.items() if name not in later)
        return (first.epochs, *self.streams, *sorted(hyper))


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedRun:
    """What came of a run.

    Attributes:
        run: what was asked.
        validation, test: scores in the track's unit; NaN where the run diverged.
        diverged_at: the optimizer step at which it diverged, counted from 0, or None.
        curves: {name: array [epochs]}, means over each epoch's steps.
        params, state: the trained parameters and the intervention's state, or None if not kept.
    """

    run: Run
    validation: float
    test: float
    diverged_at: int | None
    curves: Mapping[str, np.ndarray]
    params: Any = None
    state: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Measurement:
    """What an intervention measured on a trained run, and at the run's initial parameters.

    `untrained` is empty where that was not asked for.
    """

    measured: dict[str, np.ndarray]
    untrained: dict[str, np.ndarray]
