"""Counts and lists as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, many: str | None = None) -> str:
    """Write `1 study` and `3 studies`; `many` is `one` with an s if it is not given."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def listed(names: Sequence[str]) -> str:
    """Write `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
