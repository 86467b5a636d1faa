"""A study that is killed, at any moment and however often, ends with the scores of one that is not.

Real processes and real signals; the study is small, has training that arms share, surgery,
measurements and seeds that are added until it is decided.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import interruptible

from jaxbench import ledger, storage, trained_params
from jaxbench.base import JaxbenchError
from jaxbench.trained_params import load_params
from jaxbench.training.checkpoint_folder import ABOUT

IDEA = '''
"""Weights below a threshold go to zero after some epochs, and stay there."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from annotated_types import Ge

from jaxbench.base import Intervention, Phase


class State(NamedTuple):
    masks: dict


def build(*, share: Annotated[float, Ge(0)] = 0.0) -> Intervention:
    """Build it; `share` of the largest weight is the threshold."""

    def init_state(ctx):
        return State(jax.tree.map(jnp.ones_like, ctx.params0))

    def prune(ctx, params, opt_state, state):
        masks = jax.tree.map(
            lambda w: (jnp.abs(w) >= share * jnp.abs(w).max()).astype(w.dtype), params
        )
        return jax.tree.map(jnp.multiply, params, masks), opt_state, State(masks)

    def after_epoch(ctx, params, opt_state, state, epoch):
        return jax.tree.map(jnp.multiply, params, state.masks), opt_state, state, {}

    def measure(ctx, params, state, test):
        return {"left": sum(mask.sum() for mask in jax.tree.leaves(state.masks))}

    return Intervention(
        name="prune_small", summary="prune small weights", static={"share": share},
        surgery_static=("share",), init_state=init_state, after_epoch=after_epoch,
        phases=(Phase(18, prune), Phase(12)), measure=measure,
    )
