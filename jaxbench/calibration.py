"""Calibration of a track: thousands of small trainings whose true differences are known.

The second arm of an A/A study is the baseline itself, on the same data, with initial weights and
batch order keyed from an independent stream.  `jaxbench.judging.calibration` does the counting.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench import judging, registry
from jaxbench.base import JaxbenchError
from jaxbench.judging import calibration
from jaxbench.reporting.provenance import provenance
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Recipe, Run, Schedule

if TYPE_CHECKING:
    from jaxtyping import Int

MASTER_SEED = 5_202_612
"""Every seed of a calibration follows from it.  It was fixed before the first one and stays."""

FIRST_SEED = 10_000
"""Studies use smaller ones."""

PLANTED_FACTOR = 0.5
"""Of the learning rate, in the studies with a planted effect."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a track is calibrated: small networks, so that ten thousand trainings take minutes."""

    track_options: dict[str, Any]
    model: str
    model_options: dict[str, Any]
    schedule: Schedule
    learning_rate: float
    grid: tuple[float, ...]


SETTINGS = {
    "dynamics": Setting(
        {"preset": "quick"}, "rnn_small", {"hidden": 16},
        Schedule(epochs=4, batch_size=32), 0.01, (0.003, 0.01, 0.03),
    ),
    "tabular": Setting(
        {}, "mlp_tiny", {"hidden": [32, 32]},
        Schedule(epochs=12, batch_size=64), 0.01, (0.003, 0.01, 0.03),
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is trained: A/A studies, those that are tuned, those with a planted effect."""

    studies: int = 400
    tuned: int = 50
    planted: int = 100
    pairs: int = 8
    tuning_seeds: int = 4
    sequences: int = 10_000
    max_pairs: int = 64


@dataclasses.dataclass(frozen=True)
class Seeds:
    """The seeds of all studies: no two studies share one, nor do two arms of an A/A study.

    The first index of the last axis is of the data and of the first arm's training, the second of
    the second arm's training.

    Attributes:
        fixed: [studies, pairs, 2].
        tuning, tuned: of the tuned studies, [tuned, tuning seeds, 2] and [tuned, pairs, 2].
        planted: [planted, pairs]; both arms share it, as in a study.
    """

    fixed: Int[np.ndarray, "studies pairs 2"]
    tuning: Int[np.ndarray, "tuned seeds 2"]
    tuned: Int[np.ndarray, "tuned pairs 2"]
    planted: Int[np.ndarray, "planted pairs"]


def draw_seeds(sizes: Sizes) -> Seeds:
    """Draw different seeds from the master seed, none of which a study of a config uses."""
    shapes = {
        "fixed": (sizes.studies, sizes.pairs, 2),
        "tuning": (sizes.tuned, sizes.tuning_seeds, 2),
        "tuned": (sizes.tuned, sizes.pairs, 2),
        "planted": (sizes.planted, sizes.pairs),
    }
    counts = [int(np.prod(shape)) for shape in shapes.values()]
    rng = np.random.default_rng(MASTER_SEED)
    drawn = FIRST_SEED + rng.choice(2**31 - FIRST_SEED, sum(counts), replace=False)
    parts = np.split(drawn, np.cumsum(counts)[:-1])
    named = zip(shapes.items(), parts, strict=True)
    return Seeds(**{name: part.reshape(shape) for (name, shape), part in named})


def setting_of(track: str) -> Setting:
    """Give a track's setting.

    Raises:
        JaxbenchError: it has none.
    """
    if track not in SETTINGS:
        raise JaxbenchError(
            f"no calibration of a track {track!r}{registry.nearest(track, SETTINGS)} "
            f"(tracks: {', '.join(SETTINGS)})"
        )
    return SETTINGS[track]


def calibrate_track(
    track: str, *, engine: Engine, setting: Setting | None = None, sizes: Sizes | None = None
) -> dict[str, Any]:
    """Train a track's studies of known truth and measure how the tests do on them.

    Args:
        track: its name.
        engine: what trains.
        setting: of the trainings; the track's own by default.
        sizes: how many; those of the published calibration by default.

    Returns:
        Strict JSON: what was trained, its scores, what `judging.calibration` counts, and the cost.

    Raises:
        JaxbenchError: the track has no setting.
    """
    setting, sizes = setting or setting_of(track), sizes or Sizes()
    began, began_cpu = time.perf_counter(), time.process_time()
    recipe = recipe_of(track, setting)
    scores = train(recipe, setting, draw_seeds(sizes), engine)
    direction = recipe.track.metric.direction
    measured = calibration.calibrate(
        scores, direction, sequences=sizes.sequences, max_pairs=sizes.max_pairs, seed=MASTER_SEED
    )
    return judging.strict_json(
        {
            "track": track,
            "track_options": dict(recipe.track.options),
            "model": recipe.model.name,
            "model_options": dict(recipe.model.options),
            "training": dataclasses.asdict(setting.schedule),
            "learning_rate": setting.learning_rate,
            "grid": setting.grid,
            "planted_learning_rate": PLANTED_FACTOR * setting.learning_rate,
            "metric_direction": f"{direction} is better",
            "master_seed": MASTER_SEED,
            "sizes": dataclasses.asdict(sizes),
            **measured,
            "cost": {
                "runs": sum(group.runs for group in engine.groups.values()),
                "wall_seconds": time.perf_counter() - began,
                "cpu_seconds": time.process_time() - began_cpu,
                "cores": os.cpu_count(),
                "load_average": os.getloadavg()[1],
            },
            "provenance": provenance(engine.devices),
            "scores": dataclasses.asdict(scores),
        }
    )


def recipe_of(track: str, setting: Setting) -> Recipe:
    """Build what every run of a calibration trains."""
    made = registry.load("tracks", track).make(setting.track_options)
    model = registry.load("models", setting.model).make(
        setting.model_options, outputs=made.output_size
    )
    return Recipe(made, model, registry.load("interventions", "none").make({}), setting.schedule)


def train(recipe: Recipe, setting: Setting, seeds: Seeds, engine: Engine) -> calibration.Scores:
    """Train every study: all that need no tuning, and all tuning, as one batch; then the tuned."""

    def run(rate: float, data: int, training: int) -> Run:
        return Run("baseline", 0, {"learning_rate": rate}, int(data), recipe, int(training))

    fixed = [
        run(setting.learning_rate, row[0], row[arm])
        for study in seeds.fixed for arm in (0, 1) for row in study
    ]  # fmt: skip
    planted = [
        run(rate, seed, seed)
        for study in seeds.planted
        for rate in (setting.learning_rate, PLANTED_FACTOR * setting.learning_rate)
        for seed in study
    ]
    tuning = [
        run(rate, row[0], row[arm])
        for study in seeds.tuning for arm in (0, 1) for rate in setting.grid for row in study
    ]  # fmt: skip
    together = engine.train([*fixed, *planted, *tuning])
    test = rounded([each.test for each in together])
    validation = np.array([each.validation for each in together[-len(tuning) :]])
    tried = validation.reshape(len(seeds.tuning), 2, len(setting.grid), -1)
    direction = recipe.track.metric.direction
    chosen = np.array(
        [
            [setting.grid[judging.select(table, direction).index] for table in study]
            for study in tried
        ]
    )
    tuned = [
        run(rate, row[0], row[arm])
        for study, rates in zip(seeds.tuned, chosen, strict=True)
        for arm, rate in enumerate(rates) for row in study
    ]  # fmt: skip
    pairs = seeds.fixed.shape[1]
    return calibration.Scores(
        fixed=test[: len(fixed)].reshape(-1, 2, pairs),
        planted=test[len(fixed) : len(fixed) + len(planted)].reshape(-1, 2, pairs),
        tuned=rounded([each.test for each in engine.train(tuned)]).reshape(-1, 2, pairs),
        chosen=chosen,
    )


def rounded(scores: Sequence[float]) -> np.ndarray:
    """Keep the nine digits that tell single-precision numbers apart, so that files stay small."""
    return np.array([float(f"{score:.9g}") for score in scores])
