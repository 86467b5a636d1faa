"""Paired plot: each seed's scores joined by a line, and their differences with an interval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.counted import counted
from jaxbench.reporting.html.drawing import (
    BASELINE,
    IDEA,
    INK,
    MUTED,
    PAPER,
    SHADE,
    canvas,
    style,
)

if TYPE_CHECKING:
    from jaxbench.reporting.paired_files import PairedFiles

FORMATS = (".png", ".svg", ".pdf")


def check(path: str) -> None:
    """Refuse to plot where it could not be done, before anything is computed.

    Raises:
        JaxbenchError: the file's name has no known ending.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise JaxbenchError(f"--plot {path}: expected a name that ends in {', '.join(FORMATS)}")


def draw(result: PairedFiles, path: str) -> None:
    """Draw a comparison into a file; diverged runs are left out, and counted in the title.

    Raises:
        JaxbenchError: the file cannot be written.
    """
    comparison = result.comparison
    arms = [
        np.array([np.nan if s is None else s for s in arm.per_seed], dtype=np.float64)
        for arm in (comparison.baseline, comparison.idea)
    ]
    whole = np.isfinite(arms[0]) & np.isfinite(arms[1])
    lost = int(np.count_nonzero(~whole))
    left_out = f" ({counted(lost, 'pair')} with a diverged run left out)" if lost else ""
    with style():
        figure, (slopes, differences) = canvas(9.0, 4.0, ncols=2)
        _slopes(slopes, arms[0][whole], arms[1][whole], comparison.direction)
        _differences(differences, (arms[1] - arms[0])[whole], comparison)
        figure.suptitle(f"{comparison.outcome}, p = {comparison.p_value:.4g}{left_out}")
        try:
            figure.savefig(path, dpi=150, facecolor=PAPER)
        except OSError as error:
            raise JaxbenchError(
                f"the plot cannot be written to {path}: {error.strerror}"
            ) from error


def _slopes(axes: Any, baseline: np.ndarray, idea: np.ndarray, direction: str) -> None:
    """Join each seed's two scores; dashed and grey where the idea is not better."""
    gains = (idea - baseline) * (1.0 if direction == "higher" else -1.0)
    for one, other, gain in zip(baseline, idea, gains, strict=True):
        better = gain > 0
        colour, line = (IDEA, "-") if better else (BASELINE, "--")
        axes.plot([0, 1], [one, other], marker="o", color=colour, linestyle=line)
    axes.set_xticks([0, 1], ["baseline", "idea"])
    axes.set_xlim(-0.3, 1.3)
    axes.set_ylabel(f"score ({direction} is better)")


def _differences(axes: Any, differences: np.ndarray, comparison: Any) -> None:
    """Show the differences, their mean with its interval, and the band of the margin."""
    if comparison.margin:
        axes.axhspan(-comparison.margin, comparison.margin, color=SHADE, zorder=0, linewidth=0)
        axes.text(0.78, comparison.margin, "margin", ha="right", va="top", color=MUTED)
    axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
    spread = np.linspace(-0.1, 0.1, differences.size) if differences.size > 1 else np.zeros(1)
    axes.plot(spread[: differences.size], differences, "o", color=MUTED, alpha=0.7)
    if comparison.intervals is not None:
        interval = comparison.intervals.t
        middle = comparison.delta_mean
        ends = [[middle - interval.low], [interval.high - middle]]
        axes.errorbar([0.4], [middle], yerr=ends, fmt="D", color=IDEA, capsize=6)
        level = f"{100 * interval.confidence:.3g} %"
        axes.set_xticks([0.0, 0.4], ["each seed", f"mean, {level} interval"])
    axes.set_xlim(-0.4, 0.8)
    axes.set_ylabel("idea - baseline")
