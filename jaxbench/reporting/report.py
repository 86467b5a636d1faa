"""The report: everything a study found, as one strict JSON document."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench import judging, storage
from jaxbench.config import digest
from jaxbench.counted import listed
from jaxbench.reporting import sentences
from jaxbench.reporting.provenance import origin, provenance
from jaxbench.track_fit import justification
from jaxbench.training import cost
from jaxbench.training.runs import Measurement, TrainedRun

if TYPE_CHECKING:
    from jaxbench.config import Comparison as Named
    from jaxbench.study import Results, Tuning

BENCH_VERSION = 2
"""Version of the report's format; 1 is that of the reference reports."""


def make_report(results: Results) -> dict[str, Any]:
    """Write down what a study found; sentences are made of its numbers."""
    bench = bench_report(results)
    config = results.plan.config
    place = list(config.comparisons).index(config.primary)
    primary = results.comparisons[place]
    state = judging.overall_state(results.explanations[place].signatures)
    practical = judging.practical_verdict(primary.outcome, negligible=primary.negligible)
    controls = [
        judging.control_holds(comparison.outcome, practical)
        for named, comparison in zip(config.comparisons, results.comparisons, strict=True)
        if named.role == "control"
    ]
    mechanism = judging.mechanism_ok(state, practical, controls)
    system = judging.system_verdict(practical, mechanism)
    confidence = judging.confidence(
        primary, equal_trials=results.plan.parity.equal, signature=state, quick=config.quick
    )
    idea = results.plan.arms[config.primary.idea].recipe.intervention
    return judging.strict_json(
        {
            "worked": judging.worked(system),
            "confidence": confidence.value,
            "confidence_rule": confidence.rule,
            "confidence_parts": dict(confidence.parts),
            "verdict": sentences.verdict(bench, primary),
            "metrics": sentences.metrics(bench),
            "bench_report": bench,
            "how_to_run": config.how_to_run(),
            "files": [storage.REPORT, storage.PAGE],
            "limitations": sentences.limitations(bench, idea.limitations),
            "system_verdict": system,
            "practical_verdict": practical,
            "mechanism_ok": mechanism,
            "system_judged": True,
        }
    )


def bench_report(results: Results) -> dict[str, Any]:
    """Give the numbers, under the reference reports' names where they exist."""
    plan, config = results.plan, results.plan.config
    metric = plan.track.metric
    arms = {arm: arm_result(results, arm) for arm in plan.arms}
    model = plan.arms[config.primary.idea].recipe.model
    comparisons = [
        {
            **comparison.to_dict(),
            "warnings": comparison.warnings_knowing(shared(results.pairing, named)),
            "idea_arm": named.idea,
            "baseline_arm": named.baseline,
            "role": named.role,
            **endpoint(results, named),
        }
        for named, comparison in zip(config.comparisons, results.comparisons, strict=True)
    ]
    primary = list(config.comparisons).index(config.primary)
    for place, explanation in results.explanations.items():
        if place != primary and explanation.signatures:
            comparisons[place]["mechanism_signature"] = mechanism_signature(results, place)
    identity = digest(config)
    groups = list(results.engine.groups.values())
    programs = [program for group in groups for program in group.programs]
    return {
        "bench_version": BENCH_VERSION,
        "study": config.name,
        "title": config.title,
        "quick": config.quick,
        "run_id": storage.run_id(identity),
        "config_digest": identity,
        "track": plan.track.name,
        "track_options": dict(plan.track.options),
        "track_justification": justification(
            plan.track,
            {name: (arm.recipe.model, arm.recipe.intervention) for name, arm in plan.arms.items()},
        ),
        "model": model.name,
        "model_options": dict(model.options),
        "metric": {"name": metric.name, "unit": metric.unit, "direction": metric.direction},
        "metric_direction": f"{metric.direction} is better",
        "n_seeds": results.looks[-1],
        "protocol": protocol_used(results),
        "arms": arms,
        "baseline": arms[config.primary.baseline],
        "idea": arms[config.primary.idea],
        "comparisons": comparisons,
        "comparison": comparisons[primary],
        "mechanism_signature": {
            **mechanism_signature(results, primary),
            "measured": measured(results, primary),
        },
        "references": {
            name: {
                "mean": float(np.mean(scores)),
                "std": float(np.std(scores)),
                "per_seed": list(scores),
            }
            for name, scores in results.references.items()
        },
        "pairing": dict(results.pairing),
        "warnings": plan.warnings,
        "cost": {
            "seconds": results.seconds,
            "compile_seconds": sum(each.compile_seconds for each in programs),
            "compile_wait_seconds": sum(each.wait_seconds for each in programs),
            "run_seconds": sum(each.run_seconds for each in programs),
            "peak_bytes": cost.peak_bytes(results.engine.devices),
            "compact": [dataclasses.asdict(timing) for timing in results.compact],
            "gradients": [dataclasses.asdict(each) for each in results.gradients],
            **resumed(results),
        },
        "programs": [group.summary(number) for number, group in enumerate(groups)],
        "provenance": {
            **provenance(results.engine.devices),
            **origin(plan),
            "processes": results.engine.processes.count,
        },
        "config": config.as_run(),
        **({"sources": config.sources} if config.sources else {}),
    }


