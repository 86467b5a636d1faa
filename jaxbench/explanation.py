"""Whether each idea works for the reason given: measure what its signatures read, and judge them.

Every comparison of scores but the controls asks its idea.  Each arm is measured once, whichever
comparisons read it, all of them together; endpoints are among what is measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jaxbench import causes, hooks, judging
from jaxbench.base import JaxbenchError, Signature
from jaxbench.config import Comparison
from jaxbench.plan import Plan
from jaxbench.training.engine import Engine
from jaxbench.training.runs import Measurement, Run, TrainedRun

Rows = Sequence[Mapping[str, np.ndarray]]
Source = tuple[str, str]
"""An arm, and the idea's arm whose intervention measures it."""
Found = Mapping[Source, Sequence[Measurement]]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What became of the explanation of a comparison's idea.

    Attributes:
        signatures: judged by the rules fixed beforehand.
        measured: quantities of each run of the comparison's arms, by side; empty where the idea
            measures nothing.
    """

    signatures: Sequence[judging.SignatureResult]
    measured: Mapping[str, Rows]


def measure_arms(
    plan: Plan, engine: Engine, evaluated: Mapping[str, Sequence[TrainedRun]]
) -> Found:
    """Measure what signatures read and endpoints compare: each network once, all of them together.

    An arm whose intervention measures nothing is measured by the idea's.
    """
    sides = [sources(plan, named) for _, named in compared(plan)]
    listed = [side for by_side in sides for side in by_side.values()]
    wanted = dict.fromkeys(source for side in (*listed, endpoint_sources(plan)) for source in side)
    untrained = {
        source
        for (_, named), by_side in zip(compared(plan), sides, strict=True)
        for signature in plan.signatures(named.idea)
        if "untrained" in signature.controls
        for side in sides_at_start(signature)
        for source in by_side.get(side, ())
    }
    return measure(plan, engine, evaluated, wanted, untrained)


def explain(plan: Plan, found: Found) -> dict[int, Explanation]:
    """Judge each comparison's signatures on what was measured, by its place in the config.

    Raises:
        JaxbenchError: a signature's rule changed since the plan was made, or it reads a quantity
            that was not measured.
    """
    explanations = {}
    for place, named in compared(plan):
        sides = sources(plan, named)
        explanations[place] = Explanation(
            signatures=[
                judged(plan, named.idea, signature, sides, found)
                for signature in plan.signatures(named.idea)
            ],
            measured={
                side: [each.measured for source in sides[side] for each in found[source]]
                for side in ("idea", "baseline")
                if side in sides
            },
        )
    return explanations


def compared(plan: Plan) -> list[tuple[int, Comparison]]:
    """List the comparisons that are explained, each with its place in the config."""
    listed = enumerate(plan.config.comparisons)
    return [(place, named) for place, named in listed if named in plan.explained]


def sources(plan: Plan, named: Comparison) -> dict[str, list[Source]]:
    """Say what each side of a comparison is measured by; a side that nobody reads is left out.

    Both arms of the primary comparison are measured in any case.
    """
    if not plan.arms[named.idea].recipe.intervention.measures:
        return {}
    read = {name for each in plan.signatures(named.idea) for name in (*each.pool, *each.controls)}
    sides = {"idea": [named.idea]}
    if named.role == "primary" or "baseline" in read:
        sides["baseline"] = [named.baseline]
    if "ideas" in read:
        sides["ideas"] = alike(plan, named.idea)
    return {
        side: [source_of(plan, arm, named.idea) for arm in arms] for side, arms in sides.items()
    }


def source_of(plan: Plan, arm: str, idea: str) -> Source:
    """Say what measures an arm in a comparison with this idea."""
    return arm, arm if plan.arms[arm].recipe.intervention.measures else idea


def endpoint_sources(plan: Plan) -> list[Source]:
    """List what is measured because an endpoint of it is compared."""
    return [
        source_of(plan, arm, named.idea)
        for named in plan.config.comparisons
        if named.endpoint is not None
        for arm in (named.baseline, named.idea)
    ]


def endpoint_scores(plan: Plan, found: Found, named: Comparison, arm: str) -> list[float]:
    """Give each run's endpoint on one side of a comparison; NaN where it was not measured."""
    return [
        float(each.measured.get(str(named.endpoint), math.nan))
        for each in found[source_of(plan, arm, named.idea)]
    ]


