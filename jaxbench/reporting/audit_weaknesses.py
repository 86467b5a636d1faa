"""Weaknesses of an audit: what makes a report's conclusion doubtful though its numbers agree."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxbench import judging
from jaxbench.counted import counted, listed
from jaxbench.reporting.audit_claims import (
    best_trial,
    chosen_by,
    confirmed_of,
    edges,
    sweep_of,
)
from jaxbench.reporting.audit_comparisons import finite, setting
from jaxbench.reporting.audit_findings import Findings
from jaxbench.reporting.report_fields import Arm, Fields, Sweep, Trial
from jaxbench.reporting.written import Written, numbers, shown
from jaxbench.toml_text import Place, dotted

PRECISE = 1e-6
"""Means that are written to less than this share of themselves show where they come from."""

RATIO = re.compile(r"ratio|growth|rho|radius")
PREDICTED = re.compile(r"predict|theor|expected")
OBSERVED = re.compile(r"observ|measur|empiric|actual")
GIVEN = re.compile(r"predict|theor|expected|seed|tolerance|threshold|bins|digest|pair|weight|sigma")
NULLS = re.compile(r"null|control|untrained|baseline|skill")


def look(fields: Fields, findings: Findings) -> None:
    """List every weakness that can be seen."""
    tuned = {name: chosen_trial(fields, name) for name in fields.arms}
    for name, found in tuned.items():
        if found is not None:
            grid_edges(name, *found, findings)
    unequal_tuning(fields, findings)
    test_selection(fields, tuned, findings)
    attainable(fields, findings)
    pairing(fields, findings)
    linear(fields, findings)
    mechanisms(fields, findings)
    writing(fields, findings)


def writing(fields: Fields, findings: Findings) -> None:
    """Flag numbers that are no JSON, and those that are written with more digits than they have."""
    for place, value in fields.everything:
        if isinstance(value, Written) and not np.isfinite(value):
            text = f"{dotted(place)} is {value.text}; a diverged run is null in strict JSON"
            findings.weak("not strict JSON", text, place)
    if findings.imprecise:
        worst = max(findings.imprecise, key=lambda place: findings.imprecise[place])
        text = (
            f"{counted(len(findings.imprecise), 'number')} agree"
            f"{'s' if len(findings.imprecise) == 1 else ''} with what they are made of only to "
            f"{findings.imprecise[worst]:.2g} although they are written with more digits, as if a "
            f"score had been retyped or a sum made in lower precision: "
            f"{', '.join(map(dotted, findings.imprecise))}"
        )
        findings.weak("imprecise number", text, worst)


# --------------------------------------------------------------------------------------------------
# Tuning
# --------------------------------------------------------------------------------------------------


def chosen_trial(fields: Fields, arm: str) -> tuple[Sweep, Trial] | None:
    """Find an arm's sweep, and in it the trial that was chosen or is best."""
    sweep = sweep_of(fields, arm, ())
    if sweep is None:
        return None
    for _, name, cfg in fields.chosen:
        fitting = [trial for trial in sweep.trials if name == arm and chosen_by(cfg, trial)]
        if len(fitting) == 1:
            return sweep, fitting[0]
    best = best_trial(sweep, fields)
    return None if best is None else (sweep, best)


def grid_edges(arm: str, sweep: Sweep, chosen: Trial, findings: Findings) -> None:
    """Flag a chosen value at the edge of its grid."""
    for name, edge in edges(sweep, chosen).items():
        if edge is not None:
            text = (
                f"the best {name} of the {arm} ({shown(chosen.cfg[name])}) lies at the {edge} edge "
                f"of its grid, so the grid does not bracket its optimum"
            )
            findings.weak("optimum at the edge of the grid", text, chosen.place)


