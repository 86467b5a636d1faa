"""The package: what it exports, and what it must not import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from jaxbench import judging
from jaxbench.judging import Interval, strict_json


def test_every_exported_name_is_there():
    for name in dir(judging):
        assert getattr(judging, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'comapre'"):
        judging.comapre  # noqa: B018


def test_a_comparison_needs_neither_jax_nor_the_slow_parts_of_scipy():
    code = (
        "import sys, jaxbench.judging as j\n"
        "assert 'numpy' not in sys.modules and 'scipy' not in sys.modules\n"
        "j.compare([1., 2., 4.], [2., 2., 3.], direction='lower').to_dict()\n"
        "[getattr(j, name) for name in dir(j)]\n"
        "loaded = {'jax', 'scipy.stats', 'scipy.optimize', 'pandas'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_strict_json_turns_everything_into_plain_values():
    value = {
        "interval": Interval(-np.inf, np.float64(1.5), 0.95, "t"),
        2: (np.arange(2), np.float32(0.5), np.bool_(True), None),
        "ragged": np.array([np.zeros(1), np.zeros(2)], dtype=object),
        "nan": float("nan"),
    }
    assert strict_json(value) == {
        "interval": {"low": None, "high": 1.5, "confidence": 0.95, "method": "t"},
        "2": [[0, 1], 0.5, True, None],
        "ragged": [[0.0], [0.0, 0.0]],
        "nan": None,
    }
