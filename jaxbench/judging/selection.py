"""Selection: the best configuration of an arm, and whether its grid brackets it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jaxbench.base import JaxbenchError
from jaxbench.judging.arguments import Direction, one_of, sign_of_better
from jaxbench.judging.pairs import LARGEST_SCORE, with_gaps

if TYPE_CHECKING:
    from jaxtyping import Bool
    from numpy.typing import ArrayLike

ADVICE = "Lower the learning rates of the grid."
"""What to do where every configuration diverges and nothing else made it."""

V1_BASELINE_SEEDS = 4

V1_ASYMMETRY = (
    "Selected as in the reference reports: on the scores that are compared, the baseline by the "
    "mean of its evaluation seeds 0-3 and the idea by the mean of all. The arms are treated "
    "differently, and the comparison is biased in favour of the idea."
)


@dataclasses.dataclass(frozen=True)
class Selection:
    """The configuration that an arm takes into the comparison.

    Attributes:
        index: of the best configuration; of equals the first.
        means: score of each configuration, over the seeds; None where a run diverged.
        diverged: how many runs of each configuration diverged.
        seeds: how many seeds it was selected on.
    """

    index: int
    means: tuple[float | None, ...]
    diverged: tuple[int, ...]
    seeds: int


def select(scores: ArrayLike, direction: Direction) -> Selection:
    """Select the configuration with the best mean score over seeds.

    A configuration of which any run diverged cannot win.

    Args:
        scores: [configurations, seeds], of the tuning seeds; NaN or infinite means diverged.
        direction: in which the score improves.

    Raises:
        JaxbenchError: not a table of numbers, no configuration or no seed, an unknown direction, or
            every configuration has a diverged run.
    """
    better = sign_of_better(direction)
    try:
        table = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise JaxbenchError(f"scores must be a table of numbers; {error}.") from error
    if table.ndim != 2 or table.size == 0:
        raise JaxbenchError(
            f"scores must have one row a configuration and one column a seed, at least one "
            f"of each; got the shape {table.shape}."
        )
    lost = ~(np.abs(table) < LARGEST_SCORE)
    barred: Bool[np.ndarray, " configurations"] = np.any(lost, axis=1)
    if barred.all():
        raise JaxbenchError(
            f"all {len(table)} configurations have a run that diverged on the tuning seeds, so "
            f"none can be selected. {ADVICE}"
        )
    means = np.where(lost, 0.0, table).mean(axis=1)
    ranked = np.where(barred, -np.inf, better * means)
    return Selection(
        index=int(np.argmax(ranked)),
        means=with_gaps(means, barred),
        diverged=tuple(int(count) for count in lost.sum(axis=1)),
        seeds=table.shape[1],
    )


def select_v1(
    scores: ArrayLike, direction: Direction, *, arm: Literal["baseline", "idea"]
) -> Selection:
    """Select as the reference reports did; see `V1_ASYMMETRY`, which the report must show.

    Args:
        scores: [configurations, seeds], of the evaluation seeds on the test split.
        direction: in which the score improves.
        arm: the baseline is selected on its first four seeds, an idea on all.

    Raises:
        JaxbenchError: as `select`, or an unknown arm.
    """
    one_of(arm, ("baseline", "idea"), "arm")
    table = np.asarray(scores)
    return select(table[..., :V1_BASELINE_SEEDS] if arm == "baseline" else table, direction)


def edge_of_grid(
    configurations: Sequence[Mapping[str, Any]], selected: Mapping[str, Any]
) -> dict[str, Literal["low", "high"] | None]:
    """Say for each numeric hyperparameter at which edge of its grid the selected value lies.

    Args:
        configurations: all of the arm's.
        selected: the one that won.

    Returns:
        `low`, `high`, or None for an interior value; hyperparameters with one value are left out.
    """
    edges: dict[str, Literal["low", "high"] | None] = {}
    for name, value in selected.items():
        values = {configuration[name] for configuration in configurations if name in configuration}
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        if len(values) > 1 and numeric:
            at_high: Literal["high"] | None = "high" if value == max(values) else None
            edges[name] = "low" if value == min(values) else at_high
    return edges