'''

STUDY = """
[track]
name = "tabular"
train_size = 64
validation_size = 16
test_size = 16
[model]
name = "mlp_tiny"
hidden = [5]
[training]
epochs = 30
batch_size = 16
[protocol]
seeds = 6
tuning_seeds = 3
[grid]
learning_rate = [0.003, 0.03]
[arms.baseline]
intervention = "idea.py"
[arms.idea]
intervention = "idea.py"
options = { share = 0.4 }
[[comparisons]]
idea = "idea"
baseline = "baseline"
role = "primary"
"""

CHECKPOINTS = ["--checkpoint-every", "4"]


class Study:
    """One study in a folder of its own, run as a command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "results"
        (folder / "idea.py").write_text(IDEA)
        (folder / "small.toml").write_text(STUDY)
        self.environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}

    def command(self, *options: str, out: Path | None = None) -> list[str]:
        """Spell the command."""
        study, results = str(self.folder / "small.toml"), str(out or self.out)
        more = ["--until-decided", "--max-seeds", "12", "--out", results]
        return [sys.executable, "-m", "jaxbench.cli", "run", study, *more, *options]

    def run(self, *options: str, out: Path | None = None) -> Any:
        """Run it to its end; give what decides the verdict."""
        done = subprocess.run(
            [*self.command(*options, out=out), "--json", "--quiet"],
            capture_output=True, text=True, env=self.environment, timeout=1200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return numbers(json.loads(done.stdout))

    def checkpoints(self) -> list[str]:
        """Name the finished checkpoints."""
        return [path.name for path in self.out.glob("small/*/checkpoints/*-*") if complete(path)]


def complete(path: Path) -> bool:
    return path.is_dir() and re.fullmatch(r"[a-z]+-[0-9a-f]{24}", path.name) is not None


def numbers(report: dict[str, Any]) -> dict[str, Any]:
    """Everything but times, memory and dates."""
    bench = dict(report["bench_report"])
    for name in ("cost", "programs", "provenance", "ledger"):
        bench.pop(name)
    for arm in ("baseline", "idea", *bench["arms"]):
        where = bench["arms"] if arm in bench["arms"] else bench
        where[arm] = {k: v for k, v in where[arm].items() if k != "cost"}
    for arm in ("baseline", "idea"):
        bench[arm] = {k: v for k, v in bench[arm].items() if k != "cost"}
    return {"verdict": report["verdict"], **bench}


def stopped(process: subprocess.Popen[str], when: Callable[[], bool], with_signal: int) -> bool:
    """Send a signal as soon as it is time; return whether the process was still there."""
    while process.poll() is None:
        if when():
            process.send_signal(with_signal)
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.slow
def test_killed_then_interrupted_then_resumed_is_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """SIGKILL after the first checkpoint, Ctrl-C after the next block, then to the end."""
    study = Study(tmp_path)
    expected = study.run(out=tmp_path / "other")
    with interruptible(study.command(*CHECKPOINTS), env=study.environment) as process:
        assert stopped(process, lambda: bool(study.checkpoints()), signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not list(study.out.rglob("report.json"))

    refused = subprocess.run(
        study.command(), capture_output=True, text=True, env=study.environment, check=False
    )
    assert refused.returncode == 2
    assert "--resume continues it, --force begins anew" in refused.stderr

    def trained() -> bool:
        return any(name.startswith("trained") for name in study.checkpoints())

    with interruptible(study.command("--resume"), env=study.environment) as process:
        assert stopped(process, trained, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert re.search(r"^interrupted: continue with jaxbench run .* --resume$", said, re.MULTILINE)
    assert "Traceback" not in said

    found = study.run("--resume", "--keep-params")
    assert found == expected
    (path,) = study.out.rglob("report.json")
    names = [storage.REPORT, storage.PAGE, trained_params.FOLDER]
    assert sorted(each.name for each in path.parent.iterdir()) == sorted(names)
    report = json.loads(path.read_text())
    assert report["bench_report"]["cost"]["resumed"] == 2
    assert report["files"] == names
    assert len(ledger.read(study.out)) == 1
    kept_params_give_the_reports_scores(path.parent, report)


def kept_params_give_the_reports_scores(folder: Path, report: dict[str, Any]) -> None:
    """Loaded by one call, applied to the test split by the model, scored by the track."""
    from jaxbench import config
    from jaxbench.plan import make_plan
    from jaxbench.training.keys import stage_key

    plan = make_plan(config.from_run(report["bench_report"]["config"], folder.parents[2]))
    kept = load_params(folder)
    assert kept.keys() == plan.arms.keys()
    for arm, by_seed in kept.items():
        found = report["bench_report"]["arms"][arm]
        assert list(by_seed) == list(range(found["full"]["n"]))
        for seed, each in by_seed.items():
            test = plan.track.generate(stage_key(seed, "data")).test
            outputs, _ = plan.arms[arm].recipe.model.apply(each.params, test.inputs)
            score = plan.track.score(outputs, test.targets)
            assert float(score) == pytest.approx(found["full"]["per_seed"][seed], rel=1e-4)
            assert each.hyper["learning_rate"] == found["best_cfg"]["learning_rate"]
            left = sum(float(mask.sum()) for mask in leaves(each.state["masks"]))
            assert left == found["measured"]["left"][seed]


def leaves(tree: Any) -> list[Any]:
    return [x for each in tree.values() for x in leaves(each)] if isinstance(tree, dict) else [tree]


def test_parameters_that_were_not_kept_are_missed(tmp_path: Path) -> None:
    with pytest.raises(JaxbenchError, match=r"no trained parameters in .*--keep-params"):
        load_params(tmp_path)


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """How long a process worked: the same whatever else the machine does."""
    with contextlib.suppress(OSError, IndexError):
        words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    """Each kill at a random share of the work; a study that ends before its kill begins anew."""
    study = Study(tmp_path)
    expected = study.run(out=tmp_path / "other")
    with interruptible(study.command("--force", out=tmp_path / "other"), study.environment) as full:
        whole = 0.0
        while full.poll() is None:
            whole = max(whole, cpu_seconds(full))
            time.sleep(0.05)
    rng = random.Random(20)
    kills, finished, moments = 0, 0, []
    while kills < 20:
        moment = rng.uniform(0.2, 1.1) * whole
        with interruptible(study.command(*CHECKPOINTS, "--resume"), study.environment) as process:
            killed = stopped(
                process, lambda m=moment, p=process: cpu_seconds(p) > m, signal.SIGKILL
            )
            process.wait()
        if killed and process.returncode == -signal.SIGKILL:
            kills += 1
            moments.append((round(moment / whole, 2), sorted(study.checkpoints())))
            continue
        assert process.returncode == 0
        (path,) = study.out.glob("small/*/report.json")
        assert numbers(json.loads(path.read_text())) == expected
        finished += 1
        path.unlink()
    print(f"{kills} kills, {finished} studies finished on the way: {moments}")
    assert study.run("--resume") == expected
    assert not list(study.out.rglob(ABOUT))
    assert len(ledger.read(study.out)) == 1
