"""Provenance: what a report was made with."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxbench.config import shipped_folder

if TYPE_CHECKING:
    from jaxbench.plan import Plan

PACKAGES = ("jaxbench", "jax", "jaxlib", "flax", "optax", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Give the versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def precision() -> str:
    """Name the type of numbers that programs compute in, such as `float32`."""
    return str(np.dtype(jax.dtypes.canonicalize_dtype(float)))


def devices_in_words(devices: tuple[jax.Device, ...]) -> str:
    """Describe devices, such as `2 x cpu`."""
    kinds = sorted({device.device_kind for device in devices})
    return f"{len(devices)} x {', '.join(kinds)}"


def provenance(devices: tuple[jax.Device, ...]) -> dict[str, Any]:
    """Describe versions, devices, precision and XLA's flags."""
    return {
        "versions": versions(),
        "platform": platform.platform(),
        "devices": devices_in_words(devices),
        "precision": precision(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def origin(plan: Plan) -> dict[str, Any]:
    """Give the digests of every arm's source files, and the git state of the user's folder.

    The digests of the data stand under a report's `pairing`, the config as run under its `config`.
    """
    return {
        "sources": {
            arm: {kind: source.digest for kind, source in planned.recipe.sources.items()}
            for arm, planned in plan.arms.items()
        },
        "git": git_state(plan.config.base_folder),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Say at which commit a folder is and whether it was changed since; None where git has none.

    Of a config that comes with jaxbench, it is the state of the working directory.
    """
    if folder.resolve() == shipped_folder().resolve():
        folder = Path.cwd()

    def git(*words: str) -> str:
        line = ["git", "-C", str(folder), *words]
        done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=normal")
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None


def tree_digest(tree: Any) -> str:
    """Compute the SHA-256 (hexadecimal) of the shapes, dtypes and bytes of a tree of arrays."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        head = f"{jax.tree_util.keystr(path)}{array.shape}{array.dtype}"
        digest.update(head.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
