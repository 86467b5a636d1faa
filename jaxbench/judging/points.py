"""Points of a signature: its prediction against its measurement, few enough for a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxbench.base import Compared, JaxbenchError

MOST_POINTS = 200
DIGITS = 5


def points(
    compared: Compared | None, sets: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, Any] | None:
    """Give the predicted and measured values of each set of runs, evenly thinned out.

    Points with a value that is not finite are left out, and sets without one of the quantities.

    Args:
        compared: which quantities; None where nothing is drawn.
        sets: {of what: {quantity: array [runs, ...]}}.

    Returns:
        {predicted, measured, equal, panels: {of what: {predicted, measured, of}}} with five
        significant digits, `of` being the number of points before thinning; None where there is
        nothing to draw.

    Raises:
        JaxbenchError: the two quantities have different shapes.
    """
    if compared is None:
        return None
    panels = {}
    for name, samples in sets.items():
        if compared.predicted in samples and compared.measured in samples:
            panels[name] = _panel(samples[compared.predicted], samples[compared.measured], compared)
    found = {name: panel for name, panel in panels.items() if panel["of"]}
    return {**compared._asdict(), "panels": found} if found else None


def _panel(predicted: np.ndarray, measured: np.ndarray, compared: Compared) -> dict[str, Any]:
    one, other = (np.asarray(each, dtype=np.float64) for each in (predicted, measured))
    if one.shape != other.shape:
        raise JaxbenchError(
            f"a signature compares {compared.predicted!r} of shape {one.shape} with "
            f"{compared.measured!r} of shape {other.shape}; expected one shape"
        )
    finite = np.isfinite(one) & np.isfinite(other)
    one, other = one[finite], other[finite]
    kept = np.unique(np.linspace(0, one.size - 1, min(one.size, MOST_POINTS)).astype(int))
    return {
        "predicted": [float(f"{value:.{DIGITS}g}") for value in one[kept]],
        "measured": [float(f"{value:.{DIGITS}g}") for value in other[kept]],
        "of": int(one.size),
    }
