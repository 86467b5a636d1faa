"""The lift and its growth: identities, exact cases and bounds."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError
from jaxbench.interventions import stability_penalty as sp
from jaxbench.interventions.mean_square import top_singular_vectors

ENOUGH = 300
sizes = {
    "n": st.sampled_from([1, 3]),  # few shapes, few compilations
    "groups": st.sampled_from([0, 2]),
    "seed": st.integers(0, 2**20),
}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def draw(n: int, groups: int, seed: int) -> tuple[jax.Array, jax.Array, np.random.Generator]:
    """A random mean matrix and noise matrices of spectral radius around one."""
    rng = np.random.default_rng(seed)
    scale = n**-0.5
    A, B = rng.normal(size=(n, n)) * scale, rng.normal(size=(groups, n, n)) * scale
    return jnp.asarray(A), jnp.asarray(B), rng


def spectral_radius(A: jax.Array) -> float:
    return float(np.abs(np.linalg.eigvals(np.asarray(A))).max())


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


# The lift -----------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(**sizes)
def test_the_adjoint_is_the_adjoint(n: int, groups: int, seed: int) -> None:
    with jax.enable_x64(True):
        A, B, rng = draw(n, groups, seed)
        sigma = jnp.asarray(rng.uniform(size=groups))
        P, Q = jnp.asarray(rng.normal(size=(2, n, n)))
        forward = jnp.sum(Q * sp.lift_apply(A, B, sigma, P))
        backward = jnp.sum(sp.lift_adjoint(A, B, sigma, Q) * P)
        np.testing.assert_allclose(forward, backward, rtol=1e-10, atol=1e-12)
        S = jnp.asarray(rng.uniform(size=(n, n)))
        forward = jnp.sum(Q * sp.elementwise_lift_apply(A, S, P))
        backward = jnp.sum(sp.elementwise_lift_adjoint(A, S, Q) * P)
        np.testing.assert_allclose(forward, backward, rtol=1e-10, atol=1e-12)


def test_the_lift_is_its_formula() -> None:
    A, B, rng = draw(3, 2, 0)
    P = jnp.asarray(rng.normal(size=(3, 3)))
    expected = A @ P @ A.T + 0.25 * (B[0] @ P @ B[0].T + B[1] @ P @ B[1].T)
    np.testing.assert_allclose(sp.lift_apply(A, B, 0.5, P), expected, rtol=1e-12)


def test_elementwise_noise_is_a_group_for_each_element() -> None:
    A, _, rng = draw(3, 0, 1)
    deviation = 0.4 * A
    B = (deviation.reshape(9, 1, 1)) * jnp.eye(9).reshape(9, 3, 3)
    P = jnp.asarray(rng.normal(size=(3, 3)))
    P = P @ P.T
    np.testing.assert_allclose(
        sp.elementwise_lift_apply(A, deviation, P), sp.lift_apply(A, B, 1.0, P), rtol=1e-12
    )


def test_one_sigma_a_group_scales_each_group() -> None:
    A, B, rng = draw(3, 2, 2)
    P = jnp.asarray(rng.normal(size=(3, 3)))
    sigma = jnp.array([0.3, 0.7])
    np.testing.assert_allclose(
        sp.lift_apply(A, B, sigma, P), sp.lift_apply(A, sigma[:, None, None] * B, 1.0, P)
    )


# Exact growths ------------------------------------------------------------------------------------


def test_the_largest_eigenvalue_of_a_large_lift_is_that_of_all_of_them() -> None:
    """Arnoldi, from 14 dimensions on, against all eigenvalues of the unrestricted lift."""
    random = np.random.default_rng(3)
    for n in (14, 20):
        A, B = random.normal(size=(n, n)) / n, random.normal(size=(2, n, n)) / n
        lift = np.kron(A, A) + 0.09 * sum(np.kron(each, each) for each in B)
        exact = np.abs(np.linalg.eigvals(lift)).max()
        assert sp.rho_dense(A, B, 0.3) == pytest.approx(exact, rel=1e-9)
    rotation = np.kron(np.eye(10), [[0.6, -0.8], [0.8, 0.6]])
    assert sp.rho_dense(rotation, rotation[None], 0.5) == pytest.approx(1.25, rel=1e-9)


@pytest.mark.parametrize("rho", [sp.rho_power, sp.rho_dense])
def test_a_scalar_grows_by_a_squared_plus_sigma_squared_b_squared(rho) -> None:
    A, B = jnp.array([[0.7]]), jnp.array([[[-1.3]]])
    assert float(rho(A, B, 0.5)) == pytest.approx(0.7**2 + 0.5**2 * 1.3**2, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_noise_on_all_of_a_grows_by_one_plus_sigma_squared(seed: int) -> None:
    A, _, _ = draw(3, 0, seed)
    exact = 1.25 * spectral_radius(A) ** 2
    assert sp.rho_dense(A, A[None], 0.5) == pytest.approx(exact, rel=1e-9)
    assert float(sp.rho_power(A, A[None], 0.5, ENOUGH)) == pytest.approx(exact, rel=1e-6)


def test_without_noise_the_growth_is_the_spectral_radius_squared() -> None:
    V, B, _ = draw(3, 2, 5)
    A = V @ jnp.diag(jnp.array([0.9, -0.5, 0.2])) @ jnp.linalg.inv(V)
    assert sp.rho_dense(A, B, 0.0) == pytest.approx(0.81, rel=1e-9)
    assert float(sp.rho_power(A, B, 0.0, ENOUGH)) == pytest.approx(0.81, rel=1e-9)


@pytest.mark.parametrize("angle", [0.3, 1.2, np.pi / 2])
def test_power_iteration_settles_on_a_skewed_rotation(angle: float) -> None:
    """Three eigenvalues of the lift share the largest modulus here, so plain iteration cycles."""
    skew = np.diag([1.0, 3.0])
    A = jnp.asarray(0.9 * skew @ rotation(angle) @ np.linalg.inv(skew))
    assert float(sp.rho_power(A, A[None], 0.5, ENOUGH)) == pytest.approx(1.25 * 0.81, rel=1e-4)


def test_dense_power_and_monte_carlo_agree() -> None:
    """From the eigen-moment, `E|x'|^2 / E|x|^2` is the growth itself."""
    A, B, rng = draw(3, 2, 7)
    sigma, paths = 0.5, 400_000
    exact = sp.rho_dense(A, B, sigma)
    assert float(sp.rho_power(A, B, sigma, ENOUGH)) == pytest.approx(exact, rel=1e-9)
    P = jnp.eye(3)
    for _ in range(ENOUGH):
        P = sp.lift_apply(A, B, sigma, P)
        P = P / jnp.trace(P)
    np.testing.assert_allclose(sp.lift_apply(A, B, sigma, P), exact * P, atol=1e-9)
    x = rng.normal(size=(paths, 3)) @ np.linalg.cholesky(P).T
    noise = sigma * rng.normal(size=(paths, 2))
    moved = x @ np.asarray(A).T + np.einsum("pg,gij,pj->pi", noise, B, x)
    grown = (moved**2).sum(axis=1)
    error = grown.std() / paths**0.5
    assert abs(grown.mean() - exact) < 4 * error
    assert error < 0.005 * exact


# Bounds -------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(**sizes)
def test_the_growth_lies_below_its_bounds(n: int, groups: int, seed: int) -> None:
    with jax.enable_x64(True):
        A, B, _ = draw(n, groups, seed)
        slack = 1 + 1e-9
        largest = np.linalg.eigvalsh(sp.lift_apply(A, B, 0.5, jnp.eye(n))).max()
        assert sp.rho_dense(A, B, 0.5) <= largest * slack
        norm = 1.25 * np.linalg.norm(A, 2) ** 2
        assert sp.rho_dense(A, A[None], 0.5) <= norm * slack
        few, many = float(sp.rho_norm(A, 0.5, 1)), float(sp.rho_norm(A, 0.5, 100))
        assert few <= many * slack <= norm * slack**2


@settings(max_examples=15, deadline=None)
@given(**sizes)
def test_power_iteration_approaches_the_dense_growth(n: int, groups: int, seed: int) -> None:
    with jax.enable_x64(True):
        A, B, _ = draw(n, groups, seed)
        exact = sp.rho_dense(A, B, 0.5)
        assert float(sp.rho_power(A, B, 0.5, ENOUGH)) == pytest.approx(exact, rel=0.02)


def test_the_norm_is_far_above_the_growth_of_a_non_normal_matrix() -> None:
    A = jnp.array([[0.5, 10.0], [0.0, 0.5]])
    norm, exact = float(sp.rho_norm(A, 0.0, 50)), sp.rho_dense(A, A[None], 0.0)
    assert exact == pytest.approx(0.25, rel=1e-6)
    assert norm > 100


def test_the_norm_of_a_matrix() -> None:
    A, _, _ = draw(5, 0, 3)
    assert float(sp.rho_norm(A, 0.2, 200)) == pytest.approx(1.04 * np.linalg.norm(A, 2) ** 2)


def test_a_nilpotent_or_zero_matrix_has_no_growth_and_finite_gradients() -> None:
    none = jnp.zeros((0, 2, 2))
    for A in (jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.zeros((2, 2))):
        value, gradient = jax.value_and_grad(sp.rho_power)(A, none, 0.5, 100)
        assert float(value) == pytest.approx(0, abs=1e-6)
        assert np.isfinite(gradient).all()
        assert np.isfinite(jax.grad(sp.rho_norm)(A, 0.5)).all()


# Gradients ----------------------------------------------------------------------------------------


def central(function, at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central finite differences of a scalar function of an array."""
    slopes = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[index] = step
        slopes[index] = (function(at + moved) - function(at - moved)) / (2 * step)
    return slopes


