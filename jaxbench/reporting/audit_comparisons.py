"""Comparisons of an audit: made again from the scores, and held against what the report states."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbench import judging
from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import Direction
from jaxbench.judging.sign_flip import EXACT_UP_TO
from jaxbench.reporting.audit_findings import Findings
from jaxbench.reporting.report_fields import Arm, Fields
from jaxbench.reporting.written import Written, numbers, roundings
from jaxbench.toml_text import Place, dotted

EXACT = "the exact sign-flip test"
LEGACY = "the reference reports' Monte Carlo: 20,000 flips from default_rng(0)"
SAMPLED = "from random sign flips, and within their error of ours"
REMEMBERED = 512
"""Comparisons that are kept: rounded scores need two for each score."""

IN_THE_UNIT = {
    "delta_mean", "delta_mean_finite_pairs", "gain", "per_seed_diffs", "mde", "mde_80", "margin",
    "low", "high", "paired_sd", "unpaired_sd", "mean", "std", "per_seed",
}  # fmt: skip
OF_DIFFERENCES = {
    "delta_mean", "idea_wins", "n_pairs", "p_value", "mde", "mde_80", "verdict", "system_worked",
    "ties",
}  # fmt: skip

Scores = Sequence[Written | None]


def comparison(fields: Fields, place: Place, findings: Findings) -> judging.Comparison | None:
    """Check every number of a comparison against the one made of the scores."""
    table = fields.at(place)
    baseline, idea = (compared_arm(fields, place, side) for side in ("baseline", "idea"))
    direction = fields.directions.get((*place, "direction"), fields.direction)
    scores = [None if arm is None else arm.scores for arm in (baseline, idea)]
    if scores[0] is None or scores[1] is None or direction is None:
        by_differences(fields, place, direction, findings)
        if baseline is not None and idea is not None:
            by_means(fields.at(place), place, (baseline, idea), direction, findings)
        return None
    assert baseline is not None
    assert idea is not None
    pair = scores[0], scores[1]
    alpha, margin = (setting(fields, place, name) for name in ("alpha", "margin"))
    try:
        most = max_pairs(table, len(pair[0]))
        expected = compare(tuple(pair[0]), tuple(pair[1]), direction, alpha, margin, most)
    except JaxbenchError as error:
        findings.weak("too few seeds", f"no comparison can be made: {error}", place)
        return None
    reference = f"{dotted(baseline.place)} and {dotted(idea.place)}"
    tree(findings, place, table, expected, pair, reference)
    return expected


def compared_arm(fields: Fields, place: Place, side: str) -> Arm | None:
    """Find the arm on one side of a comparison; an endpoint's scores are in the comparison."""
    table = fields.at(place)
    if isinstance(table.get("endpoint"), str):
        return fields.arm_at((*place, side))
    name = table.get(f"{side}_arm", side)
    return fields.arms.get(name if isinstance(name, str) else side)


def setting(fields: Fields, place: Place, name: str) -> float:
    """Give alpha or margin, as the protocol beside or above a comparison states it, else 0.05."""
    protocols = [(*place[:depth], "protocol", name) for depth in range(len(place), -1, -1)]
    stated = [(*place, name)] if name == "alpha" else []
    for where in (*stated, *protocols):
        value = fields.at(where)
        most = 0.5 if name == "alpha" else math.inf
        if isinstance(value, Written) and 0.0 < value < most:
            return float(value)
    return 0.05


@functools.lru_cache(maxsize=REMEMBERED)
def compare(
    baseline: tuple[float | None, ...],
    idea: tuple[float | None, ...],
    direction: Direction,
    alpha: float = 0.05,
    margin: float = 0.05,
    most: int | None = None,
) -> judging.Comparison:
    """Compare scores, remembering the result."""
    with np.errstate(all="ignore"):
        return judging.compare(
            baseline, idea, direction=direction, alpha=alpha, margin=margin, max_pairs=most
        )


def max_pairs(table: Mapping[str, Any], pairs: int) -> int | None:
    """Read up to how many pairs were to be added until the test decides; None if they were not."""
    steps = table.get("sequential")
    most = steps.get("max_pairs") if isinstance(steps, Mapping) else None
    return int(most) if isinstance(most, Written) and most.whole and most >= pairs else None