def shared(pairing: Mapping[str, Any], named: Named) -> str:
    """Name what two arms share: equal by their digests, and the order of batches by the seed."""
    idea, baseline = (pairing["digests"][arm] for arm in (named.idea, named.baseline))
    same = [name.replace("_", " ") for name in idea if idea[name] == baseline[name]]
    return listed([*same, "batch order"])


def resumed(results: Results) -> dict[str, Any]:
    """Say how often the study was continued; its times are then those of its last part alone."""
    checkpoints = results.engine.checkpoints
    if checkpoints is None or not checkpoints.resumed:
        return {}
    return {"resumed": checkpoints.resumed, "runs_restored": checkpoints.restored}


def endpoint(results: Results, named: Named) -> dict[str, Any]:
    """Say by which endpoint arms are compared; nothing where it is the score."""
    if named.endpoint is None:
        return {}
    metric = results.plan.metric_of(named)
    declared = results.plan.arms[named.idea].recipe.intervention.endpoints
    summary = next(each.summary for each in declared if each.name == named.endpoint)
    return {"endpoint": metric.name, "endpoint_unit": metric.unit, "endpoint_summary": summary}


def protocol_used(results: Results) -> dict[str, Any]:
    """Say how the arms were tuned and compared."""
    protocol, parity = results.plan.config.protocol, results.plan.parity
    reported = protocol.rules == "v1"
    return {
        "rules": protocol.rules,
        "tuning_seeds": [] if reported else list(protocol.tuning_seed_list),
        "evaluation_seeds": list(range(results.looks[-1])),
        "sequential": sequence(results),
        "parity": {
            "mode": parity.mode,
            "trials": parity.counts,
            "added": dict(parity.added),
            "equal": parity.equal,
            "statement": parity.statement,
        },
        "evaluate": results.evaluate,
        "alpha": protocol.alpha,
        "margin": protocol.margin,
        "selected_on": "test" if reported else "validation",
        "asymmetric": reported,
        "asymmetry": judging.V1_ASYMMETRY if reported else None,
    }


def sequence(results: Results) -> dict[str, Any] | None:
    """Say how seeds were added until the primary comparison was decided; None if they were not."""
    protocol = results.plan.config.protocol
    config = results.plan.config
    primary = results.comparisons[list(config.comparisons).index(config.primary)]
    if protocol.max_seeds is None:
        return None
    decided = primary.p_corrected <= protocol.alpha
    used = {
        "test": "bets on the signs of the paired differences, valid at any time",
        "step": protocol.seeds,
        "max_seeds": protocol.max_seeds,
        "looks": list(results.looks),
        "stopped_at": results.looks[-1],
        "stopped_because": "decided" if decided else "max_seeds reached",
    }
    return {**used, "statement": sentences.sequence(used, primary)}


