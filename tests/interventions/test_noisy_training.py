"""Noise injection, spectral normalisation, scores under noise, rounding and rollouts."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import Batch, Context, JaxbenchError, Recurrence
from jaxbench.interventions import noise_injection, spectral_normalisation, stability_penalty
from jaxbench.interventions.noisy_recurrence import run_clean, run_noisy, score_under_noise
from jaxbench.interventions.quantisation import quantise
from jaxbench.interventions.robustness import Robustness
from jaxbench.interventions.weight_noise import GRU_GROUPS
from jaxbench.models import rnn_small
from jaxbench.tracks import dynamics, pendulum
from jaxbench.tracks.regression import mean_squared_error

MODEL = rnn_small.build(outputs=2, hidden=4)
TRACK = dynamics.build(train_size=4, validation_size=2, test_size=3, sequence_length=5)


def setting(**hyper: float):
    """A context on a short pendulum, parameters of which none is zero, and a batch."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(3, 5, 3)), jnp.float32)
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), inputs)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)
    batch = Batch(inputs, jnp.ones((3, 5, 2)))
    traced = {name: jnp.asarray(value, jnp.float32) for name, value in hyper.items()}
    ctx = Context(jax.random.key(7), traced, MODEL, params, batch, (), 10, track=TRACK)
    return ctx, params, batch


# Noisy runs ---------------------------------------------------------------------------------------


def test_without_noise_the_noisy_run_is_the_clean_one() -> None:
    _, params, batch = setting()
    runs = jax.jit(
        lambda p: (
            run_noisy(MODEL.recurrence, p, batch.inputs, GRU_GROUPS, 0.0, jax.random.key(0)),
            run_clean(MODEL.recurrence, p, batch.inputs),
            MODEL.apply(p, batch.inputs)[1]["hidden"],
        )
    )(params)
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-6)
    np.testing.assert_allclose(runs[1], runs[2], atol=1e-6)


def test_a_model_without_a_scaled_step_has_the_same_noise() -> None:
    _, params, batch = setting()
    slow = dataclasses.replace(MODEL.recurrence, scaled_step=None)
    sigma = jnp.array([0.1, 0.2, 0.3, 0.4])
    runs = jax.jit(
        lambda p: [
            run_noisy(each, p, batch.inputs, GRU_GROUPS, sigma, jax.random.key(0))
            for each in (MODEL.recurrence, slow)
        ]
    )(params)
    np.testing.assert_allclose(*runs, atol=1e-5)


def test_the_score_under_noise_of_a_gain_is_known() -> None:
    """`y = w x`, one step: the squared error grows by `sigma^2 w^2 x^2` on the average."""
    gain = Recurrence(
        lambda params, shape: jnp.zeros((*shape, 1)),
        lambda params, hidden, now: now * params["w"],
        lambda params, hidden: hidden,
    )
    inputs = jnp.full((500, 1, 1), 2.0)
    test = Batch(inputs, jnp.full((500, 1, 1), 5.0))
    found = jax.jit(
        lambda w: score_under_noise(
            mean_squared_error, gain, {"w": w}, test, {"w": ["w"]}, 0.3, jax.random.key(1), 20
        )
    )(jnp.array([1.5]))
    spread = 0.3 * 1.5 * 2.0  # of y, around 3 where 5 is right
    variance = 2 * spread**4 + 4 * 2.0**2 * spread**2
    assert abs(float(found) - (2.0**2 + spread**2)) < 4 * (variance / 10_000) ** 0.5


def test_noise_that_makes_no_sense_is_refused() -> None:
    _, params, batch = setting()
    run = lambda groups, sigma: jax.eval_shape(  # noqa: E731
        lambda p: run_noisy(MODEL.recurrence, p, batch.inputs, groups, sigma, jax.random.key(0)),
        params,
    )
    with pytest.raises(JaxbenchError, match="at least 0"):
        run(GRU_GROUPS, -0.1)
    with pytest.raises(JaxbenchError, match="matches no leaf"):
        run({"hr": ["*hrr/kernel"]}, 0.1)
    with pytest.raises(JaxbenchError, match="at least one draw"):
        score_under_noise(
            mean_squared_error, MODEL.recurrence, params, batch, GRU_GROUPS, 0.1,
            jax.random.key(0), 0,
        )  # fmt: skip


# Noise injection ----------------------------------------------------------------------------------


