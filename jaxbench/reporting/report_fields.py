"""Fields of a report: where each kind of report puts its arms, scores, sweeps and comparisons."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jaxbench.judging.arguments import Direction
from jaxbench.reporting.written import Written, numbers, walk
from jaxbench.toml_text import Place

ARMS = ("baseline", "idea")
SCORES = re.compile(r"(^|_)per_seed($|_(scores?|mse|test_mse|loss|accuracy)$)|^(seed_)?scores$")
SWEEP = re.compile(r"sweep|grid|trials|curve")
CONFIGURATION = re.compile(r"^(cfg|config|configuration|hyper|hyperparameters|params)$")
CHOSEN = re.compile(r"(best|selected|chosen|idea|baseline)_?(cfg|config|configuration|hyper\w*)$")
COMPARED = {"delta_mean", "idea_wins", "n_pairs", "p_value", "per_seed_diffs", "mde"}
SUMMARIES = ("full", "result", "test", "evaluation", "summary")
DIRECTIONS = {"metric_direction", "direction"}


@dataclasses.dataclass(frozen=True)
class Arm:
    """An arm's scores on the seeds that are compared.

    Attributes:
        place: of the list of scores, or of the mean where there is none.
        scores: one a seed, None where a run diverged; None where the report leaves them out.
        mean: as the report states it, or None.
        mean_place: where.
    """

    place: Place
    scores: list[Written | None] | None
    mean: Written | None
    mean_place: Place


@dataclasses.dataclass(frozen=True)
class Trial:
    """One configuration that was tried, and how it scored."""

    place: Place
    cfg: Mapping[str, Any]
    mean: Written | None
    mean_place: Place
    scores: list[Written | None] | None
    diverged: bool


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What an arm tried."""

    place: Place
    arm: str
    trials: list[Trial]


