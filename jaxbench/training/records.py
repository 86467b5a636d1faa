"""What checkpoints keep of runs: names of runs, and rows of arrays in place of trees."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxbench.training.checkpoints import CheckpointError, Row
from jaxbench.training.layout import Layout
from jaxbench.training.program import Carry
from jaxbench.training.runs import Run, TrainedRun


def run_key(layout: Layout, recipe_key: str, run: Run, *more: Any) -> str:
    """Name a run by all that decides its numbers."""
    hyper = sorted((name, float(value)) for name, value in run.hyper.items())
    said = [layout.slots, layout.vectorized, recipe_key, hyper, run.streams, *more]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:24]


def trunk_keys(layout: Layout, runs: Sequence[Run]) -> list[str]:
    """Name what runs are before their first surgery."""
    return [
        run_key(layout, run.recipe.training_key, run, run.recipe.phases[0].epochs) for run in runs
    ]


def trained_keys(layout: Layout, runs: Sequence[Run]) -> list[str]:
    """Name runs by what they come to."""
    return [run_key(layout, run.recipe.full_key, run) for run in runs]


def measured_keys(layout: Layout, networks: Sequence[TrainedRun]) -> list[str]:
    """Name networks to be measured by their parameters too, which may be another recipe's."""
    return [
        run_key(
            layout,
            each.run.recipe.full_key,
            each.run,
            each.diverged_at is not None,
            _digest((each.params, each.state)),
        )
        for each in networks
    ]


def state_row(carry: Carry, curves: Mapping[str, np.ndarray]) -> Row:
    """Keep the state of a run in training, and its curves so far [epochs]."""
    return _named("carry", carry) | _curves(curves)


def state_of(row: Row, described: Carry) -> tuple[Carry, dict[str, np.ndarray]]:
    """Undo `state_row`; `described` is like the carry that it was, with a leading axis of runs.

    Raises:
        CheckpointError: another shape or type than this study's.
    """
    return _rebuilt("carry", row, described), _curves_of(row)


def trained_row(each: TrainedRun) -> Row:
    """Keep what a run came to."""
    at = -1 if each.diverged_at is None else each.diverged_at
    row = _curves(each.curves) | {
        "validation": np.asarray(each.validation),
        "test": np.asarray(each.test),
        "diverged_at": np.asarray(at),
    }
    if each.params is not None:
        row |= _named("kept", (each.params, each.state)) | {"kept": np.asarray(True)}
    return row


def has_parameters(row: Row) -> bool:
    """Whether a trained run's parameters were kept."""
    return "kept" in row


def trained_run(run: Run, row: Row, described: Any) -> TrainedRun:
    """Undo `trained_row`; `described` is like (parameters, state), or None to leave them out.

    Raises:
        CheckpointError: another shape or type than this study's.
    """
    at = int(row["diverged_at"])
    params, state = (None, None) if described is None else _rebuilt("kept", row, described)
    return TrainedRun(
        run=run,
        validation=float(row["validation"]),
        test=float(row["test"]),
        diverged_at=None if at == -1 else at,
        curves=_curves_of(row),
        params=params,
        state=state,
    )


def _curves(curves: Mapping[str, np.ndarray]) -> Row:
    return {f"curve.{name}": np.asarray(curve) for name, curve in curves.items()}


def _curves_of(row: Row) -> Row:
    start = "curve."
    return {name.removeprefix(start): row[name] for name in row if name.startswith(start)}


def _named(prefix: str, tree: Any) -> Row:
    """Name the leaves of a host tree by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{prefix}{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in leaves}


def _rebuilt(prefix: str, row: Row, described: Any) -> Any:
    """Undo `_named`, checking every leaf."""

    def leaf(path: Any, wanted: Any) -> np.ndarray:
        name = f"{prefix}{jax.tree_util.keystr(path)}"
        found = row.get(name)
        shape, dtype = tuple(wanted.shape[1:]), np.dtype(wanted.dtype)
        if found is None or found.shape != shape or found.dtype != dtype:
            what = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise CheckpointError(
                f"the checkpoint does not fit this study: {name} is {what} there and {dtype} "
                f"{list(shape)} here; start anew with --force"
            )
        return found

    return jax.tree_util.tree_map_with_path(leaf, described)


def _digest(tree: Any) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
