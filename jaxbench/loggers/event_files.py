"""Studies in TensorBoard's event files: a folder for each study, in it one an arm and seed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxbench import storage
from jaxbench.loggers import entries
from jaxbench.loggers.destinations import needed

KIND = "tensorboard"
DEFAULT = "runs"
STUDY = "study"
"""The folder of what is of the whole study."""


class EventFiles:
    """A folder of event files, `FOLDER/<study>/<run id>/<arm>/seed-<seed>`."""

    def __init__(self, writer: Any, folder: Path) -> None:
        self.writer = writer
        self.folder = folder

    def log(self, report: Mapping[str, Any], files: Path) -> str:
        """Write a study's event files, in place of those that it had, and copy its files there.

        Nothing else in the folder is touched, which may be that of results too.
        """
        labels = entries.labels(report)
        folder = self.folder / labels["study"] / labels["run_id"]
        for before in folder.rglob("events.out.tfevents.*"):
            before.unlink()
        for each in entries.entries(report):
            with self.writer(str(folder / each.arm / f"seed-{each.seed}")) as writer:
                for name, values in each.curves.items():
                    for epoch, value in enumerate(values, 1):
                        if value is not None:
                            writer.add_scalar(name, value, epoch)
                for name, value in each.metrics.items():
                    writer.add_scalar(name, value, 0)
                if each.diverged_at is not None:
                    writer.add_text("diverged", f"at step {each.diverged_at}")
                chosen = {"arm": each.arm, "seed": each.seed, **each.settings}
                writer.add_hparams(chosen, each.metrics, name=".", global_step=0)
        with self.writer(str(folder / STUDY)) as writer:
            self._study(writer, report, files)
        shutil.copytree(files, folder / STUDY, dirs_exist_ok=True)
        return f"TensorBoard: {folder}"

    def _study(self, writer: Any, report: Mapping[str, Any], files: Path) -> None:
        """Write verdict and settings as text, the study's numbers, and its figures as images."""
        from matplotlib import image

        writer.add_text("verdict", str(report["verdict"]))
        writer.add_text("labels", _table(entries.labels(report)))
        writer.add_text("settings", _table(entries.settings(report)))
        for name, value in entries.metrics(report).items():
            writer.add_scalar(name, value, 0)
        for path in sorted((files / "figures").glob("*.png")):
            writer.add_image(path.stem, image.imread(path)[..., :3], 0, dataformats="HWC")


def _table(values: Mapping[str, Any]) -> str:
    """Write names and values as a Markdown table, as TensorBoard shows text."""
    rows = [f"| {name} | {str(value).replace('|', ' ')} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def connect(folder: str | None) -> EventFiles:
    """Open a folder of event files, `runs` if none is named.

    Raises:
        JaxbenchError: the package is missing, or the folder cannot be written.
    """
    writer = needed("tensorboardX", KIND).SummaryWriter
    chosen = Path(folder or DEFAULT).expanduser()
    storage.check_writable(chosen, f"--log-to {KIND}:FOLDER", "event files")
    return EventFiles(writer, chosen)
