"""`my_track`: its data come from the key alone, and its study keeps what every study must."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import my_track
import numpy as np

import jaxbench
from jaxbench import conformance

STUDY = Path(__file__).with_name("my_track.toml")


def test_the_wave_has_the_period_of_its_formula() -> None:
    """With one feature, `sin(3 x)`."""
    x = jnp.array([[0.0], [jnp.pi / 6], [jnp.pi / 3]])
    assert np.allclose(my_track.wave(x), [[0.0], [1.0], [0.0]], atol=1e-6)


def test_equal_keys_give_equal_data_and_other_keys_others() -> None:
    generate = my_track.build(train_size=8).generate
    first, again, other = (generate(jax.random.key(seed)) for seed in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(np.array_equal, first, again))
    assert not np.array_equal(first.train.inputs, other.train.inputs)
    assert not np.array_equal(first.train.inputs, first.test.inputs[:8])


def test_the_truth_scores_the_variance_of_the_noise() -> None:
    track = my_track.build(test_size=20_000, noise=0.5)
    test = track.generate(jax.random.key(0)).test
    assert np.isclose(track.score(my_track.wave(test.inputs), test.targets), 0.25, rtol=0.05)


def test_the_study_keeps_what_every_study_must() -> None:
    conformance.check(STUDY)


def test_the_study_is_judged() -> None:
    report = jaxbench.run_study(STUDY, quick=True)
    assert report.bench["references"].keys() == {"constant", "linear"}
