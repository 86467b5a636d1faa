"""Points for a report's figure are those of the runs, evenly thinned out."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.base import Compared, JaxbenchError
from jaxbench.judging.points import MOST_POINTS, points

COMPARED = Compared("p", "m", equal=True)


def test_nothing_is_drawn_where_nothing_is_said_or_there() -> None:
    assert points(None, {"idea": {"p": np.ones(3), "m": np.ones(3)}}) is None
    assert points(COMPARED, {"idea": {"p": np.ones(3)}}) is None
    assert points(COMPARED, {"idea": {"p": np.full(3, np.nan), "m": np.ones(3)}}) is None


def test_points_keep_their_partners_and_their_order() -> None:
    predicted = np.arange(3 * MOST_POINTS, dtype=np.float32).reshape(3, -1)
    measured = predicted + 1.0
    measured[0, 0] = np.inf
    found = points(COMPARED, {"idea": {"p": predicted, "m": measured}, "null": {}})
    assert found is not None
    assert {name: found[name] for name in ("predicted", "measured", "equal")} == {
        "predicted": "p",
        "measured": "m",
        "equal": True,
    }
    panel = found["panels"]["idea"]
    assert list(found["panels"]) == ["idea"]
    assert panel["of"] == 3 * MOST_POINTS - 1
    assert len(panel["predicted"]) == len(panel["measured"]) == MOST_POINTS
    assert (panel["predicted"][0], panel["predicted"][-1]) == (1.0, 3 * MOST_POINTS - 1.0)
    steps = np.diff(panel["predicted"])
    assert steps.min() >= 1
    assert steps.max() - steps.min() <= 1
    assert (np.subtract(panel["measured"], panel["predicted"]) == 1.0).all()


def test_quantities_of_different_shapes_are_refused() -> None:
    with pytest.raises(JaxbenchError, match=r"'p' of shape \(2,\) with 'm' of shape \(3,\)"):
        points(COMPARED, {"idea": {"p": np.ones(2), "m": np.ones(3)}})
