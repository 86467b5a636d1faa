"""Starts jax with the options that suit the machine, before anything imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from jaxbench.training import compilation_cache

HOST_DEVICES = "--xla_force_host_platform_device_count"


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def configure(
    environment: MutableMapping[str, str] = os.environ,
    cache: str | None = None,
    cores: int | None = None,
) -> bool:
    """Give XLA one host device a core, so that runs spread over all cores; return whether it acted.

    XLA:CPU works on small products with one core only, hence the devices.  numpy's small products
    get one thread, which is faster beside XLA's.  Compiled programs are kept in the folder `cache`
    (`compilation_cache.configure`); `cores` may be used, all by default.  Options that the user set
    stay as they are, and nothing happens once jax is imported: the engine then uses the devices
    that are there.
    """
    if "jax" in sys.modules:
        return False
    flags = environment.get("XLA_FLAGS", "")
    if HOST_DEVICES not in flags:
        environment["XLA_FLAGS"] = f"{flags} {HOST_DEVICES}={cores or available_cores()}".strip()
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    compilation_cache.configure(environment, cache)
    return True
