"""The rows of the README's tables of comparisons, made from the committed reports.

`PYTHONPATH=tests python -m results_table` prints them, one table after another.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
PRUNING = (
    "sensitivity_pruning",
    "sensitivity_pruning_60",
    "sensitivity_pruning_sweep",
    "axis_pruning",
    "axis_pruning_sweep",
)
DYNAMICS = (
    "reversal_checkpointing",
    "reversal_checkpointing_graded",
    "cluster_updates",
    "cluster_updates_sweep",
    "cluster_updates_partitions",
    "cluster_updates_ringsolve",
    "cluster_updates_gru",
    "cluster_updates_q",
    "stability_penalty",
    "stability_width",
    "stability_robustness",
    "stability_structured",
    "stability_quantisation",
    "stability_long",
)
TABLES = (PRUNING, DYNAMICS)


def reports(*studies: str) -> list[dict[str, Any]]:
    """The committed reports of these studies, those of fewer seeds first."""
    found = []
    for study in studies:
        read = [json.loads(path.read_text()) for path in RESULTS.glob(f"{study}/*/report.json")]
        found += sorted(read, key=lambda report: report["bench_report"]["n_seeds"])
    return found


def rows(report: dict[str, Any]) -> list[str]:
    """One row a comparison: its arms, scores, difference, tests, outcome, mechanism."""
    bench = report["bench_report"]
    written = []
    for each in bench["comparisons"]:
        endpoint = each.get("endpoint")
        interval = each["intervals"]["t"]
        own = bench if each["role"] == "primary" else each
        control = each["role"] == "control"
        cells = [
            f"`{bench['study']}`, {bench['n_seeds']}",
            f"{each['idea_arm']} - {each['baseline_arm']} ({each['role']})"
            + (f", {endpoint}" if endpoint else ""),
            f"{each['idea']['mean']:.4g} - {each['baseline']['mean']:.4g}",
            f"{each['delta_mean']:+.3g} ({interval['low']:+.3g} to {interval['high']:+.3g})",
            f"{each['p_value']:.3g}",
            "-" if control else f"{each['p_corrected']:.3g}",
            each["outcome"],
            own.get("mechanism_signature", {}).get("state", "-"),
        ]
        written.append(f"| {' | '.join(cells)} |")
    return written


def every_row() -> list[str]:
    """The rows of all tables."""
    return [row for studies in TABLES for report in reports(*studies) for row in rows(report)]


if __name__ == "__main__":
    for studies in TABLES:
        print("\n".join(row for report in reports(*studies) for row in rows(report)), "\n")