def tree(
    findings: Findings,
    place: Place,
    table: Mapping[str, Any],
    comparison: judging.Comparison,
    pair: tuple[Scores, Scores],
    reference: str,
) -> None:
    """Check a table against a comparison, name by name; what depends on the family is left out."""
    expected = in_words(comparison)
    scale = max((abs(v) for v in (*pair[0], *pair[1]) if v is not None), default=0.0)
    rounded = any(slack_of(arm, scale) for arm in pair)
    left_out = {"p_corrected", "family_size", "outcome", "negligible", "warnings", "alpha"}
    for where, stated, value in leaves(table, expected):
        name = next(part for part in reversed(where) if isinstance(part, str))
        if where[0] in left_out:
            continue
        because = f"recomputed from {reference}"
        slack = 0.0
        size = scale if name in IN_THE_UNIT and "log_ratio_interval" not in where else 0.0
        options = {because: value}
        if where == ("p_value",):
            options = {EXACT: value, LEGACY: comparison.legacy_p_value}
            ours = "p_value_exact" in table
            if not ours and sampled(stated, comparison) and not agrees(stated, options, 0.0):
                findings.unchecked((*place, *where), stated, SAMPLED)
                continue
        if rounded and isinstance(stated, Written) and not agrees(stated, options, size):
            moved = slack_by_rounding(comparison, pair, where)
            if moved is None:
                continue
            slack = moved
        one(findings, (*place, *where), stated, options, size, slack)


def sampled(p_value: Any, comparison: judging.Comparison) -> bool:
    """Tell whether a p-value may come from other random sign flips, a thousand or more of them."""
    if comparison.p_value_exact or not isinstance(p_value, Written):
        return False
    error = math.sqrt(comparison.p_value * (1.0 - comparison.p_value) / 1000.0)
    return abs(p_value - comparison.p_value) <= 5.0 * error + 0.005


def one(
    findings: Findings,
    place: Place,
    stated: Any,
    options: Mapping[str, Any],
    scale: float = 0.0,
    slack: float = 0.0,
) -> None:
    """Check a number or label against the nearest of several ways to make it."""
    first = next(iter(options))
    if isinstance(stated, Written):
        known = {because: v for because, v in options.items() if isinstance(v, int | float)}
        if any(isinstance(value, bool) for value in known.values()):
            findings.add(place, stated.text, False, str(options[first]).lower(), first)
            return
        because = min(known, key=lambda each: abs(known[each] - stated), default=first)
        expected = known.get(because)
        if isinstance(expected, int):
            findings.count(place, stated, expected, because)
        else:
            findings.number(place, stated, expected, because, scale=scale, slack=slack)
    else:
        findings.label(place, stated, options[first], first)


def agrees(stated: Written, options: Mapping[str, Any], scale: float) -> bool:
    """Tell whether a number agrees with one of several, without writing that down."""
    trial = Findings()
    one(trial, (), stated, options, scale)
    return all(each.status == "agrees" for each in trial.checks.values())


def slack_by_rounding(
    comparison: judging.Comparison, pair: tuple[Scores, Scores], where: Place
) -> float | None:
    """Give how far the rounding of the scores can move a number: the sum over scores of each move.

    None where that would take too long.
    """
    if comparison.n_pairs > EXACT_UP_TO:
        return None
    centre = value_at(in_words(comparison), where)
    if not isinstance(centre, int | float):
        return 0.0
    total = 0.0
    for side, rounding in enumerate(map(roundings, pair)):
        for seed, step in enumerate(rounding):
            moves = [0.0]
            for sign in (-1.0, 1.0):
                arms = [list(comparison.baseline.per_seed), list(comparison.idea.per_seed)]
                score = arms[side][seed]
                arms[side][seed] = None if score is None else score + sign * step
                other = compare(
                    tuple(arms[0]),
                    tuple(arms[1]),
                    comparison.direction,
                    comparison.alpha,
                    most=comparison.sequential and comparison.sequential.max_pairs,
                )
                value = value_at(in_words(other), where)
                moves.append(abs(value - centre) if isinstance(value, int | float) else 0.0)
            total += max(moves)
    return total * (1.0 + 1e-6)


@functools.lru_cache(maxsize=REMEMBERED)
def in_words(comparison: judging.Comparison) -> dict[str, Any]:
    """Give a comparison as a table, remembering it."""
    return comparison.to_dict()


def by_differences(
    fields: Fields, place: Place, direction: Direction | None, findings: Findings
) -> None:
    """Check what follows from the stated differences alone."""
    table = fields.at(place)
    differences = numbers(table.get("per_seed_diffs"))
    if differences is None or finite(differences) is None or len(differences) < 2:
        return
    expected = compare((0.0,) * len(differences), tuple(differences), direction or "lower")
    known = OF_DIFFERENCES if direction else OF_DIFFERENCES - {"idea_wins", "verdict"}
    kept = {name: value for name, value in table.items() if name in known}
    reference = dotted((*place, "per_seed_diffs"))
    zeros = [Written("0")] * len(differences)
    tree(findings, place, kept, expected, (zeros, differences), reference)


