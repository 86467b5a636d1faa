"""Everything that a reader needs is on the screen, at every width, and nothing is markup."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from jaxbench.reporting import terminal
from reporting.sample import sample_report


def shown(report: dict[str, Any], width: int = 100) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
    terminal.render(report, console)
    return stream.getvalue()


def test_the_verdict_comes_first_and_every_part_follows() -> None:
    text = shown(sample_report())
    lines = text.splitlines()
    assert lines[0] == "Does [bold]it[/bold] help?"
    assert lines[1] == "The idea is worse: the mean MSE rises by 0.002293 [sic]."
    headings = [
        "Tuning", "Test MSE (rad^2), lower is better", "Comparison", "All comparisons",
        "Reference scores", "Signature growth: confirmed", "Cost", "Limitations", "Again",
    ]  # fmt: skip
    places = [lines.index(heading) for heading in headings]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "expected",
    [
        r"idea +0\.01 +1 +0\.006128 +0\.1 +0 +chosen +high learning_rate",
        r"0 +0\.004058 +0\.005886 +\+0\.001828",
        r"mean +0\.003836 +0\.006128 +\+0\.002293",
        r"difference +\+0\.002293 \(\+59\.8 % of the baseline\)",
        r"idea wins +0 of 8 pairs",
        r"interval \(t\) +\+0\.000886\d to \+0\.003\d+ \(95 %\)",
        r"p \(exact sign flips of the mean difference\) +0\.007812",
        r"smallest attainable p +0\.007812",
        r"linear +0\.001 +1e-05",
        r"null \(no growth\) +no +0\.5",
        r"control untrained +untestable",
        r"Skill against the null: 0\.96",
        r"flops +1\.25e\+12 +1\.25e\+12",
        r"control +idea - baseline +\+0\.002293 +\+59\.8 +0/8 +0\.007812 +- +worse",
        r"jaxbench run stability_penalty --set 'title=a b'",
    ],
)
def test_the_numbers_are_there(expected: str) -> None:
    assert re.search(expected, shown(sample_report())), expected


def test_a_family_is_a_table_of_its_points_and_many_arms_are_summed_up() -> None:
    """Six arms of a sweep: one row a point with what its mechanism is, one row an arm tuned."""
    report = sample_report()
    bench = report["bench_report"]
    points = ["keep-32.rounds-1", "keep-16.rounds-3", "keep-6.rounds-5"]
    bench["arms"] = {f"{side}.{at}": bench[side] for side in ("baseline", "idea") for at in points}
    bench["comparisons"] = [
        {
            **bench["comparisons"][0],
            "idea_arm": f"idea.{at}",
            "baseline_arm": f"baseline.{at}",
            "role": role,
            "p_corrected": 3 * 0.0078125,
            "mechanism_signature": {"state": "refuted"},
        }
        for at, role in zip(points, ("secondary", "primary", "secondary"), strict=True)
    ]
    text = shown(report)
    assert "p of 3" in text
    numbers = r"\+0\.002293 +\+59\.8 +0/8 +0\.007812 +0\.02344 +worse"
    assert re.search(rf"primary +keep-16\.rounds-3 +{numbers} +confirmed", text)
    assert re.search(rf"secondary +keep-6\.rounds-5 +{numbers} +refuted", text)
    assert len(re.findall(r"\n(?:idea|baseline)\.keep-\S+ .* chosen", text)) == 6
    cost = text[text.index("\nCost") : text.index("\nLimitations")]
    assert "whole study" in cost
    assert "keep-32" not in cost


def test_tuning_is_sorted_and_what_parity_added_says_so() -> None:
    report = sample_report()
    bench = report["bench_report"]
    sweep = bench["arms"]["baseline"]["sweep"]
    added = {**sweep[0], "cfg": {"learning_rate": 0.003, "weight": 0.0}}
    bench["arms"]["baseline"]["sweep"] = [*sweep, added]
    bench["protocol"]["parity"]["added"] = {"baseline": [added["cfg"]]}
    text = shown(report)
    rows = re.findall(r"\nbaseline +(0\.\d+) +0 .*", text)
    assert rows == ["0.001", "0.003", "0.01"]
    assert re.search(r"\nbaseline +0\.003 .* 0 +added", text)
    assert "added: not asked for in the config" in text
    assert "added" not in shown(sample_report())


def test_an_interval_that_too_few_pairs_leave_open_says_so() -> None:
    report = sample_report()
    judged = report["bench_report"]["comparison"]
    judged["intervals"]["sign_flip"] |= {"low": None, "high": None}
    assert re.search(
        r"interval \(sign flips\) +too few pairs for a bounded one at 95 %", shown(report)
    )


def test_a_diverged_run_is_called_so() -> None:
    from jaxbench.judging import compare

    report = sample_report()
    bench = report["bench_report"]
    scores = [None, *bench["idea"]["full"]["per_seed"][1:]]
    bench["idea"]["full"].update(
        per_seed=scores, mean=None, std=None, diverged=[{"seed": 0, "step": 17}]
    )
    bench["idea"]["sweep"][0].update(mean=None, diverged=2)
    judged = compare(bench["baseline"]["full"]["per_seed"], scores, direction="lower")
    bench["comparison"] = judged.to_dict()
    text = shown(report)
    assert re.search(r"\n0 +0\.004058 +diverged +-", text)
    assert "of the signed ranks, diverged runs worst)" in text
    assert "Note: 0 of 8 baseline runs and 1 of 8 idea runs diverged" in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width: int) -> None:
    text = shown(sample_report(), width)
    commands = sample_report()["how_to_run"]
    assert max(len(line) for line in text.splitlines() if line != commands) <= width
    assert "…" not in text


def test_no_colour_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    stream = io.StringIO()
    console = terminal.console_for(stream)
    terminal.render(sample_report(), console)
    assert "\x1b" not in stream.getvalue()
    assert console.width == terminal.PLAIN_WIDTH


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_no_color_is_respected_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    red = "\x1b[31m"
    stream = Terminal()
    terminal.render(sample_report(), terminal.console_for(stream))
    assert red in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    terminal.render(sample_report(), terminal.console_for(stream))
    assert red not in stream.getvalue()


@settings(deadline=None)
@given(st.floats(-1e300, 1e300))
def test_a_number_keeps_four_digits(value: float) -> None:
    written = float(terminal.number(value))
    assert math.isclose(written, value, rel_tol=5.1e-4, abs_tol=0.0)
    assert terminal.number(value, signed=True)[0] in "+-"


def test_numbers_that_are_none() -> None:
    assert [terminal.number(value) for value in (None, True, False, 3, 10**7)] == [
        "-", "yes", "no", "3", "1e+07",
    ]  # fmt: skip
    assert terminal.number(None, missing="diverged") == "diverged"
