"""The tables of results, made from the committed reports.

`PYTHONPATH=tests:. python -m results_table` writes them: into the README those beside a reference
report, between `<!-- results: STUDY -->` and `<!-- end -->`, and into `results/README.md` every
comparison of every report, and every idea on every track; into `docs/tracks.md` what was published.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from scipy import stats

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
DATA = ("mnist1d_models", "lottery_ticket")
TABLES = {
    "Pruning": PRUNING,
    "Adaptive checkpoints, cluster updates and mean-square stability": DYNAMICS,
    "Published figures on MNIST-1D": DATA,
}
TRACKS = RESULTS / "tracks"
PUBLISHED_PAGE = ROOT / "docs" / "tracks.md"
PUBLISHED: dict[str, dict[str, str]] = {
    "mnist1d_models": {
        "convolutional": "92.3",
        "recurrent": "89.1",
        "perceptron": "65.1",
        "linear": "31.5",
    },
    "mnist1d_models_shuffled": {
        "convolutional": "58.7",
        "recurrent": "53.3",
        "perceptron": "66.0",
        "linear": "31.5",
    },
    "lottery_ticket": {
        "dense": "66.4, 64.8",
        "magnitude_51": "67.4, 65.0",
        "magnitude_92": "75.6, 74.4",
        "magnitude_98": "63.0, 63.8",
        "random_92": "60.6, 61.8",
        "random_98": "34.6, 27.2",
    },
}
"""Test accuracies (%) of Greydanus and Kobak 2024: one seed, and the last of two trials."""
NOT_RUN = "Not run at full size so far."
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
    for title, studies in {**TABLES, "Every idea on every track": on_tracks()}.items():
        lines = [row for report in reports(*studies) for row in rows(report)]
        parts.append("\n".join([f"## {title}", "", COLUMNS, *lines, ""]))
    parts.append("\n".join(["## Ideas x tracks", "", *every_track(), ""]))
    return "\n".join(parts)


def tables_of_tracks() -> list[dict[str, Any]]:
    """The joint tables of the ideas that were tried on every track that fits them."""
    return [json.loads(path.read_text()) for path in sorted(TRACKS.glob("*/*.json"))]


def effect(result: dict[str, Any]) -> str:
    """A difference and its interval."""
    if result["delta"] is None or result["low"] is None:
        return "a run diverged"
    return f"{result['delta']:+.3g} ({result['low']:+.3g} to {result['high']:+.3g})"


def matrix() -> list[str]:
    """Ideas x tracks: outcome by the corrected p, effect with interval, mechanism."""
    found = tables_of_tracks()
    if not found:
        return [NOT_RUN]
    labels = sorted({row["label"] for table in found for row in table["tracks"] if row["result"]})
    written = [f"| idea | {' | '.join(labels)} |", "|---" * (1 + len(labels)) + "|"]
    for table in found:
        cells = dict.fromkeys(labels, "-")
        for row in table["tracks"]:
            if row["result"]:
                result = row["result"]
                cells[row["label"]] = (
                    f"**{row['outcome']}** {effect(result)}, p {result['p_family']:.2g}; "
                    f"{result['mechanism']}"
                )
        written.append(f"| `{table['study']}` | {' | '.join(cells.values())} |")
    return written


def every_track() -> list[str]:
    """One row an idea and a track, also where there is no study, with the reason."""
    found = tables_of_tracks()
    if not found:
        return [NOT_RUN]
    lines = [
        "| idea | track | model, seeds | score | difference (95 %) | p | p of tracks | outcome "
        "| mechanism, ok | seconds |",
        "|---" * 10 + "|",
    ]
    others = []
    for table in found:
        for row in table["tracks"]:
            result = row["result"]
            if not result:
                others.append(f"* `{table['study']}` on `{row['label']}`: {row['reason']}")
                continue
            cells = [
                f"`{table['study']}`", row["label"], f"{result['model']}, {result['n']}",
                f"{result['metric']}, {result['direction']}", effect(result), f"{result['p']:.3g}",
                f"{result['p_family']:.3g}", row["outcome"],
                f"{result['mechanism']}, {result['mechanism_ok']}", f"{result['seconds']:.0f}",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    total = sum(table["seconds"] for table in found)
    lines += ["", f"All of it took {total / 60:.0f} minutes.  Not run:", "", *others]
    return lines


def on_tracks() -> list[str]:
    """The names of the studies in the joint tables."""
    rows = [row for table in tables_of_tracks() for row in table["tracks"]]
    return [row["result"]["study"] for row in rows if row["result"]]


def published(study: str) -> list[str]:
    """One row an arm: the published accuracy, and each report's mean with its t interval."""
    shuffled = study.endswith("_shuffled")
    found = [report["bench_report"] for report in reports(study.removesuffix("_shuffled"))]
    found = [bench for bench in found if bench["track_options"]["shuffled"] == shuffled]
    if not found:
        return [NOT_RUN]
    heads = [f"ours, {bench['n_seeds']} seeds (95 %)" for bench in found]
    written = [f"| `{study}`, % | published | {' | '.join(heads)} |"]
    written.append("|---" * (2 + len(found)) + "|")
    for arm, value in PUBLISHED[study].items():
        cells = []
        for bench in found:
            scores = [each for each in bench["arms"][arm]["full"]["per_seed"] if each is not None]
            low, high = t_interval(scores)
            cells.append(f"{statistics.fmean(scores):.1f} ({low:.1f} to {high:.1f})")
        written.append(f"| {arm} | {value} | {' | '.join(cells)} |")
    return written


def t_interval(scores: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean."""
    half = float(stats.t.ppf(0.975, len(scores) - 1)) * statistics.stdev(scores)
    half /= len(scores) ** 0.5
    mean = statistics.fmean(scores)
    return mean - half, mean + half


def with_tables(text: str) -> str:
    """A text with the table of each study that it marks a place for."""

    def table(match: re.Match[str]) -> str:
        begin, kind, study, end = match.groups()
        made = {"results": beside_reference, "published": published, "matrix": lambda _: matrix()}
        return "\n".join([begin, *made[kind](study), end])

    pattern = r"(<!-- (results|published|matrix): (\w+) -->)\n.*?(<!-- end -->)"
    return re.sub(pattern, table, text, flags=re.DOTALL)


def texts() -> dict[Path, str]:
    """The files with tables, as they are to be."""
    made = {page: with_tables(page.read_text()) for page in (README, PUBLISHED_PAGE)}
    return {**made, EVERY_COMPARISON: every_comparison()}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
