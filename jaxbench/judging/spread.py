"""Spread: how much scores vary between seeds, and how much of that the pairing takes out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float


class Spread(NamedTuple):
    """Standard deviations with n - 1 in the denominator, in the metric's unit.

    Attributes:
        paired_sd: of the paired differences.
        unpaired_sd: sqrt(var(baseline) + var(idea)), what it would be for independent arms.
        correlation: Pearson's, between the arms over seeds; None where an arm does not vary.
    """

    paired_sd: float
    unpaired_sd: float
    correlation: float | None


def standard_deviation(values: Float[np.ndarray, " pairs"], *, ddof: int = 1) -> float:
    """Give sqrt(sum((x - mean(x))^2) / (n - ddof)), without overflow for any representable x."""
    deviations = values - values.mean()
    largest = float(np.abs(deviations).max())
    if np.all(values == values[0]) or largest == 0.0:
        return 0.0
    scaled = deviations / largest
    return largest * math.sqrt(float(np.sum(scaled * scaled)) / (values.size - ddof))


def measure_spread(
    baseline: Float[np.ndarray, " pairs"], idea: Float[np.ndarray, " pairs"]
) -> Spread:
    """Measure the paired and unpaired spread of two arms' finite scores.

    Pairing pays where the paired spread is below the unpaired one; above it, the shared seeds do
    not do what they are for.
    """
    deviations = standard_deviation(baseline), standard_deviation(idea)
    correlation = None
    if min(deviations) > 0.0:
        standard = [
            (arm - arm.mean()) / deviation
            for arm, deviation in zip((baseline, idea), deviations, strict=True)
        ]
        product = float(np.sum(standard[0] * standard[1])) / (baseline.size - 1)
        correlation = min(1.0, max(-1.0, product))
    return Spread(standard_deviation(idea - baseline), math.hypot(*deviations), correlation)