def by_means(
    table: Mapping[str, Any],
    place: Place,
    arms: tuple[Arm, Arm],
    direction: Direction | None,
    findings: Findings,
) -> None:
    """Check what follows from the arms' means, the number of pairs and the wins."""
    baseline, idea = arms
    base, other = baseline.mean, idea.mean
    delta, pairs, wins = (table.get(name) for name in ("delta_mean", "n_pairs", "idea_wins"))
    if isinstance(base, Written) and isinstance(other, Written):
        findings.number(
            (*place, "delta_mean"), delta, other - base,
            f"{dotted(idea.mean_place)} - {dotted(baseline.mean_place)}",
            scale=max(abs(base), abs(other)), slack=base.rounding + other.rounding,
        )  # fmt: skip
    mde = table.get("mde")
    if isinstance(base, Written) and isinstance(mde, Written) and abs(base) > base.rounding:
        relative = 100.0 * mde / abs(base)
        parts = mde.rounding / max(abs(mde), 1e-300) + base.rounding / abs(base)
        findings.number(
            (*place, "mde_rel_pct"), table.get("mde_rel_pct"), relative,
            f"100 mde / |{dotted(baseline.mean_place)}|", slack=2.0 * relative * parts,
        )  # fmt: skip
    one_sign = isinstance(pairs, Written) and wins in (0.0, pairs)
    many = int(pairs) if one_sign and pairs is not None and 2 <= pairs <= EXACT_UP_TO else 0
    if many and delta and (*place, "p_value") not in findings.checks:
        same = compare((0.0,) * many, (1.0,) * many, "lower")
        why = f"with {many} differences of one sign"
        options = {f"{EXACT}, {why}": same.p_value, f"{LEGACY}, {why}": same.legacy_p_value}
        one(findings, (*place, "p_value"), table.get("p_value"), options)
    stated = table.get("p_value")
    if direction is not None and isinstance(stated, Written) and isinstance(delta, Written):
        better = 1.0 if direction == "higher" else -1.0
        verdict = judging.legacy_verdict(float(stated), better * delta)
        because = "by p_value, delta_mean and the direction"
        findings.label((*place, "verdict"), table.get("verdict"), verdict, because)
        won = verdict == "idea better (significant)"
        findings.label((*place, "system_worked"), table.get("system_worked"), won, because)


def families(
    fields: Fields, compared: Mapping[Place, judging.Comparison | None], findings: Findings
) -> judging.Comparison | None:
    """Check what depends on how many comparisons there are: Holm's correction and the outcome.

    Returns:
        The primary comparison, corrected, where the report lists comparisons.
    """
    primary = None
    for place, made in compared.items():
        if made is None or place[-2:-1] != ("comparisons",):
            continue
        family = [
            other
            for other in compared
            if other[:-1] == place[:-1] and fields.at((*other, "role")) != "control"
        ]
        members = [member for other in family if (member := compared[other]) is not None]
        if len(members) < len(family) or len({member.alpha for member in members}) > 1:
            continue
        corrected = judging.correct(members)[family.index(place)] if place in family else made
        places = [place]
        if fields.at((*place, "role")) == "primary":
            primary = corrected
            places += [(*place[:-2], "comparison")]
        expected, because = in_words(corrected), "by Holm's rule over the report's comparisons"
        for where in places:
            for name in ("p_corrected", "family_size", "outcome", "negligible"):
                one(findings, (*where, name), fields.at((*where, name)), {because: expected[name]})
    return primary


def leaves(stated: Any, expected: Any, where: Place = ()) -> list[tuple[Place, Any, Any]]:
    """List what stands at the same places of two documents, down to where one of them ends."""
    if isinstance(stated, Mapping) and isinstance(expected, Mapping):
        keys = [key for key in stated if key in expected]
        return [e for key in keys for e in leaves(stated[key], expected[key], (*where, key))]
    if isinstance(stated, list) and isinstance(expected, list):
        pairs = enumerate(zip(stated, expected, strict=False))
        return [e for i, (s, x) in pairs for e in leaves(s, x, (*where, i))]
    if isinstance(stated, Mapping | list) or isinstance(expected, Mapping | list):
        return []
    return [(where, stated, expected)] if where else []


def value_at(document: Any, place: Place) -> Any:
    """Give what stands at a place of a comparison."""
    for part in place:
        if document is None:
            return None
        document = document[part]
    return document


def finite(scores: Scores) -> np.ndarray | None:
    """Give scores as an array; None where one is missing or not finite."""
    if any(score is None or not abs(score) < 1e150 for score in scores):
        return None
    return np.array([float(score) for score in scores if score is not None])


def slack_of(scores: Scores, scale: float) -> float:
    """Give the error that the rounding of a list leaves in its mean or spread, if it is rounded."""
    rounding = max(roundings(scores), default=0.0)
    return rounding if rounding > 1e-12 * scale else 0.0
