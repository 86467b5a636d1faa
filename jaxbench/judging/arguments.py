"""Arguments: the checks that every entry of this package makes, with errors that can be mended."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import ArrayLike

Direction = Literal["lower", "higher"]


def one_of(value: str, choices: Sequence[str], name: str) -> None:
    """Refuse a word that is not among `choices`, naming the nearest one that is.

    Raises:
        JaxbenchError: `value` is not a choice.
    """
    if value in choices:
        return
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)[0]
    raise JaxbenchError(
        f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}. "
        f"Did you mean {near!r}?"
    )


def sign_of_better(direction: Direction) -> int:
    """Give the sign that idea minus baseline has where the idea is better: -1 for `lower`."""
    one_of(direction, get_args(Direction), "direction")
    return 1 if direction == "higher" else -1


def check_fraction(value: float, name: str) -> None:
    """Refuse a number that does not lie strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise JaxbenchError(
            f"{name} must lie strictly between 0 and 1; got {value!r}. Give it as a fraction, "
            f"such as 0.05 for 5 %."
        )


def check_at_least(value: float, least: float, name: str) -> None:
    """Refuse a number below `least`, and one that is no finite number."""
    if not least <= value < float("inf"):
        raise JaxbenchError(f"{name} must be a finite number of at least {least}; got {value!r}.")


def vector(values: ArrayLike, name: str) -> Float[np.ndarray, " pairs"]:
    """Read one number a seed as float64; None, as JSON has it for a diverged run, becomes NaN.

    Raises:
        JaxbenchError: not a flat list of numbers, or fewer than two of them.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise JaxbenchError(f"{name} must be numbers, one a seed; {error}.") from error
    if array.ndim != 1:
        raise JaxbenchError(
            f"{name} must be a flat list with one number a seed; got the shape {array.shape}. "
            f"Reduce each seed to one number first: rows of one seed are not independent."
        )
    if array.size < 2:
        raise JaxbenchError(
            f"{name} must have at least 2 seeds to show any spread; got {array.size}. "
            f"Run more seeds."
        )
    return array


def finite_vector(differences: ArrayLike) -> Float[np.ndarray, " pairs"]:
    """Read finite paired differences, idea minus baseline, one a seed.

    Raises:
        JaxbenchError: as `vector`, or a difference is not finite: no statistic of the mean exists
            then, and a comparison on ranks does.
    """
    array = vector(differences, "differences")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise JaxbenchError(
            f"differences must be finite; {bad} of {array.size} are not. "
            f"Use compare() or signed_rank_test(), which rank a diverged run as the worst outcome."
        )
    return array
