"""Trained parameters of a study's evaluation runs, kept beside its report on request."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.storage import StorageError

if TYPE_CHECKING:
    from jaxbench.training.runs import TrainedRun

FOLDER = "params"


@dataclasses.dataclass(frozen=True)
class TrainedParams:
    """What one evaluation run trained.

    Attributes:
        params: the parameters, a nested dict of numpy arrays, as the arm's model takes them.
        state: the intervention's state, such as a mask, in plain dicts and lists.
        hyper: the run's hyperparameters, the learning rate included.
        diverged_at: the optimizer step at which it diverged, or None.
    """

    params: Any
    state: Any
    hyper: Mapping[str, float]
    diverged_at: int | None


def load_params(result: str | os.PathLike[str]) -> dict[str, dict[int, TrainedParams]]:
    """Load what `jaxbench run --keep-params` kept: `load_params(folder)[arm][seed].params`.

    Args:
        result: the folder of a result, or its `report.json`.

    Raises:
        JaxbenchError: no parameters were kept there.
    """
    from orbax.checkpoint import v1 as ocp

    path = Path(result)
    path = (path if path.is_dir() else path.parent).absolute() / FOLDER
    if not path.is_dir():
        raise JaxbenchError(
            f"no trained parameters in {path.parent}; expected a result of "
            f"`jaxbench run --keep-params`"
        )
    try:
        arms: Mapping[str, Any] = ocp.metadata(path).custom_metadata["arms"]
        arrays = ocp.load(path)
    except Exception as error:
        raise JaxbenchError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return {
        arm: {
            said["seed"]: TrainedParams(
                **{part: _filled(form, arrays, row) for part, form in about["forms"].items()},
                hyper=said["hyper"],
                diverged_at=said["diverged_at"],
            )
            for row, said in enumerate(about["runs"])
        }
        for arm, about in arms.items()
    }


def save_params(folder: Path, evaluated: Mapping[str, Sequence[TrainedRun]]) -> None:
    """Write every arm's evaluation runs into a result's folder, as one step.

    Raises:
        StorageError: the folder cannot be written.
    """
    from orbax.checkpoint import v1 as ocp

    arrays: dict[str, np.ndarray] = {}
    arms = {}
    for arm, runs in evaluated.items():
        forms = {
            part: _form([getattr(run, part) for run in runs], arrays)
            for part in ("params", "state")
        }
        about = [
            {"seed": run.run.seed, "hyper": dict(run.run.hyper), "diverged_at": run.diverged_at}
            for run in runs
        ]
        arms[arm] = {"forms": forms, "runs": about}
    path = folder.absolute() / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        ocp.save(path, arrays, custom_metadata={"arms": arms})
    except OSError as error:
        raise StorageError(
            f"trained parameters cannot be written to {path}: {error.strerror}"
        ) from error


def remove(folder: Path) -> None:
    """Remove what an earlier run of the same study kept."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _form(trees: Sequence[Any], arrays: dict[str, np.ndarray]) -> Any:
    """Stack equal trees of arrays into `arrays`, and give their form in plain dicts and lists.

    A form is `{"dict": {key: form}}`, `{"list": [form]}`, or where an array is, and what it is.
    """
    first = trees[0]
    if first is None:
        return {"list": []}
    if hasattr(first, "_asdict"):
        return _form([tree._asdict() for tree in trees], arrays)
    if isinstance(first, Mapping):
        return {"dict": {key: _form([tree[key] for tree in trees], arrays) for key in first}}
    if isinstance(first, tuple | list):
        return {"list": [_form(list(parts), arrays) for parts in zip(*trees, strict=True)]}
    stacked, label = np.stack(trees), f"array{len(arrays)}"
    if stacked.size:  # orbax writes no empty ones
        arrays[label] = stacked
    return {"array": label, "shape": list(stacked.shape[1:]), "dtype": str(stacked.dtype)}


def _filled(form: Mapping[str, Any], arrays: Mapping[str, np.ndarray], row: int) -> Any:
    """Undo `_form` for one run."""
    if "dict" in form:
        return {key: _filled(each, arrays, row) for key, each in form["dict"].items()}
    if "list" in form:
        return [_filled(each, arrays, row) for each in form["list"]]
    if 0 in form["shape"]:
        return np.zeros(form["shape"], np.dtype(form["dtype"]))
    return np.asarray(arrays[form["array"]][row])
