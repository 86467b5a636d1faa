"""Mean-square stability of a linear recurrence with random coefficients.

`x' = (A + sum_i sigma_i w_i B_i) x`, with independent standard normal `w_i` drawn anew each step,
moves the second moment `P = E x x^T` by `Phi(P) = A P A^T + sum_i sigma_i^2 B_i P B_i^T`.  The
*mean-square growth* is the spectral radius `rho(Phi)`: `E |x|^2` grows or decays at that rate
(Kleinman 1969; El Ghaoui 1995; Costa, Fragoso and Marques 2005).  `Phi` is the lift
`A (x) A + sum_i sigma_i^2 B_i (x) B_i` [n^2, n^2], which only `rho_dense` builds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import JaxbenchError

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    Sigma = float | Float[Array, ""] | Float[Array, " groups"]

DENSE_LIMIT = 64
ARNOLDI_FROM = 100
TINY = 1e-30


# --------------------------------------------------------------------------------------------------
# The lift
# --------------------------------------------------------------------------------------------------


def lift_apply(
    A: Float[Array, "n n"], B: Float[Array, "groups n n"], sigma: Sigma, P: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """The second moment one step later, `Phi(P) = A P A^T + sum_i sigma_i^2 B_i P B_i^T`.

    Args:
        A: the mean matrix.
        B: what one unit of each noise adds to it.
        sigma: standard deviation of the noise, one for all or one for each group.
        P: the second moment `E x x^T`.

    Raises:
        JaxbenchError: the shapes do not fit, or sigma is negative.
    """
    maps = _maps(A, B, sigma)
    return jnp.einsum("kij,klj->il", maps @ P, maps)


def lift_adjoint(
    A: Float[Array, "n n"], B: Float[Array, "groups n n"], sigma: Sigma, Q: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """The adjoint of `lift_apply`, `Phi*(Q) = A^T Q A + sum_i sigma_i^2 B_i^T Q B_i`.

    `<Q, Phi(P)> = <Phi*(Q), P>` in the inner product `<Q, P> = tr(Q^T P)`.
    """
    maps = _maps(A, B, sigma)
    return jnp.einsum("kji,kjl->il", maps, Q @ maps)


def elementwise_lift_apply(
    A: Float[Array, "n n"], deviation: Float[Array, "n n"], P: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """`lift_apply` with one noise for each element, `A P A^T + diag((S * S) diag(P))`.

    Args:
        A: the mean matrix.
        deviation: `S`, the standard deviation of each element: `sigma * A` where `A_ij` becomes
            `A_ij (1 + sigma w_ij)`, or a constant for rounding errors.
        P: the second moment `E x x^T`.
    """
    return A @ P @ A.T + jnp.diag((deviation * deviation) @ jnp.diagonal(P))


def elementwise_lift_adjoint(
    A: Float[Array, "n n"], deviation: Float[Array, "n n"], Q: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """The adjoint of `elementwise_lift_apply`, `A^T Q A + diag((S * S)^T diag(Q))`."""
    return A.T @ Q @ A + jnp.diag((deviation * deviation).T @ jnp.diagonal(Q))


def _maps(
    A: Float[Array, "n n"], B: Float[Array, "groups n n"], sigma: Sigma
) -> Float[Array, "1+groups n n"]:
    """The Kraus operators of `Phi`: `A` and each `sigma_i B_i`."""
    check_lift(A, B, sigma)
    scale = jnp.broadcast_to(jnp.asarray(sigma, B.dtype), B.shape[:1])
    return jnp.concatenate([A[None], scale[:, None, None] * B])


def check_lift(A: Any, B: Any, sigma: Any) -> None:
    """Refuse shapes that do not fit, and a negative sigma."""
    check_sigma(sigma)
    n = A.shape[-1]
    if A.shape != (n, n) or B.ndim != 3 or B.shape[1:] != (n, n):
        raise JaxbenchError(
            f"the lift needs A [n, n] and B [groups, n, n], but came {A.shape} and {B.shape}; "
            "a single B is B[None]"
        )


def check_sigma(sigma: Any) -> None:
    """Refuse a negative standard deviation where its value is known before tracing."""
    if not isinstance(sigma, jax.core.Tracer) and np.any(np.asarray(sigma) < 0):
        raise JaxbenchError(f"sigma is a standard deviation and at least 0, but it is {sigma}")


# --------------------------------------------------------------------------------------------------
# Its growth
# --------------------------------------------------------------------------------------------------


def rho_norm(A: Float[Array, "n n"], sigma: Sigma, steps: int = 10) -> Float[Array, ""]:
    """An upper bound on the growth where the noise scales all of `A`: `(1 + sigma^2) |A|_2^2`.

    The exact growth for `B = A` is `(1 + sigma^2) rho(A)^2`; the bound is far above it for a
    non-normal `A`.  The norm is approached from below by power iteration, and its gradient is that
    of `u^T A v` with fixed `u` and `v`.

    Args:
        A: the mean matrix.
        sigma: standard deviation of the noise.
        steps: of the power iteration on `A^T A`.
    """
    check_sigma(sigma)
    frozen = jax.lax.stop_gradient(A)
    left, right = top_singular_vectors(
        lambda v: frozen @ v, lambda u: u @ frozen, irregular(A.shape[1], A.dtype), steps
    )
    return (1 + sigma**2) * (left @ A @ right) ** 2


def rho_power(
    A: Float[Array, "n n"], B: Float[Array, "groups n n"], sigma: Sigma, steps: int = 20
) -> Float[Array, ""]:
    """The growth `rho(Phi)` by power iteration on `Phi` and its adjoint, `<Q, Phi(P)> / <Q, P>`.

    Its error is of the order of the product of the errors of `P` and `Q`.  With the two held fixed,
    its derivative at the eigenpair is exactly that of the eigenvalue, `<Q, dPhi(P)> / <Q, P>`.  A
    quarter of the old moment stays in each step: without it the moments of a rotating pair, whose
    eigenvalues have the same modulus as `rho`, would never die out.

    Args:
        A: the mean matrix.
        B: what one unit of each noise adds to it.
        sigma: standard deviation of the noise, one for all or one for each group.
        steps: of the power iteration, both ways.

    Raises:
        JaxbenchError: the shapes do not fit, or sigma is negative.
    """
    maps = _maps(A, B, sigma)
    frozen = jax.lax.stop_gradient(maps)

    def refine(moments: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        P, Q = moments
        P = P / 4 + _unit_trace(jnp.einsum("kij,klj->il", frozen @ P, frozen))
        Q = Q / 4 + _unit_trace(jnp.einsum("kji,kjl->il", frozen, Q @ frozen))
        return (_unit_trace(P), _unit_trace(Q)), None

    start = _unit_trace(jnp.eye(A.shape[0], dtype=A.dtype))
    (P, Q), _ = jax.lax.scan(refine, (start, start), None, length=steps)
    P, Q = jax.lax.stop_gradient((P, Q))
    grown = jnp.einsum("kij,klj->il", maps @ P, maps)
    return jnp.sum(Q * grown) / jnp.maximum(jnp.sum(Q * P), TINY)


def rho_dense(A: Any, B: Any, sigma: Any) -> float:
    """The growth `rho(Phi)` from the eigenvalues of the lift, on the host in float64.

    The lift is restricted to symmetric matrices [n(n+1)/2 squared], where its spectral radius is
    attained because it preserves positive semidefinite ones (Krein and Rutman 1948).  Of a large
    lift only the largest eigenvalue is computed (Arnoldi's method); it starts at the identity,
    which is orthogonal to no positive semidefinite matrix.

    Raises:
        JaxbenchError: shapes that do not fit, a negative sigma, or more than 64 dimensions.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, eigs

    A, B = np.asarray(A, np.float64), np.asarray(B, np.float64)
    check_lift(A, B, sigma)
    n = A.shape[0]
    if n > DENSE_LIMIT:
        raise JaxbenchError(
            f"the dense lift of {n} dimensions has {n**4:.0e} elements; use rho_power above "
            f"{DENSE_LIMIT} dimensions"
        )
    scale = np.broadcast_to(np.asarray(sigma, np.float64), B.shape[:1])
    maps = np.concatenate([A[None], scale[:, None, None] * B])
    lift = np.einsum("kij,klm->iljm", maps, maps).reshape(n * n, n * n)
    rows, columns = np.triu_indices(n)
    pair, swapped = rows * n + columns, columns * n + rows
    symmetric = lift[np.ix_(pair, pair)] + lift[np.ix_(pair, swapped)] * (rows != columns)
    if len(symmetric) > ARNOLDI_FROM:
        identity = (rows == columns).astype(np.float64)
        with contextlib.suppress(ArpackNoConvergence):
            largest = eigs(symmetric, k=1, v0=identity, return_eigenvectors=False)
            return float(np.abs(largest[0]))
    return float(np.abs(np.linalg.eigvals(symmetric)).max())


def _unit_trace(P: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Scale a positive semidefinite matrix to trace 1; leave zero as it is."""
    return P / jnp.maximum(jnp.trace(P), TINY)


# --------------------------------------------------------------------------------------------------
# The largest singular value
# --------------------------------------------------------------------------------------------------


def top_singular_vectors(
    forward: Callable[[Array], Array],
    backward: Callable[[Array], Array],
    start: Float[Array, "*batch n"],
    steps: int,
) -> tuple[Float[Array, "*batch m"], Float[Array, "*batch n"]]:
    """The singular vectors `u, v` of the largest singular value, by power iteration on `J^T J`.

    Args:
        forward: `v -> J v`, linear.
        backward: `u -> J^T u`, its transpose.
        start: the first `v`; it must not be orthogonal to the answer.
        steps: how often `v` becomes `J^T J v`.
    """

    def refine(right: Array, _: None) -> tuple[Array, None]:
        return unit(backward(unit(forward(right)))), None

    right, _ = jax.lax.scan(refine, unit(start), None, length=steps)
    left = unit(forward(right))
    return jax.lax.stop_gradient((left, right))


def unit(vector: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Scale vectors to length 1; leave zero as it is."""
    length = jnp.sqrt(jnp.sum(vector * vector, axis=-1, keepdims=True))
    return vector / jnp.maximum(length, TINY)


def irregular(n: int, dtype: Any) -> Float[Array, " n"]:
    """A fixed vector without a pattern, from which iterations start: the same normal draws."""
    return jnp.asarray(np.random.default_rng(0).normal(size=n), dtype)
