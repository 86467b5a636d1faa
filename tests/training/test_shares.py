"""Processes that train together: every run has one of them, and what they find is one process's."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from factories import cpu_layout, runs_of, scores, small_recipe
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.base import Intervention, JaxbenchError, Phase
from jaxbench.interventions import none
from jaxbench.training import processes
from jaxbench.training.engine import Engine
from jaxbench.training.executables import Compiled
from jaxbench.training.processes import ProcessError, Processes


@given(
    devices=st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple),
    units=st.lists(st.integers(0, 9), max_size=30),
)
def test_every_unit_has_one_process_and_loads_differ_by_one_a_device(
    devices: tuple[int, ...], units: list[int]
) -> None:
    shares = [Processes(index, devices).share(units) for index in range(len(devices))]
    owners = [
        [index for index, share in enumerate(shares) if share[row]] for row in range(len(units))
    ]
    assert all(len(each) == 1 for each in owners)
    of_unit = {
        unit: {owner[0] for u, owner in zip(units, owners, strict=True) if u == unit}
        for unit in units
    }
    assert all(len(each) == 1 for each in of_unit.values())
    distinct = len(of_unit)
    for index, own in enumerate(devices):
        load = sum(each == {index} for each in of_unit.values())
        assert load <= own * -(-distinct // sum(devices))
    assert not units or shares[0][0]


class Meeting:
    """Stands for the network between processes that are threads here."""

    def __init__(self, count: int) -> None:
        self.messages: list[bytes] = [b""] * count
        self.everyone = threading.Barrier(count, timeout=120)

    def gather(self, index: int, message: bytes) -> list[bytes]:
        """Give every thread's message to each."""
        self.messages[index] = message
        self.everyone.wait()
        found = list(self.messages)
        self.everyone.wait()
        return found


Each = Callable[[Processes], Any]


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[int], Each], list[Any]]:
    """Run a function as several processes would."""

    def run(devices: Sequence[int], each: Each) -> list[Any]:
        monkeypatch.setattr(processes, "gather", Meeting(len(devices)).gather)
        steps = [itertools.count() for _ in devices]
        own = threading.local()

        class Steps:
            def __next__(self) -> int:
                return next(steps[own.index])

        monkeypatch.setattr(processes, "EXCHANGES", Steps())

        def as_process(index: int) -> Any:
            own.index = index
            try:
                return each(Processes(index, tuple(devices)))
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(devices)) as pool:
            return list(pool.map(as_process, range(len(devices))))

    return run


def halved() -> Intervention:
    """Halves all parameters between two phases of an epoch, and measures their sum."""

    def surgery(ctx: Any, params: Any, opt_state: Any, state: Any) -> Any:
        return {"kernel": params["kernel"] / 2}, opt_state, state

    return dataclasses.replace(
        none.build(),
        name="halved",
        phases=(Phase(1, surgery), Phase(1)),
        measure=lambda ctx, params, state, batch: {"total": jnp.sum(params["kernel"])},
    )


@pytest.mark.parametrize("devices", [(1, 1), (1, 2, 1)])
def test_scores_are_those_of_one_process_to_the_bit(
    in_processes: Callable[..., list[Any]], devices: tuple[int, ...]
) -> None:
    """Counts that no number of devices divides; trained, then measured, by each and by one."""
    runs = [*runs_of(small_recipe(), 7), *runs_of(small_recipe(halved()), 5)]
    compiled: Compiled = {}

    def work(own: Processes) -> Any:
        one = Engine(layout=cpu_layout(1, slots=2), processes=own, compiled=compiled)
        trained = one.train(runs, keep=lambda run: True)
        measured = one.measure(trained[7:])
        totals = [each.measured["total"] for each in measured]
        start = [each.untrained["total"] for each in measured]
        counts = [(group.runs, group.trained) for group in one.groups.values()]
        assert [each.run for each in trained] == runs
        curves = [each.curves["train_loss"] for each in trained]
        return scores(trained), np.array(totals), np.array(start), np.array(curves), counts

    alone = work(processes.ALONE)
    for found in in_processes(devices, work):
        assert not isinstance(found, Exception), found
        for mine, expected in zip(found, alone, strict=True):
            assert np.array_equal(mine, expected)


def test_a_process_that_fails_is_heard_by_all(in_processes: Callable[..., list[Any]]) -> None:
    def work(own: Processes) -> None:
        def compute() -> int:
            if own.index == 1:
                raise ValueError("no memory left")
            return own.index

        own.together(compute)

    first, second, third = in_processes((1, 1, 1), work)
    assert isinstance(second, ValueError)
    for heard in (first, third):
        assert isinstance(heard, ProcessError)
        assert str(heard) == "process 1 failed: ValueError: no memory left"
        assert heard.exit_code == 1


def test_what_ends_one_process_ends_all_with_its_code(
    in_processes: Callable[..., list[Any]],
) -> None:
    class LateError(JaxbenchError):
        exit_code = 3

    def work(own: Processes) -> None:
        def compute() -> None:
            if own.index == 1:
                raise LateError("out of time")

        own.together(compute)

    assert [error.exit_code for error in in_processes((1, 1), work)] == [3, 3]


def test_processes_that_were_told_something_else_are_refused(
    in_processes: Callable[..., list[Any]],
) -> None:
    """They would train a mixture of two studies under the name of one."""

    def work(own: Processes) -> None:
        own.agree({"training.epochs": 3, "--seeds": 8 if own.index < 2 else 9})

    for error in in_processes((1, 1, 1), work):
        assert isinstance(error, JaxbenchError)
        assert "process 2 was told something else than process 0: --seeds;" in str(error)
    assert in_processes((1, 1), lambda own: own.agree({"training.epochs": 3})) == [None, None]


def test_processes_at_different_places_are_told_apart(
    in_processes: Callable[..., list[Any]],
) -> None:
    """One that skipped an exchange would take another's numbers for its own."""

    def work(own: Processes) -> None:
        if own.index == 1:
            next(processes.EXCHANGES)
        own.together(lambda: own.index)

    for error in in_processes((1, 1), work):
        assert isinstance(error, JaxbenchError)
        assert "at another place of the study" in str(error)


def test_one_process_exchanges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it computes need not even be sendable."""
    monkeypatch.setattr(processes, "gather", None)
    assert processes.current().count == 1
    [found] = processes.current().together(threading.Lock)
    assert found is not None
