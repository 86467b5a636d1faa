#!/usr/bin/env python3
"""jaxbench against PyTorch on the same trainings, interleaved; see `scripts/benchmark rival`.

As a program it is jaxbench's side, in a process of its own: it trains a workload as users do, once
from the start and once more with everything compiled, and prints what that took as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent
TORCH = SCRIPTS / "rival_torch.py"
RATES = (0.001, 0.003, 0.01)
Tell = Callable[[str], None]
DEPTH = 2000
"""Products in a row when the machine's peak is measured."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """Trainings that differ in learning rate and seed.

    Attributes:
        name: `gru`, `mlp` or `ring`.
        track, model: their names.
        track_options, model_options: as in a config.
        epochs, batch: the schedule.
        runs: how many, over three learning rates.
    """

    name: str
    track: str
    model: str
    track_options: Mapping[str, Any]
    model_options: Mapping[str, Any]
    epochs: int
    batch: int
    runs: int = 24

    def with_hidden(self, hidden: int) -> Workload:
        """The same with so many units a layer or node."""
        name = "width" if self.name == "ring" else "hidden"
        units: Any = [hidden, hidden] if self.name == "mlp" else hidden
        return dataclasses.replace(self, model_options={**self.model_options, name: units})

    @property
    def listed(self) -> list[tuple[float, int]]:
        """Each run's learning rate and seed; the runs of one rate side by side."""
        each = -(-self.runs // len(RATES))
        return [(rate, seed) for rate in RATES for seed in range(each)][: self.runs]


FULL = (
    Workload("gru", "dynamics", "rnn_small", {}, {"hidden": 64}, 15, 32),
    Workload("mlp", "tabular", "mlp_tiny", {"train_size": 1000}, {"hidden": [64, 64]}, 40, 64),
    Workload("ring", "ring", "ring_mp", {}, {"nodes": 16, "width": 32}, 4, 32, runs=12),
)
SMALL = {"train_size": 32, "validation_size": 8, "test_size": 8}
TINY = (
    Workload(
        "gru", "dynamics", "rnn_small", SMALL | {"sequence_length": 6}, {"hidden": 4}, 2, 8, 4
    ),
    Workload("mlp", "tabular", "mlp_tiny", SMALL, {"hidden": [4, 4]}, 2, 8, 4),
    Workload(
        "ring", "ring", "ring_mp", SMALL | {"sequence_length": 6}, {"nodes": 4, "width": 3}, 2, 8, 4
    ),
)


# jaxbench's side ----------------------------------------------------------------------------------


def recipe_of(workload: Workload) -> Any:
    """What every run of a workload trains."""
    from jaxbench import registry
    from jaxbench.training.runs import Recipe, Schedule

    track = registry.load("tracks", workload.track).make(dict(workload.track_options))
    model = registry.load("models", workload.model).make(
        dict(workload.model_options), outputs=track.output_size
    )
    none = registry.load("interventions", "none").make({})
    return Recipe(track, model, none, Schedule(workload.epochs, workload.batch))


def runs_of(workload: Workload, recipe: Any) -> list[Any]:
    """A workload's runs for the engine."""
    from jaxbench.training.runs import Run

    return [
        Run("arm", RATES.index(rate), {"learning_rate": rate}, seed, recipe)
        for rate, seed in workload.listed
    ]


def train_here(workload: Workload, repeats: int) -> dict[str, Any]:
    """Train a workload from the start and then with everything compiled, in this process.

    `train_seconds` is of a training with everything compiled, or the first if there is no other.
    """
    from jaxbench.training.engine import Engine

    began, cpu = time.perf_counter(), time.process_time()
    runs = runs_of(workload, recipe_of(workload))
    engine = Engine()
    trained = engine.train(runs)
    first, first_cpu = time.perf_counter() - began, time.process_time() - cpu
    steady, used = [], []
    for _ in range(repeats):
        began, cpu = time.perf_counter(), time.process_time()
        engine.train(runs)
        steady.append(time.perf_counter() - began)
        used.append(time.process_time() - cpu)
    [group] = engine.groups.values()
    return {
        "first_seconds": first,
        "again_seconds": sum(steady),
        "train_seconds": statistics.median(steady or [first]),
        "cpu_seconds": statistics.median(used or [first_cpu]),
        "compile_seconds": {each.name: each.compile_seconds for each in group.programs},
        "losses": [each.test for each in trained],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "cores": len(engine.devices),
    }


def export(workload: Workload, path: Path) -> float:
    """Write every seed's data, initial weights and batch order; give a run's operations."""
    import jax
    import numpy as np

    from jaxbench.training.cost import model_flops
    from jaxbench.training.engine import Engine
    from jaxbench.training.program import Program

    recipe = recipe_of(workload)
    program = Program(recipe)
    seeds = sorted({seed for _, seed in workload.listed})
    arrays: dict[str, Any] = {}
    for seed, fixed in zip(
        seeds, Engine().starts(recipe, {"learning_rate": RATES[0]}, seeds), strict=True
    ):
        samples = len(fixed.data.train.inputs)

        def order_of(epoch: Any, fixed: Any = fixed, samples: int = samples) -> Any:
            key = program._epoch_keys(fixed, epoch)["batch"]
            return program._batch_order(key, samples, program.steps_per_epoch)

        order = jax.jit(jax.vmap(order_of))(np.arange(workload.epochs))
        parts = {
            "inputs": fixed.data.train.inputs,
            "targets": fixed.data.train.targets,
            "test_inputs": fixed.data.test.inputs,
            "test_targets": fixed.data.test.targets,
            "order": order,
        }
        for keys, leaf in jax.tree_util.tree_leaves_with_path(fixed.params0):
            parts["weights:" + "/".join(key.key for key in keys)] = leaf
        arrays |= {f"{seed}:{name}": np.asarray(value) for name, value in parts.items()}
    described = {
        "workload": workload.name,
        "options": dict(recipe.model.options),
        "runs": workload.listed,
    }
    np.savez(path, described=json.dumps(described, default=list), **arrays)
    return model_flops(recipe)


def measure_peak(workload: Workload) -> dict[str, float]:
    """The operations a second of this machine's matrix products, all devices at once.

    `at_size` is a chain of products with as many rows and columns as a step of the workload's
    network has; `large` of 1024 x 1024 matrices.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("devices",))
    options = workload.model_options
    if workload.name == "ring":
        rows, inner, outer = (
            workload.batch * options["nodes"],
            options["width"],
            3 * options["width"],
        )
    else:
        hidden = options["hidden"] if workload.name == "gru" else options["hidden"][0]
        rows, inner = workload.batch, hidden
        outer = 3 * hidden if workload.name == "gru" else hidden

    def rate(rows: int, inner: int, outer: int, depth: int) -> float:
        def chain(state: Any, there: Any, back: Any) -> Any:
            def both(state: Any, _: None) -> tuple[Any, None]:
                return (state @ there) @ back, None

            return jax.lax.scan(both, state, None, length=depth)[0]

        spread = jax.jit(
            jax.shard_map(
                chain, mesh=mesh, in_specs=(P("devices"), P(), P()), out_specs=P("devices")
            )
        )
        rng = np.random.default_rng(0)
        state = jnp.asarray(rng.normal(size=(rows * mesh.size, inner)), jnp.float32)
        there = jnp.asarray(rng.normal(size=(inner, outer)) / inner**0.5, jnp.float32)
        back = jnp.asarray(rng.normal(size=(outer, inner)) / outer**0.5, jnp.float32)
        seconds = []
        for _ in range(6):
            began = time.perf_counter()
            jax.block_until_ready(spread(state, there, back))
            seconds.append(time.perf_counter() - began)
        return 4.0 * rows * inner * outer * depth * mesh.size / min(seconds[1:])

    return {"at_size": rate(rows, inner, outer, DEPTH), "large": rate(1024, 1024, 1024, 4)}


# Both sides, in turn ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to do the trainings.

    Attributes:
        name: of the row.
        start: gives the commands that do it, at once, with their environments.
    """

    name: str
    start: Callable[[], list[tuple[list[str], dict[str, str]]]]


def machine_seconds() -> float:
    """CPU seconds that all processes of this machine have had; 0 where it does not tell."""
    try:
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft, steal = map(int, words[:8])
    return (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """CPU seconds of this process's ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_once(contestant: Contestant) -> dict[str, Any]:
    """Start a contestant's processes and wait for them.

    `process_seconds` is from their start to the end of the first training, imports and compiling
    included; `train_seconds` is the training alone; `others_cores` is what other processes of the
    machine had meanwhile.
    """
    busy, own = machine_seconds(), children_seconds()
    began = time.perf_counter()
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for command, environment in contestant.start()
    ]
    answers = []
    for process in started:
        output = process.communicate()[0]
        if process.returncode:
            raise RuntimeError(f"{contestant.name} failed: {process.args}")
        answers.append(json.loads(output.splitlines()[-1]))
    wall = time.perf_counter() - began
    others = machine_seconds() - busy - (children_seconds() - own)
    return {
        "process_seconds": wall - answers[0].get("again_seconds", 0.0),
        "train_seconds": max(each["train_seconds"] for each in answers),
        "cpu_seconds": sum(each["cpu_seconds"] for each in answers),
        "peak_bytes": sum(each["peak_bytes"] for each in answers),
        "losses": interleave([each["losses"] for each in answers]),
        "compile_seconds": answers[0].get("compile_seconds"),
        "cores": sum(each["cores"] for each in answers),
        "others_cores": others / wall,
    }


def interleave(parts: Sequence[Sequence[float]]) -> list[float]:
    """Put the parts' rows in turn, as they were dealt out."""
    total = sum(map(len, parts))
    return [parts[place % len(parts)][place // len(parts)] for place in range(total)]


def torch_command(
    python: str, data: Path, how: str, threads: int, *more: Any
) -> tuple[list[str], dict[str, str]]:
    """Train in PyTorch in a process of its own."""
    command = [python, str(TORCH), str(data), how, "--threads", threads, *more]
    return [str(word) for word in command], dict(os.environ)


def try_rivals(
    data: Path, python: str, ways: Sequence[str], cores: int, runs: int, tell: Tell
) -> list[dict[str, Any]]:
    """One epoch of the first runs in every way of PyTorch, by one thread and by one a core."""
    rows = []
    for how in ways:
        for threads in sorted({1, cores}):
            command = torch_command(python, data, how, threads, "--epochs", 1, "--runs", runs)
            taken = measure_once(Contestant(how, lambda command=command: [command]))
            del taken["losses"], taken["compile_seconds"]
            rows.append({"way": how, "threads": threads, "runs": runs, "epochs": 1, **taken})
            tell(
                f"{data.stem}, one epoch of {runs} runs: torch {how}, {threads} threads: "
                f"{taken['train_seconds']:.3g} s, others {taken['others_cores']:.2f} cores"
            )
    return rows


def rivals(
    data: Path, python: str, tried: Sequence[Mapping[str, Any]], cores: int
) -> Iterator[Contestant]:
    """PyTorch run after run, in one process and in one a core; the fastest of its ensembles.

    Each has as many threads as were faster when it was tried.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(tried, key=lambda row: -row["train_seconds"]):
        best[row["way"]] = row
    if "loop" in best:
        one = torch_command(python, data, "loop", best["loop"]["threads"])
        yield Contestant("torch, one process", lambda: [one])
        parts = [
            torch_command(python, data, "loop", 1, "--part", part, "--parts", cores)
            for part in range(cores)
        ]
        yield Contestant(f"torch, {cores} processes", lambda: parts)
    together = [best[way] for way in ("batched", "func") if way in best]
    if together:
        fastest = min(together, key=lambda row: row["train_seconds"])
        ensemble = torch_command(python, data, fastest["way"], fastest["threads"])
        yield Contestant(f"torch, ensemble ({fastest['way']})", lambda: [ensemble])


def jaxbench_command(
    workloads: Sequence[Workload], cache: Path, *, repeats: int = 0, devices: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """Train workloads in a process of its own, with a folder of compiled programs."""
    from jaxbench.devices import HOST_DEVICES

    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    environment.pop("XLA_FLAGS", None)
    if devices is not None:
        environment["XLA_FLAGS"] = f"{HOST_DEVICES}={devices}"
    described = json.dumps([dataclasses.asdict(each) for each in workloads])
    return [sys.executable, __file__, described, str(repeats)], environment


def jaxbenches(workload: Workload, folder: Path, repeats: int) -> Iterator[Contestant]:
    """Give jaxbench with no program compiled, and with all that the former compiled in the cache.

    The training is done again in the latter's process; its `train_seconds` are these steady ones.
    """
    caches: list[Path] = []

    def cold() -> list[tuple[list[str], dict[str, str]]]:
        caches.append(Path(tempfile.mkdtemp(dir=folder)))
        return [jaxbench_command([workload], caches[-1])]

    yield Contestant("jaxbench cold", cold)
    yield Contestant(
        "jaxbench warm", lambda: [jaxbench_command([workload], caches[-1], repeats=repeats)]
    )


def compare(
    workload: Workload,
    *,
    python: str,
    ways: Sequence[str],
    rounds: int,
    repeats: int,
    trial_runs: int,
    folder: Path,
    tell: Tell,
) -> dict[str, Any]:
    """Train a workload in every way, in turn, several rounds; the fastest round of each counts.

    Args:
        workload: what to train.
        python: the interpreter that has torch.
        ways: of PyTorch, each tried for an epoch first.
        rounds: how often every way is measured.
        repeats: steady trainings of a warm jaxbench process, of which the median counts.
        trial_runs: how many runs are trained when ways are tried.
        folder: for data and caches.
        tell: whom to tell of each measurement.
    """
    from jaxbench.devices import available_cores

    data = folder / f"{workload.name}.npz"
    flops = export(workload, data) * workload.runs
    tried = try_rivals(data, python, ways, available_cores(), trial_runs, tell)
    contestants = [
        *jaxbenches(workload, folder, repeats),
        *rivals(data, python, tried, available_cores()),
    ]
    found: dict[str, list[dict[str, Any]]] = {each.name: [] for each in contestants}
    peaks = [measure_peak(workload)]
    for number in range(rounds):
        for contestant in contestants:
            taken = measure_once(contestant)
            found[contestant.name].append(taken)
            tell(
                f"{workload.name} round {number + 1}: {contestant.name}: training "
                f"{taken['train_seconds']:.3g} s, process {taken['process_seconds']:.3g} s, "
                f"others {taken['others_cores']:.2f} cores"
            )
        peaks.append(measure_peak(workload))
    peak = {name: max(each[name] for each in peaks) for name in peaks[0]}
    rows = []
    for name, taken in found.items():
        seconds = min(each["train_seconds"] for each in taken)
        rows.append(
            {
                "way": name,
                "train_seconds": seconds,
                "process_seconds": min(each["process_seconds"] for each in taken),
                "cpu_seconds": min(each["cpu_seconds"] for each in taken),
                "gflops": flops / seconds / 1e9,
                "share_of_peak": flops / seconds / peak["at_size"],
                "peak_bytes": max(each["peak_bytes"] for each in taken),
                "cores": taken[0]["cores"],
                "others_cores": max(each["others_cores"] for each in taken),
                "rounds": taken,
            }
        )
    return {
        "workload": dataclasses.asdict(workload),
        "flops": flops,
        "peak_flops": peak,
        "tried": tried,
        "rows": rows,
        "ratios": ratios(rows),
        "agreement": agreement(found),
    }


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times faster jaxbench is than each PyTorch way.

    `steady` compares training alone with training alone, `warm` and `cold` whole processes;
    `steady_by_cpu` compares the CPU seconds of the trainings, spread over the cores that each can
    use, which another process on the machine disturbs less.
    """
    by_name = {row["way"]: row for row in rows}
    warm, cold = by_name["jaxbench warm"], by_name["jaxbench cold"]
    return {
        row["way"]: {
            "steady": row["train_seconds"] / warm["train_seconds"],
            "steady_by_cpu": row["cpu_seconds"]
            / row["cores"]
            / (warm["cpu_seconds"] / warm["cores"]),
            "warm": row["process_seconds"] / warm["process_seconds"],
            "cold": row["process_seconds"] / cold["process_seconds"],
        }
        for row in rows
        if row["way"].startswith("torch")
    }


def agreement(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """The median and largest relative differences of final losses from jaxbench's, by way."""
    import numpy as np

    ours = np.array(found["jaxbench warm"][0]["losses"])
    differences = {
        name: np.abs(np.array(taken[0]["losses"]) - ours) / np.abs(ours)
        for name, taken in found.items()
        if name.startswith("torch")
    }
    return {
        name: {"median": float(np.median(each)), "largest": float(each.max())}
        for name, each in differences.items()
    }  # fmt: skip


def growth(
    workload: Workload, *, runs: Sequence[int], hidden: Sequence[int], devices: Sequence[int],
    python: str, folder: Path, tell: Tell,
) -> list[dict[str, Any]]:  # fmt: skip
    """Steady time over runs, units and devices; PyTorch's, run after run, over units.

    One process trains all numbers of runs, the smallest first, so that its peak memory after each
    is of what was trained so far.  Over units there are one run for each learning rate and device.
    """
    few = dataclasses.replace(workload, runs=len(RATES) * max(devices))
    axes = [("runs", runs, [dataclasses.replace(workload, runs=n) for n in runs], None)]
    axes += [("hidden", [n], [few.with_hidden(n)], None) for n in hidden]
    axes += [("devices", [n], [few], n) for n in devices]
    rows = []
    for axis, values, varied, count in axes:
        command, environment = jaxbench_command(varied, folder / "growth", repeats=3, devices=count)
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        answers = zip(values, varied, done.stdout.splitlines(), strict=True)
        found = [(value, each, "jaxbench", json.loads(line)) for value, each, line in answers]
        if axis == "hidden":
            data = folder / "growth.npz"
            export(varied[0], data)
            loop = torch_command(python, data, "loop", 1)
            taken = measure_once(Contestant("torch", lambda loop=loop: [loop]))
            found.append((values[0], varied[0], "torch, one process", taken))
        for value, each, way, taken in found:
            names = ("train_seconds", "cpu_seconds", "peak_bytes", "compile_seconds")
            kept = {name: taken.get(name) for name in names}
            rows.append({"axis": axis, "value": value, "way": way, "runs": each.runs, **kept})
            tell(f"{workload.name}, {axis} {value}: {way} {taken['train_seconds']:.3g} s")
    return rows


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """All comparisons as Markdown."""
    lines = [
        "| workload | way | training s | process s | GFLOP/s | share of peak | memory MB | "
        "largest loss difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for row in result["rows"]:
            apart = result["agreement"].get(row["way"])
            difference = "" if apart is None else f"{apart['largest']:.1e}"
            lines.append(
                f"| {result['workload']['name']} | {row['way']} | {row['train_seconds']:.3g} | "
                f"{row['process_seconds']:.3g} | {row['gflops']:.3g} | "
                f"{row['share_of_peak']:.1%} | {row['peak_bytes'] / 1e6:.0f} | {difference} |"
            )
    lines += [
        "",
        "| workload | against | steady | by CPU time | warm process | cold process |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        for way, ratio in result["ratios"].items():
            numbers = " | ".join(
                f"{ratio[name]:.3g}x" for name in ("steady", "steady_by_cpu", "warm", "cold")
            )
            lines.append(f"| {result['workload']['name']} | {way} | {numbers} |")
    lines += [
        "",
        "| workload | one epoch, PyTorch | runs | threads | training s | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {result['workload']['name']} | {row['way']} | {row['runs']} | {row['threads']} | "
        f"{row['train_seconds']:.3g} | {row['cpu_seconds']:.3g} |"
        for result in results
        for row in result["tried"]
    ]
    return "\n".join(lines) + "\n"


def plot(grown: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draw the steady times over runs, units and devices, one panel each."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "jaxbench"
    from matplotlib import pyplot

    axes = ("runs", "hidden", "devices")
    figure, panels = pyplot.subplots(1, len(axes), figsize=(12, 4), constrained_layout=True)
    for axis, panel in zip(axes, panels, strict=True):
        for workload, rows in grown.items():
            ways = dict.fromkeys(row["way"] for row in rows if row["axis"] == axis)
            for way in ways:
                points = [
                    (r["value"], r["train_seconds"])
                    for r in rows
                    if (r["axis"], r["way"]) == (axis, way)
                ]
                panel.plot(*zip(*points, strict=True), marker="o", label=f"{workload}, {way}")
        panel.set(xlabel=axis, ylabel="training (s)", xscale="log", yscale="log")
        panel.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    from jaxbench import devices

    devices.configure()
    for asked in json.loads(sys.argv[1]):
        print(json.dumps(train_here(Workload(**asked), int(sys.argv[2]))), flush=True)
