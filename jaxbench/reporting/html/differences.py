"""The paired difference: each seed, the mean with its intervals, the margin, what is detectable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxbench.counted import counted
from jaxbench.reporting.html.drawing import (
    IDEA,
    INK,
    MUTED,
    SHADE,
    Drawing,
    Table,
    canvas,
    few_ticks,
    label,
    quantity_label,
)
from jaxbench.reporting.html.quantities import (
    MISSING,
    interval,
    level,
    number,
    percent,
    signed,
    with_unit,
)

METHODS = {
    "t": "Student's t",
    "sign_flip": "sign flips",
    "bca": "bootstrap (BCa)",
    "equivalence": "t, for equivalence",
}


def draw(bench: Mapping[str, Any]) -> Drawing | None:
    """Draw the primary comparison's differences; None where too many runs diverged for a mean."""
    judged, metric = bench["comparison"], bench["metric"]
    delta = judged["delta_mean"]
    known = [each for each in judged["per_seed_diffs"] if each is not None]
    intervals = judged.get("intervals") or {}
    if delta is None or not known:
        return None
    margin, detectable = judged.get("margin"), judged.get("mde_80")
    figure, axes = canvas(4.4, 3.4)
    rows = ["each seed"]
    if margin:
        axes.axvspan(-margin, margin, color=SHADE, zorder=0, linewidth=0)
    axes.axvline(0.0, color=INK, linewidth=0.8, zorder=1)
    axes.plot(known, [0.0] * len(known), "o", color=MUTED, markersize=4, alpha=0.7, zorder=2)
    for name in ("t", "sign_flip"):
        ends = intervals.get(name)
        if ends:
            _bar(axes, len(rows), delta, ends, IDEA if name == "t" else MUTED)
            rows.append(f"mean, {level(ends)} by {METHODS[name]}")
    if detectable is not None:
        ends = {"low": -detectable, "high": detectable}
        _bar(axes, len(rows), None, ends, MUTED)
        rows.append("detectable, 80\u202f% power")
    axes.set_yticks(range(len(rows)), [label(row) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    few_ticks(axes)
    axes.spines["left"].set_visible(False)
    towards = "\u2190 idea better" if metric["direction"] == "lower" else "idea better \u2192"
    subtracted = quantity_label("idea \u2212 baseline", metric["unit"])
    axes.set_xlabel(f"{subtracted}\n{towards}")
    return Drawing(
        name="difference",
        title="Difference, idea minus baseline",
        caption=(
            f"Dots are seeds. Bars are the mean difference with its intervals. The shaded band is "
            f"the equivalence margin, {with_unit(number(margin), metric['unit'])} either way: "
            f"differences inside it do not matter. The last bar is the difference that this many "
            f"seeds would find with a chance of 80\u202f%."
        ),
        alternative=(
            f"Mean difference {signed(delta)}, {level(intervals.get('t'))} interval "
            f"{interval(intervals.get('t'))}; equivalence margin plus or minus {number(margin)}; "
            f"detectable with 80 % power {number(detectable)}."
        ),
        figure=figure,
        table=table(bench),
    )


def _bar(axes: Any, row: int, middle: float | None, ends: Mapping[str, Any], colour: str) -> None:
    """Draw an interval; an end that is unbounded reaches the axis's end, with an arrow."""
    low, high = ends["low"], ends["high"]
    left, right = axes.get_xlim()
    for end, bound, marker in ((low, left, "<"), (high, right, ">")):
        at = bound if end is None else end
        axes.plot(at, row, marker=marker if end is None else "|", color=colour, markersize=7)
    axes.plot(
        [left if low is None else low, right if high is None else high], [row, row],
        color=colour, linewidth=2.0, solid_capstyle="butt",
    )  # fmt: skip
    if middle is not None:
        axes.plot(middle, row, "D", color=colour, markersize=5.5)


def table(bench: Mapping[str, Any]) -> Table:
    """Give what the primary comparison says, number by number."""
    return Table(
        "The primary comparison, number by number",
        ("quantity", "value"),
        rows_of(bench["comparison"], bench["metric"]["unit"], bench["metric"]["direction"]),
    )


def rows_of(judged: Mapping[str, Any], unit: str, direction: str) -> list[list[str]]:
    """List a comparison's numbers under their names, those that it has."""
    effects, tost = judged.get("effects") or {}, judged.get("tost") or {}
    spread, rope = judged.get("spread") or {}, judged.get("rope") or {}
    steps = judged.get("sequential")
    kind = "exact" if judged.get("p_value_exact", True) else "Monte Carlo"
    fixed = "; not valid where seeds were added on demand" if steps else ""
    relative = effects.get("relative_change")
    lower, higher = rope.get("below"), rope.get("above")
    rows: list[tuple[str, str | None]] = [
        ("outcome", judged.get("outcome")),
        ("mean difference", with_unit(signed(judged["delta_mean"]), unit)),
        ("relative to the baseline", percent(relative)),
        ("pairs that the idea wins", f"{judged['idea_wins']} of {judged['n_pairs']}"),
        ("ties", number(judged.get("ties"))),
        *(
            (f"{level(ends)} interval, {METHODS.get(name, name)}", interval(ends))
            for name, ends in (judged.get("intervals") or {}).items()
            if ends
        ),
        ("p, anytime-valid; makes the verdict", steps and number(steps["p_values"][-1])),
        (f"p, {kind}, {judged.get('test', 'sign flips')}{fixed}", number(judged["p_value"])),
        (
            f"p, corrected for {counted(judged.get('family_size', 1), 'comparison')} (Holm)",
            number(judged.get("p_corrected")),
        ),
        ("smallest attainable p", number(judged.get("attainable_p"))),
        ("level alpha", number(judged.get("alpha"))),
        ("equivalence margin", with_unit(number(judged.get("margin")), unit)),
        ("p of equivalence (two one-sided tests)", number(tost.get("p_value"))),
        ("posterior: idea better by more than the margin",
         number(lower if direction == "lower" else higher)),
        ("posterior: within the margin", number(rope.get("inside"))),
        ("posterior: idea worse by more than the margin",
         number(higher if direction == "lower" else lower)),
        ("detectable difference (half-width of the interval)",
         with_unit(number(judged.get("mde")), unit)),
        ("detectable difference (80 % power)", with_unit(number(judged.get("mde_80")), unit)),
        ("seeds for 80 % power at the difference seen", number(judged.get("seeds_for_80_power"))),
        ("paired standard deviation", with_unit(number(spread.get("paired_sd")), unit)),
        ("unpaired standard deviation", with_unit(number(spread.get("unpaired_sd")), unit)),
        ("correlation of the arms over seeds", number(spread.get("correlation"))),
        ("standardised paired difference (d)", number(effects.get("paired_d"))),
        ("log ratio of the means", number(effects.get("log_ratio"), signed=True)),
        ("probability of improvement", number(effects.get("probability_of_improvement"))),
        ("label of the reference reports", judged.get("verdict")),
    ]  # fmt: skip
    return [[name, value] for name, value in rows if value and value != MISSING]
