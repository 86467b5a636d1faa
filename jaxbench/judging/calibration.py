"""Calibration: what the tests do on studies of which the truth is known.

An A/A study compares an arm with itself, trained from other random numbers on the same data: every
"better" and "worse" there is a false positive.  Shifts of known size give the power.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from jaxbench.judging.arguments import Direction
from jaxbench.judging.comparison import compare
from jaxbench.judging.json_values import strict_json
from jaxbench.judging.power import paired_power
from jaxbench.judging.rates import Rate, attainable_level, clopper_pearson
from jaxbench.judging.sequential import sign_flip_wealth
from jaxbench.judging.sign_flip import sign_flip_test
from jaxbench.judging.verdicts import Outcome

if TYPE_CHECKING:
    from jaxtyping import Float

SHIFTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""In units of the standard deviation of the A/A differences."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of studies with a known truth, NaN where a run diverged.

    Attributes:
        fixed: A/A studies at one learning rate, [studies, 2 arms, pairs].
        tuned: A/A studies of which both arms were tuned, [studies, 2 arms, pairs].
        chosen: the learning rate that each arm of those chose, [studies, 2 arms].
        planted: studies whose second arm has another learning rate, [studies, 2 arms, pairs].
    """

    fixed: Float[np.ndarray, "studies 2 pairs"]
    tuned: Float[np.ndarray, "tuned 2 pairs"]
    chosen: Float[np.ndarray, "tuned 2"]
    planted: Float[np.ndarray, "planted 2 pairs"]


def calibrate(
    scores: Scores,
    direction: Direction,
    *,
    alpha: float = 0.05,
    sequences: int = 10_000,
    max_pairs: int = 64,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure false-positive rates and power, each rate with its Clopper-Pearson interval.

    Args:
        scores: of the studies.
        direction: in which the score improves.
        alpha: level of the tests.
        sequences: how many sequences of seeds are simulated for the sequential test.
        max_pairs: at how many pairs each of them ends.
        seed: of the simulation.

    Returns:
        Strict JSON; see the keys.
    """
    pairs = scores.fixed.shape[-1]
    differences = scores.fixed[:, 1] - scores.fixed[:, 0]
    whole = differences[np.isfinite(differences).all(axis=1)]
    deviation = float(whole.std(ddof=1))
    same = scores.chosen[:, 0] == scores.chosen[:, 1]
    groups = {"all": scores.tuned, "same_choice": scores.tuned[same], "other": scores.tuned[~same]}
    return strict_json(
        {
            "alpha": alpha,
            "pairs": pairs,
            "attainable_level": attainable_level(pairs, alpha=alpha),
            "diverged": int(np.count_nonzero(~np.isfinite(scores.fixed))),
            "paired_sd": deviation,
            "fixed": false_positives(scores.fixed, direction, alpha),
            "tuned": {
                name: false_positives(group, direction, alpha) for name, group in groups.items()
            },
            "power": [shifted(whole, shift, deviation, alpha) for shift in SHIFTS],
            "planted": planted(scores.planted, direction, alpha),
            "sequential": sequential_rates(
                whole.ravel(), deviation, alpha, pairs, sequences, max_pairs, seed
            ),
        }
    )


def outcomes(
    scores: Float[np.ndarray, "studies 2 pairs"], direction: Direction, alpha: float
) -> dict[str, int]:
    """Count the outcomes of studies, as a report would state them."""
    found = [
        compare(first, second, direction=direction, alpha=alpha).outcome for first, second in scores
    ]
    return {name: found.count(name) for name in OUTCOMES}


def false_positives(
    scores: Float[np.ndarray, "studies 2 pairs"], direction: Direction, alpha: float
) -> dict[str, Any]:
    """Count the outcomes of A/A studies; `better` and `worse` are false positives."""
    counts = outcomes(scores, direction, alpha)
    positive = counts["better"] + counts["worse"]
    rate = clopper_pearson(positive, len(scores)) if len(scores) else None
    return {"false_positives": rate, "outcomes": counts}


def shifted(
    differences: Float[np.ndarray, "studies pairs"], shift: float, deviation: float, alpha: float
) -> dict[str, Any]:
    """Count the studies in which a shift that is added to every pair is found.

    `expected` is the power of the paired t test on normal differences of one spread.
    """
    moved = differences + shift * deviation
    found = sum(sign_flip_test(each).p_value <= alpha for each in moved)
    expected = paired_power(shift, differences.shape[1], alpha=alpha)
    return {"shift": shift, "power": clopper_pearson(found, len(moved)), "expected": expected}


def planted(
    scores: Float[np.ndarray, "studies 2 pairs"], direction: Direction, alpha: float
) -> dict[str, Any]:
    """Measure an effect that was trained, and how often it is found."""
    counts = outcomes(scores, direction, alpha)
    differences = scores[:, 1] - scores[:, 0]
    whole = differences[np.isfinite(differences).all(axis=1)]
    effect = float(whole.mean() / whole.std(ddof=1))
    return {
        "difference": float(whole.mean()),
        "effect": effect,
        "power": clopper_pearson(counts["better"] + counts["worse"], len(scores)),
        "expected": paired_power(effect, scores.shape[-1], alpha=alpha),
        "outcomes": counts,
    }


def sequential_rates(
    differences: Float[np.ndarray, " all_pairs"],
    deviation: float,
    alpha: float,
    step: int,
    sequences: int,
    max_pairs: int,
    seed: int,
) -> dict[str, Any]:
    """Watch the sequential test on sequences of seeds, looking every `step` pairs.

    `measured` has the pairs as they were trained, cut into sequences.  `simulated` draws pairs with
    replacement and the order of their arms at random, as it is of no meaning in an A/A study, so
    that the null hypothesis holds exactly; `power` adds a shift to each.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.choice(differences, (sequences, max_pairs))
    drawn *= rng.choice([-1.0, 1.0], drawn.shape)
    trained = differences[: len(differences) // max_pairs * max_pairs].reshape(-1, max_pairs)
    return {
        "step": step,
        "max_pairs": max_pairs,
        "simulated": watched(drawn, alpha, step),
        "measured": watched(trained, alpha, step) if len(trained) else None,
        "power": [
            {"shift": shift, **watched(drawn + shift * deviation, alpha, step)} for shift in SHIFTS
        ],
    }


def watched(
    differences: Float[np.ndarray, "sequences pairs"], alpha: float, step: int
) -> dict[str, Any]:
    """Count the sequences that are decided, and the seeds that they take; the rest take all."""
    proofs = sign_flip_wealth(differences).both >= -math.log(alpha)
    decided = proofs.any(axis=1)
    most = differences.shape[1]
    first = np.where(decided, proofs.argmax(axis=1) + 1, most)
    seeds = np.minimum(np.ceil(first / step) * step, most)
    rate: Rate = clopper_pearson(int(decided.sum()), len(differences))
    return {"decided": rate, "mean_seeds": float(seeds.mean())}
