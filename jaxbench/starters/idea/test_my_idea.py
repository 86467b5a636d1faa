"""`my_idea`: its pure functions are right, and its study keeps what every study must."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
from my_idea import squared_distance

import jaxbench
from jaxbench import conformance

STUDY = Path(__file__).with_name("my_idea.toml")


def test_the_distance_is_the_sum_of_squares_over_all_leaves() -> None:
    start = {"kernel": jnp.zeros((2, 2)), "bias": jnp.ones(2)}
    there = {"kernel": jnp.full((2, 2), 0.5), "bias": jnp.array([1.0, 3.0])}
    assert squared_distance(there, start) == 4 * 0.25 + 4.0
    assert squared_distance(start, start) == 0.0


def test_the_study_keeps_what_every_study_must() -> None:
    conformance.check(STUDY)


def test_the_study_is_judged_and_the_idea_acts() -> None:
    report = jaxbench.run_study(STUDY, quick=True)
    assert report.outcome in ("better", "worse", "equivalent", "inconclusive")
    assert report.bench["comparison"]["acted"]
