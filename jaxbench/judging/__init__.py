"""Statistics and protocol: paired scores in, a comparison that a sceptic can check out.

A library of its own that needs numpy and scipy only: `from jaxbench.judging import compare`.
Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULE_OF = {
    name: module
    for module, names in {
        "comparison": ("Comparison", "compare", "correct"),
        "effects": (
            "EffectSizes",
            "effect_sizes",
            "probability_better",
            "probability_of_improvement",
        ),
        "equivalence": ("Rope", "Tost", "rope", "tost"),
        "grids": ("Parity", "configurations", "geometric_extension", "match_trials", "union_grids"),
        "intervals": (
            "Interval",
            "Intervals",
            "all_intervals",
            "bca_interval",
            "sign_flip_interval",
            "t_interval",
        ),
        "multiplicity": ("holm",),
        "power": (
            "Detectable",
            "detectable",
            "mde_at_power",
            "mde_half_width",
            "paired_power",
            "seeds_needed",
            "seeds_to_reach_significance",
        ),
        "pairs": ("PairedScores", "ScoreSummary", "paired_scores"),
        "rates": ("Rate", "attainable_level", "clopper_pearson"),
        "ranks": ("signed_rank_test", "signed_ranks"),
        "selection": ("V1_ASYMMETRY", "Selection", "edge_of_grid", "select", "select_v1"),
        "sequential": (
            "Sequential",
            "SequentialState",
            "SequentialTest",
            "attainable_p_anytime",
            "seeds_to_decide",
            "sequential",
            "sign_flip_wealth",
        ),
        "sign_flip": ("SignFlipTest", "attainable_p", "legacy_signflip_p", "sign_flip_test"),
        "signatures": ("SignatureResult", "judge", "overall_state", "rule_digest"),
        "spread": ("Spread", "measure_spread", "standard_deviation"),
        "json_values": ("strict_json",),
        "verdicts": (
            "CONFIDENCE_RULE",
            "Confidence",
            "confidence",
            "control_holds",
            "legacy_verdict",
            "mechanism_ok",
            "outcome",
            "practical_verdict",
            "system_verdict",
            "worked",
        ),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
