"""Progress on stderr: a bar on a terminal, plain lines elsewhere, or nothing; never on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from jaxbench.base import JaxbenchError, Progress

SECONDS_BETWEEN_LINES = 5.0


class Lines(Progress):
    """One line a stage, and one every few seconds of work, each with its time.

    The time left is from the pace since the last stage, so that compiling does not count as work.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self.clock = clock
        self.label = ""
        self.total = self.done = 0
        self.last = clock()
        self.paced: tuple[float, int] | None = None

    def stage(self, name: str) -> None:
        """Write the stage's name."""
        self.paced = None
        self.write(name)

    def start(self, total: int, label: str) -> None:
        """Write what begins."""
        self.label, self.total, self.done = label, total, 0
        self.last = self.clock()
        self.paced = None
        self.write(f"{label}: {total} to do")

    def advance(self, count: int) -> None:
        """Write how far it is, unless a line was written a moment ago."""
        self.done += count
        now = self.clock()
        self.paced = self.paced or (now, self.done)
        finished = self.done >= self.total
        if finished or now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            share = self.done / max(self.total, 1)
            left = ", done" if finished else self.time_left(now)
            self.write(f"{self.label}: {self.done}/{self.total} ({share:.0%}){left}")

    def time_left(self, now: float) -> str:
        """Say how long the rest takes at the pace so far, once there is one."""
        assert self.paced is not None
        since, already = self.paced
        if self.done <= already:
            return ""
        seconds = (now - since) / (self.done - already) * (self.total - self.done)
        return f", about {seconds:.0f} s left"

    def write(self, text: str) -> None:
        """Write a line with the time of day; a stream that is closed stops nothing."""
        with contextlib.suppress(OSError, ValueError):
            print(f"{time.strftime('%H:%M:%S')} {text}", file=self.stream, flush=True)


class Bar(Progress):
    """A bar with the stage, what is done of what there is to do, and the time left."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream, markup=False, highlight=False),
            transient=True,
            redirect_stdout=False,
        )
        self.label = ""
        self.task = self.bar.add_task("starting", total=None)
        self.bar.start()

    def stage(self, name: str) -> None:
        """Name the stage beside the bar."""
        self.bar.update(self.task, description=name, refresh=True)

    def start(self, total: int, label: str) -> None:
        """Begin a bar."""
        self.label = label
        self.bar.reset(self.task, total=total, description=label)

    def advance(self, count: int) -> None:
        """Move the bar."""
        self.bar.update(self.task, advance=count, description=self.label)

    def close(self) -> None:
        """Take the bar away."""
        self.bar.stop()


class OutOfTimeError(JaxbenchError):
    """A study took longer than it was given."""

    exit_code = 3


class Budget(Progress):
    """Tells another how far a study is, and gives up once its time is over.

    It looks between stages and epochs, so that one compilation or one epoch may still end.

    Args:
        inner: whom to tell.
        seconds: what the study may take, above 0.
    """

    def __init__(self, inner: Progress, seconds: float) -> None:
        self.inner = inner
        self.seconds = seconds
        self.ends = time.monotonic() + seconds

    def check(self) -> None:
        """Give up if the time is over.

        Raises:
            OutOfTimeError: it is.
        """
        if time.monotonic() > self.ends:
            raise OutOfTimeError(
                f"out of time: the study is not done after {self.seconds:g} s, so that nothing "
                f"was judged; give it more (--max-seconds; --resume goes on from checkpoints, if "
                f"--checkpoint-every wrote some), or less to do (--quick, --seeds)"
            )

    def stage(self, name: str) -> None:
        """Pass on, in time."""
        self.check()
        self.inner.stage(name)

    def start(self, total: int, label: str) -> None:
        """Pass on, in time."""
        self.check()
        self.inner.start(total, label)

    def advance(self, count: int) -> None:
        """Pass on, in time."""
        self.inner.advance(count)
        self.check()

    def close(self) -> None:
        """Pass on."""
        self.inner.close()


def make(
    quiet: bool = False, stream: TextIO | None = None, *, max_seconds: float | None = None
) -> Progress:
    """Choose the progress that suits the stream, stderr by default; bounded by `max_seconds`."""
    stream = sys.stderr if stream is None else stream
    chosen: Progress = Lines(stream)
    if quiet:
        chosen = Progress()
    elif stream.isatty() and os.environ.get("TERM") != "dumb":
        chosen = Bar(stream)
    return chosen if max_seconds is None else Budget(chosen, max_seconds)