def test_the_gradient_of_power_iteration_is_that_of_the_eigenvalue() -> None:
    A, B, _ = draw(3, 2, 7)
    sigma = np.array([0.5, 0.3])
    gradients = jax.grad(sp.rho_power, argnums=(0, 1, 2))(A, B, jnp.asarray(sigma), ENOUGH)
    expected = (
        central(lambda A: sp.rho_dense(A, B, sigma), np.asarray(A)),
        central(lambda B: sp.rho_dense(A, B, sigma), np.asarray(B)),
        central(lambda sigma: sp.rho_dense(A, B, sigma), sigma),
    )
    for gradient, slope in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, slope, atol=1e-4 * np.abs(slope).max())


def test_the_gradient_of_the_norm_is_that_of_the_singular_value() -> None:
    A, _, _ = draw(4, 0, 11)
    gradient = jax.grad(sp.rho_norm)(A, 0.5, ENOUGH)
    slope = central(lambda A: 1.25 * np.linalg.norm(A, 2) ** 2, np.asarray(A))
    np.testing.assert_allclose(gradient, slope, atol=1e-4 * np.abs(slope).max())


def test_singular_vectors_of_a_batch() -> None:
    A = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4, 3)))
    left, right = top_singular_vectors(
        lambda v: jnp.einsum("bij,bj->bi", A, v),
        lambda u: jnp.einsum("bij,bi->bj", A, u),
        jnp.ones((6, 3)),
        200,
    )
    values = jnp.einsum("bi,bij,bj->b", left, A, right)
    np.testing.assert_allclose(values, np.linalg.norm(A, 2, axis=(1, 2)), rtol=1e-6)


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [sp.rho_power, sp.rho_dense])
def test_errors_say_what_is_wrong(rho) -> None:
    A, B, _ = draw(3, 1, 0)
    with pytest.raises(JaxbenchError, match=r"at least 0, but it is -0\.1"):
        rho(A, B, -0.1)
    with pytest.raises(JaxbenchError, match=r"a single B is B\[None\]"):
        rho(A, B[0], 0.1)
    with pytest.raises(JaxbenchError, match=r"A \[n, n\]"):
        rho(A[:2], B, 0.1)


def test_a_negative_sigma_is_refused_by_the_norm_too() -> None:
    with pytest.raises(JaxbenchError, match="at least 0"):
        sp.rho_norm(jnp.eye(2), -1.0)


def test_a_dense_lift_that_is_too_large_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="use rho_power above 64"):
        sp.rho_dense(np.eye(65), np.eye(65)[None], 0.1)
