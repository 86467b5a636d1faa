"""What a study's runs came to survives on disk, and is the same to the bit when it is read."""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import cpu_layout, runs_of, scores, small_recipe, vmap_layout

from jaxbench.base import Hyper, Intervention, Phase, Progress
from jaxbench.training import checkpoints as module
from jaxbench.training.checkpoint_folder import ABOUT, CheckpointError
from jaxbench.training.checkpoints import PROGRESS, TRAINED, TRUNK, Checkpoints, packed, unpacked
from jaxbench.training.engine import Engine
from jaxbench.training.layout import Layout
from jaxbench.training.runs import Recipe, Run, TrainedRun

ABOUT_IT: dict[str, Any] = {"config": {"training": {"epochs": 5}}, "versions": {"jax": "0.10.2"}}


class KilledError(Exception):
    """Stands for the end of a process."""


class Kill(Progress):
    """Ends a study after so many epochs of runs."""

    def __init__(self, after: int | None = None) -> None:
        self.left = after
        self.total = self.done = 0

    def start(self, total: int, label: str) -> None:
        """Begin to count."""
        self.total, self.done = total, 0

    def advance(self, count: int) -> None:
        """Count, and end when it is time."""
        self.done += count
        if self.left is not None:
            self.left -= count
            if self.left <= 0:
                raise KilledError


class Masked(NamedTuple):
    """A state of two kinds of leaves."""

    mask: Any
    cuts: Any


def pruning(first: int, second: int, cut: float) -> Intervention:
    """Set the smallest weights to zero after some epochs, and double the others later."""

    def init_state(ctx: Any) -> Masked:
        return Masked(jnp.ones((3, 1)), jnp.array(0, jnp.int32))

    def prune(ctx: Any, params: Any, opt_state: Any, state: Masked) -> Any:
        mask = (jnp.abs(params["kernel"]) > ctx.hyper["cut"] * cut).astype(jnp.float32)
        kept = {"kernel": params["kernel"] * mask}
        return kept, opt_state, Masked(mask, state.cuts + 1)

    def double(ctx: Any, params: Any, opt_state: Any, state: Masked) -> Any:
        return {"kernel": 2 * params["kernel"]}, opt_state, state

    def measure(ctx: Any, params: Any, state: Masked, test: Any) -> dict[str, Any]:
        return {"norm": jnp.linalg.norm(params["kernel"]), "weights": params["kernel"][:, 0]}

    def measure_host(ctx: Any, params: Any, state: Masked, test: Any) -> dict[str, Any]:
        left = np.flatnonzero(np.asarray(state.mask))
        return {"left": left.astype(float)}

    return Intervention(
        name="pruning",
        summary="for tests",
        static={"cut": cut, "first": first},
        hyper={"cut": Hyper(1.0, 0.0, 9.0, "a factor")},
        init_state=init_state,
        phases=(Phase(first, prune), Phase(0, double), Phase(second)),
        measure=measure,
        measure_host=measure_host,
        surgery_static=("cut",),
    )


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """Two prunings that share their training before it, and one arm without any."""
    return (
        small_recipe(pruning(3, 2, 0.5), epochs=5),
        small_recipe(pruning(3, 2, 1.0), epochs=5),
        small_recipe(epochs=5),
    )


def all_runs() -> list[Run]:
    """Runs of every recipe, in blocks of which the last is short."""
    pruned = [run for recipe in recipes()[:2] for run in runs_of(recipe, 7, cut=1.0)]
    return [*pruned, *runs_of(recipes()[2], 5)]


def keep(run: Run) -> bool:
    return run.seed < 2


LAYOUT = cpu_layout(2, slots=2)


