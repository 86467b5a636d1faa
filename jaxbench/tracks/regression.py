"""What regression tracks share: the mean squared error and predictors without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ArrayType = TypeVar("ArrayType", bound=Any)  # a jax or a numpy array


def mean_squared_error(outputs: ArrayType, targets: ArrayType) -> ArrayType:
    """Average over all elements `(outputs - targets)^2`, for jax and numpy arrays alike."""
    return ((outputs - targets) ** 2).mean()


def constant_loss(targets: ArrayType) -> ArrayType:
    """Give the error of the best constant for each output: the mean of the outputs' variances.

    Args:
        targets: [..., outputs].
    """
    samples = tuple(range(targets.ndim - 1))
    return mean_squared_error(targets, targets.mean(axis=samples, keepdims=True))


def constant_prediction(
    train_targets: Float[np.ndarray, "train *time outputs"],
) -> Float[np.ndarray, "1 *time outputs"]:
    """Repeat each output's mean over training samples and times in the shape of one sample."""
    samples = tuple(range(train_targets.ndim - 1))
    mean = train_targets.mean(axis=samples, keepdims=True, dtype=np.float64)
    return np.broadcast_to(mean, (1, *train_targets.shape[1:]))


def causal_least_squares(
    train_features: Float[np.ndarray, "train features"],
    train_targets: Float[np.ndarray, "train time outputs"],
    test_features: Float[np.ndarray, "test features"],
    known: Int[np.ndarray, " time"],
) -> Float[np.ndarray, "test time outputs"]:
    """Predict each time by least squares from the features known by then, all from one QR.

    With `A = Q R`, the fit from the first `k` columns of `A` predicts `A* R^-1 M_k Q' y`, where
    `M_k` keeps the first `k` rows: the leading block of `R^-1` is the inverse of the leading block
    of `R` (Golub and Van Loan, Matrix Computations, section 5.3).  A ridge of the square root of
    machine precision, relative to each column, makes it the least-norm fit where features are
    dependent or more than the samples, and moves other fits by no more than rounding does.

    Args:
        train_features: in the order in which they become known; a constant goes before them.
        train_targets: one slice of targets a time.
        test_features: in the same order.
        known: how many features are known at each time.
    """
    ones = np.ones((len(train_features), 1))
    A = np.hstack([ones, np.asarray(train_features, np.float64)])
    A_test = np.hstack([ones[:1].repeat(len(test_features), 0), test_features])
    norms = np.linalg.norm(A, axis=0)
    ridge = np.sqrt(np.finfo(np.float64).eps) * np.where(norms > 0, norms, 1.0)
    Q, R = np.linalg.qr(np.vstack([A, np.diag(ridge)]))
    projected = np.tensordot(Q[: len(A)].T, train_targets, axes=1)
    kept = np.arange(A.shape[1])[:, None] <= known
    whitened = solve_triangular(R, A_test.T, trans="T").T
    return np.tensordot(whitened, projected * kept[:, :, None], axes=1)


def least_squares(
    train_features: Float[np.ndarray, "train features"],
    train_targets: Float[np.ndarray, "train outputs"],
    test_features: Float[np.ndarray, "test features"],
) -> Float[np.ndarray, "test outputs"]:
    """Predict by least squares from all features and a constant."""
    known = np.array([train_features.shape[1]])
    return causal_least_squares(train_features, train_targets[:, None], test_features, known)[:, 0]
