"""Selection: who can win, on which seeds, and whether the grid brackets the winner."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.judging import V1_ASYMMETRY, edge_of_grid, select, select_v1

TABLE = [[3.0, 3.0], [1.0, 2.0], [2.0, 2.0]]


def test_the_best_mean_wins_in_its_direction():
    assert select(TABLE, "lower").index == 1
    assert select(TABLE, "higher").index == 0
    assert select(TABLE, "lower").means == (3.0, 1.5, 2.0)
    assert select([[2.0], [2.0]], "lower").index == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, None])
@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_configuration_with_a_diverged_run_cannot_win(bad, direction):
    sign = 1.0 if direction == "lower" else -1.0
    rows = [[sign * score for score in row] for row in TABLE]
    rows[1] = [rows[1][0], bad]
    selection = select(np.array(rows, dtype=float), direction)
    assert selection.index == 2
    assert selection.means[1] is None
    assert selection.diverged == (0, 1, 0)


def test_if_all_diverge_none_is_selected():
    with pytest.raises(JaxbenchError, match="all 2 configurations have a run that diverged"):
        select([[np.nan, 1.0], [2.0, np.inf]], "lower")


@pytest.mark.parametrize(
    ("scores", "direction", "message"),
    [
        ([], "lower", "one row a configuration"),
        ([1.0, 2.0], "lower", "one row a configuration"),
        ([["x"]], "lower", "table of numbers"),
        (TABLE, "highest", "Did you mean 'higher'"),
    ],
)
def test_unusable_tables_are_refused_in_words(scores, direction, message):
    with pytest.raises(JaxbenchError, match=message):
        select(scores, direction)


def test_v1_selects_the_baseline_on_four_seeds_and_the_idea_on_all():
    scores = [[1.0] * 4 + [9.0] * 4, [2.0] * 8]
    baseline = select_v1(scores, "lower", arm="baseline")
    idea = select_v1(scores, "lower", arm="idea")
    assert (baseline.index, baseline.seeds, baseline.means) == (0, 4, (1.0, 2.0))
    assert (idea.index, idea.seeds, idea.means) == (1, 8, (5.0, 2.0))
    assert "biased in favour of the idea" in V1_ASYMMETRY
    with pytest.raises(JaxbenchError, match="Did you mean 'baseline'"):
        select_v1(scores, "lower", arm="base")


@pytest.mark.parametrize(("rate", "edge"), [(0.001, "low"), (0.003, None), (0.01, "high")])
def test_the_edge_of_the_grid_is_flagged_where_there_is_a_grid(rate, edge):
    tried = [
        {"learning_rate": value, "width": 32, "kind": kind}
        for value in (0.003, 0.01, 0.001)
        for kind in ("a", "b")
    ]
    selected = {"learning_rate": rate, "width": 32, "kind": "a"}
    assert edge_of_grid(tried, selected) == {"learning_rate": edge}