class Fields:
    """A report's fields, wherever it puts them."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self.everything = list(walk(document))

    @functools.cached_property
    def directions(self) -> dict[Place, Direction]:
        """Each place that states in which direction the score improves."""
        found: dict[Place, Direction] = {}
        for place, value in self.everything:
            if place and place[-1] in DIRECTIONS and isinstance(value, str):
                words = [word for word in ("lower", "higher") if word in value.lower()]
                if len(words) == 1:
                    found[place] = "lower" if words == ["lower"] else "higher"
        return found

    @property
    def direction(self) -> Direction | None:
        """In which direction the score improves; None where the report does not say."""
        return next(iter(self.directions.values()), None)

    @functools.cached_property
    def arms(self) -> dict[str, Arm]:
        """Each arm by its name; `baseline` and `idea` in the reports that name no others."""
        found: dict[str, Arm | None] = {}
        for place, name in self._named_arms():
            arm, before = self.arm_at((*place, name)), found.get(name)
            if before is None or (before.scores is None and arm is not None and arm.scores):
                found[name] = arm
        for name in ARMS:
            if found.get(name) is None:
                found[name] = self._loose_arm(name)
        return {name: arm for name, arm in found.items() if arm is not None}

    @functools.cached_property
    def comparisons(self) -> list[Place]:
        """Every table that compares two arms."""
        return [
            place
            for place, value in self.everything
            if isinstance(value, Mapping) and len(COMPARED & value.keys()) >= 2
        ]

    @functools.cached_property
    def sweeps(self) -> list[Sweep]:
        """Every list of configurations with their scores, except copies."""
        found: list[Sweep] = []
        for place, value in self.everything:
            if not isinstance(value, list) or not value or not _is_sweep(place):
                continue
            trials = [_trial((*place, index), entry) for index, entry in enumerate(value)]
            whole = [trial for trial in trials if trial is not None]
            arm = self.arm_of(place)
            if len(whole) == len(trials) and arm is not None:
                found.append(Sweep(place, arm, whole))
        return found

    @functools.cached_property
    def chosen(self) -> list[tuple[Place, str, Mapping[str, Any]]]:
        """Every configuration that is said to be the best of an arm: its place, the arm, itself."""
        return [
            (place, arm, value)
            for place, value in self.everything
            if isinstance(value, Mapping)
            and place
            and isinstance(place[-1], str)
            and CHOSEN.search(place[-1])
            and (arm := self.arm_of(place)) is not None
        ]

    def at(self, place: Place) -> Any:
        """Give the value at a place, None where there is none."""
        value = self.document
        for part in place:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def arm_of(self, place: Place) -> str | None:
        """Tell from the names along the way which arm a place belongs to."""
        for index, part in reversed(list(enumerate(place))):
            if not isinstance(part, str):
                continue
            if index and place[index - 1] == "arms":
                return part
            named = [arm for arm in ARMS if arm in part.lower()]
            if len(named) == 1:
                return named[0]
        return None

    def _named_arms(self) -> Iterator[tuple[Place, str]]:
        for place, value in self.everything:
            if place and place[-1] == "arms" and isinstance(value, Mapping):
                yield from ((place, name) for name in value)

    def _loose_arm(self, name: str) -> Arm | None:
        """Find an arm in a report without a table of arms: the outermost place with its scores."""
        places = [
            place
            for place, value in self.everything
            if place and place[-1] == name and isinstance(value, Mapping)
        ]
        found = [
            arm for place in sorted(places, key=len) if (arm := self.arm_at(place)) is not None
        ]
        with_scores = [arm for arm in found if arm.scores is not None]
        if with_scores:
            return with_scores[0]
        for place, value in self.everything:
            scores = numbers(value)
            if scores and _is_scores(place) and not _is_sweep(place) and self.arm_of(place) == name:
                return Arm(place, scores, None, place)
        return found[0] if found else None

    def arm_at(self, place: Place) -> Arm | None:
        """Read the scores and the mean of an arm's table."""
        scores: tuple[Place, list[Written | None] | None] = (place, None)
        mean: tuple[Place, Written | None] = (place, None)
        tables = [place, *((*place, name) for name in SUMMARIES)]
        for table_place in tables:
            table = self.at(table_place)
            if not isinstance(table, Mapping):
                continue
            for key, value in table.items():
                listed = numbers(value)
                if listed and scores[1] is None and SCORES.search(key):
                    scores = ((*table_place, key), listed)
                if isinstance(value, Written) and key in ("mean", "full_mean", "score"):
                    mean = mean if mean[1] is not None else ((*table_place, key), value)
        if scores[1] is None and mean[1] is None:
            return None
        return Arm(scores[0], scores[1], mean[1], mean[0])


def _is_sweep(place: Place) -> bool:
    return any(isinstance(part, str) and SWEEP.search(part) for part in place)


def _is_scores(place: Place) -> bool:
    return bool(place) and isinstance(place[-1], str) and bool(SCORES.search(place[-1]))


def _trial(place: Place, entry: Any) -> Trial | None:
    """Read one entry of a sweep; None where it is none."""
    if not isinstance(entry, Mapping):
        return None
    cfg = next(
        (v for k, v in entry.items() if CONFIGURATION.search(k) and isinstance(v, Mapping)), None
    )
    mean: tuple[Place, Any] | None = None
    scores = None
    for inner in ((), *((name,) for name in SUMMARIES)):
        table = entry if not inner else entry.get(inner[0])
        if isinstance(table, Written):
            mean = mean or ((*place, *inner), table)
        if not isinstance(table, Mapping):
            continue
        for key, value in table.items():
            if key in ("mean", "score", "mse", "full_mean", "mean_mse", "test_mse"):
                mean = mean or ((*place, *inner, key), value)
            listed = numbers(value)
            if listed and SCORES.search(key):
                scores = scores or listed
    if mean is None:
        return None
    if cfg is None:
        given = {k: v for k, v in entry.items() if k != mean[0][-1] and not SCORES.search(k)}
        cfg = {k: v for k, v in given.items() if k not in ("std", "n", "diverged", "selected")}
    if not cfg or not (mean[1] is None or isinstance(mean[1], Written)):
        return None
    lost = mean[1] is None or (scores is not None and None in scores)
    return Trial(place, cfg, mean[1], mean[0], scores, lost)
