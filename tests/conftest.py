"""Every test runs on eight forced host devices, in strict rank and dtype promotion.

Compiling is most of the tests' work, so programs are compiled quickly here, and run a little slower
than users' do; where that matters, a test takes the fixture `compiled_as_for_users`.  What is
compiled once is kept for the rest of the session, because many tests train the same.  jax's cache
must not be read while an entry is being written: each process of pytest-xdist keeps its own, and
the engine compiles one program at a time here, since two may be equal.
"""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

FUSION_EMITTERS = metadata.version("jaxlib").startswith("0.10.")
"""Whether XLA:CPU has an option for them, without which it compiles in half the time."""

os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
if "xla_force_host_platform_device_count" not in flags[0]:
    flags.append("--xla_force_host_platform_device_count=8")
if FUSION_EMITTERS:
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join(flags).strip()

import jax
import pytest
from hypothesis import HealthCheck, settings

from jaxbench.training import executables

compiled = tempfile.TemporaryDirectory(prefix="jaxbench-tests-")
os.environ["JAXBENCH_CACHE"] = f"{compiled.name}/of-commands"
jax.config.update("jax_compilation_cache_dir", compiled.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

users_options = executables.CPU_OPTIONS
executables.CPU_OPTIONS = {"xla_backend_optimization_level": 0}
executables.COMPILER = ThreadPoolExecutor(1)


@pytest.fixture
def compiled_as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine compile its programs as it does outside the tests."""
    emitters = {"xla_cpu_use_fusion_emitters": True} if FUSION_EMITTERS else {}
    monkeypatch.setattr(executables, "CPU_OPTIONS", users_options | emitters)
    jax.devices()  # reads XLA_FLAGS, once and for all: the options above stand in for the rest
    monkeypatch.setenv("XLA_FLAGS", "")
