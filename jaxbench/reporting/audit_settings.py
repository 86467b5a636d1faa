"""Settings of an audit: labels and truth values that a report states twice, or that follow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from jaxbench.reporting.audit_comparisons import leaves
from jaxbench.reporting.audit_findings import Findings
from jaxbench.reporting.report_fields import Fields
from jaxbench.reporting.written import Written
from jaxbench.toml_text import Place, dotted

TWICE = {
    ("study",): ("name",),
    ("title",): ("title",),
    ("track",): ("track", "name"),
    ("track_options",): ("track",),
    ("model",): ("model", "name"),
    ("model_options",): ("model",),
    ("protocol", "rules"): ("protocol", "rules"),
    ("protocol", "alpha"): ("protocol", "alpha"),
    ("protocol", "margin"): ("protocol", "margin"),
    ("protocol", "parity", "mode"): ("protocol", "parity"),
}
"""Where a report of ours says again what its `config` says."""


def settings(fields: Fields, findings: Findings) -> None:
    """Check directions, tuning parity, pairing, the protocol, and the copies of the config."""
    directions(fields, findings)
    for place, value in fields.everything:
        if not isinstance(value, Mapping):
            continue
        parity(place, value, findings)
        pairing(fields, place, value, findings)
        if isinstance(value.get("protocol"), Mapping):
            protocol((*place, "protocol"), value["protocol"], findings)
        if isinstance(value.get("config"), Mapping):
            config(fields, place, value, findings)
    top = fields.document
    if isinstance(top, Mapping) and "mechanism_ok" in top and "system_verdict" in top:
        because = "mechanism_ok and system_verdict are stated"
        findings.label(("system_judged",), top.get("system_judged"), True, because)


def directions(fields: Fields, findings: Findings) -> None:
    """Check every statement of the score's direction against the others.

    The direction of a comparison by an endpoint is that of the endpoint.
    """
    stated = {
        place: direction
        for place, direction in fields.directions.items()
        if place[-1] == "metric_direction"
        or place[-2:] == ("metric", "direction")
        or (place[:-1] in fields.comparisons and "endpoint" not in fields.at(place[:-1]))
    }
    for place, direction in stated.items():
        wrong = [other for other, said in stated.items() if said != direction]
        others = wrong or [other for other in stated if other != place]
        if others:
            expected = stated[others[0]]
            because = f"as {dotted(others[0])} says"
            findings.add(place, repr(fields.at(place)), not wrong, expected, because)


def parity(place: Place, table: Mapping[str, Any], findings: Findings) -> None:
    """Check whether the arms had equally many tuning trials."""
    trials = table.get("trials")
    if place[-1:] == ("parity",) and isinstance(trials, Mapping):
        counts = list(trials.values())
        if counts and all(isinstance(count, Written) for count in counts):
            equal = len(set(counts)) == 1
            findings.label((*place, "equal"), table.get("equal"), equal, "by its trials")


def pairing(fields: Fields, place: Place, table: Mapping[str, Any], findings: Findings) -> None:
    """Check by their digests whether the primary arms had the same data and initial parameters."""
    digests = table.get("digests")
    if place[-1:] != ("pairing",) or not isinstance(digests, Mapping):
        return
    compared = fields.at((*place[:-1], "comparison"))
    compared = compared if isinstance(compared, Mapping) else {}
    names = [compared.get(f"{side}_arm", side) for side in ("baseline", "idea")]
    arms = [digests.get(name) if isinstance(name, str) else None for name in names]
    for quantity in ("data", "initial_parameters"):
        made = [arm.get(quantity) for arm in arms if isinstance(arm, Mapping)]
        if len(made) == 2 and all(isinstance(digest, str) for digest in made):
            name, same = f"same_{quantity}", made[0] == made[1]
            by = "by the digests of the primary arms"
            findings.label((*place, name), table.get(name), same, by)


def protocol(place: Place, table: Mapping[str, Any], findings: Findings) -> None:
    """Check what the rules `modern` and `v1` say of selection."""
    rules = table.get("rules")
    if rules not in ("modern", "v1"):
        return
    reported, because = rules == "v1", f"by {dotted((*place, 'rules'))}"
    findings.label((*place, "asymmetric"), table.get("asymmetric"), reported, because)
    selected = "test" if reported else "validation"
    findings.label((*place, "selected_on"), table.get("selected_on"), selected, because)


def config(fields: Fields, place: Place, table: Mapping[str, Any], findings: Findings) -> None:
    """Check what is said again outside the config, and the digest of the config."""
    for said, original in copies(table):
        first = fields.at((*place, "config", *original))
        stated = fields.at((*place, *said))
        both = leaves(stated, first) or [((), stated, first)]
        for where, one, other in both:
            because = f"as {dotted((*place, 'config', *original, *where))} says"
            here = (*place, *said, *where)
            if isinstance(one, Written) and isinstance(other, Written):
                findings.number(here, one, float(other), because)
            elif isinstance(one, str | bool) and isinstance(other, str | bool):
                findings.label(here, one, other, because)
    digest = digest_of(table["config"], table.get("sources"))
    stated = table.get("config_digest")
    if digest is not None and isinstance(stated, str):
        because = "the SHA-256 of the config without title and description"
        findings.label((*place, "config_digest"), stated, digest, because)
    identity = table.get("run_id")
    if isinstance(stated, str) and isinstance(identity, str):
        because = f"the beginning of {dotted((*place, 'config_digest'))}"
        findings.label((*place, "run_id"), identity, stated[: len(identity) or 1], because)


def copies(table: Mapping[str, Any]) -> Iterator[tuple[Place, Place]]:
    """Give each place that repeats the config, and the place in the config.

    What a user's file says of itself, its name and its options, may be anything.
    """
    config = table["config"]
    model, described = model_of_primary(config)
    for place, (part, *rest) in TWICE.items():
        component = {"track": config.get("track"), "model": described}.get(part)
        if not is_file(component, "name"):
            yield place, (*(model if part == "model" else (part,)), *rest)
    arms, compared = table.get("arms"), table.get("comparisons")
    listed = config.get("arms")
    for arm in arms if isinstance(arms, Mapping) else ():
        if not is_file(listed.get(arm) if isinstance(listed, Mapping) else None, "intervention"):
            yield ("arms", arm, "intervention"), ("arms", arm, "intervention")
            yield ("arms", arm, "static"), ("arms", arm, "options")
        yield ("arms", arm, "fixed"), ("arms", arm, "fixed")
    for index in range(len(compared) if isinstance(compared, list) else 0):
        for said, original in (("idea_arm", "idea"), ("baseline_arm", "baseline")):
            yield ("comparisons", index, said), ("comparisons", index, original)
        yield ("comparisons", index, "role"), ("comparisons", index, "role")


def model_of_primary(config: Mapping[str, Any]) -> tuple[Place, Any]:
    """Find the model of the primary comparison's idea: its arm's own, or the study's."""
    arms, compared = config.get("arms"), config.get("comparisons")
    for row in compared if isinstance(compared, list) else ():
        if not isinstance(row, Mapping) or row.get("role") != "primary":
            continue
        idea = row.get("idea")
        if isinstance(idea, str) and isinstance(arms, Mapping):
            own = arms[idea].get("model") if isinstance(arms.get(idea), Mapping) else None
            if isinstance(own, Mapping):
                return ("arms", idea, "model"), own
    return ("model",), config.get("model")


def is_file(part: Any, key: str) -> bool:
    """Whether a part of the config names its component by a path to a Python file."""
    name = part.get(key) if isinstance(part, Mapping) else None
    return isinstance(name, str) and name.endswith(".py")


def digest_of(settings: Mapping[str, Any], sources: Any = None) -> str | None:
    """Give the digest of a config; None where files that it names, or odd numbers, decide it.

    Args:
        settings: the config.
        sources: the digests of files that it names, where the report has them.
    """
    known = sources if isinstance(sources, Mapping) else {}
    content = {k: v for k, v in settings.items() if k not in ("title", "description")}
    try:
        plain = plainly({**content, "sources": known})
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return None
    return None if ".py" in text and not known else hashlib.sha256(text.encode()).hexdigest()


def plainly(value: Any) -> Any:
    """Give a value with int and float for every number."""
    if isinstance(value, Mapping):
        return {key: plainly(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plainly(inner) for inner in value]
    if isinstance(value, Written):
        return int(value.text) if value.text.lstrip("-").isdigit() else float(value)
    return value
