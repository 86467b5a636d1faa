"""Rates: how often something happened, with what that says of its probability."""

from __future__ import annotations

import dataclasses
import math

from scipy import special

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import check_fraction


@dataclasses.dataclass(frozen=True)
class Rate:
    """A share of trials with the Clopper-Pearson interval of its probability.

    Attributes:
        count, trials: how often, out of how many independent trials.
        rate: their ratio.
        low, high: ends of the interval.
        confidence: of the interval.
    """

    count: int
    trials: int
    rate: float
    low: float
    high: float
    confidence: float


def clopper_pearson(count: int, trials: int, *, confidence: float = 0.95) -> Rate:
    """Give a rate with its exact interval, which covers the probability at least so often.

    low = B^-1(a/2; k, n - k + 1) and high = B^-1(1 - a/2; k + 1, n - k), with the quantiles of the
    beta distribution and a = 1 - confidence.

    Raises:
        JaxbenchError: no trials, a count outside them, or a confidence outside (0, 1).

    Reference: Clopper & Pearson (1934), The use of confidence or fiducial limits illustrated in
        the case of the binomial.
    """
    check_fraction(confidence, "confidence")
    if not 0 <= count <= trials or trials == 0:
        raise JaxbenchError(f"a rate needs 0 <= count <= trials and a trial; got {count}/{trials}")
    tail = (1.0 - confidence) / 2.0
    low = special.betaincinv(count, trials - count + 1, tail) if count else 0.0
    high = special.betaincinv(count + 1, trials - count, 1.0 - tail) if count < trials else 1.0
    return Rate(count, trials, count / trials, float(low), float(high), confidence)


def attainable_level(pairs: int, *, alpha: float = 0.05) -> float:
    """Give the true level of the exact two-sided sign-flip test of continuous differences.

    Its p-values are the multiples of 2 / 2^n, so that the level is floor(alpha 2^n / 2) 2 / 2^n:
    12/256 with 8 pairs at 0.05.

    Raises:
        JaxbenchError: an alpha outside (0, 1).
    """
    check_fraction(alpha, "alpha")
    step = 2.0 ** (1 - pairs)
    return math.floor(alpha / step * (1.0 + 1e-12)) * step
