"""Compiled programs kept from one process to the next, in the user's cache folder.

jax has the cache; this module says where it is and what goes in, keeps it from growing without
end, and sees to it that an entry is there as a whole or not at all: jax writes entries in place, so
that a process killed meanwhile would leave a part that every later one fails to read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

VARIABLE = "JAXBENCH_CACHE"
OFF = "off"
JAX_FOLDER = "JAX_COMPILATION_CACHE_DIR"
OF_JAX = (JAX_FOLDER, "JAX_ENABLE_COMPILATION_CACHE")
"""By these the user has decided already."""

EVERYTHING = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Programs that compile in less than a second are kept too: a study has a dozen of them."""

LARGEST = 2 * 2**30
"""Bytes; what was used longest ago goes first."""
ENTRY = "-cache"
UNFINISHED = ".unfinished"
DAY = 24 * 3600.0


def configure(
    environment: MutableMapping[str, str] = os.environ, chosen: str | None = None
) -> Path | None:
    """Tell jax, before it starts, where to keep compiled programs; return the folder, if any.

    Args:
        environment: what jax will read; what the user set for jax stays as it is.
        chosen: a folder, or `off`; by default what `JAXBENCH_CACHE` says, or the user's cache
            folder.
    """
    if any(name in environment for name in OF_JAX):
        return None
    chosen = chosen or environment.get(VARIABLE)
    if chosen == OFF:
        return None
    try:
        root = Path(chosen).expanduser() if chosen else user_folder(environment)
        folder = root.absolute() / f"xla-{processor_digest()}"
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder)
    except (OSError, RuntimeError):  # no home, or nothing can be written: it works without
        return None
    environment[JAX_FOLDER] = str(folder)
    for name, value in EVERYTHING.items():
        environment.setdefault(name, value)
    return folder


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Name the folder for caches of this user, by the system's custom."""
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]) / "jaxbench"
    custom = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path.home() / custom / "jaxbench"


def processor_digest() -> str:
    """Tell kinds of processor apart: code compiled for one may crash another of a shared home."""
    said = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        kinds = ("model name", "flags", "Features")
        said += sorted({line for line in lines if line.startswith(kinds)})
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:8]


def prune(folder: Path, largest: int = LARGEST) -> None:
    """Remove the entries used longest ago until the others fit, and what killed processes left."""
    entries = []
    now = time.time()
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removes it as well
            found = path.stat()
            last = max(found.st_atime, found.st_mtime)
            if path.name.endswith(UNFINISHED):
                if now - last > DAY:
                    path.unlink()
            elif path.name.endswith(ENTRY):
                entries.append((last, found.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= largest:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size


def write_whole_entries() -> bool:
    """Make jax write an entry of its cache in one step; return whether this jax has such a place.

    Where the user bounds the cache or keeps it elsewhere than on a disk, jax's own way stays.
    """
    try:
        from jax._src.lru_cache import LRUCache
    except ImportError:
        return False
    in_place = LRUCache.put
    if getattr(in_place, "whole", False):
        return True

    def put(self: Any, key: str, value: bytes) -> None:
        folder = str(self.path)
        if self.eviction_enabled or "://" in folder or not key:
            in_place(self, key, value)
            return
        final = os.path.join(folder, f"{key}{ENTRY}")
        if os.path.exists(final):
            return
        unfinished = f"{final}.{os.getpid()}-{threading.get_ident()}{UNFINISHED}"
        with open(unfinished, "wb") as file:
            file.write(value)
        os.replace(unfinished, final)

    put.whole = True  # type: ignore[attr-defined]
    LRUCache.put = put  # type: ignore[method-assign]
    return True
