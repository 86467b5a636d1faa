"""Masks of weights that shrink round by round, and networks that begin again where they began."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import cpu_layout, mlp_recipe

from jaxbench.interventions import lottery_ticket
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Run, Schedule, TrainedRun

RNG = np.random.default_rng(0)
PARAMS = {
    "first": {"kernel": RNG.normal(size=(4, 5)), "bias": RNG.normal(size=5)},
    "second": {"kernel": RNG.normal(size=(5, 2)), "bias": RNG.normal(size=2)},
}
PARAMS = jax.tree.map(lambda leaf: leaf.astype(np.float32), PARAMS)
ONES = jax.tree.map(np.ones_like, PARAMS)
keep_highest = jax.jit(lottery_ticket.keep_highest)


def flat(tree: Any, layer: str) -> np.ndarray:
    return np.concatenate([np.ravel(tree[layer][name]) for name in ("bias", "kernel")])


def test_each_layer_keeps_its_highest_scores_among_those_left() -> None:
    scores = jax.tree.map(np.abs, PARAMS)
    mask = ONES
    for share in (1.0, 0.83, 0.5, 0.1, 0.03):
        mask = keep_highest(scores, mask, share)
        for layer in PARAMS:
            kept, values = flat(mask, layer) > 0, flat(scores, layer)
            assert abs(kept.sum() - share * values.size) <= 0.501
            assert not kept.any() or kept.all() or values[kept].min() > values[~kept].max()


def test_what_was_removed_stays_removed_whatever_its_score() -> None:
    mask = keep_highest(jax.tree.map(np.abs, PARAMS), ONES, 0.5)
    other = jax.tree.map(lambda leaf: -np.abs(leaf), PARAMS)
    later = keep_highest(other, mask, 0.25)
    for one, two in zip(jax.tree.leaves(mask), jax.tree.leaves(later), strict=True):
        assert (two <= one).all()


def test_random_scores_depend_on_the_key_alone() -> None:
    one, other = (
        lottery_ticket.weight_scores("random", params, jax.random.key(0))
        for params in (PARAMS, ONES)
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)
    moved = lottery_ticket.weight_scores("random", PARAMS, jax.random.key(1))
    assert not np.array_equal(moved["first"]["kernel"], one["first"]["kernel"])


def test_sparsity_is_the_share_of_weights_that_are_gone() -> None:
    mask = {"a": jnp.array([1.0, 0, 0]), "b": jnp.array([[1.0]])}
    assert lottery_ticket.sparsity(mask) == pytest.approx(0.5)


def trained(engine: Engine, kind: str, keep: float, rate: float = 0.05) -> TrainedRun:
    idea = lottery_ticket.build(kind=kind, rounds=2, epochs_each=2)  # type: ignore[arg-type]
    recipe = dataclasses.replace(mlp_recipe(idea), schedule=Schedule(6, batch_size=8))
    run = Run("arm", 0, {"learning_rate": rate, "keep": keep}, 0, recipe)
    return engine.train([run], keep=lambda run: True)[0]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(layout=cpu_layout(1))


@pytest.mark.parametrize("kind", ["magnitude", "random"])
def test_removed_weights_stay_zero_through_training(engine: Engine, kind: str) -> None:
    found = trained(engine, kind, 0.25)
    mask = found.state
    for weights, kept in zip(jax.tree.leaves(found.params), jax.tree.leaves(mask), strict=True):
        assert set(np.unique(kept)) <= {0.0, 1.0}
        assert (weights[kept == 0] == 0).all()
    for layer in mask.values():
        size = sum(leaf.size for leaf in layer.values())
        assert sum(leaf.sum() for leaf in layer.values()) == np.round(0.25 * size)
    (measured,) = engine.measure([found])
    share = sum(leaf.sum() for leaf in jax.tree.leaves(mask))
    total = sum(leaf.size for leaf in jax.tree.leaves(mask))
    assert measured.measured["sparsity"] == pytest.approx(1 - share / total, abs=1e-6)


def test_weights_that_stay_go_back_to_where_they_began(engine: Engine) -> None:
    """A learning rate too small to move anything leaves the masked initial weights."""
    found = trained(engine, "magnitude", 0.25, rate=1e-30)
    start = engine.starts(found.run.recipe, found.run.hyper, [0])[0].params0
    rewound = jax.tree.map(jnp.multiply, found.state, start)
    jax.tree.map(np.testing.assert_array_equal, found.params, rewound)
    expected = keep_highest(jax.tree.map(np.abs, start), jax.tree.map(np.ones_like, start), 0.25)
    for one, two in zip(jax.tree.leaves(found.state), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_network_that_keeps_everything_trains_again_from_the_beginning(engine: Engine) -> None:
    """With all weights kept and the optimizer fresh, the loss begins at each round where it did."""
    losses = trained(engine, "magnitude", 1.0).curves["train_loss"]
    firsts = losses[::2]
    assert len(firsts) == 3
    for one, other in itertools.combinations(firsts, 2):
        assert one == pytest.approx(other, rel=0.1)
    assert (losses[1::2] < firsts).all()


def test_arms_that_keep_more_and_less_share_their_first_training() -> None:
    """What stays decides nothing before the first removal."""
    idea = lottery_ticket.build(rounds=1, epochs_each=2)
    recipe = dataclasses.replace(mlp_recipe(idea), schedule=Schedule(4, batch_size=8))
    most, least, faster = (
        Run("arm", 0, {"learning_rate": rate, "keep": keep}, 0, recipe)
        for rate, keep in ((0.05, 0.5), (0.05, 0.1), (0.1, 0.1))
    )
    assert most.trunk == least.trunk != faster.trunk
    engine = Engine(layout=cpu_layout(1))
    together = engine.train([most, least])
    alone = Engine(layout=cpu_layout(1)).train([least])
    assert together[1].test == alone[0].test
    assert together[0].test != together[1].test
