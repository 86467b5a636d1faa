"""Signatures: whether an idea's own explanation predicted what was measured."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from jaxbench.base import Finding, JaxbenchError, Signature
from jaxbench.judging.json_values import strict_json
from jaxbench.judging.points import points

SignatureState = Literal["confirmed", "refuted", "vacuous", "untestable"]
Samples = Mapping[str, np.ndarray]

LEAST_SKILL = 0.5
"""A signature's error must be at most half of its null's."""

WORST_FIRST: tuple[SignatureState, ...] = ("refuted", "vacuous", "untestable", "confirmed")


@dataclasses.dataclass(frozen=True)
class SignatureResult:
    """What became of a signature.

    Attributes:
        name, claim, formula, tolerance, null_name: as the signature states them.
        rule_digest: of the rule, fixed before evaluation.
        state: None for the rule of the reference reports, which decides nothing.
        confirmed: whether the state is `confirmed`.
        confirmed_legacy: whether the reference reports' rule held; None for a proper signature.
        subject: what the idea's runs show.
        null: the same with the null's prediction in place of the idea's.
        controls: the same on each negative control.
        skill: 1 - error / error_null; None where there is no null or an error is missing.
        reason: one sentence for the state.
        points: prediction against measurement, where the signature says what to draw.
    """

    name: str
    claim: str
    formula: str
    tolerance: Mapping[str, float]
    null_name: str
    rule_digest: str
    state: SignatureState | None
    confirmed: bool
    confirmed_legacy: bool | None
    subject: Finding
    null: Finding | None
    controls: Mapping[str, Finding]
    skill: float | None
    reason: str
    points: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        return strict_json(self)


class _Measured(dict[str, np.ndarray]):
    """Measured quantities that name what is missing."""

    def __missing__(self, quantity: str) -> np.ndarray:
        near = difflib.get_close_matches(str(quantity), list(self), n=1, cutoff=0.55)
        raise JaxbenchError(
            f"a signature reads the quantity {quantity!r}, which was not measured"
            f"{f'; did you mean {near[0]}?' if near else ';'} there are "
            f"{', '.join(sorted(self)) or 'none'}. Return it from `measure` or `measure_host`."
        )


def judge(
    signature: Signature,
    arms: Mapping[str, Samples],
    untrained: Mapping[str, Samples],
) -> SignatureResult:
    """Judge a signature on measured quantities, by one and the same rule throughout.

    `untestable` if `evaluate` cannot test it; `refuted` if the prediction fails; `vacuous` if the
    null or a negative control passes too, if 1 - error / error_null < 1/2, or if it names neither
    null nor control, so that nothing could have failed; else `confirmed`.

    Args:
        signature: what is predicted and how it is checked.
        arms: {`idea`, `baseline`, `ideas`: {quantity: array [runs, ...]}}, trained.
        untrained: the same at the initial parameters; arms that share those need them only once, so
            that of the signature's pool those are read that are given.

    Raises:
        JaxbenchError: an arm or a quantity that the signature reads was not measured.
    """
    pooled = _pool(signature.pool, arms, "trained")
    subject = _finding(signature, pooled)
    sets: dict[str, Samples] = {"idea": pooled}
    null = None
    if signature.null is not None:
        sets["null"] = _Measured(signature.null(pooled))
        null = _finding(signature, sets["null"])
    controls: dict[str, Finding] = {}
    for control in signature.controls:
        if control == "untrained":
            given = [name for name in signature.pool if name in untrained]
            samples = _pool(given or signature.pool, untrained, "untrained")
        else:
            samples = _Measured(_arm(arms, control, "trained"))
        controls[control] = _finding(signature, samples)
        sets[control] = samples
    skill = None if null is None else _skill(subject.error, null.error)
    state, reason = _state(signature, subject, null, controls, skill)
    legacy = signature.reported_rule
    return SignatureResult(
        name=signature.name,
        claim=signature.claim,
        formula=signature.formula,
        tolerance=dict(signature.tolerance),
        null_name=signature.null_name,
        rule_digest=rule_digest(signature),
        state=None if legacy else state,
        confirmed=not legacy and state == "confirmed",
        confirmed_legacy=bool(subject.passed) if legacy else None,
        subject=subject,
        null=null,
        controls=controls,
        skill=skill,
        reason=subject.reason if legacy else reason,
        points=points(signature.compared, sets),
    )


def overall_state(results: Iterable[SignatureResult]) -> SignatureState:
    """Sum up signatures: `confirmed` only if all proper ones are, else the worst of their states.

    From the worst: refuted, vacuous, untestable.  Without a proper signature: `untestable`.
    """
    states = [result.state for result in results if result.state is not None]
    return min(states, key=WORST_FIRST.index, default="untestable")


def rule_digest(signature: Signature) -> str:
    """Fingerprint a signature's rule, to be written into the report before evaluation starts.

    SHA-256 of name, claim, formula, tolerance, null, pool, controls, and the source code of
    `evaluate` and `null` with the functions of their own module that they call and the plain values
    that they read.  What they call in other modules is not part of it.

    Raises:
        JaxbenchError: the source code cannot be read.
    """
    rule = {
        "name": signature.name,
        "claim": signature.claim,
        "formula": signature.formula,
        "tolerance": dict(signature.tolerance),
        "null_name": signature.null_name,
        "pool": list(signature.pool),
        "controls": list(signature.controls),
        "reported_rule": signature.reported_rule,
        "evaluate": _sources(signature.evaluate),
        "null": None if signature.null is None else _sources(signature.null),
    }
    text = json.dumps(rule, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sources(
    function: Callable[..., Any], seen: dict[Callable[..., Any], str] | None = None
) -> list[str]:
    """Give the source of a function, the plain values that it reads, and what it calls."""
    seen = {} if seen is None else seen
    try:
        text = inspect.getsource(function)
        closed = inspect.getclosurevars(function)
    except (OSError, TypeError) as error:
        raise JaxbenchError(
            f"the source code of {function!r} cannot be read, so a signature's rule cannot be "
            f"fingerprinted; define it as a function in a file."
        ) from error
    read = {**closed.globals, **closed.nonlocals}
    plain = {name: repr(read[name]) for name in sorted(read) if _plain(read[name])}
    seen[function] = f"{text}\n{json.dumps(plain)}"
    for name in sorted(read):
        called = read[name]
        own = inspect.isfunction(called) and called.__module__ == function.__module__
        if own and called not in seen:
            _sources(called, seen)
    return list(seen.values())


def _plain(value: Any) -> bool:
    """Tell whether a value's `repr` is the same in every process."""
    if isinstance(value, tuple):
        return all(_plain(item) for item in value)
    return isinstance(value, bool | int | float | str | None)


