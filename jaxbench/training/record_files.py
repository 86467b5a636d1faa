"""Records on disk: named arrays and what is said of them, there as a whole or not at all.

One process writes a record as an orbax checkpoint, which is a folder.  Several write `.npz` files,
each its own: `orbax.checkpoint.v1.save` makes every process of `jax.distributed` take part in every
checkpoint, and orbax's older interface writes arrays of process 0 only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SUFFIX = ".npz"
SAID = "said"


def save_orbax(path: Path, arrays: Mapping[str, np.ndarray], said: Mapping[str, Any]) -> None:
    """Write a record as an orbax checkpoint."""
    from orbax.checkpoint import v1 as ocp

    ocp.save(path, dict(arrays), custom_metadata=dict(said), overwrite=True)


def save_numpy(path: Path, arrays: Mapping[str, np.ndarray], said: Mapping[str, Any]) -> None:
    """Write a record as one file, first beside its place."""
    types = {name: str(array.dtype) for name, array in arrays.items()}
    words = np.frombuffer(json.dumps({**said, "types": types}).encode(), np.uint8)
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("wb") as file:
        named: dict[str, Any] = {f"of {name}": array for name, array in arrays.items()}
        np.savez(file, **named | {SAID: words})
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def is_record(path: Path) -> bool:
    """Whether a path may be a record, finished or not."""
    return path.is_dir() or path.suffix == SUFFIX


def read_said(path: Path) -> dict[str, Any]:
    """Read what is said of a record's arrays; whatever is raised, it is none."""
    if path.is_dir():
        from orbax.checkpoint import v1 as ocp

        found = ocp.metadata(path).custom_metadata
    else:
        with path.open("rb") as raw, np.load(raw) as file:
            found = json.loads(file[SAID].tobytes())
    return dict(found)


def read_arrays(path: Path) -> Mapping[str, np.ndarray]:
    """Read a record's arrays; whatever is raised, they cannot be read."""
    if path.is_dir():
        from orbax.checkpoint import v1 as ocp

        return ocp.load(path)
    with path.open("rb") as raw, np.load(raw) as file:
        types = json.loads(file[SAID].tobytes())["types"]
        # numpy writes types that it does not know, as bfloat16, as bytes
        return {name: file[f"of {name}"].view(np.dtype(types[name])) for name in types}
