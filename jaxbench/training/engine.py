"""The engine: a list of runs in, trained runs out.

Runs are grouped by program key.  Within a group every configuration and seed is one executable, a
*chunk* of one epoch over a block of runs; the host calls it and carries the state between chunks,
which is where progress, surgery and interruption live.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from jaxbench.base import JaxbenchError, Progress
from jaxbench.training import records
from jaxbench.training.checkpoints import MEASURED, PROGRESS, TRAINED, TRUNK, Checkpoints, Row
from jaxbench.training.cost import Group, steps_of
from jaxbench.training.executables import Compiled, Executable
from jaxbench.training.failures import Cause, cause_of_divergence, tracing_error
from jaxbench.training.keys import stage_key
from jaxbench.training.layout import Layout, automatic
from jaxbench.training.memory import run_bytes
from jaxbench.training.processes import Processes, current
from jaxbench.training.program import Carry, Fixed, Program, RunInput
from jaxbench.training.runs import Measurement, Recipe, Run, TrainedRun

T = TypeVar("T")
Trunks = dict[tuple[Any, ...], tuple[Carry, dict[str, np.ndarray]]]
"""What arms trained together before their first surgery: carry and curves of each distinct run."""


@dataclasses.dataclass
class Block:
    """A block of runs of one recipe on the devices."""

    recipe: Recipe
    layout: Layout
    runs: Sequence[Run]
    positions: np.ndarray
    active: jax.Array
    inputs: RunInput

    def put(self, each: Sequence[Any]) -> Any:
        """Send one host tree a run to the devices, as a tree [capacity, ...]."""
        return self.layout.put(_spread(self.layout, self.positions, each))

    def take(self, tree: Any) -> Any:
        """Bring a device tree [capacity, ...] to the host, one row a run [runs, ...]."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[self.positions], tree)


@dataclasses.dataclass
class Course:
    """How far a block has come: its state, and each epoch's logs, after `done` epochs.

    `keys` names its runs in checkpoints; there is nothing to save at `last`, its end.
    """

    carry: Carry
    keys: Sequence[str]
    last: int
    done: int = 0
    logs: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """Each log over all epochs, [runs, epochs]."""
        names = self.logs[0] if self.logs else {}
        return {name: np.concatenate([log[name] for log in self.logs], axis=1) for name in names}


