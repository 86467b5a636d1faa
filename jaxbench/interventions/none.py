"""`none`: plain training, for baselines that change nothing."""

from __future__ import annotations

from jaxbench.base import Intervention


def build() -> Intervention:
    """An intervention whose every hook does nothing."""
    return Intervention(name="none", summary="plain training")
