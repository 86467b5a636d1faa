"""Equivalence: whether a difference is small enough not to matter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scipy import special

from jaxbench.judging.arguments import check_at_least, finite_vector
from jaxbench.judging.spread import standard_deviation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Tost(NamedTuple):
    """Two one-sided t tests against a margin.

    Attributes:
        p_value: the larger of the two; the arms are equivalent where it is at most alpha, which is
            exactly where the 1 - 2 alpha t interval lies inside the margin.
        margin: half-width of the differences that do not matter, in the metric's unit.
    """

    p_value: float
    margin: float


class Rope(NamedTuple):
    """Posterior probabilities that the mean difference lies below, inside and above the margin."""

    below: float
    inside: float
    above: float


def tail_probabilities(differences: ArrayLike, margin: float) -> tuple[float, float]:
    """Give the posterior mass of the mean difference below -margin and above +margin.

    These are the two one-sided p-values as well: F(-(margin + m) / SE) and F(-(margin - m) / SE),
    with Student's F at n - 1 degrees of freedom.  Differences that do not vary give 0 or 1; on the
    margin itself they count as inside.
    """
    check_at_least(margin, 0.0, "margin")
    checked = finite_vector(differences)
    mean = float(checked.mean())
    error = standard_deviation(checked) / math.sqrt(checked.size)
    if error == 0.0:
        return float(mean < -margin), float(mean > margin)
    freedom = checked.size - 1
    below = special.stdtr(freedom, -(margin + mean) / error)
    above = special.stdtr(freedom, -(margin - mean) / error)
    return float(below), float(above)


def tost(differences: ArrayLike, margin: float) -> Tost:
    """Test whether the mean difference lies inside (-margin, margin).

    t_1 = (m + margin) / SE and t_2 = (margin - m) / SE; p is the larger upper tail.

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        margin: in the metric's unit.

    Raises:
        JaxbenchError: too few or infinite differences, a negative margin.

    Reference: Lakens (2017), Equivalence tests.
    """
    return Tost(max(tail_probabilities(differences, margin)), margin)


def rope(differences: ArrayLike, margin: float) -> Rope:
    """Give the posterior of the mean difference over a region of practical equivalence.

    mean(d) + s / sqrt(n) t_{n-1}, the Bayesian correlated t test with correlation 0, since seeds
    are independent (folds of one data set are not).

    Args:
        differences: idea minus baseline, one a seed; at least two, finite.
        margin: half-width of the region, in the metric's unit.

    Raises:
        JaxbenchError: too few or infinite differences, a negative margin.

    Reference: Benavoli et al. (2017), Time for a change.
    """
    below, above = tail_probabilities(differences, margin)
    return Rope(below, max(0.0, 1.0 - below - above), above)
