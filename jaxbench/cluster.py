"""Studies on a Ray cluster: each is a task, run again elsewhere if its node dies.

Nodes need jaxbench and the Python files that configs name, at the same paths.  They write nothing:
reports come back to this process, which keeps each once, however often a task was begun.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxbench.base import JaxbenchError, Progress

if TYPE_CHECKING:
    from jaxbench.studies import Outcome, Study

RETRIES = 3
"""How often a study is begun again whose node or process died."""

COMPILED: dict[Any, Any] = {}
"""Programs of earlier studies of this worker."""


class Task(NamedTuple):
    """A study as it is sent to a node: its config as run and where its files are.

    Attributes:
        document: the config's data.
        folder: to which its paths are relative.
        run_id: that it must have there too.
        cores: that it may use.
    """

    document: dict[str, Any]
    folder: str
    run_id: str
    cores: int


class Answer(NamedTuple):
    """What came of a task: a report or, in words, why there is none.

    Attributes:
        report: the study's.
        error: what went wrong.
        seconds: that it took.
        node: the name of the host.
    """

    report: dict[str, Any] | None
    error: str | None
    seconds: float
    node: str


def run_on_ray(
    asked: Sequence[Study],
    out: str,
    *,
    force: bool,
    progress: Progress,
    address: str,
    cpus: int | None = None,
    gpus: int = 0,
) -> Iterator[Outcome]:
    """Run studies on a Ray cluster and give what became of each as it ends.

    Args:
        asked: what to run.
        out: the folder of all results, on this machine.
        force: run those again whose reports are there.
        progress: whom to tell.
        address: of the cluster: `auto`, `HOST:PORT`, or `local` for one on this machine.
        cpus: cores of a study; by default those of the smallest node, so that studies have whole
            nodes where all are alike.
        gpus: GPUs of a study.

    Raises:
        JaxbenchError: Ray is not installed, the cluster cannot be reached, or no node is as large.
    """
    from jaxbench import studies

    left = []
    for study in asked:
        before = studies.settled(study, out, force=force)
        if before is None:
            left.append(study)
        else:
            yield before
    if not left:
        return
    with connected(address) as ray:
        cores = cores_of(ray, cpus, gpus)
        progress.stage(f"{len(left)} studies on Ray, {cores} cores and {gpus} GPUs each")
        remote = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=RETRIES)(run_task)
        pending = {remote.remote(task_of(study, cores)): study for study in left}
        while pending:
            (done,), _ = ray.wait(list(pending), num_returns=1)
            yield outcome_of(ray, done, pending.pop(done), out)


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a Ray cluster, and give Ray.

    Raises:
        JaxbenchError: it is not installed, or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise JaxbenchError("Ray is not installed: pip install 'jaxbench[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise JaxbenchError(f"no Ray cluster at {address}: {reason}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def cores_of(ray: Any, cpus: int | None, gpus: int) -> int:
    """Choose a study's cores, and refuse what no node has.

    Raises:
        JaxbenchError: every node is smaller, so that studies would wait for ever.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    able = [int(node.get("CPU", 0)) for node in nodes if node.get("GPU", 0) >= gpus]
    able = [cores for cores in able if cores > 0]
    if not able or max(able) < (cpus or 1):
        wanted = f"{cpus or 1} cores and {gpus} GPUs"
        raise JaxbenchError(f"no node of the Ray cluster has {wanted}: choose other --cpus, --gpus")
    return cpus or min(able)


def task_of(study: Study, cores: int) -> Task:
    """Describe a study for a node."""
    config, identity = study.config, study.run_id
    assert config is not None
    assert identity is not None
    return Task(config.as_run(), str(config.base_folder.resolve()), identity, cores)


def run_task(task: Task) -> Answer:
    """Run a study on a node; what it raises comes back in words."""
    import platform

    began = time.perf_counter()

    def answer(report: dict[str, Any] | None, error: str | None) -> Answer:
        return Answer(report, error, time.perf_counter() - began, platform.node())

    from jaxbench import config, devices, storage

    devices.configure(cores=task.cores)  # before jax is imported
    from jaxbench import studies
    from jaxbench.study import run_study

    try:
        loaded = config.from_run(task.document, Path(task.folder))
        if storage.run_id(config.digest(loaded)) != task.run_id:
            raise JaxbenchError(
                f"the Python files that {loaded.name} names in {task.folder} are not the same on "
                f"{platform.node()}"
            )
        report = run_study(loaded, progress=Progress(), compiled=COMPILED)
    except Exception as error:
        return answer(None, studies.in_words(error))
    return answer(report, None)


def outcome_of(ray: Any, done: Any, study: Study, out: str) -> Outcome:
    """Keep the report of a task that ended, or say why there is none."""
    from jaxbench import studies

    try:
        found: Answer = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        return studies.failed(study, f"it could not be started: {studies.in_words(error.cause)}")
    except ray.exceptions.RayError as error:
        lost = f"its node or process died {RETRIES + 1} times: "
        return studies.failed(study, lost + studies.in_words(error))
    if found.report is None:
        return studies.failed(study, found.error or "", found.seconds, found.node)
    return studies.written(study, out, found.report, found.seconds, node=found.node)