def test_noise_is_in_training_only_and_new_with_each_key() -> None:
    ctx, params, batch = setting(sigma=0.3)
    model = noise_injection.build().wrap_model(MODEL)

    def outputs(key):
        return model.apply(params, batch.inputs, ctx=ctx, state=(), key=key)[0]

    clean = jax.jit(lambda: outputs(None))()
    noisy = jax.jit(outputs)
    np.testing.assert_allclose(clean, MODEL.apply(params, batch.inputs)[0], atol=1e-6)
    first, again, other = (noisy(jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert float(jnp.abs(first - clean).max()) > 1e-3
    assert float(jnp.abs(first - other).max()) > 1e-3


def test_noise_injection_needs_a_recurrence() -> None:
    with pytest.raises(JaxbenchError, match="needs a recurrent model"):
        noise_injection.build().wrap_model(dataclasses.replace(MODEL, recurrence=None))


# Spectral normalisation ---------------------------------------------------------------------------

KERNELS = ["*hr/kernel", "*hz/kernel", "*hn/kernel"]


def kernels(params):
    return [params["GRUCell_0"][gate]["kernel"] for gate in ("hn", "hr", "hz")]


def test_kernels_are_divided_by_their_norm_where_it_exceeds_the_bound() -> None:
    _, params, _ = setting()
    exact = [np.linalg.norm(each, 2) for each in kernels(params)]
    starts = spectral_normalisation.draw_directions(params, KERNELS, jax.random.key(0))
    bound = sorted(exact)[1] * 0.99  # one kernel lies below it
    bounded, norms, _ = jax.jit(
        lambda p: spectral_normalisation.bound_norms(p, KERNELS, bound, starts, 300)
    )(params)
    np.testing.assert_allclose(norms, exact, rtol=1e-4)
    for kernel, after, norm in zip(kernels(params), kernels(bounded), exact, strict=True):
        expected = kernel / norm * bound if norm > bound else kernel
        np.testing.assert_allclose(after, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(
        bounded["GRUCell_0"]["in"]["kernel"], params["GRUCell_0"]["in"]["kernel"]
    )


def test_the_gradient_goes_through_the_norm() -> None:
    """Of `sum C * W / |W|_2`, against finite differences of the exact norm."""
    with jax.enable_x64(True):
        W, C = np.random.default_rng(3).normal(size=(2, 3, 3))

        def bounded(W):
            out, _, _ = spectral_normalisation.bound_norms({"W": W}, ["W"], 1.0, [jnp.ones(3)], 500)
            return jnp.sum(C * out["W"])

        gradient = np.asarray(jax.jit(jax.grad(bounded))(jnp.asarray(W)))
        exact = lambda W: (C * W).sum() / np.linalg.norm(W, 2)  # noqa: E731
        for place in np.ndindex(3, 3):
            step = np.zeros((3, 3))
            step[place] = 1e-6
            slope = (exact(W + step) - exact(W - step)) / 2e-6
            assert gradient[place] == pytest.approx(slope, abs=1e-6)


def test_no_start_hides_the_largest_direction_in_training() -> None:
    """The carried direction is orthogonal to it: evaluation misses it, a training step does not."""
    ctx, params, batch = setting(bound=1.0)
    model = spectral_normalisation.build(power_steps=50).wrap_model(MODEL)
    hidden = [jnp.asarray(np.linalg.svd(np.asarray(kernel))[2][1]) for kernel in kernels(params)]
    right = [jnp.asarray(np.linalg.svd(np.asarray(kernel))[2][0]) for kernel in kernels(params)]
    apply = jax.jit(
        lambda state, key: model.apply(params, batch.inputs, ctx=ctx, state=state, key=key)[0]
    )
    trained = apply(hidden, jax.random.key(0))
    correct = jax.jit(
        lambda: model.apply(params, batch.inputs, ctx=ctx, state=right, key=None)[0]
    )()
    np.testing.assert_allclose(trained, correct, atol=1e-3)


def test_after_an_epoch_the_directions_are_those_of_the_new_kernels() -> None:
    ctx, params, _ = setting(bound=1.0)
    intervention = spectral_normalisation.build()
    other = jax.tree.map(lambda leaf: leaf[::-1] * 1.5, params)

    @jax.jit
    def run(new):
        return intervention.after_epoch(ctx, new, (), intervention.init_state(ctx), jnp.int32(0))

    _, _, state, log = run(other)
    norms = [np.linalg.norm(kernel, 2) for kernel in kernels(other)]
    for kernel, direction, norm in zip(kernels(other), state, norms, strict=True):
        assert np.linalg.norm(kernel @ direction) == pytest.approx(norm, rel=1e-3)
    assert float(log["spectral_norm"]) == pytest.approx(max(norms), rel=1e-3)
    assert float(log["bound_active"]) == np.mean([norm > 1 for norm in norms])


def test_a_kernel_that_is_not_there_is_refused() -> None:
    _, params, _ = setting()
    with pytest.raises(JaxbenchError, match="matches no leaf"):
        spectral_normalisation.chosen_kernels(params, ["*hx/kernel"])


# What is measured when asked ----------------------------------------------------------------------


def measured(ctx, params, test, robustness: Robustness):
    return jax.jit(lambda p: robustness.measure(ctx, MODEL.recurrence, p, test, jnp.float32(0.2)))(
        params
    )


def test_nothing_is_measured_unless_asked() -> None:
    ctx, params, batch = setting()
    nothing = Robustness()
    assert nothing.measure(ctx, MODEL.recurrence, params, batch, jnp.float32(0.2)) == {}
    assert nothing.endpoints == ()
    assert nothing.static == {}
    assert stability_penalty.build().endpoints == ()


def test_each_request_gives_its_endpoint() -> None:
    asked = {"score_noise": 0.1, "bits": [8, 4], "rollout_steps": [6, 12]}
    for build in (stability_penalty.build, spectral_normalisation.build, noise_injection.build):
        endpoints = build(**asked).endpoints
        assert [e.name for e in endpoints] == [
            "score_under_noise",
            "score_4_bits",
            "score_12_steps",
        ]
    assert "0.1" in endpoints[0].summary
    same = noise_injection.build(score_noise=0.1).endpoints[0]
    assert same == stability_penalty.build(score_noise=0.1).endpoints[0]
    assert same != stability_penalty.build(score_noise=0.2).endpoints[0]


def test_scores_of_rounded_networks_and_of_long_sequences() -> None:
    ctx, params, batch = setting()
    values = measured(
        ctx, params, batch, Robustness(score_noise=0.1, bits=(4, 16), rollout_steps=(5, 12))
    )
    assert all(np.isfinite(value) for value in values.values())
    rounded = MODEL.apply(quantise(params, 4), batch.inputs)[0]
    expected = mean_squared_error(rounded, batch.targets)
    assert float(values["score_4_bits"]) == pytest.approx(float(expected), rel=1e-5)
    assert float(values["deviation_16_bits"]) < 1e-4 * float(values["deviation_4_bits"])
    plain = float(mean_squared_error(MODEL.apply(params, batch.inputs)[0], batch.targets))
    assert float(values["score_16_bits"]) == pytest.approx(plain, rel=1e-3)
    assert float(values["score_under_noise"]) != pytest.approx(plain, rel=1e-4)
    for length in (5, 12):
        by_lift = float(values[f"growth_{length}_steps_by_lift"])
        assert by_lift == pytest.approx(float(values[f"growth_{length}_steps"]), rel=0.5)


def test_longer_sequences_are_the_tracks_own() -> None:
    """Twelve steps start as five do: states follow from the first one and the controls."""
    test = jax.jit(TRACK.longer_test, static_argnums=1)(jax.random.key(0), 12)
    assert test.inputs.shape == (3, 12, 3)
    states = pendulum.simulate(pendulum.Pendulum(), test.inputs[:, 0, :2], test.inputs[..., 2])
    np.testing.assert_allclose(test.targets, states[:, 1:], atol=1e-6)
    other = TRACK.longer_test(jax.random.key(1), 12)
    assert not np.allclose(other.inputs, test.inputs)


def test_a_one_step_model_rolls_out_on_its_own_outputs() -> None:
    track = dynamics.build(
        mode="onestep", train_size=4, validation_size=2, test_size=3, sequence_length=5
    )
    ctx, params, batch = setting()
    ctx = dataclasses.replace(ctx, track=track)
    seen = []

    def spy(recurrence, params, inputs):
        seen.append(inputs.shape)
        return dynamics.free_run(recurrence, params, inputs)

    ctx = dataclasses.replace(ctx, track=dataclasses.replace(track, free_run=spy))
    assert track.free_run is dynamics.free_run
    assert TRACK.free_run is None
    jax.eval_shape(
        lambda p: Robustness(rollout_steps=(9,)).measure(
            ctx, MODEL.recurrence, p, batch, jnp.float32(0.2)
        ),
        params,
    )
    assert seen == [(3, 9, 3)]


def test_a_track_without_longer_sequences_is_refused() -> None:
    ctx, params, batch = setting()
    short = dataclasses.replace(ctx, track=dataclasses.replace(TRACK, longer_test=None))
    with pytest.raises(JaxbenchError, match="dynamics has none; leave rollout_steps out"):
        measured(short, params, batch, Robustness(rollout_steps=(9,)))
    with pytest.raises(JaxbenchError, match="no track"):
        measured(dataclasses.replace(ctx, track=None), params, batch, Robustness(score_noise=0.1))
