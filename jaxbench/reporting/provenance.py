"""Provenance: what a report was made with."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np

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
        "precision": str(np.dtype(jax.dtypes.canonicalize_dtype(float))),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def tree_digest(tree: Any) -> str:
    """Compute the SHA-256 (hexadecimal) of the shapes, dtypes and bytes of a tree of arrays."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        head = f"{jax.tree_util.keystr(path)}{array.shape}{array.dtype}"
        digest.update(head.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
