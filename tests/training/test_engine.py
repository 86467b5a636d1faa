"""The engine's promises: a run's numbers depend on its arm, configuration and seed alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import (
    cpu_layout,
    recurrent_recipe,
    runs_of,
    scores,
    small_recipe,
    train,
    vmap_layout,
)
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError
from jaxbench.training.engine import Engine
from jaxbench.training.layout import Layout
from jaxbench.training.program import Program
from jaxbench.training.runs import Run


@functools.cache
def engine_on(devices: int) -> Engine:
    """The CPU layout's engine on so many devices, which keeps its compiled programs."""
    return Engine(layout=cpu_layout(devices))


@functools.cache
def run_by_run(epochs: int, double: bool) -> np.ndarray:
    """The scores of 64 runs on one device of the CPU layout, in the caller's precision."""
    assert jax.config.jax_enable_x64 == double
    return scores(train(runs_of(recurrent_recipe(epochs=epochs), 64), cpu_layout(1)))


@pytest.mark.usefixtures("compiled_as_for_users")
@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("count", [1, 8, 64])
def test_cpu_layout_is_bitwise_independent_of_company_and_devices(devices: int, count: int) -> None:
    """Alone, among 8 and among 64, on 1, 2 and 8 devices: the same bits."""
    runs = runs_of(recurrent_recipe(), 64)[-count:]
    alone = scores(engine_on(1).train(runs[-1:]))[0]
    assert (scores(engine_on(devices).train(runs))[-1] == alone).all()


@pytest.mark.usefixtures("compiled_as_for_users")
@pytest.mark.parametrize(("devices", "count"), [(2, 7), (8, 5), (8, 13)])
def test_counts_that_devices_do_not_divide_are_padded(devices: int, count: int) -> None:
    """Fewer runs than devices, or some left over: every run has the bits that one device gives."""
    runs = runs_of(recurrent_recipe(), 64)[:count]
    expected = scores(engine_on(1).train(runs))
    assert scores(engine_on(devices).train(runs)).tobytes() == expected.tobytes()


def test_batches_on_several_devices_are_padded() -> None:
    """The accelerators' layout on three devices, two runs at once, in blocks of 4 and 3."""
    runs = runs_of(small_recipe(), 7)
    layout = Layout(tuple(jax.devices()[:3]), 2, vectorized=True)
    assert [len(rows) for rows in layout.blocks(7)] == [4, 3]
    assert np.allclose(scores(train(runs, layout)), scores(train(runs, cpu_layout(1))), rtol=1e-5)


@given(devices=st.integers(1, 8), slots=st.integers(1, 5), data=st.data())
def test_a_block_deals_its_runs_out_evenly(devices: int, slots: int, data: st.DataObject) -> None:
    """Each run has a place of its own, and the devices' loads differ by one run at most."""
    layout = cpu_layout(devices, slots)
    count = data.draw(st.integers(1, layout.capacity))
    positions = layout.positions(count)
    assert len(set(positions)) == count
    assert max(positions) < layout.capacity
    loads = np.bincount(positions // slots, minlength=devices)
    assert loads.max() - loads.min() <= 1


def test_blocks_do_not_change_the_numbers() -> None:
    """Many blocks, the last one short, give what one block gives."""
    runs = runs_of(small_recipe(), 13)
    one = scores(train(runs, cpu_layout(2, slots=16)))
    many = scores(train(runs, cpu_layout(2, slots=2)))
    assert np.allclose(one, many, rtol=1e-5)
    assert (scores(train(runs[::-1], cpu_layout(2, slots=16)))[::-1] == one).all()


@pytest.mark.parametrize("width", [1, 8, 64])
def test_vmap_agrees_in_float32_after_one_epoch(width: int) -> None:
    """Widths 1, 8, 64 against run by run: within 1e-5 relative."""
    found = scores(train(runs_of(recurrent_recipe(epochs=1), 64), vmap_layout(width)))
    assert np.allclose(found, run_by_run(1, double=False), rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 8, 64])
def test_vmap_agrees_in_float64_after_full_training(width: int) -> None:
    """Widths 1, 8, 64 against run by run, 12 epochs in double precision: within 1e-8 relative."""
    with jax.enable_x64(True):
        found = scores(train(runs_of(recurrent_recipe(epochs=12), 64), vmap_layout(width)))
        expected = run_by_run(12, double=True)
    assert np.allclose(found, expected, rtol=1e-8, atol=0)


