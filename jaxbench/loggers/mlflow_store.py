"""Studies in an MLflow store: a run for each study, and below it one for each arm and seed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxbench import storage
from jaxbench.base import JaxbenchError
from jaxbench.loggers import entries
from jaxbench.loggers.destinations import needed

KIND = "mlflow"
DEFAULT = "sqlite:///mlflow.db"
SQLITE = "sqlite:///"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
RUN_ID = "jaxbench.run_id"
LONGEST = 5000
"""Characters of a value; stores take 6000 of a parameter and 8000 of a tag."""
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100
IMPATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}
"""How often, and for how many seconds, a server is asked whether it is there.

MLflow's own are 7 and 120, which are minutes, and good for what was trained already.
"""


class MlflowStore:
    """A store, reached by MLflow's client, which changes nothing of MLflow in this process."""

    def __init__(self, client: Any, uri: str) -> None:
        self.client = client
        self.uri = uri

    def log(self, report: Mapping[str, Any], files: Path) -> str:
        """Log a study as a run of the experiment that has the study's name."""
        labels = entries.labels(report)
        experiment = self._experiment(labels["study"])
        self._forget(experiment, labels["run_id"])
        tags = {f"jaxbench.{name}": value for name, value in labels.items()}
        tags["mlflow.note.content"] = str(report["verdict"])
        parent = self._run(experiment, labels["run_id"], tags)
        self._batch(parent, entries.settings(report), entries.metrics(report), {})
        for each in entries.entries(report):
            child = self._run(
                experiment,
                f"{each.arm}, seed {each.seed}",
                {
                    "mlflow.parentRunId": parent,
                    RUN_ID: labels["run_id"],
                    "jaxbench.arm": each.arm,
                    "jaxbench.seed": str(each.seed),
                    "jaxbench.diverged_at": str(each.diverged_at),
                },
            )
            self._batch(child, {**each.settings, "seed": each.seed}, each.metrics, each.curves)
            diverged = each.diverged_at is not None
            self.client.set_terminated(child, "FAILED" if diverged else "FINISHED")
        self.client.log_artifacts(parent, str(files))
        self.client.set_terminated(parent)
        return f"MLflow: {self.uri}, experiment {labels['study']}, run {parent}"

    def _experiment(self, name: str) -> str:
        """Find the experiment, or make it; the files of a SQLite store lie beside it."""
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        beside = None
        if self.uri.startswith(SQLITE):
            database = Path(self.uri.removeprefix(SQLITE)).absolute()
            beside = (database.parent / "mlruns" / name).as_uri()
        return str(self.client.create_experiment(name, artifact_location=beside))

    def _forget(self, experiment: str, run_id: str) -> None:
        """Delete what was logged of the same study before, so that it is there once."""
        while True:
            found = self.client.search_runs([experiment], f"tags.`{RUN_ID}` = '{run_id}'")
            if not found:
                return
            for each in found:
                self.client.delete_run(each.info.run_id)

    def _run(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        cut = {key: value[:LONGEST] for key, value in tags.items()}
        return str(self.client.create_run(experiment, run_name=name, tags=cut).info.run_id)

    def _batch(
        self,
        run: str,
        settings: Mapping[str, Any],
        metrics: Mapping[str, float],
        curves: Mapping[str, list[float | None]],
    ) -> None:
        """Log parameters, numbers, and curves by epoch from 1 on, as few calls as the store takes.

        A number keeps its name but for characters that MLflow refuses.
        """
        entities = needed("mlflow.entities", KIND)
        now = int(time.time() * 1000)
        points = [entities.Metric(allowed(name), value, now, 0) for name, value in metrics.items()]
        for name, values in curves.items():
            points += [
                entities.Metric(allowed(name), float(value), now, epoch)
                for epoch, value in enumerate(values, 1)
                if value is not None
            ]
        params = [
            entities.Param(allowed(name), str(value)[:LONGEST]) for name, value in settings.items()
        ]
        for start in range(0, len(params), PARAMS_AT_ONCE):
            self.client.log_batch(run, params=params[start : start + PARAMS_AT_ONCE])
        for start in range(0, len(points), METRICS_AT_ONCE):
            self.client.log_batch(run, metrics=points[start : start + METRICS_AT_ONCE])


def allowed(name: str) -> str:
    """Write a name with the characters that MLflow takes: others become `_`."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in name)


def in_memory(uri: str) -> bool:
    """Tell whether a URI is that of a SQLite database without a file.

    As SQLAlchemy reads it: `sqlite://`, `sqlite:///` and `sqlite:///:memory:`, whatever the driver.
    """
    scheme, separator, rest = uri.partition("://")
    if scheme.partition("+")[0] != "sqlite" or not separator:
        return False
    file, _, query = rest.partition("?")
    return file.strip("/") == "" or ":memory:" in file or "mode=memory" in query.split("&")


@contextlib.contextmanager
def impatience() -> Iterator[None]:
    """Have MLflow give up a server soon, where the environment does not say when."""
    ours = [name for name in IMPATIENCE if name not in os.environ]
    os.environ.update({name: IMPATIENCE[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def connect(uri: str | None) -> MlflowStore:
    """Open a store: that of the URI, of `MLFLOW_TRACKING_URI`, or `mlflow.db` in this folder.

    Raises:
        JaxbenchError: a package is missing, the store would be gone with this process, or it does
            not answer.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    if in_memory(chosen):
        raise JaxbenchError(
            f"the MLflow store {chosen} is in memory, so that nothing of it would stay; name a "
            f"file: --log-to {KIND}:{DEFAULT}"
        )
    needed("mlflow", KIND)
    if chosen.startswith(DATABASES):
        needed("sqlalchemy", KIND)
        needed("alembic", KIND)
    if chosen.startswith(SQLITE):  # MLflow would try for minutes
        file = Path(chosen.removeprefix(SQLITE)).absolute()
        if file.is_dir():
            raise JaxbenchError(
                f"the MLflow store {chosen} is a folder; name a file: --log-to {KIND}:{DEFAULT}"
            )
        folder = file.parent
        storage.check_writable(folder, f"--log-to {KIND}:{SQLITE}FILE", "an MLflow store")
        folder.mkdir(parents=True, exist_ok=True)
    client_of = needed("mlflow.tracking", KIND).MlflowClient
    try:
        with impatience():
            client = client_of(tracking_uri=chosen)
            client.search_experiments(max_results=1)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise JaxbenchError(f"the MLflow store {chosen} does not answer: {text}") from error
    return MlflowStore(client, chosen)
