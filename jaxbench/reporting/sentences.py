"""Sentences of a report, made of its numbers so that they cannot contradict them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxbench.counted import counted

if TYPE_CHECKING:
    from jaxbench.judging import Comparison

Bench = Mapping[str, Any]

OUTCOMES = {
    "better": "the idea is better than the {baseline}",
    "worse": "the idea is worse than the {baseline}",
    "equivalent": "the idea and the {baseline} are equivalent within the margin",
    "inconclusive": "the data do not decide between the idea and the {baseline}",
}
TUNED = "tuned baseline"
SETTING = "protocol.margin"
FEW_PAIRS = 6
"""Fewer pairs can show nothing but equivalence: their exact p-value is never below 0.05."""


def number(value: float | None) -> str:
    """Write a number with four significant digits; a diverged one in words."""
    return "diverged" if value is None else f"{value:.4g}"


def verdict(bench: Bench, primary: Comparison) -> str:
    """Say in a few sentences what came out."""
    place = f"On {bench['track']} with {bench['model']} over {primary.n_pairs} paired seeds"
    quick = "A quick run only shows that the study works; its verdict means nothing. "
    return (
        f"{quick if bench.get('quick') else ''}{place} "
        f"{finding(primary, bench['metric']['name'])}. {signature(bench)}"
    )


def outcome(judged: Mapping[str, Any], baseline: str = TUNED, setting: str = SETTING) -> str:
    """Say which of the four outcomes a comparison has, and by which margin if one decides it.

    Args:
        judged: a comparison's fields, as its `to_dict` gives them.
        baseline: what to call the baseline; nobody knows whether scores from files were tuned.
        setting: where to set another margin; not said if empty.
    """
    said = OUTCOMES[judged["outcome"]].format(baseline=baseline)
    if judged["outcome"] == "equivalent":
        few = judged["n_pairs"] < FEW_PAIRS
        rests = f", which rests on only {counted(judged['n_pairs'], 'pair')}" if few else ""
        return f"{said}{margin(judged, setting)}{rests}"
    if judged.get("negligible"):
        said += f", by a difference too small to matter{margin(judged, setting, 'margin ')}"
    return said


def margin(judged: Mapping[str, Any], setting: str, named: str = "") -> str:
    """Name a comparison's margin in brackets, in the metric's unit and in percent."""
    width, level = judged.get("margin"), (judged.get("baseline") or {}).get("mean")
    if width is None:
        return ""
    share = f", {100 * width / abs(level):.3g} % of the baseline's mean" if level else ""
    return f" ({named}{number(width)}{share}{f'; {setting} sets another' if setting else ''})"


def mean_of(metric: str) -> str:
    """Name the mean of a metric, which may be a mean by its own name."""
    return metric if metric.startswith("mean ") else f"mean {metric}"


def finding(
    comparison: Comparison, metric: str, baseline: str = TUNED, setting: str = SETTING
) -> str:
    """Say what a comparison found, with its numbers, to follow where it was made.

    Args:
        comparison: the comparison.
        metric: the name of what is compared.
        baseline: what to call the baseline.
        setting: where to set another margin.
    """
    kind = "exact p" if comparison.p_value_exact else "p"
    p_value = f"{kind} = {comparison.p_value:.4g}"
    steps = comparison.sequential
    if steps is not None:
        p_value = (
            f"anytime-valid p = {steps.p_anytime:.4g}, which makes the verdict; the {p_value} of a "
            f"fixed number of seeds is not valid here"
        )
    if not comparison.acted:
        hint = "; look for a hook that is not handed over, or a strength of 0"
        return (
            f"the idea did not act: every difference is exactly 0 ({p_value})"
            f"{hint if baseline == TUNED else ''}"
        )
    if comparison.delta_mean is None or comparison.intervals is None:
        lost = f"{comparison.baseline.diverged} baseline and {comparison.idea.diverged} idea runs"
        numbers = f"{lost} diverged, so ranks decide; {p_value}"
    else:
        interval = comparison.intervals.t
        level = round(100 * (1 - comparison.alpha))
        numbers = (
            f"{mean_of(metric)} {number(comparison.idea.mean)} against "
            f"{number(comparison.baseline.mean)}, difference {comparison.delta_mean:+.4g} "
            f"({level} % interval {interval.low:+.4g} to {interval.high:+.4g}), "
            f"{comparison.idea_wins}/{comparison.n_pairs} wins, {p_value}"
        )
    if comparison.family_size > 1:
        corrected = f"{comparison.p_corrected:.4g}"
        numbers += f", corrected for {comparison.family_size} comparisons {corrected}"
    return f"{outcome(comparison.to_dict(), baseline, setting)}: {numbers}"


def sequence(used: Mapping[str, Any], primary: Comparison) -> str:
    """Say how seeds were added, when that stopped, and which numbers are not valid for it."""
    steps = primary.sequential
    assert steps is not None
    seeds = ", ".join(map(str, used["looks"]))
    if used["stopped_because"] == "decided":
        end = f"it stopped at {used['stopped_at']} because it was decided"
    else:
        end = f"it stopped undecided at the {used['max_seeds']} seeds fixed as the most"
    return (
        f"Seeds were added until a sequential test decides (looks at {seeds} seeds): {end}, with "
        f"an anytime-valid p of {steps.p_anytime:.4g}. That test makes the verdict: "
        f"{steps.not_valid}."
    )


def looks(ledger: Mapping[str, Any], track: str, alpha: float) -> list[str]:
    """Say how often each baseline was compared with before, and what p is worth after that."""
    said = []
    for each in ledger["comparisons"]:
        before = each["looks"] - each["looks_of_this_study"]
        if before > 0:
            lost = each["p"] <= alpha < each["p_corrected"]
            by = f" by {each['endpoint']}" if each.get("endpoint") else ""
            said.append(
                f"{each['baseline_arm']} on {track} was compared with {before} "
                f"time{'s' if before > 1 else ''} before, by the ledger of the results folder: "
                f"corrected for all {each['looks']} looks, p of {each['idea_arm']}{by} is "
                f"{each['p_corrected']:.4g}"
                f"{f', which is no longer significant at {alpha:g}' if lost else ''}."
            )
    return said


def signature(bench: Bench) -> str:
    """Say what became of the idea's explanation."""
    mechanism = bench["mechanism_signature"]
    if not mechanism["signatures"]:
        return "The idea states no mechanism signature."
    parts = []
    for each in mechanism["signatures"]:
        reported = "holds" if each["confirmed_legacy"] else "fails"
        state = each["state"] or f"{reported} by the reports' rule, which decides nothing"
        parts.append(f"{each['name']} {state}")
    return f"Its mechanism signature is {mechanism['state']}: {', '.join(parts)}."


