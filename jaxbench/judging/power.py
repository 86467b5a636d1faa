"""Power: what effect a number of seeds can find, and how many seeds an effect needs."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import check_at_least, check_fraction, finite_vector
from jaxbench.judging.spread import standard_deviation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MOST_SEEDS = 1_000_000
"""An effect that needs more seeds than this is reported as out of reach."""

NEGLIGIBLE = 1e-17
"""Tails of the spread's distribution that the quadrature leaves out."""


@dataclasses.dataclass(frozen=True)
class Detectable:
    """What the seeds at hand could find, judged by the spread that was seen.

    Attributes:
        mde: the reference reports' definition, `mde_half_width` (power about 1/2).
        mde_80: the smallest mean difference found with a power of 80 %.
        seeds_for_80_power: seeds that find the observed effect with a power of 80 %; None where
            there is none, or where it needs more than `MOST_SEEDS`.
    """

    mde: float
    mde_80: float
    seeds_for_80_power: int | None


def paired_power(effect: float, pairs: int, *, alpha: float = 0.05) -> float:
    """Give the chance that the two-sided paired t test finds an effect.

    1 - F(t_c; n - 1, ncp) + F(-t_c; n - 1, ncp), with the noncentral t distribution's F,
    ncp = d_z sqrt(n) and t_c = t_{1 - alpha/2, n-1}.  With T = (Z + ncp) / S and S^2 chi-squared
    over its n - 1 degrees of freedom, that is the mean of Phi(ncp - t_c S) + Phi(-ncp - t_c S) over
    S, by Gauss-Legendre quadrature on both sides of the step at S = ncp / t_c and across it
    (scipy's noncentral t gives NaN or 1 in the far tails).

    Args:
        effect: d_z, the mean difference in units of the differences' standard deviation.
        pairs: number of seeds.
        alpha: level of the test.

    Raises:
        JaxbenchError: fewer than two pairs, an alpha outside (0, 1), an infinite effect.
    """
    check_fraction(alpha, "alpha")
    check_at_least(pairs, 2, "pairs")
    check_at_least(abs(effect), 0.0, "the size of the effect")
    freedom = pairs - 1
    critical = -special.stdtrit(freedom, alpha / 2.0)
    ncp = abs(effect) * math.sqrt(pairs)
    least = math.sqrt(2.0 / freedom * special.gammaincinv(freedom / 2.0, NEGLIGIBLE))
    most = math.sqrt(2.0 / freedom * special.gammainccinv(freedom / 2.0, NEGLIGIBLE))
    step = [(ncp - 9.0) / critical, (ncp + 9.0) / critical]
    breaks = np.clip([least, *step, most], least, most)
    nodes, weights = _gauss_legendre()
    half = np.diff(breaks)[:, None] / 2.0
    s = breaks[:-1, None] + half * (1.0 + nodes)
    log_density = (freedom - 1.0) * np.log(s) - freedom * (s * s - 1.0) / 2.0
    mass = half * weights * np.exp(log_density - log_density.max())
    rejected = special.ndtr(ncp - critical * s) + special.ndtr(-ncp - critical * s)
    return float(np.sum(mass * rejected) / np.sum(mass))


@functools.cache
def _gauss_legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(96)


def mde_half_width(differences: ArrayLike, *, alpha: float = 0.05) -> float:
    """Give the "mde" of the reference reports: a confidence interval's half-width.

    round(t_{1 - alpha/2, n-1}, 3) s / sqrt(n), with s over n - 1: the t quantile rounded to three
    decimals, which at n = 8 is the 2.365 of the reports.  The power at an effect of this size is
    only about 1/2 (53 % at n = 8).

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        alpha: 1 - confidence of the interval.

    Raises:
        JaxbenchError: too few or infinite differences, an alpha outside (0, 1).
    """
    check_fraction(alpha, "alpha")
    checked = finite_vector(differences)
    quantile = round(float(-special.stdtrit(checked.size - 1, alpha / 2.0)), 3)
    return quantile * standard_deviation(checked) / math.sqrt(checked.size)