class Engine:
    """Trains runs; keeps compiled programs from one call to the next.

    Args:
        devices: where to train; all of this process's devices of the default backend if None.
        layout: how to lay blocks out; chosen from the devices if None.
        width: runs that a device trains at once, if the layout is to be chosen.
        measures: full keys of the recipes that will be measured, so that it is compiled for while
            they train.
        progress: whom to tell.
        checkpoints: where to write down what was found, and to find what was found before.
        compiled: programs of earlier engines of this process, which need not be compiled again;
            new ones are added.
        processes: those that train together; all that jax knows if None.
    """

    def __init__(
        self,
        *,
        devices: Sequence[jax.Device] | None = None,
        layout: Layout | None = None,
        width: int | None = None,
        measures: Collection[str] = (),
        progress: Progress | None = None,
        checkpoints: Checkpoints | None = None,
        compiled: Compiled | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.devices = tuple(devices or jax.local_devices())
        self.processes = processes or current()
        self.progress = progress or Progress()
        self.checkpoints = checkpoints
        self.groups: dict[str, Group] = {}
        self._layout = layout
        self._width = width
        self._measures = measures
        self._compiled: Compiled = {} if compiled is None else compiled
        self._executables: Compiled = {}
        self._ahead: set[tuple[str, str, Layout]] = set()
        self._consts: dict[str, Any] = {}

    def train(
        self, runs: Sequence[Run], *, keep: Callable[[Run], bool] = lambda run: False
    ) -> list[TrainedRun]:
        """Train these runs and score them, in the order given.

        Args:
            runs: any mixture of arms, configurations and seeds.
            keep: of which runs to keep the trained parameters and states.
        """
        groups = _grouped(runs, lambda run: run.recipe.training_key)
        shares = {key: self._share(each, _unit) for key, each in groups.items()}
        for key, members in groups.items():
            self._layout_for(members[0][1].recipe, len(shares[key]))
            self.groups[key].runs += len(members)
            self.groups[key].trained += len({_unit(member) for member in members})

        def train_share() -> dict[int, dict[str, Any]]:
            own = [run for share in shares.values() for _, run in share]
            work = sum(run.recipe.schedule.epochs for run in own)
            self.progress.start(work, f"training {len(own)} runs, in run-epochs")
            trained: dict[int, TrainedRun] = {}
            for share in shares.values():
                trained |= self._train_group(share, keep) if share else {}
            return {place: _without_run(each) for place, each in trained.items()}

        found = self._together(train_share)
        return [TrainedRun(run, **found[place]) for place, run in enumerate(runs)]

    def measure(
        self,
        trained: Sequence[TrainedRun],
        *,
        control: Callable[[TrainedRun], bool] = lambda each: True,
    ) -> list[Measurement]:
        """Measure each run's intervention's quantities, with the parameters that were kept.

        A run without parameters is measured at its initial ones, one without a state in its
        intervention's initial one.

        Args:
            trained: the runs, with their parameters.
            control: which of them to measure at their initial parameters too.
        """
        measurements = [Measurement({}, {}) for _ in trained]
        wanted = [(measurements[index].measured, each) for index, each in enumerate(trained)]
        wanted += [
            (measurements[index].untrained, dataclasses.replace(each, params=None, state=None))
            for index, each in enumerate(trained)
            if control(each) and each.run.recipe.intervention.measure is not None
        ]
        networks = [each for _, each in wanted]
        groups = _grouped(networks, lambda each: each.run.recipe.full_key).values()

        def measure_share() -> dict[int, dict[str, np.ndarray]]:
            shares = [self._share(members, lambda member: member[0]) for members in groups]
            own = sum(map(len, shares))
            self.progress.start(own, f"measuring {own} networks")
            measured: dict[int, dict[str, np.ndarray]] = {}
            for share in filter(None, shares):
                layout = self._layout_for(share[0][1].run.recipe, len(share))
                for rows in layout.blocks(len(share)):
                    places, block = zip(*(share[row] for row in rows), strict=True)
                    measured |= zip(places, self._measured(layout, block), strict=True)
                    self.progress.advance(len(block))
            return measured

        for place, values in self._together(measure_share).items():
            wanted[place][0].update(values)
        return measurements

    def starts(
        self, recipe: Recipe, hyper: Mapping[str, float], seeds: Sequence[int]
    ) -> list[Fixed]:
        """Bring the data and initial parameters of these seeds to the host."""
        layout = self._layout_for(recipe, len(seeds))
        fixed: list[Fixed] = []
        for rows in layout.blocks(len(seeds)):
            block = self._block(layout, [Run("", 0, hyper, seeds[row], recipe) for row in rows])
            stacked = block.take(self._call(block, "start")[0])
            fixed += [_row(stacked, row) for row in range(len(rows))]
        return fixed

    def trace(self, run: Run) -> ClosedJaxpr:
        """Trace the start and the first epoch of one run, as if for the first time."""
        program, consts = Program(run.recipe), self._consts_for(run.recipe)

        def first_epoch(run: RunInput) -> Any:
            return program.epoch((consts, jnp.int32(0)), run, *program.start(consts, run))

        return jax.make_jaxpr(first_epoch)(_input(run))

    def cause_of_divergence(self, each: TrainedRun) -> Cause | None:
        """Find the hook of its intervention that made a run diverge, if one did."""
        recipe, step = each.run.recipe, each.diverged_at
        if step is None:
            return None
        return cause_of_divergence(recipe, self._consts_for(recipe), _input(each.run), step)

    # Several processes ---------------------------------------------------------------------------

    def _share(
        self, members: list[tuple[int, T]], unit: Callable[[tuple[int, T]], Hashable]
    ) -> list[tuple[int, T]]:
        """Those members of a group that this process works on; equal units stay together."""
        own = self.processes.share([unit(member) for member in members])
        return list(itertools.compress(members, own))

    def _together(self, compute: Callable[[], dict[int, T]]) -> dict[int, T]:
        """What every process computed, by place."""
        found: dict[int, T] = {}
        for part in self.processes.together(compute):
            found |= part
        return found

    # One group of runs ---------------------------------------------------------------------------

    def _train_group(
        self, members: list[tuple[int, Run]], keep: Callable[[Run], bool]
    ) -> dict[int, TrainedRun]:
        layout = self._layout_for(members[0][1].recipe, len(members))
        branches = list(_grouped(members, lambda member: member[1].recipe.full_key).values())
        blocks = [
            [branch[row][1] for row in rows]
            for branch in branches
            for rows in layout.blocks(len(branch))
        ]
        found = [self._trained_before(layout, [run for _, run in each], keep) for each in blocks]
        trunks: Trunks = {}
        if not all(found):
            self._compile_ahead(layout, [branch[0][1][1] for branch in branches])
            trunks = self._train_trunks(layout, [run for _, run in members])
        trained: dict[int, TrainedRun] = {}
        for block, before in zip(blocks, found, strict=True):
            indices, runs = zip(*block, strict=True)
            if before is not None:
                done = [
                    0 if run.trunk not in trunks else run.recipe.phases[0].epochs for run in runs
                ]
                self.progress.advance(len(runs) * runs[0].recipe.schedule.epochs - sum(done))
            results = before or self._train_block(layout, runs, trunks, keep)
            trained |= zip(indices, results, strict=True)
        if self.checkpoints is not None:
            self.checkpoints.drop(TRUNK)
        return trained

    def _train_block(
        self,
        layout: Layout,
        runs: Sequence[Run],
        trunks: Trunks,
        keep: Callable[[Run], bool],
    ) -> list[TrainedRun]:
        recipe = runs[0].recipe
        block = self._block(layout, runs)
        fixed, carry = self._call(block, "start")
        course = Course(carry, records.trained_keys(layout, runs), recipe.schedule.epochs)
        self._resume(block, course)
        grown = [trunks[run.trunk] for run in runs if run.trunk is not None]
        end = 0
        for number, phase in enumerate(recipe.phases):
            end += phase.epochs
            if end < course.done:
                continue  # past when the checkpoint was written, its surgery too
            if number == 0 and grown and not course.done:
                states, parts = zip(*grown, strict=True)
                course.carry, course.done = block.put(states), end
                course.logs = [
                    {name: np.stack([each[name] for each in parts]) for name in parts[0]}
                ]
            self._train_epochs(block, fixed, course, end)
            if phase.surgery is not None:
                course.carry = self._call(block, f"surgery{number}", fixed, course.carry)
        return self._finish(block, fixed, course, keep)

    def _train_trunks(self, layout: Layout, runs: Sequence[Run]) -> Trunks:
        """Train what runs share before their first surgery, once each."""
        unique = {run.trunk: run for run in runs if run.trunk is not None}
        trunks: Trunks = {}
        by_length = _grouped(list(unique.values()), lambda run: run.recipe.phases[0].epochs)
        for epochs, members in by_length.items():
            for rows in layout.blocks(len(members)):
                trunks |= self._train_trunk(layout, [members[row][1] for row in rows], epochs)
        asked = sum(run.recipe.phases[0].epochs for run in runs if run.trunk is not None)
        done = sum(run.recipe.phases[0].epochs for run in unique.values())
        self.progress.advance(asked - done)
        return trunks

    def _train_trunk(self, layout: Layout, runs: Sequence[Run], epochs: int) -> Trunks:
        """Train a block of runs up to their first surgery."""
        block = self._block(layout, runs)
        keys = records.trunk_keys(layout, runs)
        rows = self.checkpoints and self.checkpoints.find(TRUNK, keys)
        if rows:
            _, described = self._request(block, "start").outputs
            self.progress.advance(len(runs) * epochs)
            states = [records.state_of(row, described) for row in rows]
        else:
            fixed, carry = self._call(block, "start")
            course = Course(carry, keys, epochs)
            self._resume(block, course)
            self._train_epochs(block, fixed, course, epochs)
            states = self._on_host(block, course)
            if self.checkpoints is not None:
                rows = [records.state_row(*state) for state in states]
                self.checkpoints.write(TRUNK, keys, rows)
        each = zip(runs, states, strict=True)
        return {run.trunk: state for run, state in each if run.trunk is not None}

    def _train_epochs(self, block: Block, fixed: Fixed, course: Course, end: int) -> None:
        """Train a block up to the end of an epoch, writing checkpoints when they are due."""
        while course.done < end:
            shared = (block.layout.replicate(np.int32(course.done)),)
            course.carry, log = self._call(block, "epoch", fixed, course.carry, shared=shared)
            course.logs.append({name: each[:, None] for name, each in block.take(log).items()})
            course.done += 1
            self.progress.advance(len(block.runs))
            checkpoints = self.checkpoints
            if checkpoints and checkpoints.due(course.done) and course.done < course.last:
                rows = [records.state_row(*state) for state in self._on_host(block, course)]
                checkpoints.write(PROGRESS, course.keys, rows, course.done)

    def _finish(
        self,
        block: Block,
        fixed: Fixed,
        course: Course,
        keep: Callable[[Run], bool],
    ) -> list[TrainedRun]:
        carry, curves = course.carry, course.curves
        scores = block.take(self._call(block, "evaluate", fixed, carry))
        kept = block.take((carry.params, carry.state, carry.diverged_at))
        last_step = steps_of(block.recipe) - 1
        results = []
        for row, run in enumerate(block.runs):
            params, state, diverged_at = _row(kept, row)
            validation, test = (float(scores[split][row]) for split in ("validation", "test"))
            at: int | None = int(diverged_at)
            if at == -1:
                at = None if math.isfinite(validation) and math.isfinite(test) else last_step
            results.append(
                TrainedRun(
                    run=run,
                    validation=validation if at is None else math.nan,
                    test=test if at is None else math.nan,
                    diverged_at=at,
                    curves=_row(curves, row),
                    params=params if keep(run) else None,
                    state=state if keep(run) else None,
                )
            )
        if self.checkpoints is not None:
            rows = [records.trained_row(each) for each in results]
            self.checkpoints.write(TRAINED, course.keys, rows)
        return results

    # What was found before -----------------------------------------------------------------------

    def _resume(self, block: Block, course: Course) -> None:
        """Put a block where the checkpoint of its runs left it, if there is one."""
        found = self.checkpoints and self.checkpoints.progress(course.keys)
        if not found:
            return
        course.done, rows = found
        states, logs = zip(*(records.state_of(row, course.carry) for row in rows), strict=True)
        course.carry = block.put(states)
        course.logs = [{name: np.stack([log[name] for log in logs]) for name in logs[0]}]
        self.progress.advance(len(rows) * course.done)

    def _on_host(self, block: Block, course: Course) -> list[tuple[Carry, Row]]:
        """Bring each run's state and curves to the host."""
        both = block.take(course.carry), course.curves
        return [_row(both, row) for row in range(len(block.runs))]

    def _trained_before(
        self, layout: Layout, runs: Sequence[Run], keep: Callable[[Run], bool]
    ) -> list[TrainedRun] | None:
        """Give what a block of runs came to, if all of it was written down."""
        if self.checkpoints is None:
            return None
        rows = self.checkpoints.find(TRAINED, records.trained_keys(layout, runs))
        if rows is None:
            return None
        kept = [records.has_parameters(row) for row in rows]
        if any(keep(run) and not there for run, there in zip(runs, kept, strict=True)):
            return None
        self.checkpoints.restored += len(runs)
        described = None
        if any(keep(run) for run in runs):
            _, carry = self._request(self._block(layout, runs), "start").outputs
            described = carry.params, carry.state
        return [
            records.trained_run(run, row, described if keep(run) else None)
            for run, row in zip(runs, rows, strict=True)
        ]

    def _measured(
        self, layout: Layout, networks: Sequence[TrainedRun]
    ) -> list[dict[str, np.ndarray]]:
        """Measure a block of networks, or read what was measured before."""
        if self.checkpoints is None:
            return self._measure_block(layout, networks)
        keys = records.measured_keys(layout, networks)
        rows = self.checkpoints.find(MEASURED, keys)
        if rows is None:
            rows = self._measure_block(layout, networks)
            self.checkpoints.write(MEASURED, keys, rows)
        return rows

    # Measurements --------------------------------------------------------------------------------

    def _measure_block(
        self, layout: Layout, trained: Sequence[TrainedRun]
    ) -> list[dict[str, np.ndarray]]:
        """Measure networks of one recipe; one without parameters as it is at its start."""
        recipe = trained[0].run.recipe
        intervention = recipe.intervention
        block = self._block(layout, [each.run for each in trained])
        fixed, carry = self._call(block, "start")
        initial = block.take((carry.params, carry.state))
        start = [_row(initial, row) for row in range(len(trained))]
        params = [
            first if each.params is None else each.params
            for each, (first, _) in zip(trained, start, strict=True)
        ]
        states = [
            first if each.state is None else each.state
            for each, (_, first) in zip(trained, start, strict=True)
        ]
        carry = carry._replace(params=block.put(params), state=block.put(states))
        results: list[dict[str, np.ndarray]] = [{} for _ in trained]
        if intervention.measure is not None:
            values = block.take(self._call(block, "measure", fixed, carry))
            results = [_row(values, row) for row in range(len(trained))]
        if intervention.measure_host is not None:
            on_host = block.take((fixed, carry))

            def measure_row(row: int) -> dict[str, np.ndarray]:
                each = trained[row]
                if each.params is None or each.diverged_at is not None:
                    return {}
                measured = results[row]
                return self._measure_on_host(each.run, measured, *_row(on_host, row))

            with ThreadPoolExecutor(len(self.devices)) as pool:
                for row, values in enumerate(pool.map(measure_row, range(len(trained)))):
                    results[row].update(values)
        for name in intervention.host_only:
            for result in results:
                result.pop(name, None)
        return results

    def _measure_on_host(
        self, run: Run, measured: Mapping[str, np.ndarray], fixed: Fixed, carry: Carry
    ) -> dict[str, np.ndarray]:
        recipe, measure_host = run.recipe, run.recipe.intervention.measure_host
        assert measure_host is not None
        ctx = Program(recipe).context(self._consts_for(recipe), _input(run), fixed)
        ctx = dataclasses.replace(ctx, measured=measured)
        values = measure_host(ctx, carry.params, carry.state, fixed.data.test)
        return {name: np.asarray(value) for name, value in values.items()}

    # Blocks and compiled programs ----------------------------------------------------------------

    def _layout_for(self, recipe: Recipe, count: int) -> Layout:
        layout = self._layout or automatic(
            self.devices,
            max(count, 1),
            lambda: run_bytes(Program(recipe), self._consts_for(recipe)),
            self._width,
        )
        group = self.groups.setdefault(recipe.training_key, Group(recipe.training_key, layout))
        group.layout = layout
        return layout

    def _block(self, layout: Layout, runs: Sequence[Run]) -> Block:
        positions = layout.positions(len(runs))
        active = np.zeros(layout.capacity, bool)
        active[positions] = True
        inputs = _spread(layout, positions, [_input(run) for run in runs])
        active, inputs = layout.put(active), layout.put(inputs)
        return Block(runs[0].recipe, layout, runs, positions, active, inputs)

    def _compile_ahead(self, layout: Layout, runs: Sequence[Run]) -> None:
        """Begin to compile every program that these recipes need, in the order of their need.

        Training comes first, then what measures; `runs` has one run of each recipe.
        """
        blocks = [self._block(layout, [run]) for run in runs]
        if any(("train", run.recipe.full_key, layout) not in self._ahead for run in runs):
            self.progress.stage("compiling")
        for need in ("train", "measure"):
            for block in blocks:
                wanted = (need, block.recipe.full_key, layout)
                if wanted in self._ahead:
                    continue
                self._ahead.add(wanted)
                if need == "train":
                    self._compile_training(block)
                elif (
                    block.recipe.full_key in self._measures
                    and block.recipe.intervention.measure is not None
                ):
                    self._request(block, "measure", *self._request(block, "start").outputs)

    def _compile_training(self, block: Block) -> None:
        fixed, carry = self._request(block, "start").outputs
        number = block.layout.replicate(np.int32(0))
        self._request(block, "epoch", fixed, carry, shared=(number,))
        for place, phase in enumerate(block.recipe.phases):
            if phase.surgery is not None:
                self._request(block, f"surgery{place}", fixed, carry)
        self._request(block, "evaluate", fixed, carry)

    def _request(
        self, block: Block, name: str, *trees: Any, shared: tuple[Any, ...] = ()
    ) -> Executable:
        """Give one of a block's programs, beginning to compile it if it is new."""
        recipe, layout = block.recipe, block.layout
        training = name in ("start", "epoch", "evaluate")
        key = (recipe.training_key if training else recipe.full_key, name, layout)
        if key not in self._executables:
            if key in self._compiled:
                made = self._compiled[key].again()
            else:
                arguments = self._arguments(block, trees, shared)
                try:
                    made = Executable(layout, function_of(recipe, name), name, arguments)
                except JaxbenchError:
                    raise
                except Exception as error:
                    raise tracing_error(recipe, name, error) from error
                self._compiled[key] = made
            self._executables[key] = made
            self.groups[recipe.training_key].programs.append(made.cost)
        return self._executables[key]

    def _arguments(
        self, block: Block, trees: tuple[Any, ...], shared: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        consts = self._consts_for(block.recipe)
        return ((consts, *shared) if shared else consts, block.active, block.inputs, *trees)

    def _call(self, block: Block, name: str, *trees: Any, shared: tuple[Any, ...] = ()) -> Any:
        """Call one of a block's programs and wait for what it gives."""
        executable = self._request(block, name, *trees, shared=shared)
        if not executable.ready:
            self.progress.stage(f"compiling {name}")
        return executable(*self._arguments(block, trees, shared))

    def _consts_for(self, recipe: Recipe) -> Any:
        """What `prepare` makes, once for each intervention."""
        if recipe.full_key not in self._consts:
            self._consts[recipe.full_key] = recipe.intervention.prepare(stage_key(0, "method"))
        return self._consts[recipe.full_key]


def function_of(recipe: Recipe, name: str) -> Callable[..., Any]:
    """The function of one run behind a program's name."""
    program = Program(recipe)
    if name.startswith("surgery"):
        return program.surgery(recipe.phases[int(name.removeprefix("surgery"))])
    return getattr(program, name)


def _input(run: Run) -> RunInput:
    seed, training_seed = run.streams
    real = jnp.zeros(()).dtype
    hyper = {name: np.asarray(value, real) for name, value in sorted(run.hyper.items())}
    return RunInput(np.int32(seed), np.int32(training_seed), hyper)


def _unit(member: tuple[int, Run]) -> Hashable:
    """What one process must train: a run, or those that share what comes before surgery."""
    place, run = member
    return place if run.trunk is None else run.trunk


def _without_run(trained: TrainedRun) -> dict[str, Any]:
    """What training found, which can be sent to other processes; a run's recipe cannot."""
    fields = dataclasses.fields(trained)
    return {each.name: getattr(trained, each.name) for each in fields if each.name != "run"}


def _spread(layout: Layout, positions: np.ndarray, each: Sequence[Any]) -> Any:
    """Stack one tree a run at the runs' positions, [capacity, ...]; padding repeats the first."""
    rows = np.zeros(layout.capacity, int)
    rows[positions] = np.arange(len(each))
    return jax.tree.map(lambda *leaves: np.stack(leaves)[rows], *each)


def _row(tree: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _grouped(items: Sequence[T], key: Callable[[T], Any]) -> dict[Any, list[tuple[int, T]]]:
    """Sort items by key, each with its place in the sequence."""
    groups: dict[Any, list[tuple[int, T]]] = {}
    for place, item in enumerate(items):
        groups.setdefault(key(item), []).append((place, item))
    return groups