def _finding(signature: Signature, samples: Samples) -> Finding:
    """Evaluate a signature, refusing what is no finding.

    Raises:
        JaxbenchError: `evaluate` returned something else.
    """
    found: Any = signature.evaluate(samples)
    if not isinstance(found, Finding):
        raise JaxbenchError(
            f"evaluate must return a jaxbench.base.Finding, but returned a {type(found).__name__}"
        )
    if not isinstance(found.passed, bool | np.bool_ | None):
        raise JaxbenchError(
            f"evaluate must return a Finding whose `passed` is True, False or None, but it is a "
            f"{type(found.passed).__name__}"
        )
    return found


def _arm(arms: Mapping[str, Samples], name: str, when: str) -> Samples:
    if name not in arms:
        raise JaxbenchError(
            f"a signature needs {when} measurements of the arm {name!r}; there are "
            f"{', '.join(sorted(arms)) or 'none'}."
        )
    return arms[name]


def _pool(pool: Sequence[str], arms: Mapping[str, Samples], when: str) -> _Measured:
    measured = [_arm(arms, name, when) for name in pool]
    shared = [quantity for quantity in measured[0] if all(quantity in m for m in measured)]
    return _Measured({q: np.concatenate([np.asarray(m[q]) for m in measured]) for q in shared})


def _skill(error: float | None, null_error: float | None) -> float | None:
    if error is None or null_error is None:
        return None
    if null_error == 0.0:
        return 0.0 if error == 0.0 else -math.inf
    return 1.0 - float(error) / float(null_error)


def _state(
    signature: Signature,
    subject: Finding,
    null: Finding | None,
    controls: Mapping[str, Finding],
    skill: float | None,
) -> tuple[SignatureState, str]:
    if subject.passed is None:
        return "untestable", subject.reason
    if subject.error is not None and math.isnan(subject.error):
        return "untestable", f"What was measured is no number, so nothing follows: {subject.reason}"
    if not subject.passed:
        return "refuted", subject.reason
    passing = [f"the null ({signature.null_name})"] if null is not None and null.passed else []
    passing += [f"the control {name}" for name, finding in controls.items() if finding.passed]
    if passing:
        return "vacuous", f"{subject.reason} But so does {' and '.join(passing)}."
    if skill is not None and not skill >= LEAST_SKILL:
        return "vacuous", (
            f"{subject.reason} But its skill against the null ({signature.null_name}) is "
            f"{skill:.3g}, below {LEAST_SKILL}."
        )
    if null is None and not controls:
        return "vacuous", f"{subject.reason} But it names neither a null nor a negative control."
    return "confirmed", subject.reason
