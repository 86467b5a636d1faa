"""Grids: unions, the three parity modes, and what filling may and may not do."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError
from jaxbench.judging import configurations, geometric_extension, match_trials, union_grids

RATES = [0.001, 0.003, 0.01]


def values_of(points: list[dict], name: str) -> list:
    return sorted({point[name] for point in points})


def test_configurations_are_the_product_in_order():
    assert configurations({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    assert configurations({}) == [{}]
    assert configurations({"a": [1, 1, 2]}) == [{"a": 1}, {"a": 2}]


def test_shared_hyperparameters_take_the_union_and_own_ones_stay():
    united, shared = union_grids(
        {
            "baseline": {"learning_rate": [0.01, 0.001], "kind": ["b"]},
            "idea": {"learning_rate": [0.003], "kind": ["a"], "sigma": [2.0, 1.0]},
        }
    )
    assert shared == {"learning_rate": [0.001, 0.003, 0.01], "kind": ["b", "a"]}
    assert united["baseline"] == shared
    assert united["idea"] == shared | {"sigma": [2.0, 1.0]}


def test_equal_counts_are_left_alone_in_every_mode():
    grids = {"baseline": {"learning_rate": RATES}, "idea": {"learning_rate": RATES, "w": [1.0]}}
    for mode in ("fill", "strict", "off"):
        parity = match_trials(grids, mode)
        assert parity.equal
        assert parity.counts == {"baseline": 3, "idea": 3}
        assert not any(parity.added.values())


def test_fill_puts_geometric_midpoints_into_the_widest_gaps():
    grids = {
        "baseline": {"learning_rate": [0.001, 0.01]},
        "idea": {"learning_rate": [0.001, 0.01], "weight": [0.1, 1.0]},
    }
    parity = match_trials(grids)
    # log-midpoint of the only gap, then of the first of the two halves
    root = 10.0**0.25
    expected = [0.001, 0.001 * root, 0.001 * root**2, 0.01]
    assert values_of(parity.configurations["baseline"], "learning_rate") == pytest.approx(expected)
    assert parity.requested == {"baseline": 2, "idea": 4}
    assert parity.counts == {"baseline": 4, "idea": 4}
    assert [point["learning_rate"] for point in parity.added["baseline"]] == pytest.approx(
        [0.001 * root**2, 0.001 * root]
    )
    assert "2 of baseline's were added" in parity.statement
    assert json.loads(json.dumps(parity.to_dict(), allow_nan=False))["equal"] is True


positive_grids = st.lists(
    st.floats(1e-5, 1e3), min_size=2, max_size=4, unique_by=lambda value: round(math.log(value), 2)
)


@given(positive_grids, positive_grids, st.integers(1, 7), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_fill_makes_counts_equal_and_keeps_what_was_asked_for(rates, decays, own, owned):
    shared = {"learning_rate": rates, "decay": decays}
    grids = {
        "baseline": shared | {"warmup": list(range(owned))},
        "idea": shared | {"weight": list(range(own))},
    }
    parity = match_trials(grids)
    assert parity.equal
    for arm, grid in grids.items():
        tried = parity.configurations[arm]
        assert all(point in tried for point in configurations(grid))
        assert len({tuple(sorted(point.items())) for point in tried}) == len(tried)
        for name, values in shared.items():
            inside = values_of(tried, name)
            assert (inside[0], inside[-1]) == (min(values), max(values))
    assert max(parity.counts.values()) == max(parity.requested.values())


@given(positive_grids, st.integers(2, 6))
@settings(deadline=None, max_examples=50)
def test_fill_never_leaves_a_gap_more_than_twice_as_wide_as_another_it_split(rates, own):
    grids = {"baseline": {"rate": rates}, "idea": {"rate": rates, "weight": list(range(own))}}
    parity = match_trials(grids)
    before = np.diff(np.log(sorted(rates)))
    after = np.diff(np.log(values_of(parity.configurations["baseline"], "rate")))
    split = [gap for gap in after if not np.any(np.isclose(gap, before, rtol=1e-9))]
    assert after.max() <= before.max() * (1 + 1e-9)
    assert not split or after.max() <= 2.0 * min(split) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("values", "added"),
    [
        ([0.0, 1e-4, 1e-2], [1e-3]),  # zero stays, the midpoint is between the positive ones
        ([0.0, 1e-4], [5e-5]),
        ([-1.0, 1.0], [0.0]),
        ([-3.0, -1.0], [-2.0]),
        ([16, 64], [32]),
        ([2, 5], [3]),
    ],
)
def test_zeros_negatives_and_integers_are_filled_sensibly(values, added):
    grids = {"baseline": {"x": values}, "idea": {"x": values, "weight": [0.5, 1.0]}}
    parity = match_trials(grids)
    first = parity.added["baseline"][0]["x"]
    assert first == pytest.approx(added[0])
    assert type(first) is type(values[0])
    assert all(value in values_of(parity.configurations["baseline"], "x") for value in values)


def test_fill_without_room_says_what_to_do():
    for shared in ({"x": [0.5]}, {"x": ["a", "b"]}, {"x": [1, 2]}, {"x": [True, False]}, {}):
        grids = {"baseline": shared, "idea": shared | {"weight": [1.0, 2.0, 3.0]}}
        with pytest.raises(JaxbenchError, match=r"'fill' cannot give 'baseline'.*parity = 'off'"):
            match_trials(grids)


def test_strict_refuses_and_off_states_unequal_counts():
    grids = {"baseline": {"rate": RATES}, "idea": {"rate": RATES, "weight": [0.1, 1.0]}}
    with pytest.raises(JaxbenchError, match="3 for baseline and 6 for idea"):
        match_trials(grids, "strict")
    parity = match_trials(grids, "off")
    assert not parity.equal
    assert "unequally" in parity.statement
    with pytest.raises(JaxbenchError, match="Did you mean 'strict'"):
        match_trials(grids, "strickt")


def test_several_ideas_are_all_brought_to_the_largest():
    grids = {
        "baseline": {"rate": RATES},
        "one": {"rate": RATES, "weight": [1.0, 2.0]},
        "two": {"rate": RATES, "sigma": [1.0, 2.0, 3.0]},
    }
    assert match_trials(grids).counts == {"baseline": 9, "one": 9, "two": 9}


def test_extension_goes_by_factors_beyond_the_edge():
    assert geometric_extension(RATES, "high") == pytest.approx(0.03)
    assert geometric_extension(RATES, "low") == pytest.approx(0.001 / 3)
    assert geometric_extension(RATES, "high", factor=10.0) == pytest.approx(0.1)
    assert geometric_extension([8, 32], "high") == 96
    assert isinstance(geometric_extension([9, 32], "low"), int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: configurations({"rate": []}), "'rate' has no values"),
        (lambda: configurations({"rate": [0.1, np.nan]}), "finite values"),
        (lambda: configurations({"rate": 0.1}), "list of values"),
        (lambda: configurations({"kind": "ab"}), "list of values"),
        (lambda: match_trials({"baseline": {"rate": []}}), "'rate' has no values"),
        (lambda: geometric_extension([], "high"), "must hold numbers"),
        (lambda: geometric_extension([0.0, 1.0], "low"), "positive edge"),
        (lambda: geometric_extension([1, 2], "low"), "by hand"),
        (lambda: geometric_extension(RATES, "top"), "Did you mean"),
        (lambda: geometric_extension(RATES, "high", factor=1.0), "above 1"),
    ],
)
def test_unusable_grids_are_refused_in_words(call, message):
    with pytest.raises(JaxbenchError, match=message):
        call()
