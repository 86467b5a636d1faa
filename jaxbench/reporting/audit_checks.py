"""Checks of an audit: every number of a report that follows from others, recomputed."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxbench import judging
from jaxbench.reporting.audit_comparisons import Scores, finite, leaves, slack_of
from jaxbench.reporting.audit_findings import Findings
from jaxbench.reporting.report_fields import SCORES, Fields
from jaxbench.reporting.written import Written, numbers
from jaxbench.toml_text import Place, dotted

Statistic = Callable[[np.ndarray], float]

STATISTICS: dict[str, dict[str, Statistic]] = {
    "mean": {"the mean": np.mean},
    "std": {
        "the standard deviation over n": lambda x: judging.standard_deviation(x, ddof=0),
        "the standard deviation over n - 1": lambda x: judging.standard_deviation(x),
    },
    "sem": {"the standard error": lambda x: judging.standard_deviation(x) / math.sqrt(x.size)},
    "min": {"the least": np.min},
    "max": {"the greatest": np.max},
    "median": {"the median": np.median},
}
SYNONYMS = {
    "avg": "mean", "average": "mean", "full_mean": "mean", "sd": "std", "se": "sem",
    "stderr": "sem", "minimum": "min", "maximum": "max",
}  # fmt: skip


def check(fields: Fields, findings: Findings) -> None:
    """Recompute statistics of lists, copies and counts."""
    summaries(fields, findings)
    named_statistics(fields, findings)
    copies(fields, findings)
    seeds(fields, findings)


def summaries(fields: Fields, findings: Findings) -> None:
    """Check mean, spread and number beside every list of scores."""
    for place, value in fields.everything:
        if not isinstance(value, Mapping):
            continue
        for key, listed in value.items():
            scores = numbers(listed)
            if scores is None or not SCORES.search(key):
                continue
            beside = {name: (*place, name) for name in value}
            if place and place[-1] == "full":
                beside["full_mean"] = (*place[:-1], "full_mean")
            for name, where in beside.items():
                statistic(findings, where, fields.at(where), name, scores, (*place, key))
            if "n" in value:
                findings.count((*place, "n"), value["n"], len(scores), "the number of scores")
            findings.count(
                (*place, "diverged"),
                value.get("diverged"),
                scores.count(None),
                "runs without a score",
            )


def named_statistics(fields: Fields, findings: Findings) -> None:
    """Check `mean_x` and `x_mean` against the list `per_seed_x`, `x_per_seed`, `x` or `xs`.

    Other statistics than mean and spread only against lists by seed: `x_max` may be a setting.
    """
    lists: dict[str, list[Place]] = {}
    for place, value in fields.everything:
        if place and isinstance(place[-1], str) and numbers(value):
            lists.setdefault(_stem(place[-1]), []).append(place)
    words = "|".join([*STATISTICS, *SYNONYMS])
    pattern = re.compile(rf"^(?:({words})_(.+)|(.+)_({words}))$")
    for place, value in fields.everything:
        if not (place and isinstance(place[-1], str) and isinstance(value, Written)):
            continue
        if "tolerance" in place:  # a threshold that was set, not what was found
            continue
        match = pattern.match(place[-1])
        if match is None:
            continue
        name = match[1] or match[4]
        candidates = lists.get(_stem(match[2] or match[3]), [])
        if SYNONYMS.get(name, name) not in ("mean", "std"):
            candidates = [where for where in candidates if "seed" in str(where[-1])]
        nearest = sorted(candidates, key=lambda other: -_shared(place, other))[:2]
        tied = len(nearest) > 1 and _shared(place, nearest[0]) == _shared(place, nearest[1])
        if nearest and (not tied or fields.at(nearest[0]) == fields.at(nearest[1])):
            statistic(findings, place, value, name, fields.at(nearest[0]), nearest[0])


def statistic(
    findings: Findings, place: Place, stated: Any, name: str, scores: Scores, source: Place
) -> None:
    """Check one number that is a statistic of a list, by whichever definition of it fits."""
    known = STATISTICS.get(SYNONYMS.get(name, name))
    if known is None or not isinstance(stated, Written):
        return
    of = f"of {dotted(source)}"
    values = finite(scores)
    if values is None:
        findings.number(place, stated, None, f"{of}, in which a run diverged")
        return
    results = {word: float(function(values)) for word, function in known.items()}
    word = min(results, key=lambda each: abs(results[each] - stated))
    scale = float(np.abs(values).max())
    findings.number(
        place, stated, results[word], f"{word} {of}", scale=scale, slack=slack_of(scores, scale)
    )


def copies(fields: Fields, findings: Findings) -> None:
    """Check what a report says twice: its primary comparison, and the arms of it."""
    for place, value in fields.everything:
        if place[-2:-1] != ("comparisons",) or not isinstance(value, Mapping):
            continue
        if value.get("role") != "primary":
            continue
        bench = place[:-2]
        pairs = [(place, (*bench, "comparison"))]
        for side in ("baseline", "idea"):
            name = value.get(f"{side}_arm")
            if isinstance(name, str):
                pairs.append(((*bench, "arms", name), (*bench, side)))
        for original, copy in pairs:
            for where, stated, first in leaves(fields.at(copy), fields.at(original)):
                because = f"a copy of {dotted((*original, *where))}"
                if isinstance(first, Written) and isinstance(stated, Written):
                    findings.number((*copy, *where), stated, float(first), because)
                elif isinstance(first, str | bool):
                    findings.label((*copy, *where), stated, first, because)


def seeds(fields: Fields, findings: Findings) -> None:
    """Check the stated number of seeds."""
    counts = {len(arm.scores) for arm in fields.arms.values() if arm.scores is not None}
    because = "the number of scores of each arm"
    if not counts:
        stated = [fields.at((*place, "n_pairs")) for place in fields.comparisons]
        counts = {int(n) for n in stated if isinstance(n, Written) and n.whole}
        because = "n_pairs of the comparison"
    for place, value in fields.everything:
        if place and place[-1] == "n_seeds" and len(counts) == 1:
            findings.count(place, value, counts.copy().pop(), because)


def _stem(name: str) -> str:
    """Reduce the name of a list, or of what a mean is over, to what it names."""
    bare = name.removeprefix("per_seed_").removesuffix("_per_seed").removesuffix("_by_seed")
    return bare.removesuffix("s")


def _shared(one: Place, other: Place) -> int:
    """Count the parts that two places have in common from the outside."""
    pairs = zip(one, other, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
