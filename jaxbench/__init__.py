"""Paired, tuned and judged comparisons of machine-learning ideas.

The names in `__all__` are the stable ones.  Each is loaded on first use, so that `import jaxbench`
costs nothing and imports no jax: jax is started when a study runs, with the options that suit the
machine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULE_OF = {
    "Config": "jaxbench.config",
    "Intervention": "jaxbench.base",
    "JaxbenchError": "jaxbench.base",
    "Model": "jaxbench.base",
    "Report": "jaxbench.reporting.document",
    "Track": "jaxbench.base",
    "compare": "jaxbench.judging",
    "load_config": "jaxbench.api",
    "run_study": "jaxbench.api",
    "run_tracks": "jaxbench.api",
}
_PACKAGES = ("interventions", "judging", "models", "tracks")

__all__ = [
    "Config",
    "Intervention",
    "JaxbenchError",
    "Model",
    "Report",
    "Track",
    "__version__",
    "compare",
    "interventions",
    "judging",
    "load_config",
    "models",
    "run_study",
    "run_tracks",
    "tracks",
]

if TYPE_CHECKING:
    from jaxbench import interventions, judging, models, tracks
    from jaxbench.api import load_config, run_study, run_tracks
    from jaxbench.base import Intervention, JaxbenchError, Model, Track
    from jaxbench.config import Config
    from jaxbench.judging import compare
    from jaxbench.reporting.document import Report


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"jaxbench.{name}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'jaxbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
