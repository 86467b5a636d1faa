"""What classification tracks share: cross-entropy, accuracy, and predictors without a network.

Labels are whole numbers from 0 [samples].  A network gives the classes' scores, whose softmax is
its prediction: either one vector a sample, or one a time step, of which the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from jaxbench.base import Metric

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from jaxbench.base import Scalar, Splits

ACCURACY = Metric("accuracy", "%", "higher")
PENALTY = 1.0
"""Of the linear reference: half the sum of its squared weights, as scikit-learn's default C = 1."""


def features(*, sequence: bool) -> frozenset[str]:
    """What a classification track offers, for matching models and ideas."""
    kind = "sequence" if sequence else "tabular"
    return frozenset({"classification", kind})


def last_scores(outputs: Any, labels: Any) -> Any:
    """Give the classes' scores [samples, classes] of outputs with or without a time axis."""
    return outputs if outputs.ndim == labels.ndim + 1 else outputs[:, -1]


def cross_entropy(
    outputs: Float[Array, "samples *time classes"], labels: Int[Array, " samples"]
) -> Scalar:
    """Average over samples `-log softmax(s)_y`, the loss of a batch (nats)."""
    logarithms = jax.nn.log_softmax(last_scores(outputs, labels))
    return -jnp.mean(jnp.take_along_axis(logarithms, labels[:, None], axis=-1))


def accuracy(
    outputs: Float[Array, "samples *time classes"], labels: Int[Array, " samples"]
) -> Scalar:
    """Give the share of samples whose label has the highest score (%), NaN where a score is none.

    Without that a network of NaNs would pass as one that always says the first class.
    """
    scores = last_scores(outputs, labels)
    right = jnp.argmax(scores, axis=-1).astype(labels.dtype) == labels
    share = 100 * jnp.mean(right.astype(scores.dtype))
    return jnp.where(jnp.isfinite(scores).all(), share, jnp.nan)


def constant_loss(labels: Int[Array, " samples"], classes: int) -> Scalar:
    """Give the cross-entropy of the best constant prediction: the entropy of the labels (nats)."""
    counts = jnp.sum(labels[:, None] == jnp.arange(classes, dtype=labels.dtype)[None], axis=0)
    shares = counts.astype(float) / len(labels)
    return -jnp.sum(jax.scipy.special.xlogy(shares, shares))


def logistic_regression(
    train_features: Float[np.ndarray, "train features"],
    train_labels: Int[np.ndarray, " train"],
    test_features: Float[np.ndarray, "test features"],
    classes: int,
    penalty: float = PENALTY,
) -> Float[np.ndarray, "test classes"]:
    """Give the test scores of a multinomial logistic regression with a small penalty.

    It minimises `sum_i -log softmax(W x_i + b)_{y_i} + penalty/2 |W|^2` by L-BFGS, in float64
    (Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, section 4.4), the
    objective of scikit-learn's `LogisticRegression(C=1/penalty)`.

    Args:
        train_features: of the training samples.
        train_labels: from 0 to classes - 1.
        test_features: of the test samples.
        classes: how many there are.
        penalty: of the weights, not of the constants.
    """
    x = np.asarray(train_features, np.float64)
    wanted = np.eye(classes)[train_labels]
    shape = (x.shape[1] + 1, classes)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights, constants = np.split(flat.reshape(shape), [-1])
        logarithms = special.log_softmax(x @ weights + constants, axis=1)
        error = np.exp(logarithms) - wanted
        gradient = np.vstack([x.T @ error + penalty * weights, error.sum(0)])
        value = -np.sum(wanted * logarithms) + penalty / 2 * np.sum(weights**2)
        return float(value), gradient.ravel()

    options = {"maxiter": 1000, "gtol": 1e-4, "ftol": 1e-12}
    found = optimize.minimize(
        objective, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options=options
    )
    weights, constants = np.split(found.x.reshape(shape), [-1])
    return np.asarray(test_features, np.float64) @ weights + constants


def references(splits: Splits, classes: int) -> dict[str, float]:
    """Score the most frequent class and logistic regression on the test labels (%)."""
    train, test = splits.train, splits.test
    counts = np.bincount(train.targets, minlength=classes)
    features = [each.inputs.reshape(len(each.inputs), -1) for each in (train, test)]
    scores = logistic_regression(features[0], train.targets, features[1], classes)
    predictions = {"constant": counts.argmax(), "linear": scores.argmax(1)}
    return {
        name: 100 * float(np.mean(prediction == test.targets))
        for name, prediction in predictions.items()
    }
