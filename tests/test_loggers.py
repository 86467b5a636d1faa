"""Judged studies in an MLflow store and in event files: all of a report, once, if asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from factories import STUDY
from reporting.sample import report_of
from reporting.test_html_page import full_report

import jaxbench
from jaxbench import cli, storage
from jaxbench.base import JaxbenchError
from jaxbench.loggers import destinations, entries, mlflow_store

COMMITTED = sorted((Path(__file__).parents[1] / "results").glob("*/*/report.json"))


# Entries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", COMMITTED[:3], ids=lambda path: path.parts[-3])
def test_every_run_of_a_report_is_an_entry(path: Path) -> None:
    report = storage.read_report(path)
    arms = report["bench_report"]["arms"]
    found = list(entries.entries(report))
    for name, arm in arms.items():
        own = [each for each in found if each.arm == name]
        assert [each.metrics.get(entries.SCORE) for each in own] == arm["full"]["per_seed"]
        assert [each.curves["train_loss"] for each in own] == arm["curves"]["train_loss"]
        assert all(
            each.settings["learning_rate"] == arm["best_cfg"]["learning_rate"] for each in own
        )
    assert len(found) == sum(arm["full"]["n"] for arm in arms.values())


def test_a_diverged_run_has_no_score_and_says_when() -> None:
    report = full_report()
    full = report["bench_report"]["arms"]["idea"]["full"]
    full["per_seed"][2], full["diverged"] = None, [{"seed": 2, "step": 17}]
    found = [each for each in entries.entries(report) if each.arm == "idea"]
    assert found[2].diverged_at == 17
    assert entries.SCORE not in found[2].metrics
    assert found[1].diverged_at is None


def test_names_are_dotted_and_lists_are_json() -> None:
    document = {"a": {"b": [1, 2], "c": {"d": None, "e": 3}}, "f": "g"}
    assert entries.flattened(document) == {"a.b": "[1, 2]", "a.c.e": 3, "f": "g"}


# Destinations -------------------------------------------------------------------------------------


def test_what_names_no_logger_is_refused() -> None:
    assert destinations.split("mlflow:sqlite:///a.db") == ("mlflow", "sqlite:///a.db")
    assert destinations.split("tensorboard") == ("tensorboard", None)
    with pytest.raises(JaxbenchError, match="did you mean mlflow"):
        destinations.split("mlfow")
    with pytest.raises(JaxbenchError, match="tensorboard:FOLDER"):
        destinations.split("tensorboard:")
    done = CliRunner().invoke(cli.cli, ["run", "stability_penalty", "--log-to", "wandb"])
    assert done.exit_code == 2
    assert "expected mlflow" in done.stderr


@pytest.mark.parametrize(
    ("module", "kind"), [("mlflow", "mlflow"), ("tensorboardX", "tensorboard")]
)
def test_a_missing_package_is_told_before_training(
    module: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(JaxbenchError, match=rf"pip install 'jaxbench\[{kind}\]'"):
        destinations.connect(kind)
    trained = types.ModuleType("jaxbench.study")
    monkeypatch.setitem(sys.modules, "jaxbench.study", trained)  # which cannot run anything
    (tmp_path / "study.toml").write_text(STUDY.format(rate=0.01))
    arguments = ["sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path), "--log-to", kind]
    done = CliRunner().invoke(cli.cli, arguments)
    assert done.exit_code == 2
    assert f"jaxbench[{kind}]" in done.stderr


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite:///:memory:",
        "sqlite:///file:a?mode=memory&uri=true",
    ],
)  # fmt: skip
def test_a_store_in_memory_is_refused(uri: str) -> None:
    """With or without MLflow installed."""
    with pytest.raises(JaxbenchError, match=r"in memory.*--log-to mlflow:sqlite:///mlflow\.db"):
        destinations.connect(f"mlflow:{uri}")
    for kept in ("sqlite:///memory.db", "sqlite:////tmp/a.db", "http://:memory:", "runs"):
        assert not mlflow_store.in_memory(kept)


def test_a_server_is_given_up_soon_unless_the_environment_says_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MLflow's own patience is back for what was trained."""
    retries, timeout = mlflow_store.IMPATIENCE
    monkeypatch.setenv(retries, "5")
    monkeypatch.delenv(timeout, raising=False)
    with mlflow_store.impatience():
        assert os.environ[retries] == "5"
        assert os.environ[timeout] == mlflow_store.IMPATIENCE[timeout]
    assert os.environ[retries] == "5"
    assert timeout not in os.environ


def test_nothing_is_imported_unless_asked() -> None:
    code = (
        "import sys, jaxbench.cli, jaxbench.study, jaxbench.loggers.destinations as d\n"
        "assert d.connect(()) == []\n"
        "print({'mlflow', 'tensorboardX', 'sqlalchemy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Commands -----------------------------------------------------------------------------------------


class Recorder:
    """A logger that keeps what it gets, and may fail."""

    def __init__(self) -> None:
        self.logged: list[str] = []
        self.fails = False

    def log(self, report: Mapping[str, Any], files: Path) -> str:
        """Check what is there, and keep the study's name."""
        if self.fails:
            raise OSError("no room")
        assert json.loads((files / "report.json").read_text()) == json.loads(json.dumps(report))
        assert (files / "report.html").exists()
        assert list((files / "figures").glob("*.png"))
        self.logged.append(report["bench_report"]["study"])
        return "somewhere"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """A logger in place of those that were asked for, and a study that trains nothing."""
    found = Recorder()
    monkeypatch.setattr(destinations, "connect", lambda asked: [found] if asked else [])

    def run_study(config: Any, **_: Any) -> dict[str, Any]:
        return report_of(config)

    module = types.ModuleType("jaxbench.study")
    module.run_study = run_study  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jaxbench.study", module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.toml").write_text(STUDY.format(rate=0.01))
    return found


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.cli, [*arguments, "--log-to", "tensorboard", "--quiet"])