def metrics(bench: Bench) -> dict[str, Any]:
    """Sum up both arms and the signature, one entry each."""
    told = [endpoint(each) for each in bench["comparisons"] if each.get("endpoint")]
    return {
        "baseline": arm(bench, "baseline"),
        "idea": arm(bench, "idea"),
        "mechanism_signature": signature(bench),
        **({"endpoints": told} if told else {}),
    }


def endpoint(compared: Mapping[str, Any]) -> str:
    """Say what a comparison by an endpoint found."""
    arms = f"{compared['idea_arm']} against {compared['baseline_arm']}"
    means = " against ".join(number(compared[side]["mean"]) for side in ("idea", "baseline"))
    return (
        f"{compared['endpoint']}, {arms}: {compared['outcome']}, {means}, better in "
        f"{compared['idea_wins']} of {compared['n_pairs']} pairs, p of {compared['p_value']:.4g}, "
        f"corrected for {compared['family_size']} comparisons {compared['p_corrected']:.4g}"
    )


def arm(bench: Bench, side: str) -> str:
    """Say what an arm chose and how it scored."""
    result = bench[side]
    chosen = ", ".join(f"{name}={value:g}" for name, value in result["best_cfg"].items())
    edges = [f"{name} at the {edge} edge" for name, edge in result["edge_of_grid"].items() if edge]
    warning = f" ({', '.join(edges)} of its grid)" if edges else ""
    full = result["full"]
    scored = f"{bench['metric']['name']} {number(full['mean'])}, std {number(full['std'])}"
    return (
        f"{result['intervention']}, best configuration {chosen}{warning}: test {scored}, "
        f"n={full['n']}"
    )


def limitations(bench: Bench, own: Sequence[str]) -> str:
    """Say what the study did not vary, what weakens it, and what the idea says of itself."""
    config = bench["config"]
    several = len(bench["comparisons"]) > 1
    varied = "only what its arms differ in was varied" if several else "nothing else was varied"
    models = [(arm.get("model") or config["model"])["name"] for arm in config["arms"].values()]
    named = list(dict.fromkeys(models))
    trained = f"one model ({named[0]})" if len(named) == 1 else f"models {', '.join(named)}"
    parts = [
        f"One track ({bench['track']}), {trained}, "
        f"{counted(config['training']['epochs'], 'epoch')} of Adam with batches of "
        f"{config['training']['batch_size']}; {varied}.",
    ]
    if own_epochs := {
        name: arm["epochs"] for name, arm in config["arms"].items() if arm.get("epochs")
    }:
        listed = ", ".join(f"{name} {count}" for name, count in own_epochs.items())
        parts.append(f"Some arms train for other numbers of epochs in all: {listed}.")
    if config["protocol"]["rules"] == "v1":
        parts.append(bench["protocol"]["asymmetry"])
    for side in ("baseline", "idea"):
        for name, edge in bench[side]["edge_of_grid"].items():
            if edge:
                parts.append(
                    f"The best {name} of the {side} lies at the {edge} edge of its grid, so the "
                    f"grid does not bracket its optimum."
                )
    if bench["protocol"]["sequential"]:
        parts.append(bench["protocol"]["sequential"]["statement"])
    parts += bench["warnings"]
    parts += bench["comparison"]["warnings"]
    linear = bench["references"].get("linear")
    if linear and bench["baseline"]["full_mean"] is not None:
        better = 1 if bench["metric"]["direction"] == "higher" else -1
        if better * (bench["baseline"]["full_mean"] - linear["mean"]) <= 0:
            parts.append(
                f"The baseline ({number(bench['baseline']['full_mean'])}) is no better than the "
                f"linear reference ({number(linear['mean'])})."
            )
    if not bench["protocol"]["parity"]["equal"]:
        parts.append(bench["protocol"]["parity"]["statement"])
    return " ".join([*parts, *map(sentence, own)])


def sentence(text: str) -> str:
    """Write a remark as a sentence: with a capital at its beginning and a stop at its end."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"
