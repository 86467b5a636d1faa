"""Output of commands: a report for people or strict JSON, on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class Result(Protocol):
    """What a command found."""

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""


ResultType = TypeVar("ResultType", bound=Result)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on stdout, not tables."
)


def show(result: ResultType, render: Callable[[ResultType, Console], None], as_json: bool) -> None:
    """Print a result on stdout."""
    if as_json:
        from jaxbench.reporting import strict_json

        click.echo(strict_json.dumps(result.to_dict()), nl=False)
    else:
        from jaxbench.reporting import terminal

        render(result, terminal.console_for(sys.stdout))


cache_option = click.option(
    "--cache",
    metavar="FOLDER",
    envvar="JAXBENCH_CACHE",
    help="Where compiled programs are kept for the next time, or 'off'.  [default: the user's "
    "cache folder]",
)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Send to stderr whatever training prints, in Python or below, so that stdout stays clean."""
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
