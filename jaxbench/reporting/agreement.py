"""Agreement of two reports of one study: its scores, tests and labels, comparison by comparison.

Arms that were trained again give the same scores to the bit on the same machine, and scores that
differ in their last digits on another.  What such drift may change is measured against the paired
spread, which is what the tests see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TOLERANCE = 0.05
"""Largest drift of a paired difference, in units of its spread over seeds."""
LEAST_SPREAD = 1e-3
"""Of the unpaired spread: arms that are one computation have a paired spread of rounding."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """One comparison, then and now.

    Attributes:
        names: of the idea and the baseline, with the endpoint if it is not the score.
        relative: largest relative difference of a score of either arm; 0 if all are the same to
            the bit, infinite where one diverged and the other did not, or seeds differ in number.
        drift: largest difference between the paired differences, over their spread.
        p_values: then and now.
        changed: labels that are others now, `{what: (then, now)}`.
        tolerance: the largest drift that agrees.
    """

    names: str
    relative: float
    drift: float
    p_values: tuple[float, float]
    changed: Mapping[str, tuple[Any, Any]]
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether every score is the same to the bit."""
        return self.relative == 0

    @property
    def agrees(self) -> bool:
        """Whether the labels are the same and the drift is within the tolerance."""
        return not self.changed and self.drift <= self.tolerance


def agreements(
    then: Mapping[str, Any], now: Mapping[str, Any], tolerance: float = TOLERANCE
) -> list[Agreement]:
    """Compare two reports' comparisons, in the order of the first.

    The primary one carries the report's own labels too.

    Args:
        then: a report, as `report.json` has it.
        now: the report of the same config, run again.
        tolerance: the largest drift that agrees, in units of the paired spread.
    """
    later = {names_of(each): each for each in now["bench_report"]["comparisons"]}
    found = []
    for before in then["bench_report"]["comparisons"]:
        names = names_of(before)
        after = later.get(names)
        if after is None:
            changed = {"comparison": ("there", "missing")}
            p = (before["p_value"], np.nan)
            found.append(Agreement(names, np.inf, np.inf, p, changed, tolerance))
            continue
        primary = before["role"] == "primary"
        labels = [labels_of(*pair, primary) for pair in ((then, before), (now, after))]
        found.append(
            Agreement(
                names,
                max(relative_difference(before[arm], after[arm]) for arm in ("baseline", "idea")),
                drift(before, after),
                (before["p_value"], after["p_value"]),
                {
                    what: (value, labels[1].get(what))
                    for what, value in labels[0].items()
                    if labels[1].get(what) != value
                },
                tolerance,
            )
        )
    return found


def names_of(comparison: Mapping[str, Any]) -> str:
    """Name a comparison: idea, baseline, role, and the endpoint if there is one."""
    named = f"{comparison['idea_arm']} - {comparison['baseline_arm']} ({comparison['role']})"
    endpoint = comparison.get("endpoint")
    return f"{named}, {endpoint}" if endpoint else named


def labels_of(
    report: Mapping[str, Any], comparison: Mapping[str, Any], primary: bool
) -> dict[str, Any]:
    """Collect the words that a reader takes away: outcome, verdict, states of signatures."""
    labels = {"outcome": comparison["outcome"], "verdict": comparison["verdict"]}
    holder = report["bench_report"] if primary else comparison
    if primary:
        names = ("system_verdict", "practical_verdict", "mechanism_ok")
        labels |= {name: report[name] for name in names}
    signature = holder.get("mechanism_signature") or {}
    labels["mechanism"] = signature.get("state")
    for each in signature.get("signatures", ()):
        labels[each["name"]] = each["state"] or each.get("confirmed_legacy")
    return labels


def relative_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Compute the largest `|a - b| / max(|a|, |b|)` over an arm's seeds; a diverged run is null."""
    a, b = numbers(before["per_seed"]), numbers(after["per_seed"])
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return np.inf
    ends = np.maximum(np.abs(a), np.abs(b))
    different = ~np.isnan(a) & (a != b)
    return float(np.max(np.abs(a - b)[different] / ends[different], initial=0.0))


def drift(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Compute `max |d - d'| / s` over seeds, with `s` the larger of the spreads that d may have."""
    a, b = numbers(before["per_seed_diffs"]), numbers(after["per_seed_diffs"])
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return np.inf
    furthest = float(np.max(np.abs(a - b)[~np.isnan(a)], initial=0.0))
    if furthest == 0:
        return 0.0
    spread = before["spread"] or {}
    scale = max(spread.get("paired_sd") or 0, LEAST_SPREAD * (spread.get("unpaired_sd") or 0))
    return furthest / scale if scale else np.inf


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """Take a report's numbers, null as NaN."""
    return np.array([np.nan if value is None else value for value in values], float)
