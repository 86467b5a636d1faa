"""Optional packages that bring data: imported when a track is built, with words where one is not.

Warnings of their import are theirs: they are not the user's business, nor the tests'.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from jaxbench.base import JaxbenchError


def load(module: str, package: str, track: str) -> Any:
    """Import a module of an optional package.

    Raises:
        JaxbenchError: it is not installed, with the command that installs it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise JaxbenchError(
            f"the track {track!r} needs the package {package}, which is not installed "
            f"({error}): pip install 'jaxbench[data]'"
        ) from error
