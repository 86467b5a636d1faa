"""A folder of checkpoints: what study it is of, and whether that is the one at hand.

It imports neither jax nor orbax, so that a finished study is recognised at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxbench.base import JaxbenchError

FOLDER = "checkpoints"
ABOUT = "study.json"


class CheckpointError(JaxbenchError):
    """Checkpoints that cannot be continued from; its text says why, and what to do."""


def read_about(folder: Path) -> dict[str, Any] | None:
    """Read what the checkpoints in a folder are of; None where there are none."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) else None


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write it, as one step."""
    unfinished = folder / f".{ABOUT}-{os.getpid()}"
    unfinished.write_text(json.dumps(about, indent=1, allow_nan=False), encoding="utf-8")
    os.replace(unfinished, folder / ABOUT)


def check_about(folder: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse checkpoints of another study, version or device.

    Raises:
        CheckpointError: naming what differs.
    """
    differences = differing(found, expected)
    if differences:
        raise CheckpointError(
            f"the checkpoints in {folder} do not fit this study: {'; '.join(differences)}. "
            f"Resume with what they were made with, or start anew with --force"
        )


def differing(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Name each value that is another in the checkpoints than in this study."""
    then, now = flat(found), flat(expected)
    names = [name for name in (*now, *(set(then) - set(now))) if name not in ("every", "resumed")]
    return [
        f"{name} is {then.get(name, 'missing')} there and {now.get(name, 'missing')} here"
        for name in names
        if then.get(name) != now.get(name)
    ]


def flat(values: Any, name: str = "") -> dict[str, Any]:
    """Spell out nested tables as dotted names."""
    if not isinstance(values, Mapping):
        return {name: values}
    return {
        key: each
        for part, inner in values.items()
        for key, each in flat(inner, f"{name}.{part}" if name else str(part)).items()
    }


def remove_folder(folder: Path) -> None:
    """Remove a folder of checkpoints: first its name, at once, then what is in it."""
    unfinished = folder.with_name(f".{folder.name}-{os.getpid()}")
    with contextlib.suppress(OSError):
        os.rename(folder, unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)