def test_a_diverging_run_is_recorded_and_leaves_the_others_alone() -> None:
    """A learning rate of 1e6 diverges within a few steps; its neighbours keep their bits."""
    recipe = recurrent_recipe()
    runs = runs_of(recipe, 6)
    wild = Run("arm", 3, {"learning_rate": 1e6}, seed=0, recipe=recipe)
    expected = scores(train(runs, cpu_layout(2)))
    *others, lost = train([*runs, wild], cpu_layout(2))
    assert (scores(others) == expected).all()
    assert all(each.diverged_at is None for each in others)
    assert lost.diverged_at is not None
    assert 1 <= lost.diverged_at <= 3
    assert np.isnan([lost.validation, lost.test]).all()


def test_a_learning_rate_of_nan_diverges_at_the_step_after_the_first() -> None:
    """Step 0 sees the initial parameters, so its loss is finite; step 1 sees NaN."""
    run = Run("arm", 0, {"learning_rate": float("nan")}, seed=0, recipe=small_recipe())
    assert train([run], cpu_layout(1))[0].diverged_at == 1


def test_two_engines_give_the_same_bits() -> None:
    runs = runs_of(small_recipe(), 5)
    first, second = (scores(train(runs, cpu_layout(2))) for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_data_and_training_have_streams_of_their_own() -> None:
    """Another training seed moves initial weights and batch order, and not the data."""
    recipe = small_recipe()
    engine = Engine(layout=cpu_layout(1))
    base = Run("arm", 0, {"learning_rate": 0.01}, seed=0, recipe=recipe)
    other = Run("arm", 0, {"learning_rate": 0.01}, seed=0, recipe=recipe, training_seed=7)
    as_seed = Run("arm", 0, {"learning_rate": 0.01}, seed=0, recipe=recipe, training_seed=0)
    first, moved, same = engine.train([base, other, as_seed])
    assert first.test == same.test
    assert first.test != moved.test
    data = engine.starts(recipe, base.hyper, [0, 0, 1])
    assert (data[0].data.test.inputs == data[1].data.test.inputs).all()
    assert (data[0].data.test.inputs != data[2].data.test.inputs).any()


def test_an_epoch_uses_each_sample_at_most_once_and_epochs_differ() -> None:
    recipe = small_recipe()
    program = Program(recipe)
    (fixed,) = Engine(layout=cpu_layout(1)).starts(recipe, {"learning_rate": 0.1}, [0])
    keys = [program._epoch_keys(fixed, jnp.int32(epoch))["batch"] for epoch in (0, 1)]
    first, second = (np.asarray(program._batch_order(key, 32, 4)) for key in keys)
    assert sorted(first.ravel()) == list(range(32))
    assert (first != second).any()


def test_clipping_acts_below_the_gradients_norm_only() -> None:
    """A bound above every gradient changes no bit; one that shrinks them against epsilon does."""
    plain, loose, tight = (
        scores(train(runs_of(small_recipe(clip_norm=bound), 3), cpu_layout(1)))
        for bound in (None, 1e9, 1e-9)
    )
    assert np.allclose(plain, loose, rtol=1e-6)
    assert not np.allclose(plain, tight, rtol=1e-2)


def test_a_batch_larger_than_the_training_split_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="batch_size is 8, but the track has only 4"):
        train(runs_of(small_recipe(train_size=4), 1), cpu_layout(1))


def test_programs_are_compiled_once_for_all_blocks_seeds_and_configurations() -> None:
    """Four blocks, then other seeds and numbers: start, epoch and evaluate, each compiled once."""
    engine = Engine(layout=cpu_layout(2, slots=2))
    engine.train(runs_of(small_recipe(), 13))
    engine.train(runs_of(small_recipe(), 30)[20:])
    (group,) = engine.groups.values()
    assert sorted(program.name for program in group.programs) == ["epoch", "evaluate", "start"]


def test_more_training_lowers_the_training_loss() -> None:
    """The engine trains: the loss of the last epoch is well below that of the first."""
    for each in train(runs_of(small_recipe(epochs=15), 3)[-1:], cpu_layout(1)):
        curve = each.curves["train_loss"]
        assert curve.shape == (15,)
        assert curve[-1] < 0.5 * curve[0]
