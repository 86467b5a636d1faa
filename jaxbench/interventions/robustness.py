"""What a study can measure of trained recurrent networks when asked: noise, rounding, rollouts.

Each of the three also gives an endpoint, a scalar by which arms can be compared.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxbench.base import Batch, Context, Endpoint, JaxbenchError, Recurrence, Track
from jaxbench.interventions.noisy_recurrence import run_clean, score_under_noise
from jaxbench.interventions.quantisation import predicted_rounding, quantise
from jaxbench.interventions.weight_noise import (
    GRU_GROUPS,
    Groups,
    Prediction,
    monte_carlo_growth,
    predicted_growth,
)

if TYPE_CHECKING:
    from jaxtyping import Array

    from jaxbench.base import Key, PyTree
    from jaxbench.interventions.mean_square import Sigma

STREAM = zlib.crc32(b"robustness")
"""Keys of these measurements, apart from those of the steps."""
DRAWS = 8
"""Noisy runs of the whole test split."""
SEQUENCES = 4
"""Sequences over which deviations of the hidden state are averaged."""
PATHS = 64
"""Noise paths of each sequence of a rollout."""


@dataclasses.dataclass(frozen=True)
class Robustness:
    """What to measure beside an idea's own quantities; nothing by default.

    Attributes:
        score_noise: sigma of the weight noise under which the test split is scored, or None.
        bits: numbers of bits to which kernels are rounded.
        rollout_steps: lengths of rollouts (time steps).
        groups: weights that share a noise, as for `group_members`.
    """

    score_noise: float | None = None
    bits: Sequence[int] = ()
    rollout_steps: Sequence[int] = ()
    groups: Groups = dataclasses.field(default_factory=lambda: GRU_GROUPS)

    @property
    def static(self) -> dict[str, Any]:
        """The values that were given, for an intervention's `static`."""
        given = {
            "score_noise": self.score_noise,
            "bits": list(self.bits),
            "rollout_steps": list(self.rollout_steps),
        }
        return {name: value for name, value in given.items() if value}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Those of what is asked for."""
        found = []
        if self.score_noise is not None:
            noise = (
                f"multiplicative noise of sigma {self.score_noise:g} on {', '.join(self.groups)}"
            )
            text = f"test score under {noise}, anew each time step, {DRAWS} draws"
            found.append(Endpoint(name="score_under_noise", summary=text))
        if self.bits:
            few = min(self.bits)
            text = f"test score with the recurrence's kernels rounded to {few} bits"
            found.append(Endpoint(name=f"score_{few}_bits", summary=text))
        if self.rollout_steps:
            longest = max(self.rollout_steps)
            text = f"score of new sequences of {longest} time steps, over all of them"
            found.append(Endpoint(name=f"score_{longest}_steps", summary=text))
        return tuple(found)

    def measure(
        self, ctx: Context, recurrence: Recurrence, params: PyTree, test: Batch, sigma: Sigma
    ) -> dict[str, Any]:
        """Measure what is asked for, with the run's own noise.

        Args:
            ctx: of the run.
            recurrence: of the model.
            params: the parameters that `recurrence` takes.
            test: the test split.
            sigma: of the weight noise in rollouts, a scalar or one a group.
        """
        keys = jax.random.split(jax.random.fold_in(ctx.key, STREAM), 2)
        values: dict[str, Any] = {}
        if self.score_noise is not None:
            values["score_under_noise"] = score_under_noise(
                track_of(ctx).score, recurrence, params, test, self.groups, self.score_noise,
                keys[0], DRAWS,
            )  # fmt: skip
        if self.bits:
            values |= measure_rounding(ctx, recurrence, params, test, self.bits)
        if self.rollout_steps:
            steps = sorted(self.rollout_steps)
            values |= measure_rollouts(ctx, recurrence, params, steps, self.groups, sigma, keys[1])
        return values


def track_of(ctx: Context) -> Track:
    """The track, or an error that says that the context has none."""
    if ctx.track is None:
        raise JaxbenchError("a score is asked for, but the context has no track to give it")
    return ctx.track


def measure_rounding(
    ctx: Context, recurrence: Recurrence, params: PyTree, test: Batch, bits: Sequence[int]
) -> dict[str, Any]:
    """Score quantised networks, and compare how far their states are with both predictions.

    `deviation_*` is the mean over time and a few sequences of `|h_q - h|^2`.
    """
    inputs = test.inputs[:SEQUENCES]
    start = recurrence.initial_hidden(params, inputs.shape[:1])

    def predict(start: Array, inputs: Array) -> Any:
        return predicted_rounding(recurrence.step, params, start, inputs, bits)

    redrawn, constant = (jnp.mean(each, axis=(0, 2)) for each in jax.vmap(predict)(start, inputs))
    clean = run_clean(recurrence, params, inputs)
    values: dict[str, Any] = {}
    for place, number in enumerate(bits):
        rounded = quantise(params, number)
        hidden = run_clean(recurrence, rounded, test.inputs)
        moved = jnp.mean(jnp.sum((hidden[:SEQUENCES] - clean) ** 2, axis=-1))
        outputs = recurrence.readout(rounded, hidden)
        values |= {
            f"score_{number}_bits": track_of(ctx).score(outputs, test.targets),
            f"deviation_{number}_bits": moved,
            f"deviation_{number}_bits_if_redrawn": redrawn[place],
            f"deviation_{number}_bits_if_constant": constant[place],
        }
    return values


def measure_rollouts(
    ctx: Context,
    recurrence: Recurrence,
    params: PyTree,
    steps: Sequence[int],
    groups: Groups,
    sigma: Sigma,
    key: Key,
) -> dict[str, Any]:
    """Score new sequences up to each length, and their growth under weight noise.

    `growth_*` is `E|delta|^2` after that step over what was injected until then, of the noisy
    network and by the lift.  A one-step model runs on its own outputs where it is scored, and on
    the true states where its growth is measured.

    Raises:
        JaxbenchError: the track has no longer sequences.
    """
    track = track_of(ctx)
    if track.longer_test is None:
        raise JaxbenchError(
            f"rollout_steps needs a track with sequences of any length, but {track.name} has none; "
            "leave rollout_steps out"
        )
    data_key, noise_key = jax.random.split(key)
    test = track.longer_test(data_key, steps[-1])
    if track.free_run is None:
        outputs = recurrence.readout(params, run_clean(recurrence, params, test.inputs))
    else:
        outputs = track.free_run(recurrence, params, test.inputs)
    inputs = test.inputs[:SEQUENCES]
    start = recurrence.initial_hidden(params, inputs.shape[:1])
    sigmas = jnp.asarray(sigma, start.dtype)[None]

    def predict(start: Array, inputs: Array) -> Prediction:
        return predicted_growth(recurrence.step, params, start, inputs, groups, sigmas)

    deviations, injections, _ = jax.vmap(predict)(start, inputs)
    lift, injected = (jnp.mean(each, axis=0)[0] for each in (deviations, injections))
    noisy = monte_carlo_growth(
        recurrence.step, params, start, inputs, groups, sigma, noise_key, PATHS,
        scaled_step=recurrence.scaled_step,
    )  # fmt: skip
    values: dict[str, Any] = {}
    for length in steps:
        here = length - 1
        values |= {
            f"score_{length}_steps": track.score(outputs[:, :length], test.targets[:, :length]),
            f"growth_{length}_steps": noisy.hidden[here] / injected[here],
            f"growth_{length}_steps_by_lift": lift[here] / injected[here],
        }
    return values
