"""Every test runs on eight forced host devices, in strict rank and dtype promotion.

Programs compiled once are kept for the rest of the session, because many tests train the same.
"""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8".strip()

import jax

compiled = tempfile.TemporaryDirectory(prefix="jaxbench-tests-")
jax.config.update("jax_compilation_cache_dir", compiled.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
