"""Processes that tests start and interrupt."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence


@contextlib.contextmanager
def interruptible(
    command: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a command that heeds Ctrl-C even where its parent ignores it, as background jobs do.

    A signal that is ignored stays ignored in a new program; one that has a handler is reset.  So
    this process has a handler while it starts the other.  (`preexec_fn` would fork, of which jax
    warns.)  The command is killed at the end, whatever happened, so that a test that fails does
    not wait for it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
