"""Finds everything that is wrong with a config, and fills in every default.

Two passes look at the same document: the components that it names check their options and
hyperparameters, and the models of `jaxbench.config` check the rest.  Each problem has its place.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from jaxbench import registry, toml_text
from jaxbench.base import Intervention, JaxbenchError, Model
from jaxbench.config import Config, ConfigError, Origin
from jaxbench.config_messages import explain, message, shown, valid_keys
from jaxbench.config_sweep import expand
from jaxbench.config_tracks import TRACKS, TrackRefusedError, merge
from jaxbench.config_tracks import on_track as moved_to
from jaxbench.fit import check_features, check_fit
from jaxbench.registry import nearest
from jaxbench.toml_text import Place, contains

LEARNING_RATE = "learning_rate"
SMALLEST, GREATEST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127
"""Magnitudes of float32 in which programs compute: the smallest normal one, and the greatest."""
DEFAULT_COMPARISONS = [{"idea": "idea", "baseline": "baseline", "role": "primary"}]


def resolve(
    document: dict[str, Any],
    changes: Sequence[tuple[str, str]] = (),
    *,
    quick: bool = False,
    track: str | None = None,
    label: str,
    text: str = "",
    origin: Origin,
) -> Config:
    """Make a config of a TOML document, changed by dotted keys and TOML values.

    With `track`, the document's table for it is laid over the rest: see `jaxbench.config_tracks`.

    Raises:
        ConfigError: with every problem, its place and, where it is in `text`, its line.
    """
    document, changes = for_track(document, changes, track, label)
    quick_table = document.get("quick", {})
    plain = {key: value for key, value in document.items() if key != "quick"}
    problems: dict[Place, str] = {}
    if not isinstance(quick_table, dict):
        problems[("quick",)] = f"expected a table, got {shown(quick_table)}"
        quick_table = {}
    elif quick and not quick_table:
        problems[("quick",)] = "missing: --quick needs this table of values to lay over the rest"
    changed: list[Place] = []
    assignments = []
    for key, value in changes:
        try:
            place: Place = toml_text.parse_key(key)
        except ValueError:
            problems[(key,)] = "expected a dotted key, such as training.epochs"
            changed.append((key,))
            continue
        changed.append(place)
        if place[0] == "quick":
            problems[place] = "the quick table is used by --quick; set what it sets instead"
        else:
            assignments.append((place, toml_text.parse_value(value)))
    for place, value in assignments:
        if place == ("track", "name"):
            plain, quick_table = (on_track(each, value, plain) for each in (plain, quick_table))
    checks = {
        use: Check(changed_document(plain, quick_table if use else {}, assignments), origin)
        for use in {quick, False, bool(quick_table)}
    }
    if not problems and not checks[quick].problems:
        checks[quick].fits()
    problems.update(checks[quick].problems)
    for use, check in checks.items():
        for place, problem in check.problems.items():
            in_quick = use and contains(quick_table, place) and place not in changed
            if quick and not use and replaced(plain, quick_table, place) and place not in changed:
                problems.setdefault(place, problem)
            if place in problems:
                if in_quick and not contains(plain, place):
                    del problems[place]
                    problems[("quick", *place)] = problem
            elif in_quick:
                problems[("quick", *place)] = problem
    if problems:
        raise ConfigError(message(problems, label, text, changed))
    config = checks[quick].config
    assert config is not None
    config._origin = dataclasses.replace(origin, sources=checks[quick].sources)
    return config


def for_track(
    document: dict[str, Any], changes: Sequence[tuple[str, str]], track: str | None, label: str
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Lay the table of a track over the document, itself changed first by what is set in it.

    Raises:
        ConfigError: `tracks` is no table of tables, or is changed where no track is asked for; the
            table refuses the track.
    """
    tables = document.get(TRACKS, {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise ConfigError(message({(TRACKS,): "expected one table a track"}, label, "", []))
    own, others = split_changes(changes)
    if own and track is None:
        place = own[0][0]
        text = "the tables of tracks are used by --tracks; set what they set instead"
        raise ConfigError(message({place: text}, label, "", [place]))
    if track is None:
        return {key: value for key, value in document.items() if key != TRACKS}, others
    try:
        return moved_to(changed_document(document, {}, own), track), others
    except TrackRefusedError as refusal:
        raise ConfigError(str(refusal)) from refusal


def split_changes(
    changes: Sequence[tuple[str, str]],
) -> tuple[list[tuple[Place, Any]], list[tuple[str, str]]]:
    """Part what is set in the tables of tracks, with its place and value, from all else.

    Raises:
        ConfigError: a key has no label of a track, or is no dotted key.
    """
    of_tracks: list[tuple[Place, Any]] = []
    others: list[tuple[str, str]] = []
    for key, value in changes:
        if key.split(".")[0].strip() != TRACKS:
            others.append((key, value))
            continue
        try:
            place: Place = toml_text.parse_key(key)
        except ValueError:
            place = (key,)
        of_tracks.append((place, toml_text.parse_value(value)))
        table = isinstance(of_tracks[-1][1], dict)
        if len(place) < 2 or (len(place) == 2 and not table):
            raise ConfigError(
                f"{key}: expected a key in the table of a track, such as "
                f"{TRACKS}.chaos.training.epochs"
            )
    return of_tracks, others


def changed_document(
    document: dict[str, Any], quick: dict[str, Any], assignments: Iterable[tuple[Place, Any]]
) -> dict[str, Any]:
    """Lay the quick table and then the assignments over a copy of the document."""
    result = copy.deepcopy(document)
    merge(result, copy.deepcopy(quick))
    for place, value in assignments:
        for part in reversed(place):
            value = {part: value}
        merge(result, value)
    return result


def replaced(plain: dict[str, Any], quick: Any, place: Place) -> bool:
    """Whether the quick table hides this value of the document behind one of its own."""
    for part in place:
        if not isinstance(quick, dict):
            break
        if part not in quick:
            return False
        quick = quick[part]
    return contains(plain, place) and not isinstance(quick, dict)


def on_track(table: dict[str, Any], name: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the options of the document's track where another one takes its place."""
    track = document.get("track")
    if isinstance(track, dict) and track.get("name") == name:
        return table
    return {key: value for key, value in table.items() if key != "track"}


class Check:
    """One look at a document.

    Attributes:
        problems: what is wrong, by place; the first thing found of a place is kept.
        sources: digests of the Python files, and of the files of data, that it names.
        config: the filled config, or None where there are problems.
    """

    def __init__(self, document: dict[str, Any], origin: Origin) -> None:
        self.sweep = expand(document, DEFAULT_COMPARISONS)
        self.document = self.sweep.document
        self.base_folder = origin.base_folder
        self.problems: dict[Place, str] = dict(self.sweep.problems)
        self.broken: dict[str, Place] = {}
        self.sources: dict[str, str] = {}
        self.config: Config | None = None
        self.track: Any = None
        self.interventions: dict[str, Intervention] = {}
        self.filled = copy.deepcopy(self.document)
        self.filled.setdefault("comparisons", copy.deepcopy(DEFAULT_COMPARISONS))
        self.plain_values((), self.document)
        self.choices()
        self.arms()
        self.comparisons()
        self.structure()

    def problem(self, place: Place, text: str) -> None:
        """Note a problem, unless its place has one."""
        origin = self.sweep.origin(place)
        if text.startswith("unknown") and origin[:1] == ("sweep",):
            origin = origin[:3]  # the key is wrong, whatever its values
        self.problems.setdefault(origin, text)

    def table(self, *place: str) -> dict[str, Any]:
        """Return the table at this place, or an empty one: `structure` refuses what is none."""
        found: Any = self.document
        for part in place:
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def plain_values(self, place: Place, value: Any) -> None:
        """Refuse NaN, infinities, numbers beyond float32's and dates, wherever they stand."""
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                self.plain_values((*place, key), inner)
        elif isinstance(value, float) and not math.isfinite(value):
            self.problem(place, f"expected a finite number, got {shown(value)}")
        elif isinstance(value, int | float) and abs(value) > GREATEST:
            text = f"expected a magnitude of at most {GREATEST:.3g}, that of float32"
            self.problem(place, f"{text}, got {shown(value)}")
        elif isinstance(value, datetime.date | datetime.time):
            self.problem(place, f"expected a number or text, got the date or time {value}")

    # ----------------------------------------------------------------------------------------------
    # Components
    # ----------------------------------------------------------------------------------------------

    def component(self, kind: registry.Kind, place: Place, name: Any) -> registry.Component | None:
        """Find a component, noting why where it cannot be."""
        if not isinstance(name, str):
            return None
        try:
            found = registry.load(kind, name, self.base_folder)
        except registry.ImportFailedError as error:
            self.broken.setdefault(str(error), place)  # one problem, however many arms name it
            self.problem(self.broken[str(error)], str(error))
            return None
        except JaxbenchError as error:
            self.problem(place, str(error))
            return None
        if registry.is_path(name):
            self.sources[name] = found.source_digest()
        return found

    def options(
        self,
        component: registry.Component,
        place: Place,
        options: Mapping[str, Any],
        inherited: Collection[str] = (),
    ) -> dict[str, Any] | None:
        """Check the options of a component and fill in its defaults; None where one is wrong."""
        try:
            model = registry.options_model(component.build)
            filled = model.model_validate_json(json.dumps(dict(options), default=str))
        except JaxbenchError as error:
            self.problem(place, str(error))
        except ValidationError as error:
            names = list(model.model_fields)
            for key, text in explain(error, dict(options), lambda _: names).items():
                kind = component.kind.removesuffix("s")
                note = f" ({kind} {component.name})" if text.startswith("unknown") else ""
                outer = place[-1:] if key[0] in inherited else place
                self.problem((*outer, *key), text + note)
        else:
            return filled.model_dump(mode="json", exclude_none=True)
        return None

    def choice(
        self,
        kind: registry.Kind,
        place: Place,
        choice: Mapping[str, Any],
        inherited: Collection[str] = (),
    ) -> dict[str, Any] | None:
        """Check a track or model, some options of which the study's may give; return it filled."""
        component = self.component(kind, (*place, "name"), choice.get("name"))
        if component is None:
            return None
        options = {key: value for key, value in choice.items() if key != "name"}
        filled = self.options(component, place, options, inherited)
        if filled is None:
            return None
        self.sources.update(component.data_digests(filled))
        return {"name": choice["name"], **filled}

    def choices(self) -> None:
        """Check the study's track and model; build the track."""
        for kind, key in (("tracks", "track"), ("models", "model")):
            filled = self.choice(kind, (key,), self.table(key))  # type: ignore[arg-type]
            if filled is not None:
                self.filled[key] = filled
                if key == "track":
                    self.track = self.built("tracks", ("track", "name"), filled)

    def built(self, kind: registry.Kind, place: Place, filled: dict[str, Any], **given: Any) -> Any:
        """Build a track or model from its checked options; None where that fails."""
        options = {name: value for name, value in filled.items() if name != "name"}
        component = registry.load(kind, filled["name"], self.base_folder)
        try:
            return component.make(options, **given)
        except JaxbenchError as error:
            self.problem(place, str(error))
        except (Exception, SystemExit) as error:
            self.problem(place, f"{component.name}.build: {type(error).__name__}: {error}")
        return None

    def fits(self) -> None:
        """Check that every arm's model fits the track, and its intervention both of them."""
        models: dict[str, Model | None] = {}
        for arm, intervention in self.interventions.items():
            own = self.filled["arms"][arm].get("model")
            place: Place = ("arms", arm, "model") if own else ("model",)
            choice = own or self.filled["model"]
            identity = json.dumps(choice, sort_keys=True, default=str)
            if identity not in models:
                models[identity] = self.fitting((*place, "name"), choice)
            model = models[identity]
            if model is not None:
                try:
                    check_features(intervention, model, self.track)
                except JaxbenchError as error:
                    self.problem(("arms", arm, "intervention"), str(error))

    def fitting(self, place: Place, choice: dict[str, Any]) -> Model | None:
        """Build a model and check that it fits the track; None where that fails."""
        model: Model | None = self.built("models", place, choice, outputs=self.track.output_size)
        if model is not None:
            try:
                check_fit(model, self.track)
            except JaxbenchError as error:
                self.problem(place, str(error))
                return None
        return model

    # ----------------------------------------------------------------------------------------------
    # Arms
    # ----------------------------------------------------------------------------------------------

    def arms(self) -> None:
        """Check every arm's intervention, options, hyperparameters and model."""
        lacking: dict[str, list[str]] = {name: [] for name in self.table("grid")}
        known = {LEARNING_RATE}
        for arm in self.table("arms"):
            override = self.table("arms", arm, "model")
            if override:
                same = override.get("name") in (None, self.table("model").get("name"))
                merged = {**(self.table("model") if same else {}), **override}
                inherited = merged.keys() - override.keys()
                filled = self.choice("models", ("arms", arm, "model"), merged, inherited)
                if filled is not None:
                    self.filled["arms"][arm]["model"] = filled
            intervention = self.intervention(arm)
            if intervention is not None:
                self.interventions[arm] = intervention
                known |= set(intervention.hyper)
                for name in self.hyperparameters(arm, intervention):
                    lacking[name].append(f"{arm} ({intervention.name})")
        for name, arms in lacking.items():
            if name in known and arms:
                text = f"{', '.join(arms)} has no such hyperparameter; use [arms.<name>.grid]"
                self.problem(("grid", name), text)
            elif arms:
                listed = f"{nearest(name, known)} (of these arms: {', '.join(sorted(known))})"
                self.problem(("grid", name), f"unknown hyperparameter{listed}")

    def intervention(self, arm: str) -> Intervention | None:
        """Build an arm's intervention from its checked options."""
        place: Place = ("arms", arm, "options")
        name = self.table("arms", arm).get("intervention")
        component = self.component("interventions", ("arms", arm, "intervention"), name)
        if component is None:
            return None
        options = self.options(component, place, self.table("arms", arm, "options"))
        if options is None:
            return None
        self.fill(arm, "options", options)
        try:
            return component.make(options)
        except JaxbenchError as error:
            self.problem(place, str(error))
        except (Exception, SystemExit) as error:
            self.problem(place, f"{component.name}.build: {type(error).__name__}: {error}")
        return None

    def fill(self, arm: str, part: str, values: dict[str, Any]) -> None:
        """Put the filled values of a table of an arm in place, unless there is something else."""
        if isinstance(self.filled["arms"][arm].get(part, {}), dict):
            self.filled["arms"][arm][part] = values

    def hyperparameters(self, arm: str, intervention: Intervention) -> list[str]:
        """Check the fixed and tuned hyperparameters of an arm; return shared ones it has not."""
        shared = self.table("grid")
        own = self.table("arms", arm, "grid")
        fixed = self.table("arms", arm, "fixed")
        names = [LEARNING_RATE, *intervention.hyper]
        for part, values in (("grid", own), ("fixed", fixed)):
            for name, value in values.items():
                place = ("arms", arm, part, name)
                if name not in names:
                    known = f"{nearest(name, names)} ({intervention.name}: {', '.join(names)})"
                    self.problem(place, f"unknown hyperparameter{known}")
                elif name in own and name in fixed and part == "fixed":
                    self.problem(place, f"also in arms.{arm}.grid; give it in one of them")
                self.ranges(place, name, value, intervention)
        for name in shared.keys() & set(names) - fixed.keys() - own.keys():
            self.ranges(("grid", name), name, shared[name], intervention)
        no_rate = LEARNING_RATE not in {*shared, *own, *fixed}
        if no_rate and isinstance(self.document.get("grid", {}), dict):
            self.problem(
                ("grid", LEARNING_RATE), f"missing: arm {arm!r} needs it here, in its grid or fixed"
            )
        defaults = {
            name: hyper.default
            for name, hyper in intervention.hyper.items()
            if name not in {*shared, *own, *fixed}
        }
        self.fill(arm, "fixed", {**fixed, **defaults})
        return [name for name in shared if name not in names and name not in fixed]

    def ranges(self, place: Place, name: str, values: Any, intervention: Intervention) -> None:
        """Check that values of a hyperparameter lie in its range, and in that of float32."""
        hyper = intervention.hyper.get(name)
        for index, value in enumerate(values if isinstance(values, list) else [values]):
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            at = (*place, index) if isinstance(values, list) else place
            if name == LEARNING_RATE and value <= 0:
                self.problem(at, f"expected a number above 0, got {shown(value)}")
            elif 0 < abs(value) < SMALLEST:
                text = f"expected a magnitude of at least {SMALLEST:.3g}, that of float32"
                self.problem(at, f"{text}, got {shown(value)}")
            elif hyper is not None and not hyper.low <= value <= hyper.high:
                bounds = f"from {hyper.low:g} to {hyper.high:g}"
                self.problem(
                    at, f"expected a number {bounds} ({hyper.summary}), got {shown(value)}"
                )

    # ----------------------------------------------------------------------------------------------
    # Comparisons and everything else
    # ----------------------------------------------------------------------------------------------

    def comparisons(self) -> None:
        """Check that comparisons name arms, use every arm, and that exactly one is primary."""
        arms = list(self.table("arms"))
        listed = self.filled["comparisons"]
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        used = [(row.get("idea"), row.get("baseline"), row.get("endpoint")) for row in rows]
        default = "comparisons" not in self.document
        note = "; without [[comparisons]] the arms are idea and baseline" if default else ""
        for index, row in enumerate(rows):
            for side in ("idea", "baseline"):
                name = row.get(side)
                if arms and isinstance(name, str) and name not in arms:
                    place: Place = ("arms", name) if default else ("comparisons", index, side)
                    self.problem(
                        place,
                        f"no arm named {name!r}{nearest(name, arms)} ({', '.join(arms)}){note}",
                    )
            if row.get("idea") == row.get("baseline"):
                self.problem(("comparisons", index), "expected two different arms")
            elif used.index(used[index]) < index:
                self.problem(("comparisons", index), "these two arms are compared already")
            if row.get("endpoint") is not None:
                self.endpoint(index, row)
        primary = sum(row.get("role") == "primary" for row in rows)
        if rows and primary != 1:
            self.problem(("comparisons",), f"expected exactly one primary role, got {primary}")
        understood = all(side in arms for pair in used for side in pair[:2])
        for arm in arms:
            if rows and understood and not any(arm in pair[:2] for pair in used):
                self.problem(("arms", arm), f"no comparison uses this arm{note}")

    def endpoint(self, index: int, row: Mapping[str, Any]) -> None:
        """Check that both arms of a comparison measure its endpoint, and the same one."""
        name, place = row["endpoint"], ("comparisons", index, "endpoint")
        if row.get("role") == "primary":
            self.problem(place, "the primary comparison is that of the score; make it secondary")
        sides = [self.interventions.get(str(row.get(side))) for side in ("idea", "baseline")]
        found = []
        for side in sides:
            if side is None or (side is sides[1] and not side.measures):
                continue
            declared = {each.name: each for each in side.endpoints}
            if name not in declared:
                listed = ", ".join(declared) or "none; see its options"
                text = f"no endpoint {name!r}{nearest(str(name), declared)} ({side.name}: {listed})"
                self.problem(place, text)
            found.append(declared.get(name))
        if len(found) == 2 and None not in found and found[0] != found[1]:
            both = " and ".join(repr(each.summary) for each in found if each is not None)
            self.problem(place, f"the two arms measure different things: {both}")

    def structure(self) -> None:
        """Check everything else by the models of `jaxbench.config`."""
        try:
            config = Config.model_validate_json(json.dumps(self.filled, default=str))
        except ValidationError as error:
            for place, text in explain(error, self.filled, valid_keys).items():
                at = self.sweep.origin(place)
                if not any(known[: len(at)] == at for known in self.problems):
                    self.problem(place, text)
        else:
            self.config = None if self.problems else config
