"""A count with its noun, for sentences and headings."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """Write `1 study` and `3 studies`; `many` is `one` with an s if it is not given."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
