"""Intervals for the mean paired difference: three methods, one result."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy import special

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import check_at_least, check_fraction, finite_vector
from jaxbench.judging.sign_flip import RESAMPLES, sign_flips
from jaxbench.judging.spread import standard_deviation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

BCA_LEAST_PAIRS = 15
"""Below this many pairs the BCa interval is markedly too narrow, and is refused."""


class Interval(NamedTuple):
    """A confidence interval for the mean of idea minus baseline, in the metric's unit.

    Attributes:
        low, high: its ends; infinite where the pairs are too few for a bounded one.
        confidence: the coverage that it aims at, such as 0.95.
        method: `t`, `sign_flip` or `bca`.
    """

    low: float
    high: float
    confidence: float
    method: Literal["t", "sign_flip", "bca"]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Intervals for the mean difference by each method, at confidence 1 - alpha.

    Attributes:
        t: Student's.
        sign_flip: of the shifts that the sign-flip test does not reject.
        bca: the bootstrap's, from 15 pairs on.
        equivalence: Student's at 1 - 2 alpha, which lies inside the margin where TOST passes.
    """

    t: Interval
    sign_flip: Interval
    bca: Interval | None
    equivalence: Interval


def t_interval(differences: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Give Student's interval d +- t_{(1+c)/2, n-1} s / sqrt(n), with s over n - 1.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        confidence: the coverage aimed at.

    Raises:
        JaxbenchError: too few or infinite differences, a confidence outside (0, 1).
    """
    check_fraction(confidence, "confidence")
    checked = finite_vector(differences)
    centre = float(checked.mean())
    quantile = float(special.stdtrit(checked.size - 1, (1.0 + confidence) / 2.0))
    half = quantile * standard_deviation(checked) / math.sqrt(checked.size)
    return Interval(centre - half, centre + half, confidence, "t")


def sign_flip_interval(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Give the shifts that the sign-flip test does not reject: {m : p(d - m) > 1 - c}.

    A flip that turns the signs of the set B and keeps those of A is at least as extreme for d - m
    exactly when m lies between mean(d_A) and mean(d_B): |a - b| >= |a + b| iff a b <= 0, with
    a = sum_A (d - m) and b = sum_B (d - m).  All those ranges contain the mean of d, so that p
    falls away from it on both sides and the ends are order statistics of the ranges' ends: no
    search.  Exact up to 20 pairs; beyond, from random flips.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        confidence: 1 - alpha; with fewer pairs than can reach p <= alpha the ends are infinite.
        resamples: random flips beyond 20 pairs.
        seed: of the random flips.

    Raises:
        JaxbenchError: too few or infinite differences, a confidence outside (0, 1).

    Reference: Tritchler (1984), On inverting permutation tests.
    """
    check_fraction(confidence, "confidence")
    check_at_least(resamples, 1, "resamples")
    checked = finite_vector(differences)
    flips = sign_flips(checked, resamples=resamples, seed=seed)
    total, size = flips.sums[0], checked.size
    kept, turned = (size + flips.signs) / 2.0, (size - flips.signs) / 2.0
    split = (kept > 0.0) & (turned > 0.0)
    ends = np.stack(
        [
            (total + flips.sums[split]) / (2.0 * kept[split]),
            (total - flips.sums[split]) / (2.0 * turned[split]),
        ]
    )
    # A flip of all signs or of none is as extreme for every shift: its range is unbounded.
    unbounded = flips.sums.size - ends.shape[1]
    reject = math.floor((1.0 - confidence) * flips.sums.size * (1.0 + 1e-12))
    if reject < unbounded:
        return Interval(-math.inf, math.inf, confidence, "sign_flip")
    place = reject - unbounded
    low = np.partition(ends.min(axis=0), place)[place]
    high = -np.partition(-ends.max(axis=0), place)[place]
    return Interval(float(low), float(high), confidence, "sign_flip")


def bca_interval(
    differences: ArrayLike, *, confidence: float = 0.95, resamples: int = 20_000, seed: int = 0
) -> Interval:
    """Give the bias-corrected and accelerated bootstrap interval, for 15 pairs or more.

    Quantiles alpha_q = Phi(z0 + (z0 + z_q) / (1 - a (z0 + z_q))) of the bootstrap means, with
    z0 = Phi^-1(#{mean* < mean} / B), ties counted half, and the acceleration from the jackknife,
    a = sum (m - m_(i))^3 / (6 (sum (m - m_(i))^2)^(3/2)).

    Args:
        differences: idea minus baseline, one a seed; at least 15, finite.
        confidence: the coverage aimed at.
        resamples: bootstrap samples.
        seed: of the bootstrap samples; the same arguments give the same interval.

    Raises:
        JaxbenchError: fewer than 15 differences, infinite ones, a confidence outside (0, 1).

    Reference: Efron (1987), Better bootstrap confidence intervals.
    """
    check_fraction(confidence, "confidence")
    check_at_least(resamples, 100, "resamples")
    checked = finite_vector(differences)
    size, centre = checked.size, float(checked.mean())
    if size < BCA_LEAST_PAIRS:
        raise JaxbenchError(
            f"the BCa interval needs at least {BCA_LEAST_PAIRS} pairs; got {size}. Use t_interval "
            f"or sign_flip_interval, or run more seeds."
        )
    scale = float(np.abs(checked - centre).max())
    if standard_deviation(checked) == 0.0:
        return Interval(centre, centre, confidence, "bca")
    deviations = (checked - centre) / scale
    generator = np.random.default_rng(seed)
    rows = max(1, 2**21 // size)
    means = np.concatenate(
        [
            deviations[generator.integers(0, size, (min(rows, resamples - start), size))].mean(1)
            for start in range(0, resamples, rows)
        ]
    )
    zero = deviations.mean()
    below = (np.mean(means < zero) + np.mean(means <= zero)) / 2.0
    bias = special.ndtri(below)
    # The jackknife's m - m_(i) is (d_i - m) / (n - 1); the factor cancels in the acceleration.
    acceleration = np.sum(deviations**3) / (6.0 * np.sum(deviations**2) ** 1.5)
    tail = (1.0 - confidence) / 2.0
    shifted = bias + special.ndtri(np.array([tail, 1.0 - tail]))
    quantiles = special.ndtr(bias + shifted / (1.0 - acceleration * shifted))
    low, high = centre + scale * np.quantile(means, quantiles)
    return Interval(float(low), float(high), confidence, "bca")


def all_intervals(
    differences: ArrayLike, *, alpha: float = 0.05, resamples: int = RESAMPLES, seed: int = 0
) -> Intervals:
    """Give the intervals of every method that the number of pairs allows.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        alpha: 1 - confidence; below 1/2.
        resamples: random flips beyond 20 pairs.
        seed: of the random flips.

    Raises:
        JaxbenchError: too few or infinite differences, an alpha out of range.
    """
    confidence = 1.0 - alpha
    checked = finite_vector(differences)
    enough = checked.size >= BCA_LEAST_PAIRS
    return Intervals(
        t=t_interval(checked, confidence=confidence),
        sign_flip=sign_flip_interval(
            checked, confidence=confidence, resamples=resamples, seed=seed
        ),
        bca=bca_interval(checked, confidence=confidence) if enough else None,
        equivalence=t_interval(checked, confidence=1.0 - 2.0 * alpha),
    )
