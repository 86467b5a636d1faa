"""`tabular`: Friedman's first regression problem, five inputs that matter among ten.

`y = 10 sin(pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5 + noise N(0, 1)` of independent inputs,
uniform on [0, 1] (Friedman 1991, Multivariate adaptive regression splines, section 4.3).  The
signal has mean 14.413 and variance 23.826; the best linear predictor leaves 5.889 of it, beside the
noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from jaxbench.base import Batch, Metric, Splits, Track
from jaxbench.tracks import regression

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key

ArrayType = TypeVar("ArrayType", bound=Any)  # a jax or a numpy array
RELEVANT = 5


def friedman(inputs: ArrayType) -> ArrayType:
    """Give `10 sin(pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5`.

    For jax and numpy arrays alike.

    Args:
        inputs: [..., inputs], at least five; the others do not matter.

    Returns:
        the signal without noise [...].
    """
    sin = inputs.__array_namespace__().sin
    x1, x2, x3, x4, x5 = (inputs[..., place] for place in range(RELEVANT))
    return 10 * sin(np.pi * x1 * x2) + 20 * (x3 - 0.5) ** 2 + 10 * x4 + 5 * x5


def symmetric_uniform(key: Key, size: int) -> Float[Array, " size"]:
    """Draw uniformly from (-1, 1), the ends excluded, as `jax.random.normal` does before `erf_inv`.

    One draw for inputs and noise compiles in half the time of two.
    """
    lowest = np.nextafter(np.array(-1, jnp.zeros(()).dtype), 0)
    return jax.random.uniform(key, (size,), minval=lowest)


def references(splits: Splits) -> dict[str, float]:
    """Score the constant, least squares and the signal itself on the test targets, in float64.

    `noise` is the error of the true function, below which no predictor comes but by chance.
    """
    train, test = splits.train, splits.test
    targets = np.asarray(test.targets, np.float64)
    predictions = {
        "constant": regression.constant_prediction(train.targets),
        "linear": regression.least_squares(train.inputs, train.targets, test.inputs),
        "noise": friedman(np.asarray(test.inputs, np.float64))[:, None],
    }
    return {
        name: float(regression.mean_squared_error(prediction, targets))
        for name, prediction in predictions.items()
    }


def build(
    *,
    train_size: Annotated[int, Ge(1)] = 400,
    validation_size: Annotated[int, Ge(1)] = 200,
    test_size: Annotated[int, Ge(1)] = 200,
    inputs: Annotated[int, Ge(RELEVANT)] = 10,
    noise: Annotated[float, Ge(0)] = 1.0,
) -> Track:
    """Build Friedman's first regression problem.

    Args:
        train_size: training samples.
        validation_size: validation samples.
        test_size: test samples.
        inputs: how many inputs a sample has; those after the fifth do not matter.
        noise: standard deviation of the noise on the targets (units of y).
    """
    options = dict(locals())
    sizes = (train_size, validation_size, test_size)

    def generate(key: Key) -> Splits:
        def sample(split: Array, number: Array) -> Batch:
            own_key = jax.random.fold_in(jax.random.fold_in(key, split), number)
            drawn = symmetric_uniform(own_key, inputs + 1)
            x = (drawn[:inputs] + 1) / 2
            error = noise * np.sqrt(2).item() * jax.lax.erf_inv(drawn[inputs])
            return Batch(x, (friedman(x) + error)[None])

        splits = jnp.asarray(np.repeat(np.arange(3), sizes))
        numbers = jnp.concatenate([jnp.arange(size) for size in sizes])
        samples = jax.vmap(sample)(splits, numbers)
        leaves = [jnp.split(leaf, np.cumsum(sizes)[:2]) for leaf in samples]
        return Splits(*(Batch(*parts) for parts in zip(*leaves, strict=True)))

    return Track(
        name="tabular",
        summary="Friedman's first regression problem: five inputs that matter among ten",
        options=options,
        metric=Metric("mean squared error", "squared units of y", "lower"),
        output_size=1,
        features=frozenset({"tabular", "regression"}),
        generate=generate,
        loss=regression.mean_squared_error,
        score=regression.mean_squared_error,
        constant_loss=regression.constant_loss,
        references=references,
    )
