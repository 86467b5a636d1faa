"""The nearest of several names, for messages about a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest of `names`, or nothing where none is near."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.55)
    return f"; did you mean {close[0]}?" if close else ""
