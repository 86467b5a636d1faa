"""Claims of an audit: what a report says it chose, confirmed and concluded, derived anew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jaxbench import judging
from jaxbench.judging.signatures import WORST_FIRST
from jaxbench.judging.verdicts import PracticalVerdict
from jaxbench.reporting.audit_comparisons import one
from jaxbench.reporting.audit_findings import Findings
from jaxbench.reporting.report_fields import Fields, Sweep, Trial
from jaxbench.reporting.written import Written
from jaxbench.toml_text import Place, dotted

STATES = ("confirmed", "refuted", "vacuous", "untestable")


# --------------------------------------------------------------------------------------------------
# Choices
# --------------------------------------------------------------------------------------------------


def choices(fields: Fields, findings: Findings) -> None:
    """Check that each arm's chosen configuration is the best of its sweep, and what follows."""
    for place, arm, cfg in fields.chosen:
        sweep = sweep_of(fields, arm, place)
        best = best_trial(sweep, fields)
        if sweep is None or best is None:
            continue
        because = f"the best of {dotted(sweep.place)}"
        equal = [t for t in sweep.trials if as_good(t, best) and chosen_by(cfg, t)]
        winner = equal[0] if equal else best
        for name, value in cfg.items():
            if name in winner.cfg and _varies(sweep, name):
                one(findings, (*place, name), value, {because: _plain(winner.cfg[name])})
    for sweep in fields.sweeps:
        best = best_trial(sweep, fields)
        if best is None:
            continue
        for trial in sweep.trials:
            stated = fields.at((*trial.place, "selected"))
            right = trial is best or (stated is True and as_good(trial, best))
            because = f"by the means of {dotted(sweep.place)}"
            findings.label((*trial.place, "selected"), stated, right, because)
        where = (*sweep.place[:-1], "edge_of_grid")
        for name, edge in edges(sweep, best).items():
            stated = fields.at((*where, name))
            findings.label((*where, name), stated, edge, f"by the grid of {dotted(sweep.place)}")
    for place, value in fields.everything:
        if place[-2:] == ("parity", "trials") and isinstance(value, Mapping):
            for arm, stated in value.items():
                tried = sweep_of(fields, arm, (*place[:-3], "arms", arm))
                if tried is not None:
                    because = f"the length of {dotted(tried.place)}"
                    findings.count((*place, arm), stated, len(tried.trials), because)


def sweep_of(fields: Fields, arm: str, place: Place) -> Sweep | None:
    """Give the sweep of an arm that stands nearest to a place."""

    def shared(sweep: Sweep) -> int:
        return sum(one == other for one, other in zip(sweep.place, place, strict=False))

    return max((s for s in fields.sweeps if s.arm == arm), key=shared, default=None)


def best_trial(sweep: Sweep | None, fields: Fields) -> Trial | None:
    """Give the trial with the best mean; None where that cannot be told."""
    if sweep is None or fields.direction is None:
        return None
    whole = [t for t in sweep.trials if t.mean is not None and abs(t.mean) < 1e300]
    better = 1.0 if fields.direction == "higher" else -1.0
    return max(whole, key=lambda t: better * (t.mean or 0.0), default=None)


def as_good(trial: Trial, best: Trial) -> bool:
    """Tell whether a trial's mean is that of the best, within the rounding of both."""
    if trial.mean is None or best.mean is None:
        return False
    return abs(trial.mean - best.mean) <= trial.mean.rounding + best.mean.rounding


def chosen_by(cfg: Mapping[str, Any], trial: Trial) -> bool:
    """Tell whether a configuration is that of a trial, as far as both say."""
    return all(trial.cfg[name] == value for name, value in cfg.items() if name in trial.cfg)


def edges(sweep: Sweep, chosen: Trial) -> dict[str, str | None]:
    """Say for each hyperparameter that varies at which edge of its grid the chosen value lies."""
    grid = [
        {name: value for name, value in trial.cfg.items() if isinstance(value, Written)}
        for trial in sweep.trials
    ]
    numeric = {name: v for name, v in chosen.cfg.items() if isinstance(v, Written)}
    return {**judging.edge_of_grid(grid, numeric)}


def _varies(sweep: Sweep, name: str) -> bool:
    values = [trial.cfg.get(name) for trial in sweep.trials]
    return any(value != values[0] for value in values)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Written) else value


# --------------------------------------------------------------------------------------------------
# Signatures
# --------------------------------------------------------------------------------------------------


def signatures(fields: Fields, findings: Findings) -> None:
    """Check what a signature's numbers say of it: skill, state, squares and ranges of ratios."""
    for place, value in fields.everything:
        if not isinstance(value, Mapping):
            continue
        subject, null = value.get("subject"), value.get("null")
        if isinstance(subject, Mapping) and isinstance(null, Mapping):
            error, against = subject.get("error"), null.get("error")
            if isinstance(error, Written) and isinstance(against, Written) and against != 0.0:
                because = "1 - subject.error / null.error"
                slack = (error.rounding + abs(error / against) * against.rounding) / abs(against)
                expected = 1.0 - float(error) / float(against)
                stated = value.get("skill")
                findings.number(
                    (*place, "skill"), stated, expected, because, scale=1.0, slack=slack
                )
        state = value.get("state")
        if state in STATES:
            confirmed = value.get("confirmed")
            findings.label((*place, "confirmed"), confirmed, state == "confirmed", "by the state")
        entries = value.get("signatures")
        if isinstance(entries, list) and state in STATES:
            states = [e.get("state") for e in entries if isinstance(e, Mapping)]
            proper = [each for each in STATES if each in states]
            worst = min(proper, key=WORST_FIRST.index, default="untestable")
            findings.label((*place, "state"), state, worst, "the worst state of its signatures")
        if isinstance(value.get("rows"), list):
            columns(place, value, findings)