def test_a_study_is_logged_when_it_ran_and_when_it_is_shown(recorder: Recorder) -> None:
    for _ in range(2):
        done = invoke("run", "one.toml")
        assert done.exit_code == 0, done.output
        assert "logged: somewhere" in done.stdout
    assert invoke("sweep", "one.toml").exit_code == 0
    assert recorder.logged == ["one"] * 3


def test_a_logger_that_fails_loses_no_report(recorder: Recorder, tmp_path: Path) -> None:
    recorder.fails = True
    done = invoke("sweep", "one.toml")
    assert done.exit_code == 1
    assert "no room" in done.output
    assert list(tmp_path.glob("results/one/*/report.json"))
    done = invoke("run", "one.toml", "--force")
    assert done.exit_code == 1
    assert "could not be logged: OSError: no room" in done.stderr
    with pytest.raises(destinations.LoggerError) as raised:
        jaxbench.run_study("one.toml", log_to="tensorboard")
    assert raised.value.report is not None
    assert raised.value.report["bench_report"]["study"] == "one"


# Stores -------------------------------------------------------------------------------------------


def logged_twice(destination: str) -> dict[str, Any]:
    """Log the full report, with a diverged run, two times; one is expected to be there."""
    report = full_report()
    idea = report["bench_report"]["arms"]["idea"]["full"]
    idea["per_seed"][2], idea["diverged"] = None, [{"seed": 2, "step": 17}]
    loggers = destinations.connect([destination, destination])
    assert len(loggers) == 1
    for _ in range(2):
        destinations.log(loggers, report)
    return report


@pytest.mark.slow
def test_mlflow_in_a_sqlite_store(tmp_path: Path) -> None:
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package)
    uri = f"sqlite:///{tmp_path}/store.db"
    report = logged_twice(f"mlflow:{uri}")
    bench = report["bench_report"]
    client = sys.modules["mlflow"].tracking.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(bench["study"])
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    (parent,) = [run for run in runs if run not in children]
    assert len(children) == 16
    assert parent.data.metrics["p_value"] == bench["comparison"]["p_value"]
    assert parent.data.tags["jaxbench.practical_verdict"] == report["practical_verdict"]
    assert parent.data.tags["mlflow.note.content"] == report["verdict"]
    assert parent.data.params == {k: str(v) for k, v in entries.settings(report).items()}
    artefacts = {each.path for each in client.list_artifacts(parent.info.run_id)}
    assert artefacts == {"report.json", "report.html", "figures"}
    kept = Path(client.download_artifacts(parent.info.run_id, "report.json", str(tmp_path)))
    assert json.loads(kept.read_text()) == json.loads(json.dumps(report))
    for name in ("baseline", "idea"):
        arm = bench["arms"][name]
        for run in children:
            if run.data.tags["jaxbench.arm"] != name:
                continue
            assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
            seed = int(run.data.params["seed"])
            assert run.data.metrics.get(entries.SCORE) == arm["full"]["per_seed"][seed]
            diverged = name == "idea" and seed == 2
            assert run.info.status == ("FAILED" if diverged else "FINISHED")
            history = client.get_metric_history(run.info.run_id, "train_loss")
            assert [point.step for point in history] == [1, 2, 3]
            assert [point.value for point in history] == arm["curves"]["train_loss"][seed]
            assert float(run.data.params["learning_rate"]) == arm["best_cfg"]["learning_rate"]


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_told_of(tmp_path: Path) -> None:
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package)
    (tmp_path / "file").touch()
    with pytest.raises(JaxbenchError, match="it is not a folder; choose another --log-to mlflow"):
        destinations.connect(f"mlflow:sqlite:///{tmp_path}/file/store.db")
    with pytest.raises(JaxbenchError, match="does not answer"):
        destinations.connect("mlflow:no_such_scheme://here")


@pytest.mark.slow
def test_event_files_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    pytest.importorskip("tensorboard", reason="it reads the event files: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    report = logged_twice(f"tensorboard:{tmp_path}")
    bench = report["bench_report"]
    folder = tmp_path / bench["study"] / bench["run_id"]

    def events(where: str) -> Any:
        found = EventAccumulator(str(folder / where), size_guidance={"images": 0})
        return found.Reload()

    for name in ("baseline", "idea"):
        arm = bench["arms"][name]
        for seed, score in enumerate(arm["full"]["per_seed"]):
            found = events(f"{name}/seed-{seed}")
            points = found.Scalars("train_loss")
            assert [point.step for point in points] == [1, 2, 3]
            assert [point.value for point in points] == pytest.approx(
                arm["curves"]["train_loss"][seed]
            )
            if score is None:
                assert entries.SCORE not in found.Tags()["scalars"]
            else:
                values = [point.value for point in found.Scalars(entries.SCORE)]
                assert values == pytest.approx([score] * len(values), rel=1e-6)
    study = events("study")
    assert study.Scalars("p_value")[0].value == pytest.approx(bench["comparison"]["p_value"])
    (verdict,) = study.Tensors("verdict/text_summary")
    assert verdict.tensor_proto.string_val[0].decode() == report["verdict"]
    assert "pairs" in study.Tags()["images"]
    assert (folder / "study" / "report.html").exists()
