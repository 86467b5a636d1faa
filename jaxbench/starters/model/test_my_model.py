"""`my_model`: its forward pass is its formula, and its study keeps what every study must."""

from __future__ import annotations

from pathlib import Path

import jax
import my_model
import numpy as np

import jaxbench
from jaxbench import conformance

STUDY = Path(__file__).with_name("my_model.toml")


def test_the_forward_pass_is_the_formula() -> None:
    params = my_model.initial(jax.random.key(0), 3, 4, 2)
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    hidden, output = (jax.tree.map(np.asarray, params[layer]) for layer in ("hidden", "output"))
    waves = np.sin(x @ hidden["kernel"] + hidden["bias"])
    outputs, intermediates = my_model.forward(params, x)
    assert np.allclose(intermediates["hidden"], waves, atol=1e-6)
    assert np.allclose(outputs, waves @ output["kernel"] + output["bias"], atol=1e-6)


def test_the_study_keeps_what_every_study_must() -> None:
    conformance.check(STUDY)


def test_the_study_is_judged() -> None:
    report = jaxbench.run_study(STUDY, quick=True)
    assert report.bench["arms"]["idea"]["full"]["n"] == 4