def arm_result(results: Results, arm: str) -> dict[str, Any]:
    """Give one arm's tuning, scores, learning curves and cost."""
    planned, tuning = results.plan.arms[arm], results.tunings[arm]
    evaluated = results.evaluated[arm]
    scores = np.array([run.test for run in evaluated])
    whole = bool(np.isfinite(scores).all())
    mean = float(scores.mean()) if whole else None
    intervention = planned.recipe.intervention
    groups = results.engine.groups
    key = planned.recipe.training_key
    return {
        "intervention": intervention.name,
        "static": dict(intervention.static),
        "fixed": dict(planned.fixed),
        "best_cfg": {**tuning.best, "epochs": planned.recipe.schedule.epochs},
        "edge_of_grid": tuning.edges,
        "sweep": sweep(results, tuning),
        "full": {
            "mean": mean,
            "std": float(scores.std()) if whole else None,
            "per_seed": scores,
            "n": len(scores),
            "diverged": [
                {"seed": run.run.seed, "step": run.diverged_at}
                for run in evaluated
                if run.diverged_at is not None
            ],
        },
        "full_mean": mean,
        "curves": curves(evaluated),
        "measured": scalars(results.by_arm.get(arm, ())),
        "cost": cost.arm_cost(
            planned.recipe, runs_of(results, arm), groups[key], list(groups).index(key)
        ),
    }


def sweep(results: Results, tuning: Tuning) -> list[dict[str, Any]]:
    """Give what was tried and how it scored, as selection saw it."""
    seen = tuning.scores[:, : tuning.selection.seeds]
    return [
        {
            "cfg": dict(configuration),
            "mean": mean,
            "std": float(scores.std()) if mean is not None else None,
            "per_seed": scores,
            "diverged": diverged,
            "selected": place == tuning.selection.index,
        }
        for place, (configuration, mean, scores, diverged) in enumerate(
            zip(
                tuning.configurations,
                tuning.selection.means,
                seen,
                tuning.selection.diverged,
                strict=True,
            )
        )
    ]


def runs_of(results: Results, arm: str) -> int:
    """Count the trainings that an arm needed."""
    protocol = results.plan.config.protocol
    configurations = len(results.tunings[arm].configurations)
    if results.evaluate == "grid":
        tuning_seeds = 0 if protocol.rules == "v1" else protocol.tuning_seeds
        return configurations * (tuning_seeds + protocol.seeds)
    return configurations * protocol.tuning_seeds + results.looks[-1]


def curves(runs: Sequence[TrainedRun]) -> dict[str, Any]:
    """Give each learning curve of the evaluation runs, [seeds][epochs]."""
    return {name: np.stack([run.curves[name] for run in runs]) for name in runs[0].curves}


def scalars(taken: Sequence[Measurement]) -> dict[str, Any]:
    """Give each scalar that was measured of an arm's evaluation runs, [seeds]."""
    return {
        name: [each.measured.get(name) for each in taken]
        for name in dict.fromkeys(name for each in taken for name in each.measured)
        if all(np.ndim(each.measured.get(name, 0.0)) == 0 for each in taken)
    }


def mechanism_signature(results: Results, place: int) -> dict[str, Any]:
    """Give what became of a comparison's explanation, with the rules fixed beforehand."""
    signatures = results.explanations[place].signatures
    idea = results.plan.config.comparisons[place].idea
    state = judging.overall_state(signatures)
    reported = [each.confirmed_legacy for each in signatures if each.confirmed_legacy is not None]
    return {
        "state": state,
        "confirmed": state == "confirmed",
        "confirmed_legacy": all(reported) if reported else None,
        "signatures": [each.to_dict() for each in signatures],
        "rule_digests": dict(results.plan.rule_digests[idea]),
    }


def measured(results: Results, place: int) -> dict[str, Any]:
    """Give what was measured on a comparison's arms, by side, quantities stacked over runs."""
    return {
        side: {
            name: np.stack([row[name] for row in rows if name in row])
            for name in dict.fromkeys(name for row in rows for name in row)
        }
        for side, rows in results.explanations[place].measured.items()
    }
