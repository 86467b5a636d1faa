"""The tables of results, made from the committed reports.

`PYTHONPATH=tests:. python -m results_table` writes them: into the README those beside a reference
report, between `<!-- results: STUDY -->` and `<!-- end -->`, and into `results/README.md` every
comparison of every report.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
README = ROOT / "README.md"
EVERY_COMPARISON = RESULTS / "README.md"
PRUNING = (
    "sensitivity_pruning",
    "sensitivity_pruning_60",
    "sensitivity_pruning_gates",
    "sensitivity_pruning_node",
    "sensitivity_pruning_sweep",
    "axis_pruning",
    "axis_pruning_sweep",
)
DYNAMICS = (
    "reversal_checkpointing",
    "reversal_checkpointing_graded",
    "rank_enrichment",
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
TABLES = {
    "Pruning": PRUNING,
    "Adaptive checkpoints, cluster updates and mean-square stability": DYNAMICS,
}
HEAD = """\
# Every comparison of the committed reports

Written by `PYTHONPATH=tests:. python -m results_table`; a test holds it to the reports. Scores are
means over the seeds, or the endpoint named. *p of family* is Holm's correction over a study's
primary and secondary comparisons. The mechanism is that of the comparison's idea.
"""
COLUMNS = (
    "| study, seeds | idea - baseline | scores | difference (95 %) | p | p of family | outcome "
    "| mechanism |\n|---|---|---|---|---|---|---|---|"
)
REFERENCE: dict[str, dict[str, str]] = {
    "reversal_checkpointing": {
        "baseline": "0.0214 / 0.0038 / 0.0034 (test)",
        "idea": "not in our notes",
        "difference": "-0.00101 (-0.00265 to +0.00063)",
        "p": "0.170 (Monte Carlo)",
        "detectable": "0.00226",
        "outcome": "no significant win",
        "checkpoints_rise": "cannot fail: all models end at 81 checkpoints",
    },
    "cluster_updates": {
        "baseline": "0.0238 / 0.0101 / 0.0037 (test)",
        "idea": "0.279 / 0.0125 / 0.0061 (test)",
        "difference": "+0.00229 (+0.00089 to +0.0037)",
        "p": "0.0081 (Monte Carlo)",
        "detectable": "0.00194",
        "outcome": "idea worse",
        "eta_squared_reported": "holds: from 0.541 to 0.588, a factor of 1.087",
    },
    "stability_penalty": {
        "baseline": "0.118 / 0.0078 / 0.0026 (test)",
        "difference": "+0.00016 (-0.00084 to +0.00115)",
        "p": "0.699 (Monte Carlo)",
        "detectable": "0.00138",
        "outcome": "no significant win",
        "state_growth": "holds: relative error 0.024",
    },
}
"""Figures of the reference reports R2, R3 and R4; those that we worked out are their intervals (t)
and what they could detect."""


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


def beside_reference(study: str) -> list[str]:
    """One row a quantity of the primary comparison: the reference report's, then each report's."""
    found = [report["bench_report"] for report in reports(study)]
    if not found:
        return []
    columns = [quantities(bench) for bench in found]
    seeds = [f"jaxbench, {bench['n_seeds']} seeds" for bench in found]
    written = [f"| `{study}` | reference report, 8 seeds | {' | '.join(seeds)} |"]
    written.append("|---" * (2 + len(found)) + "|")
    for key, (name, _) in columns[0].items():
        absent = "not tested" if key in signature_names(found[0]) else "not reported"
        cells = [name, REFERENCE[study].get(key, absent), *(column[key][1] for column in columns)]
        written.append(f"| {' | '.join(cells)} |")
    return written


def signature_names(bench: dict[str, Any]) -> list[str]:
    """The names of a report's signatures."""
    return [each["name"] for each in bench["mechanism_signature"]["signatures"]]


def quantities(bench: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What stands beside the reference report's figures: {key: (name, value)}."""
    compared = bench["comparison"]
    interval = compared["intervals"]["t"]
    found = {}
    for side in ("baseline", "idea"):
        trials = bench[side]["sweep"]
        rates = " / ".join(f"{trial['cfg']['learning_rate']:g}" for trial in trials)
        means = " / ".join(f"{trial['mean']:.3g}" for trial in trials)
        found[side] = (f"{side}'s tuning scores at lr {rates}", f"{means} (validation)")
    difference = (
        f"{compared['delta_mean']:+.3g} ({interval['low']:+.3g} to {interval['high']:+.3g})"
    )
    found["difference"] = ("idea minus baseline (95 %)", difference)
    found["p"] = ("p", f"{compared['p_value']:.3g}")
    found["detectable"] = ("detectable at 80 % power", f"{compared['mde_80']:.3g}")
    found["outcome"] = ("outcome", compared["outcome"])
    for each in bench["mechanism_signature"]["signatures"]:
        word = each["state"] or ("holds" if each["confirmed_legacy"] else "fails")
        reason = each["subject"]["reason"].replace("|", "\\|").rstrip(".")
        kind = "reported rule" if each["state"] is None else "mechanism"
        found[each["name"]] = (f"{kind}: `{each['name']}`", f"{word}: {reason}")
    linear = bench["references"]["linear"]["mean"]
    found["linear"] = ("linear least squares on the same data", f"{linear:.3g}")
    return found


def every_comparison() -> str:
    """The text of `results/README.md`."""
    parts = [HEAD]
    for title, studies in TABLES.items():
        lines = [row for report in reports(*studies) for row in rows(report)]
        parts.append("\n".join([f"## {title}", "", COLUMNS, *lines, ""]))
    return "\n".join(parts)


def with_tables(text: str) -> str:
    """A text with the table of each study that it marks a place for."""

    def table(match: re.Match[str]) -> str:
        begin, study, end = match.groups()
        return "\n".join([begin, *beside_reference(study), end])

    return re.sub(r"(<!-- results: (\w+) -->)\n.*?(<!-- end -->)", table, text, flags=re.DOTALL)


def texts() -> dict[Path, str]:
    """The files with tables, as they are to be."""
    return {README: with_tables(README.read_text()), EVERY_COMPARISON: every_comparison()}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
