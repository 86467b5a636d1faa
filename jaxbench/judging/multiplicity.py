"""Multiplicity: p-values of a family of comparisons, corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxbench.base import JaxbenchError


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the size of their family, by Holm's step-down rule.

    p_(i) -> min(1, max_{j <= i} (m - j + 1) p_(j)), with p_(1) <= ... <= p_(m).  The chance that
    any true null hypothesis is rejected stays at or under alpha, whatever their dependence.

    Args:
        p_values: of the family, in any order.

    Returns:
        The corrected p-values, in the order given.

    Raises:
        JaxbenchError: a p-value is not a number from 0 to 1.

    Reference: Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not np.all((values >= 0.0) & (values <= 1.0)):
        raise JaxbenchError(f"p-values must lie between 0 and 1; got {list(p_values)!r}.")
    order = np.argsort(values, kind="stable")
    factors = np.arange(values.size, 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return [float(value) for value in corrected]
