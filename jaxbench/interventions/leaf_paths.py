"""Leaves of any parameter pytree by their paths: dict keys, sequence indices, attribute names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxbench.base import PyTree

Path = tuple[str | int, ...]


def leaf_at(params: PyTree, path: Path) -> Any:
    """The leaf of `params` at `path`.

    Raises:
        JaxbenchError: there is none; the text names the nearest.
    """
    return _leaves_at(params, [path])[path]


def replace_leaves(params: PyTree, leaves: Mapping[Path, Any]) -> PyTree:
    """The same tree with other leaves, {path: leaf}, which may have other shapes."""
    _leaves_at(params, leaves)
    return jax.tree_util.tree_map_with_path(
        lambda entries, leaf: leaves.get(path_of(entries), leaf), params
    )


def path_of(entries: Sequence[Any]) -> Path:
    """The names in a key path of jax: dict keys, sequence indices, attribute names."""
    return tuple(
        next(getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name))
        for entry in entries
    )


def path_text(path: Path) -> str:
    """A path as people write it, `GRUCell_0/hr/kernel`."""
    return "/".join(map(str, path))


def _leaves_at(params: PyTree, paths: Iterable[Path]) -> dict[Path, Any]:
    found, _ = jax.tree_util.tree_flatten_with_path(params)
    leaves = {path_of(entries): leaf for entries, leaf in found}
    for path in paths:
        if path not in leaves:
            names = [path_text(each) for each in leaves]
            near = difflib.get_close_matches(path_text(path), names, n=1, cutoff=0.0)
            raise JaxbenchError(
                f"the parameters have no leaf {path_text(path)!r}; "
                + (f"the nearest is {near[0]!r}" if near else "they have no leaf at all")
                + ", so describe the layer's slices for this network"
            )
    return {path: leaves[path] for path in paths}
