"""Data that are not generated: a pool of samples, of which each seed draws its own splits.

The pool is a constant of the compiled program that starts a run, so what a seed draws is decided
inside that program, by its key alone, as with generated data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxtyping import Array, Int

    from jaxbench.base import Key


def check_sizes(sizes: Sequence[int], samples: int, where: str) -> None:
    """Refuse splits that need more samples than there are.

    Raises:
        JaxbenchError: saying how many there are.
    """
    if sum(sizes) > samples:
        asked = " + ".join(map(str, sizes))
        raise JaxbenchError(
            f"the splits need {asked} = {sum(sizes)} samples, but {where} has {samples}; make "
            f"them smaller"
        )


def digest(*arrays: np.ndarray) -> str:
    """Compute the SHA-256 (hexadecimal) of a pool's arrays, types and shapes included.

    A track whose data are the user's has it among its options, so that other data never pass for
    the same.
    """
    told = hashlib.sha256()
    for each in arrays:
        told.update(f"{each.dtype.str}{each.shape}".encode() + np.ascontiguousarray(each).data)
    return told.hexdigest()


def split(key: Key, samples: int, sizes: Sequence[int]) -> list[Int[Array, " size"]]:
    """Draw the indices of disjoint splits, every choice equally likely."""
    return cut(jax.random.permutation(key, samples), sizes)


def stratified_split(
    key: Key, labels: Int[np.ndarray, " samples"], sizes: Sequence[int]
) -> list[Int[Array, " size"]]:
    """Draw the indices of disjoint splits in each of which classes are as frequent as in the pool.

    The `r`-th sample of class `c` in a random order stands at `(r + u_c) / n_c`, with one `u_c` a
    class, uniform on [0, 1); the splits are cut from all samples in the order of where they stand
    (systematic sampling: Cochran, Sampling Techniques, chapter 8).  No class of a cut is further
    than two samples from its share.

    Args:
        key: decides everything.
        labels: of the pool, known beforehand.
        sizes: of the splits.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    by_class = np.argsort(classes, kind="stable")
    starts = np.cumsum(counts) - counts
    own = classes[by_class]
    order_key, place_key = jax.random.split(key)
    drawn = jax.random.uniform(order_key, (len(labels),))
    shuffled = jnp.lexsort((drawn, jnp.asarray(own)))  # classes stay where they are
    first = jax.random.uniform(place_key, (len(counts),))
    ranks = jnp.asarray(np.arange(len(labels)) - starts[own], drawn.dtype)
    places = (ranks + first[own]) / jnp.asarray(counts[own], drawn.dtype)
    order = jnp.asarray(by_class)[shuffled][jnp.argsort(places)]
    return cut(order, sizes)


def cut(order: Int[Array, " samples"], sizes: Sequence[int]) -> list[Int[Array, " size"]]:
    """Cut the beginning of an order of samples into splits."""
    return jnp.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])
