"""Numbers keep every digit, and what JSON cannot say is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError
from jaxbench.reporting.strict_json import dumps, loads


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)  # fmt: skip
def test_a_document_survives(document: Any) -> None:
    text = dumps(document)
    assert text.isascii()
    assert loads(text) == document


def test_numpy_and_tuples_become_plain() -> None:
    document = {
        "array": np.arange(3), "scalar": np.float32(0.1), "flag": np.bool_(True),
        "whole": np.int64(7), "tuple": (1, 2.5), "empty": np.zeros((0, 2)),
        "boolean": np.array([[True]]),
    }  # fmt: skip
    assert loads(dumps(document)) == {
        "array": [0, 1, 2], "scalar": float(np.float32(0.1)), "flag": True, "whole": 7,
        "tuple": [1, 2.5], "empty": [], "boolean": [[True]],
    }  # fmt: skip


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), np.float32("nan")])
def test_what_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    for document in ({"a": [{"b": bad}]}, {"a": [{"b": np.float64(bad)}]}):
        with pytest.raises(JaxbenchError, match=r"report\.a\[0\]\.b is "):
            dumps(document)
    with pytest.raises(JaxbenchError, match=r"report\.a\[1\]"):
        dumps({"a": np.array([0.0, bad])})


@pytest.mark.parametrize("bad", [{1: 2}, {"a": Path()}, {"a": {1, 2}}, {"a": b"x"}, {"a": 1j}])
def test_what_has_no_form_in_json_is_refused(bad: Any) -> None:
    with pytest.raises(JaxbenchError, match="report"):
        dumps(bad)