def sides_at_start(signature: Signature) -> tuple[str, ...]:
    """Say whose initial parameters the untrained control reads: the ideas', which arms share."""
    return tuple(side for side in signature.pool if side != "baseline") or ("baseline",)


def alike(plan: Plan, idea: str) -> list[str]:
    """List every idea's arm of the study with the same intervention, in order."""
    ideas = dict.fromkeys(named.idea for named in plan.explained)
    own = plan.arms[idea].recipe.code
    return [arm for arm in ideas if plan.arms[arm].recipe.code == own]


def to_be_measured(plan: Plan) -> set[str]:
    """Give the full keys of the recipes that will be measured, for the engine to compile ahead."""
    return {
        plan.arms[arm].recipe.full_key
        for side in (
            *(side for _, named in compared(plan) for side in sources(plan, named).values()),
            endpoint_sources(plan),
        )
        for arm, lender in side
        if arm == lender
    }


def measure(
    plan: Plan,
    engine: Engine,
    evaluated: Mapping[str, Sequence[TrainedRun]],
    wanted: Iterable[Source],
    untrained: set[Source],
) -> dict[Source, list[Measurement]]:
    """Measure all of these arms' evaluation runs together, some at their initial parameters too."""
    networks: list[TrainedRun] = []
    controls: set[int] = set()
    places: dict[Source, range] = {}
    for source in wanted:
        arm, lender = source
        runs = list(evaluated[arm])
        if lender != arm:
            runs = [lend(each, evaluated[lender][0].run) for each in runs]
        places[source] = range(len(networks), len(networks) + len(runs))
        networks += runs
        if source in untrained:
            controls |= {id(each) for each in runs}
    if not networks:
        return {}
    measured = engine.measure(networks, control=lambda each: id(each) in controls)
    return {source: [measured[row] for row in rows] for source, rows in places.items()}


def lend(trained: TrainedRun, idea: Run) -> TrainedRun:
    """Lend a trained run the idea's intervention, to be measured by, in its initial state.

    Hyperparameters that have a neutral value are at it, because the idea did not act on this run.
    """
    intervention = idea.recipe.intervention
    declared = intervention.hyper.items()
    neutral = {name: each.neutral for name, each in declared if each.neutral is not None}
    code = {kind: each for kind, each in idea.recipe.sources.items() if kind == "intervention"}
    recipe = dataclasses.replace(
        trained.run.recipe,
        intervention=intervention,
        sources={**trained.run.recipe.sources, **code},
    )
    hyper = {**idea.hyper, **neutral, **trained.run.hyper}
    run = dataclasses.replace(trained.run, recipe=recipe, hyper=hyper)
    return dataclasses.replace(trained, run=run, state=None)


def judged(
    plan: Plan,
    idea: str,
    signature: Signature,
    sides: Mapping[str, Sequence[Source]],
    found: Found,
) -> judging.SignatureResult:
    """Judge one signature of an idea on what its comparison's sides were measured to do."""
    trained = {
        side: stacked([each.measured for source in listed for each in found[source]])
        for side, listed in sides.items()
    }
    at_start = {
        side: stacked([each.untrained for source in sides[side] for each in found[source]])
        for side in sides_at_start(signature)
        if side in sides
    }
    try:
        result = judging.judge(signature, trained, at_start)
    except Exception as error:
        intervention = plan.arms[idea].recipe.intervention.name
        owner = hooks.Owner("intervention", intervention, hooks.file_of(signature.evaluate))
        if not owner.raised_in(error):
            place = hooks.place_of(signature.evaluate)
            raise hooks.HookError(
                f"{place}: the signature {signature.name} of {owner}: {causes.said(error)}"
            ) from error
        raise owner.raised(f"the signature {signature.name}", error) from error
    if result.rule_digest != plan.rule_digests[idea][result.name]:
        raise JaxbenchError(
            f"the rule of the signature {result.name!r} changed while the study ran; run it "
            f"again without editing the intervention's file"
        )
    return result


def stacked(rows: Rows) -> dict[str, np.ndarray]:
    """Stack each quantity over runs [runs, ...], NaN where a run could not be measured.

    Quantities whose shape differs from arm to arm are left out.
    """
    quantities: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        known = [np.asarray(row[name], float) for row in rows if name in row]
        if len({each.shape for each in known}) > 1:
            continue
        missing = np.full(known[0].shape, np.nan)
        quantities[name] = np.stack([np.asarray(row.get(name, missing), float) for row in rows])
    return quantities
