"""The rows of the README's table of comparisons, made from the committed reports.

`PYTHONPATH=tests python -m results_table` prints them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
STUDIES = (
    "sensitivity_pruning",
    "sensitivity_pruning_60",
    "sensitivity_pruning_sweep",
    "axis_pruning",
    "axis_pruning_sweep",
)


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
        baseline, idea = (bench["arms"][each[f"{side}_arm"]] for side in ("baseline", "idea"))
        interval = each["intervals"]["t"]
        own = bench if each["role"] == "primary" else each
        control = each["role"] == "control"
        cells = [
            f"`{bench['study']}`, {bench['n_seeds']}",
            f"{each['idea_arm']} - {each['baseline_arm']} ({each['role']})",
            f"{idea['full_mean']:.4g} - {baseline['full_mean']:.4g}",
            f"{each['delta_mean']:+.3g} ({interval['low']:+.3g} to {interval['high']:+.3g})",
            f"{each['p_value']:.3g}",
            "-" if control else f"{each['p_corrected']:.3g}",
            each["outcome"],
            own.get("mechanism_signature", {}).get("state", "-"),
        ]
        written.append(f"| {' | '.join(cells)} |")
    return written


if __name__ == "__main__":
    for report in reports(*STUDIES):
        print("\n".join(rows(report)))
