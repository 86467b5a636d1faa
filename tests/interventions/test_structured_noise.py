"""One standard deviation a group: the lift, its growth, the noisy network and the penalty."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import Batch, Context, JaxbenchError
from jaxbench.interventions import stability_penalty as sp
from jaxbench.interventions.mean_square import rho_dense, rho_power
from jaxbench.interventions.stability_measures import exact_growth
from jaxbench.interventions.structured_noise import relative_levels, root_mean_square, sigma_of
from jaxbench.models import rnn_small

GROUPS = {"W": ["W"], "U": ["U"]}
MODEL = rnn_small.build(outputs=2, hidden=4)
OWN = ["hr", "hz", "hn", "input"]


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def linear(params, hidden, now):
    return params["W"] @ hidden + params["U"] @ now


# The growth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [rho_power, rho_dense])
def test_a_scalar_grows_by_a_squared_plus_each_groups_share(rho, float64) -> None:
    a, b, sigma = 0.7, np.array([-1.3, 0.4, 2.0]), np.array([0.5, 0.1, 0.2])
    exact = a**2 + (sigma**2 * b**2).sum()
    found = rho(jnp.array([[a]]), jnp.asarray(b).reshape(3, 1, 1), jnp.asarray(sigma))
    assert float(found) == pytest.approx(exact, rel=1e-12)


def test_dense_power_and_monte_carlo_agree_with_different_sigmas(float64) -> None:
    """From the eigen-moment, `E|x'|^2 / E|x|^2` is the growth itself."""
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(3, 3)) / 2, rng.normal(size=(2, 3, 3)) / 2
    sigma, paths = np.array([0.8, 0.3]), 200_000
    exact = rho_dense(A, B, sigma)
    power = rho_power(jnp.asarray(A), jnp.asarray(B), jnp.asarray(sigma), 1000)
    assert float(power) == pytest.approx(exact, rel=1e-6)
    P = np.eye(3)
    for _ in range(1000):
        P = A @ P @ A.T + sum(s**2 * b @ P @ b.T for s, b in zip(sigma, B, strict=True))
        P = P / np.trace(P)
    x = rng.normal(size=(paths, 3)) @ np.linalg.cholesky(P).T
    noise = sigma * rng.normal(size=(paths, 2))
    moved = x @ A.T + np.einsum("pg,gij,pj->pi", noise, B, x)
    grown = (moved**2).sum(axis=1)
    assert abs(grown.mean() - exact) < 4 * grown.std() / paths**0.5


def test_no_noise_in_any_group_leaves_the_spectral_radius_squared(float64) -> None:
    rng = np.random.default_rng(2)
    A, B = rng.normal(size=(3, 3)), rng.normal(size=(2, 3, 3))
    exact = np.abs(np.linalg.eigvals(A)).max() ** 2
    assert rho_dense(A, B, np.zeros(2)) == pytest.approx(exact, rel=1e-9)


def test_the_bound_by_norms_is_one(float64) -> None:
    rng = np.random.default_rng(3)
    J, B = rng.normal(size=(5, 4, 4)), rng.normal(size=(5, 2, 4, 4))
    found = exact_growth(J, B, np.array([0.3, 0.6]))
    assert (found["exact_rho"] <= found["exact_rho_by_norm"] * (1 + 1e-9)).all()
    alone = exact_growth(J, 0 * B, np.array([0.3, 0.6]))
    squares = np.linalg.norm(J, 2, axis=(1, 2)) ** 2
    np.testing.assert_allclose(alone["exact_rho_by_norm"], squares)


def test_a_negative_sigma_of_one_group_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="at least 0"):
        rho_dense(np.eye(2), np.zeros((2, 2, 2)), np.array([0.1, -0.1]))
    with pytest.raises(JaxbenchError, match="at least 0"):
        sp.predicted_growth(
            linear, {"W": jnp.eye(1), "U": jnp.eye(1)}, jnp.zeros(1), jnp.ones((2, 1)), GROUPS,
            np.array([[0.1, -0.1]]),
        )  # fmt: skip


# Along a trajectory -------------------------------------------------------------------------------


def test_the_lift_of_a_scalar_network_is_its_recursion(float64) -> None:
    """`P' = w^2 P + s_w^2 w^2 (P + h^2) + s_u^2 u^2 x^2`, by hand."""
    w, u, sigma = 0.9, 1.5, np.array([0.3, 0.7])
    xs = np.random.default_rng(0).normal(size=6)
    params = {"W": jnp.array([[w]]), "U": jnp.array([[u]])}
    found, injected, _ = sp.predicted_growth(
        linear, params, jnp.zeros(1), jnp.asarray(xs)[:, None], GROUPS, jnp.asarray(sigma)[None]
    )
    h = P = total = 0.0
    for time, x in enumerate(xs):
        fresh = (sigma[0] * w * h) ** 2 + (sigma[1] * u * x) ** 2
        P, total = w**2 * (1 + sigma[0] ** 2) * P + fresh, total + fresh
        h = w * h + u * x
        assert float(found[0, time]) == pytest.approx(P, rel=1e-12)
        assert float(injected[0, time]) == pytest.approx(total, rel=1e-12)


@pytest.mark.slow
def test_the_noisy_network_moves_as_the_lift_says(float64) -> None:
    """Exact for a linear network, at any sigma, within the sampling error."""
    rng = np.random.default_rng(4)
    params = {
        "W": jnp.asarray(rng.normal(size=(3, 3)) / 2),
        "U": jnp.asarray(rng.normal(size=(3, 2))),
    }
    inputs, sigma = jnp.asarray(rng.normal(size=(5, 2))), jnp.array([0.5, 0.1])
    lift, _, _ = sp.predicted_growth(linear, params, jnp.zeros(3), inputs, GROUPS, sigma[None])
    found = sp.monte_carlo_growth(
        linear, params, jnp.zeros((1, 3)), inputs[None], GROUPS, sigma, jax.random.key(0), 20_000
    )
    assert (np.abs(found.hidden - lift[0]) < 4 * found.standard_error).all()


def test_other_levels_keep_the_structure() -> None:
    sigma = jnp.array([0.08, 0.16, 0.32, 0.16])
    assert float(root_mean_square(sigma)) == pytest.approx(0.2)
    levels = relative_levels(sigma, [0.1, 0.2])
    np.testing.assert_allclose(levels, [sigma / 2, sigma], rtol=1e-6)


# The penalty --------------------------------------------------------------------------------------


def setting(hyper: dict[str, float]):
    """A context, parameters of which none is zero, and a batch."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(4, 5, 3)), jnp.float32)
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), inputs)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)
    batch = Batch(inputs, jnp.zeros((4, 5, 2)))
    traced = {name: jnp.asarray(value, jnp.float32) for name, value in hyper.items()}
    return Context(jax.random.key(7), traced, MODEL, params, batch, (), 10), params, batch


