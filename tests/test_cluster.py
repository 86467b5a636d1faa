"""Studies on a local Ray cluster of several nodes, one of which is killed."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_sweep import STUDY

from jaxbench import cli, cluster, ledger, storage, studies
from jaxbench.base import JaxbenchError, Progress
from jaxbench.reporting.schema import check_report

IDEA = '''
"""Leaves a mark where it is prepared, and takes its time."""

import os
import pathlib
import time
import uuid

from jaxbench.base import Intervention


def build() -> Intervention:
    def prepare(key):
        marks = pathlib.Path("{marks}")
        (marks / uuid.uuid4().hex).write_text(os.environ["RAY_NODE"])
        time.sleep({seconds})

    return Intervention(name="marks", summary="leaves a mark", prepare=prepare)
'''


def test_without_ray_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "mine.toml").write_text(STUDY.format(rate=0.01))
    out = str(tmp_path / "results")
    arguments = ["sweep", str(tmp_path / "mine.toml"), "--out", out, "--ray", "auto"]
    done = CliRunner().invoke(cli.cli, arguments)
    assert done.exit_code == 2
    assert "error: Ray is not installed: pip install 'jaxbench[ray]'" in done.stderr


class Ray:
    """Stands for Ray with some nodes."""

    def __init__(self, *nodes: dict[str, float]) -> None:
        self._nodes = [{"Alive": True, "Resources": node} for node in nodes]
        self._nodes.append({"Alive": False, "Resources": {"CPU": 1.0}})

    def nodes(self) -> list[dict[str, Any]]:
        """List them."""
        return self._nodes


def test_a_study_has_the_cores_of_the_smallest_node_that_can_hold_it() -> None:
    nodes = Ray({"CPU": 8.0}, {"CPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}, {"memory": 1.0})
    assert cluster.cores_of(nodes, None, 0) == 4
    assert cluster.cores_of(nodes, None, 1) == 16
    assert cluster.cores_of(nodes, 2, 0) == 2
    for cores, gpus in ((17, 0), (None, 3), (None, 17)):
        with pytest.raises(JaxbenchError, match="no node of the Ray cluster has"):
            cluster.cores_of(nodes, cores, gpus)


def test_files_that_differ_on_a_node_are_refused(tmp_path: Path) -> None:
    """A task is that study whose run id it names."""
    (tmp_path / "mine.toml").write_text(STUDY.format(rate=0.01))
    [study] = studies.find([str(tmp_path / "mine.toml")])
    task = cluster.task_of(study, 1)
    answer = cluster.run_task(task._replace(run_id="0" * 12))
    assert answer.report is None
    assert "are not the same on" in str(answer.error)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head that trains nothing, and two nodes of one core."""
    pytest.importorskip("ray")
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for number in (1, 2):
        made.add_node(num_cpus=1, env_vars={"RAY_NODE": str(number)})
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own modules
def test_a_cluster_gives_the_scores_of_this_machine(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that raises on its node fails in words; the other has its scores."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY.format(rate=0.01))
    broken = 'raise ValueError("no memory left")'
    idea = IDEA.format(marks=tmp_path, seconds=0).replace("time.sleep(0)", broken)
    (tmp_path / "marks.py").write_text(idea)
    text = STUDY.format(rate=0.01).replace('"none"', '"./marks.py"')
    (tmp_path / "other.toml").write_text(text)
    asked = studies.find(["mine.toml", "other.toml"])
    options: dict[str, Any] = {"force": False, "progress": Progress()}
    there = {
        each.study: each
        for each in cluster.run_on_ray(asked, "there", address=nodes.address, **options)
    }
    assert there["other"].state == "failed"
    assert "no memory left" in str(there["other"].error)
    [mine] = studies.run_here(asked[:1], "mine", **options)
    full = [
        {name: arm["full"] for name, arm in outcome.report["bench_report"]["arms"].items()}
        for outcome in (there["mine"], mine)
        if outcome.report is not None
    ]
    assert full[0] == full[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own modules
def test_a_node_that_is_killed_loses_no_study(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are in the middle of a study when one dies: all finish, none is there twice."""
    marks = tmp_path / "marks"
    marks.mkdir()
    (tmp_path / "marks.py").write_text(IDEA.format(marks=marks, seconds=4))
    names = [f"study{number}" for number in range(4)]
    for place, name in enumerate(names, 1):
        text = STUDY.format(rate=place / 100)
        text = text.replace(
            '[arms.idea]\nintervention = "none"', '[arms.idea]\nintervention = "./marks.py"'
        )
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    victim = nodes.list_all_nodes()[-1]

    def kill_when_both_are_busy() -> None:
        while len({mark.read_text() for mark in marks.iterdir()}) < 2:
            threading.Event().wait(0.2)
        nodes.remove_node(victim, allow_graceful=False)

    killer = threading.Thread(target=kill_when_both_are_busy, daemon=True)
    killer.start()
    arguments = ["sweep", "*.toml", "--ray", nodes.address, "--json"]
    done = CliRunner().invoke(cli.cli, arguments)
    assert done.exit_code == 0, done.output
    assert not killer.is_alive()
    found = json.loads(done.stdout)["studies"]
    assert Counter(each["study"] for each in found) == Counter(names)
    assert {each["state"] for each in found} == {"done"}
    assert len(list(marks.iterdir())) > len(names), "one was begun twice"
    reports = sorted((tmp_path / "results").rglob("report.json"))
    assert [path.parent.parent.name for path in reports] == names
    for path in reports:
        check_report(storage.read_report(path))
    assert len(ledger.read(tmp_path / "results")) == len(names)
    begun = len(list(marks.iterdir()))
    again = CliRunner().invoke(cli.cli, arguments)
    assert {each["state"] for each in json.loads(again.stdout)["studies"]} == {"skipped"}
    assert len(list(marks.iterdir())) == begun