def unequal_tuning(fields: Fields, findings: Findings) -> None:
    """Flag arms that were tuned on different numbers of configurations, or on other values."""
    sweeps = {arm: sweep_of(fields, arm, ()) for arm in fields.arms}
    found = {arm: sweep for arm, sweep in sweeps.items() if sweep is not None}
    missing = [arm for arm in sweeps if arm not in found]
    if found and missing:
        place = next(iter(found.values())).place
        text = f"the tuning of {' and '.join(missing)} is not reported, so parity cannot be checked"
        findings.weak("unequal tuning", text, place)
    counts = {arm: len(sweep.trials) for arm, sweep in found.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{arm} {count}" for arm, count in counts.items())
        place = next(iter(found.values())).place
        findings.weak("unequal tuning", f"configurations tried: {text}", place)
    filled = added(fields) if len(set(counts.values())) == 1 else {}
    grids = {arm: grid_values(sweep, filled.get(arm, ())) for arm, sweep in found.items()}
    for name in {name for grid in grids.values() for name in grid}:
        having = {arm: grid[name] for arm, grid in grids.items() if name in grid}
        tuned = len(having) > 1 and max(map(len, having.values())) > 1
        if tuned and len(set(having.values())) > 1:
            place = found[next(iter(having))].place
            text = f"the arms tried different values of {name}"
            findings.weak("unequal tuning", text, place)


def added(fields: Fields) -> Mapping[str, Sequence[Any]]:
    """Give the configurations that each arm got so that all try equally many, by its role too."""
    for place, value in fields.everything:
        filled = value.get("added") if isinstance(value, Mapping) else None
        if place[-1:] == ("parity",) and isinstance(filled, Mapping):
            known = {arm: made for arm, made in filled.items() if isinstance(made, list)}
            compared = fields.at((*place[:-2], "comparison"))
            compared = compared if isinstance(compared, Mapping) else {}
            for role in ("baseline", "idea"):
                name = compared.get(f"{role}_arm")
                if isinstance(name, str) and name in known:
                    known.setdefault(role, known[name])
            return known
    return {}


def grid_values(sweep: Sweep, filled: Sequence[Any] = ()) -> dict[str, frozenset[float]]:
    """Give the numeric values that were tried of each hyperparameter, but for what was added."""
    trials = [trial for trial in sweep.trials if trial.cfg not in filled]
    names = {name for trial in trials for name in trial.cfg}
    tried = {n: [t.cfg.get(n) for t in trials] for n in names}
    return {
        name: frozenset(float(v) for v in values if isinstance(v, Written))
        for name, values in tried.items()
        if all(isinstance(value, Written) for value in values)
    }


def test_selection(
    fields: Fields, tuned: Mapping[str, tuple[Sweep, Trial] | None], findings: Findings
) -> None:
    """Flag a sweep whose means are those of the scores that are compared."""
    used: dict[str, int] = {}
    for name, found in tuned.items():
        if found is None:
            continue
        _, trial = found
        seeds = evaluation_seeds_used(trial, fields.arms[name])
        if seeds:
            used[name] = seeds
            many = "" if seeds < 0 else f" of the first {seeds} seeds"
            text = f"the {name} was chosen on the scores{many} that are compared"
            findings.weak("selection on test scores", text, trial.place)
    if len(set(used.values())) > 1:
        text = ", ".join(f"{name} on {seeds} seeds" for name, seeds in used.items() if seeds > 0)
        place = next(found.place for _, found in filter(None, tuned.values()))
        findings.weak("unequal tuning", f"the arms were selected differently: {text}", place)
    for place, value in fields.everything:
        if place[-1:] == ("selected_on",) and value == "test":
            findings.weak("selection on test scores", "the protocol says so", place)


def evaluation_seeds_used(trial: Trial, arm: Arm) -> int:
    """Tell on how many evaluation seeds a trial's mean stands: 0 if on none, -1 if on all."""
    if trial.mean is None or trial.mean == 0.0:
        return 0
    if trial.mean.rounding > PRECISE * abs(trial.mean):
        return 0
    scores = None if arm.scores is None else finite(arm.scores)
    if scores is None:
        return -1 if arm.mean is not None and arm.mean == trial.mean else 0
    for seeds in range(len(scores), 1, -1):
        off = abs(float(scores[:seeds].mean()) - trial.mean)
        if off <= trial.mean.rounding + 1e-9 * abs(trial.mean):
            return seeds
    return 0


# --------------------------------------------------------------------------------------------------
# Comparisons
# --------------------------------------------------------------------------------------------------


def attainable(fields: Fields, findings: Findings) -> None:
    """Flag p-values below what the number of pairs can give, and numbers that cannot be enough."""
    for place in fields.comparisons:
        table = fields.at(place)
        pairs, p_value = table.get("n_pairs"), table.get("p_value")
        counted = isinstance(pairs, Written) and pairs.whole and 1 <= pairs <= 1e6
        if not counted:
            continue
        smallest = judging.attainable_p(int(pairs))
        if isinstance(p_value, Written) and p_value + p_value.rounding < 0.75 * smallest:
            text = (
                f"p = {p_value.text} is below {smallest:.3g}, the smallest that {pairs.text} pairs "
                f"can give in a sign-flip test"
            )
            findings.weak("p-value not attainable", text, (*place, "p_value"))
        family = table.get("family_size")
        size = int(family) if isinstance(family, Written) and 1 <= family < 1e6 else 1
        alpha = setting(fields, place, "alpha")
        if isinstance(table.get("sequential"), Mapping):
            smallest = judging.attainable_p_anytime(int(pairs))
        if smallest * size > alpha:
            text = (
                f"{pairs.text} pairs cannot reach significance at {alpha:g} in a family of {size}: "
                f"their smallest p-value is {smallest:.3g}"
            )
            findings.weak("too few seeds", text, place)


def pairing(fields: Fields, findings: Findings) -> None:
    """Flag pairs that vary more than unpaired runs would, and runs that diverged."""
    baseline, idea = (fields.arms.get(name) for name in ("baseline", "idea"))
    for name, arm in fields.arms.items():
        lost = 0 if arm.scores is None else sum(s is None or not abs(s) < 1e300 for s in arm.scores)
        if lost:
            text = f"{lost} of {counted(len(arm.scores or ()), 'run')} of the {name} diverged"
            findings.weak("diverged runs", text, arm.place)
    if baseline is None or idea is None or baseline.scores is None or idea.scores is None:
        return
    one, other = finite(baseline.scores), finite(idea.scores)
    if one is None or other is None or one.size != other.size or one.size < 2:
        return
    spread = judging.measure_spread(one, other)
    if spread.paired_sd > spread.unpaired_sd * (1.0 + 1e-9):
        correlation = (
            "" if spread.correlation is None else f", correlation {spread.correlation:.2f}"
        )
        same = shared(fields)
        text = (
            f"the paired spread ({spread.paired_sd:.3g}) is above the unpaired one "
            f"({spread.unpaired_sd:.3g}{correlation}): "
        )
        if same:
            text += f"sharing seeds did not help, although the arms share {same} by their digests"
        else:
            text += "do the arms share data, initial parameters and batch order?"
        findings.weak("paired spread above unpaired", text, idea.place)


def shared(fields: Fields) -> str:
    """Name what the primary arms share, where a report has the digests that say so."""
    for place, value in fields.everything:
        if place[-1:] == ("pairing",) and isinstance(value, Mapping) and value.get("digests"):
            names = ("data", "initial_parameters")
            same = [name for name in names if value.get(f"same_{name}") is True]
            return listed([name.replace("_", " ") for name in same])
    return ""


def linear(fields: Fields, findings: Findings) -> None:
    """Flag scores no better than a linear reference, and reports without one."""
    reference = linear_reference(fields)
    if not fields.arms:
        return
    if reference is None:
        text = "no linear reference score is reported, so the level of the scores says nothing"
        findings.weak("no linear reference", text, next(iter(fields.arms.values())).place)
        return
    place, value = reference
    if fields.direction is None:
        return
    better = 1.0 if fields.direction == "higher" else -1.0
    for name, arm in fields.arms.items():
        scores = None if arm.scores is None else finite(arm.scores)
        mean = arm.mean if scores is None else float(scores.mean())
        if mean is not None and better * (mean - value) <= 0.0:
            text = f"the {name} ({mean:.4g}) is no better than the linear reference ({value:.4g})"
            findings.weak("no better than linear", text, place)


def linear_reference(fields: Fields) -> tuple[Place, Written] | None:
    """Find the score of a linear reference: a number, or the mean of a table, under that name."""
    for place, value in fields.everything:
        if not place or not isinstance(place[-1], str) or "linear" not in place[-1].lower():
            continue
        for where, number in ((place, value), ((*place, "mean"), fields.at((*place, "mean")))):
            if isinstance(number, Written):
                return where, number
    return None


# --------------------------------------------------------------------------------------------------
# Signatures
# --------------------------------------------------------------------------------------------------


def mechanisms(fields: Fields, findings: Findings) -> None:
    """Flag signatures that nothing could have refuted."""
    for place, value in fields.everything:
        if not place or not isinstance(value, Mapping):
            continue
        if place[-1] == "mechanism_signature" and "state" not in value:
            unopposed(place, value, fields, findings)
        state = value.get("state")
        if state in ("vacuous", "untestable") and "formula" in value:
            text = f"the signature {value.get('name')!r} is {state}: {value.get('reason', '')}"
            findings.weak("vacuous signature", text, place)
        opposed = value.get("null") is not None or value.get("controls")
        if state == "confirmed" and "formula" in value and not opposed:
            text = f"{dotted(place)} is confirmed without a null or a control"
            findings.weak("vacuous signature", text, place)


def unopposed(
    place: Place, signature: Mapping[str, Any], fields: Fields, findings: Findings
) -> None:
    """Flag a reference report's signature that is unopposed, trivial or without variation."""
    inside = [(where, value) for where, value in fields.everything if where[: len(place)] == place]
    keys = {str(part).lower() for where, _ in inside for part in where[len(place) :]}
    if confirmed_of(signature) and not any(NULLS.search(key) for key in keys):
        text = (
            f"{dotted(place)} is confirmed without a null or a negative control, so nothing shows "
            f"that it could have failed: an untrained network may pass it too"
        )
        findings.weak("vacuous signature", text, place)
    tables = [(where, value) for where, value in inside if isinstance(value, Mapping)]
    for where, table in tables:
        trivial(where, table, findings)
    for where, values in series(inside):
        constant = len(values) >= 3 and all(value == values[0] for value in values)
        if constant and not GIVEN.search(dotted(where[len(place) :]).lower()):
            text = (
                f"all {len(values)} values of {dotted(where)} are {shown(values[0])}: what does "
                f"not vary cannot be predicted"
            )
            findings.weak("saturated signature", text, where)


def trivial(place: Place, table: Mapping[str, Any], findings: Findings) -> None:
    """Flag a predicted ratio that the constant 1 predicts better."""
    scalars = {k: v for k, v in table.items() if isinstance(v, Written) and RATIO.search(k.lower())}
    predicted = [value for key, value in scalars.items() if PREDICTED.search(key.lower())]
    observed = [value for key, value in scalars.items() if OBSERVED.search(key.lower())]
    if len(predicted) == len(observed) == 1:
        error, null = abs(predicted[0] - observed[0]), abs(1.0 - observed[0])
        if null < error:
            text = (
                f"the constant 1 is nearer to the observed {shown(observed[0])} than the predicted "
                f"{shown(predicted[0])} (error {null:.3g} against {error:.3g})"
            )
            findings.weak("vacuous signature", text, place)


def series(inside: Sequence[tuple[Place, Any]]) -> list[tuple[Place, list[Written]]]:
    """List the runs of numbers inside a signature: lists, and columns of lists of tables."""
    found: list[tuple[Place, list[Written]]] = []
    for place, value in inside:
        listed = numbers(value)
        if listed is not None and None not in listed:
            found.append((place, [v for v in listed if v is not None]))
        if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
            for name in value[0]:
                column = [row.get(name) for row in value]
                if all(isinstance(item, Written) for item in column):
                    found.append(((*place, name), column))
    return found
