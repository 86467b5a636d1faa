"""Interventions: one file an idea, its pure functions first."""

from __future__ import annotations

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import a file of this folder when it is first named."""
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"jaxbench.interventions.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"jaxbench.interventions.{name}":
                raise
    raise AttributeError(f"module 'jaxbench.interventions' has no attribute {name!r}")