def columns(place: Place, table: Mapping[str, Any], findings: Findings) -> None:
    """Check columns `x2` for being the square of `x`, and `x_ratio_range` for that of y / x."""
    rows = [row for row in table["rows"] if isinstance(row, Mapping)]
    for index, row in enumerate(table["rows"]):
        for name, value in row.items() if isinstance(row, Mapping) else ():
            root = row.get(name.removesuffix("2").removesuffix("_"))
            if name.endswith("2") and isinstance(root, Written) and isinstance(value, Written):
                slack = 2.0 * abs(root) * root.rounding if _measured(root) else 0.0
                findings.number(
                    (*place, "rows", index, name), value, float(root) * float(root),
                    f"the square of {name.removesuffix('2').removesuffix('_')}", slack=slack,
                )  # fmt: skip
    for key, stated in table.items():
        match = re.fullmatch(r"(.+)_ratio_range", key)
        if match is None or not isinstance(stated, list) or len(stated) != 2:
            continue
        others = [n for n in (rows[0] if rows else ()) if n not in (match[1], match[1][:-1])]
        pairs: list[Any] = [(row.get(match[1]), row.get(n)) for row in rows for n in others]
        fit = all(isinstance(x, Written) and isinstance(y, Written) and x != 0.0 for x, y in pairs)
        if len(others) != 1 or not fit:
            continue
        ratios = [y / x for x, y in pairs]
        slack = max(
            (y.rounding + abs(y / x) * _measured(x) * x.rounding) / abs(x) for x, y in pairs
        )
        for index, (word, end) in enumerate({"least": min, "greatest": max}.items()):
            because = f"the {word} {others[0]} / {match[1]} of the rows"
            where = (*place, key, index)
            findings.number(where, stated[index], end(ratios), because, slack=slack)


def _measured(value: Written) -> bool:
    """Tell from its digits whether a number was measured, and so rounded, rather than set."""
    return len(re.sub(r"\D", "", value.text.lower().partition("e")[0])) > 3


# --------------------------------------------------------------------------------------------------
# Labels
# --------------------------------------------------------------------------------------------------


def labels(fields: Fields, primary: judging.Comparison | None, findings: Findings) -> None:
    """Check the verdicts that the envelope draws from the primary comparison and the signature."""
    top = fields.document
    if not isinstance(top, Mapping):
        return
    bench = top.get("bench_report")
    bench = bench if isinstance(bench, Mapping) else top
    compared, mechanism = bench.get("comparison"), bench.get("mechanism_signature")
    if not isinstance(compared, Mapping):
        return
    practical = practical_of(compared)
    if practical is not None:
        findings.label(
            ("practical_verdict",), top.get("practical_verdict"), practical, "by the comparison"
        )
    confirmed = confirmed_of(mechanism)
    if practical is None or confirmed is None:
        return
    listed = bench.get("comparisons")
    held = [
        judging.control_holds(each["outcome"], practical)
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and each.get("role") == "control" and _outcome(each)
    ]
    shown = judging.mechanism_ok("confirmed" if confirmed else "refuted", practical, held)
    because = "by the signature, the controls and practical_verdict"
    one(findings, ("mechanism_ok",), top.get("mechanism_ok"), {because: shown})
    system = judging.system_verdict(practical, shown)
    because = "by mechanism_ok and practical_verdict"
    findings.label(("system_verdict",), top.get("system_verdict"), system, because)
    findings.label(("worked",), top.get("worked"), judging.worked(system), "by system_verdict")
    rate(fields, primary, findings)


def rate(fields: Fields, primary: judging.Comparison | None, findings: Findings) -> None:
    """Check the confidence and the points that add up to it."""
    state = fields.at(("bench_report", "mechanism_signature", "state"))
    equal = fields.at(("bench_report", "protocol", "parity", "equal"))
    if primary is None or state not in STATES or not isinstance(equal, bool):
        return
    quick = fields.at(("bench_report", "quick")) is True
    rated = judging.confidence(primary, equal_trials=equal, signature=state, quick=quick)
    one(findings, ("confidence",), fields.at(("confidence",)), {"by its rule": rated.value})
    for name, points in rated.parts.items():
        place = ("confidence_parts", name)
        one(findings, place, fields.at(place), {"by the rule of the confidence": float(points)})


def practical_of(compared: Mapping[str, Any]) -> PracticalVerdict | None:
    """Derive what the idea does in practice from a comparison's outcome, or from its label."""
    if _outcome(compared):
        negligible = compared.get("negligible") is True
        return judging.practical_verdict(compared["outcome"], negligible=negligible)
    return {
        "idea better (significant)": "helps",
        "idea worse (significant)": "harms",
        "no significant win": "inconclusive",
    }.get(str(compared.get("verdict")))  # type: ignore[return-value]


def confirmed_of(mechanism: Any) -> bool | None:
    """Read whether the signature was confirmed, at whatever depth the report says so; else None."""
    if not isinstance(mechanism, Mapping):
        return None
    if mechanism.get("state") in STATES:
        return mechanism["state"] == "confirmed"
    if isinstance(mechanism.get("confirmed"), bool):
        return bool(mechanism["confirmed"])
    inner = [confirmed_of(value) for value in mechanism.values()]
    said = [value for value in inner if value is not None]
    return all(said) if said else None


def _outcome(compared: Mapping[str, Any]) -> bool:
    return compared.get("outcome") in ("better", "worse", "equivalent", "inconclusive")