def carried_out(
    folder: Path | None, *, kill: int | None = None, every: int = 1, layout: Layout = LAYOUT
) -> tuple[list[TrainedRun], list[Any], Kill, Checkpoints | None]:
    """Train and measure, with checkpoints in a folder if there is one."""
    checkpoints = None if folder is None else Checkpoints(folder, ABOUT_IT, every)
    progress = Kill(kill)
    engine = Engine(layout=layout, progress=progress, checkpoints=checkpoints)
    try:
        trained = engine.train(all_runs(), keep=keep)
        measured = engine.measure([each for each in trained if keep(each.run)])
    finally:
        if checkpoints is not None:
            checkpoints.close()
    return trained, measured, progress, checkpoints


@functools.cache
def uninterrupted() -> tuple[list[TrainedRun], list[Any]]:
    trained, measured, _, _ = carried_out(None)
    return trained, measured


def same(found: Sequence[TrainedRun], measured: Sequence[Any]) -> None:
    """Expect what an uninterrupted study gives, to the bit and in the same types."""
    expected, expected_measured = uninterrupted()
    assert scores(found).tobytes() == scores(expected).tobytes()
    for one, other in zip(found, expected, strict=True):
        assert one.diverged_at == other.diverged_at
        trees = [(each.curves, each.params, each.state) for each in (one, other)]
        assert jax.tree.structure(trees[0]) == jax.tree.structure(trees[1])
        for a, b in zip(*map(jax.tree.leaves, trees), strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    for one, other in zip(measured, expected_measured, strict=True):
        for a, b in ((one.measured, other.measured), (one.untrained, other.untrained)):
            assert a.keys() == b.keys()
            assert all(a[name].tobytes() == b[name].tobytes() for name in a)


SLOW_TOO = [(9, 1), (99, 1), (1, 2), (23, 1), (37, 2), (50, 1), (80, 2), (94, 1), (99, 2)]


@pytest.mark.parametrize(
    ("kill", "every"),
    [(37, 1), (66, 2)] + [pytest.param(*each, marks=pytest.mark.slow) for each in SLOW_TOO],
)
def test_a_study_that_was_stopped_anywhere_continues_to_the_same_bits(
    tmp_path: Path, kill: int, every: int
) -> None:
    """In a trunk, between surgeries, between blocks, while it measures: and stopped twice."""
    for after in (kill, kill // 2 + 1):
        with pytest.raises(KilledError):
            carried_out(tmp_path / "c", kill=after, every=every)
    trained, measured, progress, checkpoints = carried_out(tmp_path / "c", every=every)
    same(trained, measured)
    assert checkpoints is not None
    assert progress.done == progress.total


def test_what_is_finished_is_not_trained_again(tmp_path: Path) -> None:
    """A study carried out once more compiles nothing and calls no program but `start`."""
    carried_out(tmp_path)
    checkpoints = Checkpoints(tmp_path, ABOUT_IT, 1)
    engine = Engine(layout=LAYOUT, checkpoints=checkpoints)
    trained = engine.train(all_runs(), keep=keep)
    same(trained, engine.measure([each for each in trained if keep(each.run)]))
    programs = [each for group in engine.groups.values() for each in group.programs]
    assert {each.name for each in programs} == {"start"}
    assert not any(each.calls for each in programs)
    assert checkpoints.restored == len(trained)
    checkpoints.close()


def test_checkpoints_stay_small(tmp_path: Path) -> None:
    """One state of one block, and none when all blocks are done; parameters where they are kept."""
    with pytest.raises(KilledError):
        carried_out(tmp_path, kill=7)  # within the first block: four runs, its second epoch
    assert len(list(tmp_path.glob("*-*"))) == 1, "its state after one epoch"
    assert len(list(tmp_path.glob(f"{PROGRESS}-*"))) == 1
    carried_out(tmp_path)
    assert not list(tmp_path.glob(f"{PROGRESS}-*"))
    assert not list(tmp_path.glob(f"{TRUNK}-*"))
    checkpoints = Checkpoints(tmp_path, ABOUT_IT, 1)
    for record in checkpoints._records:
        if record.kind == TRAINED:
            runs = {each["name"]: len(each["rows"]) for each in record.table}
            assert runs["test"] == len(record.keys)
            assert runs.get("kept", 0) < len(record.keys) or len(record.keys) <= 4
    checkpoints.remove()
    assert not tmp_path.exists()


def test_on_fewer_devices_the_same_bits(tmp_path: Path) -> None:
    """Runs are found by name, whatever blocks they were in; what does not fit is trained again."""
    with pytest.raises(KilledError):
        carried_out(tmp_path, kill=70)
    trained, measured, *_ = carried_out(tmp_path, layout=cpu_layout(1, slots=2))
    same(trained, measured)


def test_another_width_is_another_run(tmp_path: Path) -> None:
    """Batched programs round differently: their runs are not mixed with the others."""
    carried_out(tmp_path)
    checkpoints = Checkpoints(tmp_path, ABOUT_IT, 1)
    Engine(layout=vmap_layout(2), checkpoints=checkpoints).train(all_runs()[:2])
    assert checkpoints.restored == 0
    checkpoints.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path) -> None:
    """Where a load fails, orbax leaves coroutines of a closed event loop to be collected."""
    with pytest.raises(KilledError):
        carried_out(tmp_path, kill=70)
    first, *_ = sorted(tmp_path.glob(f"{TRAINED}-*"))
    for path in first.iterdir():
        if path.is_file():
            path.unlink()
    (tmp_path / f"{TRAINED}-half.orbax-checkpoint-tmp").mkdir()
    for path in next(tmp_path.glob(f"{TRUNK}-*")).rglob("d/*"):
        path.unlink()
    same(*carried_out(tmp_path)[:2])
    gc.collect()


def test_another_study_version_or_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        carried_out(tmp_path, kill=70)
    other = {**ABOUT_IT, "config": {"training": {"epochs": 6}}}
    with pytest.raises(CheckpointError, match=r"config\.training\.epochs is 5 there and 6 here"):
        Checkpoints(tmp_path, other, 1)
    with pytest.raises(CheckpointError, match=r"versions\.jax is 0\.10\.2 there and 0\.11 here"):
        Checkpoints(tmp_path, {**ABOUT_IT, "versions": {"jax": "0.11"}}, 1)
    about = json.loads((tmp_path / ABOUT).read_text())
    (tmp_path / ABOUT).write_text(json.dumps({**about, "format": 0}))
    with pytest.raises(CheckpointError, match=f"format is 0 there and {module.FORMAT} here"):
        Checkpoints(tmp_path, ABOUT_IT, 1)


def test_a_state_of_another_shape_is_refused_by_the_name_of_its_leaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KilledError):
        carried_out(tmp_path, kill=50)
    read = module.unpacked

    def cut(*arguments: Any) -> list[dict[str, np.ndarray]]:
        rows = read(*arguments)
        return [{name: x[:2] if x.ndim == 2 else x for name, x in row.items()} for row in rows]

    monkeypatch.setattr(module, "unpacked", cut)
    words = r"\['kernel'\] is float32 \[2, 1\] there and float32 \[3, 1\] here"
    with pytest.raises(CheckpointError, match=words):
        carried_out(tmp_path)


