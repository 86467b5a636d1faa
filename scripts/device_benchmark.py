"""Training on one kind of device: time by width, share of its limits, agreement with the CPU."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import rival_benchmark as rivals

Tell = Callable[[str], None]


def best_seconds(function: Callable[..., Any], *given: Any, repeats: int = 5) -> float:
    """The shortest time of a call that is compiled already."""
    import jax

    jax.block_until_ready(function(*given))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function(*given))
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def limits(device: Any, size: int) -> dict[str, float]:
    """Operations a second of a large float32 product, and bytes a second of a large copy."""
    import jax
    import jax.numpy as jnp

    square = jax.device_put(np.ones((size, size), np.float32), device)
    product = best_seconds(jax.jit(jnp.matmul), square, square)
    added = best_seconds(jax.jit(lambda x: x + 1), square)
    return {
        "product_flops": 2.0 * size**3 / product,
        "bytes_per_second": 2.0 * square.nbytes / added,
    }


def by_width(
    workload: rivals.Workload, devices: Sequence[Any], widths: Sequence[int], tell: Tell
) -> list[dict[str, Any]]:
    """Train so many runs at once on one device, from the start and once more, compiled."""
    from jaxbench.training.cost import model_flops
    from jaxbench.training.engine import Engine

    rows = []
    for width in widths:
        asked = dataclasses.replace(workload, runs=width)
        recipe = rivals.recipe_of(asked)
        runs = rivals.runs_of(asked, recipe)
        engine = Engine(devices=devices[:1], width=width)
        began = time.perf_counter()
        engine.train(runs)
        first = time.perf_counter() - began
        began = time.perf_counter()
        engine.train(runs)
        steady = time.perf_counter() - began
        stats = devices[0].memory_stats() or {}
        row = {
            "workload": workload.name,
            "width": width,
            "first_seconds": first,
            "train_seconds": steady,
            "seconds_per_run": steady / width,
            "flops_per_second": model_flops(recipe) * width / steady,
            "allocator_peak_bytes": stats.get("peak_bytes_in_use"),
        }
        tell(json.dumps(row))
        rows.append(row)
    return rows


def verdict_on(platform: str, study: str, quick: bool) -> dict[str, Any]:
    """Run a study in a process that knows this platform only; give what it found."""
    environment = os.environ | {"JAX_PLATFORMS": platform}
    command = [sys.executable, "-m", "jaxbench.cli", "run", study, "--json", "--quiet", "--force"]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "--out", folder, *(["--quick"] if quick else [])],
            env=environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    report = json.loads(done.stdout)
    primary = report["bench_report"]["comparisons"][0]
    return {
        "seconds": time.perf_counter() - began,
        "verdict": report["verdict"],
        "scores": {side: primary[side]["per_seed"] for side in ("baseline", "idea")},
    }


def agreement(platform: str, study: str, quick: bool) -> dict[str, Any]:
    """One study on the device and on the CPU: both verdicts, and how far scores are apart.

    The difference of each run's scores is set beside the paired spread of idea and baseline.
    """
    found = {name: verdict_on(name, study, quick) for name in dict.fromkeys((platform, "cpu"))}
    there, here = (
        np.array([found[name]["scores"][side] for side in ("baseline", "idea")], float)
        for name in (platform, "cpu")
    )
    apart = float(np.sqrt(((there - here) ** 2).mean()))
    return {
        "study": study,
        "quick": quick,
        "found": found,
        "same_verdict": found[platform]["verdict"] == found["cpu"]["verdict"],
        "root_mean_square_difference": apart,
        "difference_over_paired_spread": apart / float(np.std(here[1] - here[0], ddof=1)),
    }
