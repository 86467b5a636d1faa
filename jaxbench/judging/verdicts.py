"""Verdicts: the labels that people take away, each by one stated rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from jaxbench.judging.comparison import Comparison
    from jaxbench.judging.signatures import SignatureState

Outcome = Literal["better", "worse", "equivalent", "inconclusive"]
LegacyVerdict = Literal[
    "idea better (significant)", "idea worse (significant)", "no significant win"
]
PracticalVerdict = Literal["helps", "harms", "inconclusive"]
SystemVerdict = Literal["worked", "partial", "failed"]

RECOMMENDED_PAIRS = 16
"""From this many seeds on, the number of seeds takes nothing from the confidence."""

CONFIDENCE_RULE = (
    "confidence is 0 to 10: up to 5 points for the posterior probability q of the outcome, "
    "5 max(0, 2 q - 1), with q the chance that the mean difference has the stated sign for better "
    "and worse (1 - p/2 where runs diverged), that it lies inside the margin for equivalent, and "
    "no points for inconclusive; up to 2 points for seeds, one where their number can reach "
    "significance after correction and one more from 16 on; 1 point where both arms had equally "
    "many tuning trials; 2 points where the signatures were confirmed or refuted, none where they "
    "were vacuous or untestable; rounded, halves up; 0 for a quick run, which only shows that a "
    "study works, and for an idea that did not act"
)


class Confidence(NamedTuple):
    """Confidence in a verdict.

    Attributes:
        value: 0 to 10.
        parts: the points that add up to it, before rounding.
        rule: how they were given, in words.
    """

    value: int
    parts: Mapping[str, float]
    rule: str


def outcome(
    p_corrected: float, gain: float, equivalence_p: float | None, *, alpha: float
) -> Outcome:
    """Give the four-way outcome of a comparison.

    `better` or `worse` where p <= alpha, else `equivalent` where the two one-sided tests pass at
    alpha, else `inconclusive`.

    Args:
        p_corrected: of the primary statistic, corrected for its family.
        gain: that statistic, positive where the idea is better.
        equivalence_p: of the two one-sided tests; None where runs diverged.
        alpha: level of all tests.
    """
    if p_corrected <= alpha:
        return "better" if gain > 0.0 else "worse"
    if equivalence_p is not None and equivalence_p <= alpha:
        return "equivalent"
    return "inconclusive"


def legacy_verdict(p_value: float, gain: float, *, alpha: float = 0.05) -> LegacyVerdict:
    """Give the reference reports' label, from the p-value before correction."""
    if p_value > alpha:
        return "no significant win"
    return "idea better (significant)" if gain > 0.0 else "idea worse (significant)"


def practical_verdict(outcome: Outcome, *, negligible: bool = False) -> PracticalVerdict:
    """Say what the idea does in practice: nothing decided where the difference is negligible.

    `helps` if better, `harms` if worse, and `inconclusive` if neither was shown or if the
    difference is significant and yet inside the margin.
    """
    if negligible:
        return "inconclusive"
    labels: dict[Outcome, PracticalVerdict] = {"better": "helps", "worse": "harms"}
    return labels.get(outcome, "inconclusive")


def control_holds(control: Outcome, practical: PracticalVerdict) -> bool:
    """Say whether a comparison of the idea against a control arm leaves the mechanism standing.

    It must not be worse than the control; where the idea helps it must be better than the control,
    or what helps is what both of them share.

    Args:
        control: the outcome of idea against control.
        practical: of the primary comparison.
    """
    return control == "better" or (control != "worse" and practical != "helps")


def mechanism_ok(
    signature: SignatureState, practical: PracticalVerdict, controls: Sequence[bool] = ()
) -> int:
    """Say, as 0 or 1, whether the idea does what its explanation says, without harm.

    1 where the signatures are confirmed, the idea does not harm, and all controls hold.

    Args:
        signature: the overall state of the proper signatures.
        practical: of the primary comparison.
        controls: whether each control comparison holds; see `control_holds`.
    """
    return int(signature == "confirmed" and practical != "harms" and all(controls))


def system_verdict(practical: PracticalVerdict, mechanism: int) -> SystemVerdict:
    """Judge idea and explanation together.

    `worked` if it helps and its mechanism is shown, `partial` if only the mechanism is, else
    `failed`.
    """
    if not mechanism:
        return "failed"
    return "worked" if practical == "helps" else "partial"


def worked(system: SystemVerdict) -> bool:
    """Say whether the idea worked: as an improvement and by its own explanation."""
    return system == "worked"


def confidence(
    comparison: Comparison, *, equal_trials: bool, signature: SignatureState, quick: bool = False
) -> Confidence:
    """Rate, from 0 to 10, how much the verdict should be trusted, by `CONFIDENCE_RULE`.

    Args:
        comparison: the primary one, corrected for its family.
        equal_trials: whether both arms had equally many tuning trials.
        signature: the overall state of the proper signatures.
        quick: whether the study ran in its quick form.
    """
    posterior = 0.0
    if comparison.outcome in ("better", "worse"):
        better = comparison.effects.probability_idea_better
        if better is None:
            posterior = 1.0 - comparison.decisive_p / 2.0
        else:
            posterior = better if comparison.outcome == "better" else 1.0 - better
    elif comparison.outcome == "equivalent" and comparison.rope is not None:
        posterior = comparison.rope.inside
    reachable = comparison.decisive_attainable_p * comparison.family_size <= comparison.alpha
    parts = {
        "posterior": 5.0 * max(0.0, 2.0 * posterior - 1.0),
        "seeds": float(reachable) + float(comparison.n_pairs >= RECOMMENDED_PAIRS),
        "parity": float(equal_trials),
        "signature": 2.0 if signature in ("confirmed", "refuted") else 0.0,
    }
    if quick or not comparison.acted:
        parts = dict.fromkeys(parts, 0.0)
    return Confidence(math.floor(sum(parts.values()) + 0.5), parts, CONFIDENCE_RULE)
