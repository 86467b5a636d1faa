"""Whether a model fits a track, found by abstract evaluation: nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxbench import registry
from jaxbench.base import Intervention, JaxbenchError, Model, Track
from jaxbench.hooks import HookError, shown


def check_fit(model: Model, track: Track) -> None:
    """Refuse a model that cannot read a track's inputs, or whose outputs the track cannot score.

    The model's outputs on the track's inputs must give the track a loss and a score; where it is a
    regression they must have the targets' shape, or they would be spread over them.

    Raises:
        JaxbenchError: what the track gives, what the model reads, and the models that fit.
    """
    try:
        _try(model, track)
    except HookError as error:
        if not isinstance(error.__cause__, TypeError | ValueError):
            raise
        why = str(error)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
    else:
        return
    fitting = [name for name, _ in _registered_models(track)]
    raise JaxbenchError(
        f"the model {model.name} does not fit the track {track.name}, which gives {_given(track)}"
        f"{f'; {model.name} reads {model.reads}' if model.reads else ''}. "
        f"Models that fit: {', '.join(fitting) or 'none of those known'} ({why})"
    )


def check_features(intervention: Intervention, model: Model, track: Track) -> None:
    """Refuse an intervention that needs what neither a model nor a track offers.

    Raises:
        JaxbenchError: what is missing, what there is, and the models that have it.
    """
    offered = model.features | track.features
    missing = sorted(intervention.requires - offered)
    if not missing:
        return
    having = [
        name
        for name, other in _registered_models(track)
        if intervention.requires <= other.features | track.features
    ]
    raise JaxbenchError(
        f"{intervention.name} needs a model or track that is {' and '.join(missing)}; "
        f"{model.name} on {track.name} is {', '.join(sorted(offered)) or 'neither'}. "
        f"Models on {track.name} that have it: {', '.join(having) or 'none of those known'}"
    )


def _registered_models(track: Track) -> Iterator[tuple[str, Model]]:
    """Give the registered models that, with their default options, fit a track."""
    for name in registry.available("models"):
        try:
            model = registry.load("models", name).make({}, outputs=track.output_size)
            _try(model, track)
        except Exception:
            continue
        yield name, model


def _try(model: Model, track: Track) -> Any:
    """Evaluate abstractly what training does with a model's outputs on two samples."""
    import jax

    def whole(seed: Any) -> Any:
        key = jax.random.key(seed)
        inputs, targets = (leaf[:2] for leaf in track.generate(key).train)
        params = model.init(key, inputs[:1])
        outputs, _ = model.apply(params, inputs)
        if "regression" in track.features and outputs.shape != targets.shape:
            raise ValueError(f"outputs {shown(outputs)} for targets {shown(targets)}")
        return track.loss(outputs, targets), track.score(outputs, targets)

    return jax.eval_shape(whole, 0)


def _given(track: Track) -> str:
    """Say in words what a track's samples are."""
    import jax

    train = jax.eval_shape(lambda seed: track.generate(jax.random.key(seed)).train, 0)
    features = ", ".join(sorted(track.features)) or "no features"
    return f"inputs {shown(train.inputs)} and targets {shown(train.targets)} ({features})"
