"""A small report with everything in it, made from the scores of a reference report."""

from __future__ import annotations

import json
from typing import Any

from jaxbench import storage
from jaxbench.config import Config, digest
from jaxbench.judging import compare

BASELINE = [
    0.00405838,
    0.00342526,
    0.0030776,
    0.00440629,
    0.00449852,
    0.002604,
    0.0052655,
    0.003349,
]
IDEA = [
    0.00588618,
    0.00363651,
    0.00578116,
    0.01028094,
    0.00752147,
    0.0044521,
    0.00660217,
    0.0048652,
]


def arm(scores: list[float], weight: float) -> dict[str, Any]:
    """Make an arm with two configurations, the second chosen."""
    configurations = [{"learning_rate": rate, "weight": weight} for rate in (0.001, 0.01)]
    mean = sum(scores) / len(scores)
    trials = [
        {
            "cfg": cfg,
            "mean": mean * (2 - i),
            "std": 0.1,
            "per_seed": scores[:2],
            "diverged": 0,
            "selected": i == 1,
        }
        for i, cfg in enumerate(configurations)
    ]
    full = {"mean": mean, "std": 0.001, "per_seed": scores, "n": len(scores), "diverged": []}
    return {
        "intervention": "stability_penalty",
        "static": {"level": "norm"},
        "hyper": {"learning_rate": 0.01, "weight": weight},
        "best_cfg": {**configurations[1], "epochs": 12},
        "edge_of_grid": {"learning_rate": "high"},
        "sweep": trials,
        "full": full,
        "full_mean": mean,
        "curves": {"train_loss": [[0.5, 0.1]]},
        "cost": {"optimizer_steps": 1200, "flops": 1.25e12, "seconds": 3.5, "peak_bytes": None},
    }


def signature(name: str, state: str | None) -> dict[str, Any]:
    """Make a signature's entry."""
    finding = {"passed": True, "values": {"slope": 1.01}, "error": 0.02, "reason": "slope is 1.01"}
    return {
        "name": name,
        "claim": "the growth is what the lift predicts",
        "formula": "E|h'|^2 = rho E|h|^2",
        "state": state,
        "confirmed": state == "confirmed",
        "confirmed_legacy": None if state else True,
        "null_name": "no growth",
        "subject": finding,
        "null": {**finding, "passed": False, "error": 0.5},
        "controls": {"untrained": {**finding, "passed": None, "error": None}},
        "skill": 0.96,
        "rule_digest": "ab" * 32,
        "reason": "the slope lies in [0.9, 1.1]",
        "tolerance": {"slope": 0.1},
    }


def sample_report() -> dict[str, Any]:
    """Make the report; each call gives a new one."""
    judged = compare(BASELINE, IDEA, direction="lower").to_dict()
    baseline, idea = arm(BASELINE, 0.0), arm(IDEA, 1.0)
    names = {"idea_arm": "idea", "baseline_arm": "baseline"}
    named = {**judged, **names, "role": "primary"}
    bench = {
        "bench_version": 2,
        "study": "stability_penalty",
        "title": "Does [bold]it[/bold] help?",
        "run_id": "0123456789ab",
        "track": "dynamics",
        "track_options": {"preset": "quick"},
        "model": "rnn_small",
        "model_options": {"hidden": 32},
        "metric": {"name": "MSE", "unit": "rad^2", "direction": "lower"},
        "metric_direction": "lower is better",
        "n_seeds": 8,
        "protocol": {
            "rules": "modern",
            "tuning_seeds": [100, 101],
            "evaluation_seeds": list(range(8)),
            "parity": {"mode": "fill", "trials": {"baseline": 2, "idea": 2}, "added": {}},
            "evaluate": "selected",
            "alpha": 0.05,
            "margin": 0.05,
            "selected_on": "validation",
            "asymmetric": False,
        },
        "arms": {"baseline": baseline, "idea": idea},
        "baseline": baseline,
        "idea": idea,
        "comparisons": [named, {**named, "role": "control"}],
        "comparison": judged,
        "mechanism_signature": {
            "state": "confirmed",
            "confirmed": True,
            "confirmed_legacy": True,
            "signatures": [signature("growth", "confirmed"), signature("reported", None)],
        },
        "references": {"linear": {"mean": 0.001, "std": 1e-5, "per_seed": [0.001] * 8}},
        "cost": {"seconds": 7.25, "runs": 16},
        "programs": [{"group": 0, "runs": 16}],
        "provenance": {"jaxbench": "0.1.0"},
        "config": {"name": "stability_penalty"},
    }
    whole = {
        "worked": False,
        "confidence": 9,
        "verdict": "The idea is worse: the mean MSE rises by 0.002293 [sic].",
        "metrics": {"baseline": "0.003836", "idea": "0.006128", "mechanism_signature": {}},
        "bench_report": bench,
        "how_to_run": "jaxbench run stability_penalty --set 'title=a b'",
        "files": ["report.json"],
        "limitations": "One track only.",
        "system_verdict": "failed",
        "practical_verdict": "harms",
        "mechanism_ok": 0,
        "system_judged": True,
    }
    return json.loads(json.dumps(whole))


def report_of(config: Config) -> dict[str, Any]:
    """Give the sample as if this study had made it."""
    report = sample_report()
    report["bench_report"] |= {"study": config.name, "run_id": storage.run_id(digest(config))}
    return report
