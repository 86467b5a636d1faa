"""Progress tells the truth, and never on stdout."""

from __future__ import annotations

import io
import re
from typing import TextIO

import pytest

from jaxbench import base
from jaxbench.reporting import progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def drive(reporter: base.Progress) -> None:
    with reporter:
        reporter.stage("compiling train [chunk]")
        reporter.start(10, "5 runs")
        for _ in range(10):
            reporter.advance(1)
        reporter.stage("compiling measure")
        reporter.start(2, "1 run")


def test_lines_are_one_a_stage_and_one_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = progress.Lines(stream, clock)
    lines.start(40, "training 8 runs")
    lines.stage("compiling train")
    clock.now += 100.0
    for _ in range(40):
        clock.now += 1.0
        lines.advance(1)
    lines.stage("judging")
    written = stream.getvalue().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d \S", line) for line in written)
    said = [line[9:] for line in written]
    assert said[:3] == [
        "training 8 runs: 40 to do", "compiling train", "training 8 runs: 1/40 (2%)",
    ]  # fmt: skip
    assert said[3] == "training 8 runs: 6/40 (15%), about 34 s left"
    assert said[-2:] == ["training 8 runs: 40/40 (100%), done", "judging"]
    assert len(said) == 3 + 7 + 2


def test_the_time_left_is_the_time_left_at_an_even_pace() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = progress.Lines(stream, clock)
    lines.start(1000, "training")
    for _ in range(999):
        clock.now += 0.5
        lines.advance(1)
    for line in stream.getvalue().splitlines()[2:]:
        done, left = map(int, re.findall(r": (\d+)/1000 .* about (\d+) s left", line)[0])
        assert abs(left - (1000 - done) * 0.5) <= 0.5


def test_fast_work_is_one_line() -> None:
    stream = io.StringIO()
    lines = progress.Lines(stream, Clock())
    lines.start(1000, "8 runs")
    for _ in range(1000):
        lines.advance(1)
    assert len(stream.getvalue().splitlines()) == 2


def test_a_closed_stream_stops_nothing() -> None:
    stream = io.StringIO()
    lines = progress.Lines(stream)
    stream.close()
    lines.stage("compiling")
    lines.stage("judging")


@pytest.mark.parametrize(
    ("stream", "quiet", "term", "kind"),
    [
        (Terminal(), False, "xterm", progress.Bar),
        (Terminal(), False, "dumb", progress.Lines),
        (io.StringIO(), False, "xterm", progress.Lines),
        (Terminal(), True, "xterm", base.Progress),
    ],
)
def test_the_stream_chooses(
    monkeypatch: pytest.MonkeyPatch, stream: TextIO, quiet: bool, term: str, kind: type
) -> None:
    monkeypatch.setenv("TERM", term)
    with progress.make(quiet, stream) as chosen:
        assert type(chosen) is kind


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO(), None])
def test_nothing_goes_to_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stream: TextIO | None
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    drive(progress.make(quiet=False, stream=stream))
    assert capsys.readouterr().out == ""


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    drive(progress.make(quiet=True))
    assert capsys.readouterr() == ("", "")


def test_the_bar_names_its_stage_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = progress.Bar(stream)
    try:
        bar.stage("compiling train [chunk]")
        bar.start(10, "5 runs")
        bar.advance(4)
        bar.bar.refresh()
        assert "compiling train [chunk]" in stream.getvalue()
        assert "5 runs" in stream.getvalue()
        assert "4/10" in stream.getvalue()
    finally:
        bar.close()


def test_a_bar_goes_away_when_the_study_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), progress.Bar(stream):
        raise ZeroDivisionError
    shows_the_cursor = "\x1b[?25h"
    assert shows_the_cursor in stream.getvalue()


def test_a_budget_passes_on_and_gives_up_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    chosen = progress.make(stream=stream, max_seconds=10)
    chosen.stage("compiling")
    now[0] = 109.9
    chosen.start(4, "training 2 runs")
    chosen.advance(1)
    now[0] = 110.1
    for late in (
        lambda: chosen.advance(1), lambda: chosen.stage("more"), lambda: chosen.start(1, "x"),
    ):  # fmt: skip
        with pytest.raises(progress.OutOfTimeError, match="not done after 10 s") as caught:
            late()
        assert caught.value.exit_code == 3
    chosen.close()
    assert "compiling" in stream.getvalue()
    assert "training 2 runs: 4 to do" in stream.getvalue()
