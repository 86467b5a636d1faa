"""Small recipes and runs for tests of the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import Batch, Intervention, Metric, Model, Splits, Track
from jaxbench.interventions import none
from jaxbench.models import leapfrog_small, mlp_tiny, ring_mp, rnn_small
from jaxbench.tracks import dynamics, regression, ring, tabular
from jaxbench.training.engine import Engine
from jaxbench.training.layout import Layout
from jaxbench.training.runs import Recipe, Run, Schedule, TrainedRun

STUDY = """
[track]
name = "tabular"
train_size = 16
validation_size = 4
test_size = 4
[model]
name = "mlp_tiny"
hidden = [3]
[training]
epochs = 1
batch_size = 8
[protocol]
seeds = 6
tuning_seeds = 1
[grid]
learning_rate = [{rate}]
[arms.baseline]
intervention = "none"
[arms.idea]
intervention = "none"
[[comparisons]]
idea = "idea"
baseline = "baseline"
role = "primary"
"""
"""A config that trains in a moment; `format` gives it its learning rate."""


def recurrent_recipe(
    intervention: Intervention | None = None, *, epochs: int = 2, **track: Any
) -> Recipe:
    """A GRU of a few units on a short pendulum."""
    options = {"sequence_length": 10, "train_size": 32, "validation_size": 8, "test_size": 8}
    return Recipe(
        dynamics.build(**(options | track)),
        rnn_small.build(outputs=2, hidden=6),
        intervention or none.build(),
        Schedule(epochs, batch_size=8),
    )


def leapfrog_recipe(intervention: Intervention | None = None, *, epochs: int = 2) -> Recipe:
    """A leapfrog oscillator of low rank on a short pendulum."""
    recipe = recurrent_recipe(intervention, epochs=epochs)
    model = leapfrog_small.build(outputs=2, hidden=8, rank=2, max_rank=4)
    return dataclasses.replace(recipe, model=model)


def mlp_recipe(intervention: Intervention | None = None, *, epochs: int = 2) -> Recipe:
    """A rectified perceptron of a few units on Friedman's problem, as long as the phases last."""
    intervention = intervention or none.build()
    epochs = sum(phase.epochs for phase in intervention.phases) or epochs
    return Recipe(
        tabular.build(train_size=32, validation_size=8, test_size=8),
        mlp_tiny.build(outputs=1, hidden=(6, 5)),
        intervention,
        Schedule(epochs, batch_size=8),
    )


def ring_recipe(intervention: Intervention | None = None, *, epochs: int = 2) -> Recipe:
    """Eight nodes on a ring that see a short pendulum."""
    return Recipe(
        ring.build(sequence_length=8, train_size=32, validation_size=8, test_size=8),
        ring_mp.build(outputs=2, nodes=8, width=3),
        intervention or none.build(),
        Schedule(epochs, batch_size=8),
    )


def line_track(train_size: int = 32) -> Track:
    """Three inputs and a noisy linear target: compiles in a moment."""

    def generate(key: jax.Array) -> Splits:
        def draw(part: int, size: int) -> Batch:
            own, noise = jax.random.split(jax.random.fold_in(key, part))
            inputs = jax.random.normal(own, (size, 3))
            targets = inputs @ jnp.array([[1.0], [-2.0], [0.5]])
            return Batch(inputs, targets + 0.1 * jax.random.normal(noise, (size, 1)))

        return Splits(draw(0, train_size), draw(1, 8), draw(2, 8))

    return Track(
        name="line",
        summary="a noisy linear target",
        options={"train_size": train_size},
        metric=Metric("mean squared error", "1", "lower"),
        output_size=1,
        features=frozenset({"regression"}),
        generate=generate,
        loss=regression.mean_squared_error,
        score=regression.mean_squared_error,
        constant_loss=regression.constant_loss,
        references=lambda splits: {"constant": float(np.var(splits.test.targets))},
    )


def affine_model() -> Model:
    """One kernel [3, 1]."""
    return Model(
        name="affine",
        summary="one product",
        options={},
        features=frozenset(),
        init=lambda key, inputs: {"kernel": jax.random.normal(key, (inputs.shape[-1], 1))},
        apply=lambda params, inputs, **_: (inputs @ params["kernel"], {}),
        flops=lambda shape: 2.0 * shape[0],
    )


def small_recipe(
    intervention: Intervention | None = None,
    *,
    epochs: int = 2,
    clip_norm: float | None = None,
    train_size: int = 32,
) -> Recipe:
    """A linear model on a linear target, four steps an epoch."""
    return Recipe(
        line_track(train_size),
        affine_model(),
        intervention or none.build(),
        Schedule(epochs, batch_size=8, clip_norm=clip_norm),
    )


def runs_of(recipe: Recipe, count: int, **hyper: float) -> list[Run]:
    """`count` runs over three learning rates and as many seeds as it takes."""
    rates = (0.003, 0.01, 0.03)
    return [
        Run("arm", i % 3, {"learning_rate": rates[i % 3], **hyper}, seed=i // 3, recipe=recipe)
        for i in range(count)
    ]


def cpu_layout(devices: int, slots: int = 64) -> Layout:
    """The CPU layout over the first few of the forced host devices."""
    return Layout(tuple(jax.devices()[:devices]), slots, vectorized=False)


def vmap_layout(width: int) -> Layout:
    """The accelerator layout on one device."""
    return Layout((jax.devices()[0],), width, vectorized=True)


def train(runs: Sequence[Run], layout: Layout) -> list[TrainedRun]:
    """Train with a fresh engine, keeping parameters."""
    return Engine(layout=layout).train(runs, keep=lambda run: True)


def scores(trained: Sequence[TrainedRun]) -> np.ndarray:
    """Validation and test scores [runs, 2]."""
    return np.array([(each.validation, each.test) for each in trained])