def test_two_processes_do_not_write_into_one_folder(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path, ABOUT_IT, 1)
    first.write(TRAINED, ["a"], [{"x": np.ones(2)}])
    with pytest.raises(CheckpointError, match="another process is at work"):
        Checkpoints(tmp_path, ABOUT_IT, 1)
    first.close()
    assert Checkpoints(tmp_path, ABOUT_IT, 1).any


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """Missing quantities, other shapes, no elements, NaN's bits, every type."""
    nan = np.array([0x7FC00001], np.uint32).view(np.float32)
    rows = [
        {"a": np.float64(0.1) * np.ones(()), "b": np.arange(3), "nan": nan},
        {"a": np.asarray(2.0), "b": np.arange(5), "empty": np.zeros((0, 2), np.int8)},
        {},
        {"flag": np.asarray(True), "half": np.ones(2, jnp.bfloat16), "a['x'].y/z": np.ones(1)},
    ]
    checkpoints = Checkpoints(tmp_path, ABOUT_IT, 1)
    checkpoints.write(TRAINED, ["0", "1", "2", "3"], rows)
    checkpoints.write(TRAINED, ["nothing"], [{}])
    checkpoints.close()
    read = Checkpoints(tmp_path, ABOUT_IT, 1)
    found = read.find(TRAINED, ["3", "1", "0", "2", "nothing"])
    assert found is not None
    for one, other in zip(found, [rows[3], rows[1], rows[0], rows[2], {}], strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            wanted = other[name]
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
            assert value.tobytes() == wanted.tobytes()
    assert read.find(TRAINED, ["0", "4"]) is None
    read.close()
    assert len(unpacked(*packed(rows), len(rows))) == 4


# Several processes --------------------------------------------------------------------------------


def rows_of(value: float) -> list[dict[str, np.ndarray]]:
    """One run's row, of the types that parameters have."""
    return [{"loss": np.float32(value)[None], "half": np.asarray(jnp.full(3, value, jnp.bfloat16))}]


def equals(found: list[dict[str, np.ndarray]] | None, value: float) -> bool:
    """Whether a row was read back with its types and to the bit."""
    [expected] = rows_of(value)
    return found is not None and all(
        found[0][name].dtype == expected[name].dtype
        and found[0][name].tobytes() == expected[name].tobytes()
        for name in expected
    )


def opened(folder: Path, *processes: int | None) -> list[Checkpoints]:
    return [Checkpoints(folder, ABOUT_IT, 1, process) for process in processes]


def test_processes_write_in_folders_of_their_own_and_read_all(tmp_path: Path) -> None:
    """Two write; then three, or one, read both; a process drops only what it wrote itself."""
    folder = tmp_path / "checkpoints"
    for number, each in enumerate(opened(folder, 0, 1)):
        each.write(TRAINED, [f"run{number}"], rows_of(number))
        each.write(PROGRESS, [f"next{number}"], rows_of(number + 0.5), done=3)
        each.close()
    for readers in ((0, 1, 2), (None,)):
        several = opened(folder, *readers)
        for each in several:
            for number in (0, 1):
                assert equals(each.find(TRAINED, [f"run{number}"]), number)
                done, rows = each.progress([f"next{number}"]) or (0, None)
                assert (done, equals(rows, number + 0.5)) == (3, True)
        for each in several:
            each.close()
    zero, one = opened(folder, 0, 1)
    one.drop(TRAINED)
    zero.close()
    one.close()
    (zero,) = opened(folder, 0)
    assert zero.find(TRAINED, ["run1"]) is None
    assert equals(zero.find(TRAINED, ["run0"]), 0)
    zero.remove()
    assert not folder.exists()


def test_a_process_on_a_disk_of_its_own_continues_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    (one,) = opened(folder, 1)
    one.write(TRAINED, ["run"], rows_of(1))
    one.close()
    (one,) = opened(folder, 1)
    assert equals(one.find(TRAINED, ["run"]), 1)
    assert one.resumed == 1
    one.remove()
    assert not folder.exists()


def test_half_a_file_is_no_record_and_a_folder_has_one_holder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    (zero,) = opened(folder, 0)
    zero.write(TRAINED, ["run"], rows_of(1))
    for other in (0, None):
        with pytest.raises(CheckpointError, match="another process is at work on this study"):
            opened(folder, other)
    zero.close()
    [path] = (folder / "process-0").glob("*.npz")
    path.write_bytes(path.read_bytes()[:100])
    (zero,) = opened(folder, 0)
    assert not zero.any
    assert not path.exists()
    zero.close()
