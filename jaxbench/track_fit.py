"""Which tracks a study's idea fits by its structure, and why; those that it does not, and why not.

A track fits where the models read its inputs and it can score their outputs, and where a model and
the track together have what an intervention needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxbench import registry
from jaxbench.base import JaxbenchError
from jaxbench.fit import check_features, check_fit

if TYPE_CHECKING:
    from jaxbench.base import Intervention, Model, Track
    from jaxbench.config import Config


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a study's arms can be trained on a track.

    Attributes:
        track: the track's name.
        fits: whether all arms can.
        reason: why, or why not.
    """

    track: str
    fits: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Fits:
    """What was found of every track.

    Attributes:
        study: the study's name.
        tracks: the tracks, by name.
    """

    study: str
    tracks: Sequence[Fit]

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON."""
        return dataclasses.asdict(self)


def fits_of(config: Config) -> Fits:
    """Say of every registered track whether a study could be run on it instead of its own.

    Tracks are built with their defaults, the study's own one with its options.
    """
    listed = sorted({*registry.available("tracks"), config.track.name})
    return Fits(config.name, [fit_of(config, name) for name in listed])


def fit_of(config: Config, name: str) -> Fit:
    """Say of one track whether a study could be run on it."""
    own = name == config.track.name
    component = registry.load("tracks", name, config.base_folder)
    try:
        track: Track = component.make(config.track.options if own else {})
        arms = parts_of(config, track)
        for model, intervention in arms.values():
            check_fit(model, track)
            check_features(intervention, model, track)
    except JaxbenchError as error:
        return Fit(name, False, str(error))
    return Fit(name, True, justification(track, arms))


def parts_of(config: Config, track: Track) -> dict[str, tuple[Model, Intervention]]:
    """Build each arm's model, with the outputs that a track needs, and its intervention."""
    folder, arms = config.base_folder, {}
    for name, arm in config.arms.items():
        choice = config.model_of(name)
        model = registry.load("models", choice.name, folder)
        intervention = registry.load("interventions", arm.intervention, folder)
        arms[name] = (
            model.make(choice.options, outputs=track.output_size),
            intervention.make(arm.options),
        )
    return arms


def justification(track: Track, arms: Mapping[str, tuple[Model, Intervention]]) -> str:
    """Say why a track fits: what each model reads, what each idea needs, and who has it."""
    said = []
    for model, intervention in arms.values():
        said.append(
            f"{model.name} reads {model.reads or 'inputs of any form'}, and {track.name} offers "
            f"{listed(track.features)}"
        )
        for offers, has in (
            (model, model.features),
            (track, track.features - model.features),
        ):
            if intervention.requires & has:
                needed = listed(intervention.requires & has)
                said.append(f"{intervention.name} needs {needed}, which {offers.name} has")
    return f"{'; '.join(dict.fromkeys(said))}."


def listed(names: frozenset[str]) -> str:
    """Join names in their order."""
    return ", ".join(sorted(names)) or "nothing"