def term(intervention, ctx, params, batch):
    hidden = MODEL.apply(params, batch.inputs)[1]
    return intervention.loss_term(ctx, params, (), batch, None, hidden, 0, jax.random.key(1))


def test_equal_sigmas_of_all_groups_are_one_sigma() -> None:
    small = {"level": "power", "samples": 2, "times": 2, "power_steps": 5}
    one, each = sp.build(**small), sp.build(**small, sigma_groups=OWN)
    ctx, params, batch = setting({"weight": 1.0, "sigma": 0.3})
    own = {f"sigma_{name}": jnp.float32(0.3) for name in OWN}
    other = dataclasses.replace(ctx, hyper={"weight": ctx.hyper["weight"], **own})

    def both(params):
        return term(one, ctx, params, batch), term(each, other, params, batch)

    expected, found = jax.jit(both)(params)
    assert float(expected) > 0
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_each_group_has_a_hyperparameter_and_the_rest_share_one() -> None:
    some = sp.build(level="power", sigma_groups=["hn"])
    assert list(some.hyper) == ["weight", "sigma", "sigma_hn"]
    assert list(sp.build(level="power", sigma_groups=OWN).hyper) == [
        "weight", *(f"sigma_{name}" for name in OWN),
    ]  # fmt: skip
    hyper = {"sigma": jnp.float32(0.1), "sigma_hn": jnp.float32(0.3)}
    np.testing.assert_allclose(sigma_of(hyper, sp.GRU_GROUPS, ["hn"]), [0.1, 0.1, 0.3, 0.1])
    assert list(sp.build().hyper) == ["weight", "sigma"]


@pytest.mark.slow
def test_what_is_measured_is_at_the_groups_own_sigmas() -> None:
    intervention = sp.build(level="power", sigma_groups=OWN, paths=64, test_sequences=1)
    hyper = {"weight": 1.0, "sigma_hr": 0.0, "sigma_hz": 0.0, "sigma_hn": 0.0, "sigma_input": 0.4}
    ctx, params, batch = setting(hyper)
    values = jax.jit(lambda p: intervention.measure(ctx, p, (), batch))(params)
    values = jax.device_get(values)
    on_host = dataclasses.replace(ctx, measured=values)
    exact = intervention.measure_host(on_host, params, (), batch)
    J, B = values["exact_J"][0], values["exact_B"][0]
    assert exact["exact_rho"][0] == pytest.approx(rho_dense(J, B[3:], 0.4), rel=1e-5)
    assert values["sigma"] == pytest.approx(0.2)
    np.testing.assert_allclose(values["noise_sigma"], [0.05, 0.1, 0.2, 0.4])
    assert values["log_measured"].shape == values["log_predicted"].shape == (4, 4)
    small = np.abs(values["log_predicted"] - values["log_measured"])[0]
    assert (small < 4 * values["log_measured_error"][0] + 0.1).all()


def test_an_unknown_group_is_refused_with_the_nearest() -> None:
    with pytest.raises(JaxbenchError, match=r"'inputs', .*hr, hz, hn, input; did you mean input"):
        sp.build(level="power", sigma_groups=["inputs"])


def test_the_norm_knows_one_sigma_only() -> None:
    with pytest.raises(JaxbenchError, match="needs level = 'power'"):
        sp.build(sigma_groups=["hn"])