def mde_at_power(
    pairs: int, deviation: float = 1.0, *, power_wanted: float = 0.8, alpha: float = 0.05
) -> float:
    """Give the smallest mean difference that the paired t test finds with the wanted power.

    Args:
        pairs: number of seeds.
        deviation: standard deviation of the paired differences; with 1 the result is a d_z.
        power_wanted: the chance to find it, above alpha.
        alpha: level of the two-sided test.

    Raises:
        JaxbenchError: fewer than two pairs, a power that is not between alpha and 1.
    """
    check_fraction(alpha, "alpha")
    check_at_least(pairs, 2, "pairs")
    check_at_least(deviation, 0.0, "the standard deviation")
    if not alpha < power_wanted < 1.0:
        raise JaxbenchError(
            f"the wanted power must lie between alpha = {alpha} and 1; got {power_wanted!r}."
        )
    return deviation * _effect_at_power(pairs, power_wanted, alpha)


@functools.cache
def _effect_at_power(pairs: int, power_wanted: float, alpha: float) -> float:
    """Give the d_z with a power, by bisection to the last bit."""
    lower, upper = 0.0, 1.0
    while paired_power(upper, pairs, alpha=alpha) < power_wanted:
        upper *= 2.0
    while lower < (middle := (lower + upper) / 2.0) < upper:
        enough = paired_power(middle, pairs, alpha=alpha) >= power_wanted
        lower, upper = (lower, middle) if enough else (middle, upper)
    return upper


def seeds_to_reach_significance(hypotheses: int = 1, *, alpha: float = 0.05) -> int:
    """Give the fewest seeds with which the sign-flip test can reach significance.

    n >= 1 + log2(m / alpha): the smallest p-value 2^(1-n), times m by Holm, must not exceed alpha.
    Beyond 20 pairs, where flips are drawn, it takes m / alpha resamples as well.

    Args:
        hypotheses: m, the size of the family of comparisons.
        alpha: level of the two-sided test.

    Raises:
        JaxbenchError: no hypothesis, an alpha outside (0, 1).
    """
    check_fraction(alpha, "alpha")
    check_at_least(hypotheses, 1, "hypotheses")
    pairs = 2
    while hypotheses * 2.0 ** (1 - pairs) > alpha:
        pairs += 1
    return pairs


def seeds_needed(
    effect: float, *, power_wanted: float = 0.8, alpha: float = 0.05, hypotheses: int = 1
) -> int:
    """Give the fewest seeds with which an effect is found with the wanted power.

    From the paired t test at alpha / hypotheses, and no fewer than the sign-flip test needs to
    reach significance at all.

    Args:
        effect: d_z, the mean difference in units of the differences' standard deviation; not 0.
        power_wanted: the chance to find it.
        alpha: level of the two-sided test.
        hypotheses: size of the family of comparisons.

    Raises:
        JaxbenchError: an effect of 0 or so small that it needs more than a million seeds.
    """
    check_fraction(power_wanted, "the wanted power")
    few = seeds_to_reach_significance(hypotheses, alpha=alpha)
    level = alpha / hypotheses

    def enough(pairs: int) -> bool:
        return paired_power(effect, pairs, alpha=level) >= power_wanted

    if enough(few):
        return few
    many = MOST_SEEDS
    if not enough(many):
        raise JaxbenchError(
            f"an effect of {effect!r} standard deviations needs more than {MOST_SEEDS} seeds for a "
            f"power of {power_wanted}. Ask for a larger effect."
        )
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def detectable(differences: ArrayLike, *, alpha: float = 0.05) -> Detectable:
    """Say what a number of seeds with this spread could find.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        alpha: level of the two-sided test.

    Raises:
        JaxbenchError: too few or infinite differences, an alpha outside (0, 1).
    """
    checked = finite_vector(differences)
    deviation = standard_deviation(checked)
    effect = float(checked.mean()) / deviation if deviation > 0.0 else 0.0
    within_reach = paired_power(effect, MOST_SEEDS, alpha=alpha) >= 0.8
    return Detectable(
        mde=mde_half_width(checked, alpha=alpha),
        mde_80=mde_at_power(checked.size, deviation, alpha=alpha),
        seeds_for_80_power=seeds_needed(effect, alpha=alpha) if within_reach else None,
    )
