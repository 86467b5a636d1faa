"""What `stability_penalty` measures on trained networks beside its own `rho_hat`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.base import Recurrence
from jaxbench.interventions.mean_square import rho_dense, rho_power
from jaxbench.interventions.weight_noise import (
    FirstOrder,
    Groups,
    Prediction,
    monte_carlo_growth,
    predicted_growth,
)

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, PyTree
    from jaxbench.interventions.mean_square import Sigma

HORIZONS = (0.125, 0.25, 0.5, 1.0)


def growth_under_noise(
    recurrence: Recurrence,
    params: PyTree,
    inputs: Float[Array, "sequences time features"],
    groups: Groups,
    levels: Sequence[float],
    key: Key,
    paths: int,
    at_levels: Float[Array, "levels groups"] | None = None,
) -> tuple[dict[str, Any], FirstOrder]:
    """Mean-square deviations under weight noise, predicted and measured [levels, horizons].

    Beside them the first order of every step of the first sequence [time, ...], which the
    prediction is made of.

    Args:
        recurrence: of the model.
        params: its parameters.
        inputs: of the sequences over which deviations are averaged.
        groups: which weights share a noise, as for `group_members`.
        levels: standard deviations of the noise.
        key: of the noise.
        paths: noise paths of each level; the sampling error is reported.
        at_levels: the standard deviation of each group at each level, where groups differ.
    """
    horizons = np.ceil(np.array(HORIZONS) * inputs.shape[1]).astype(int)
    start = recurrence.initial_hidden(params, inputs.shape[:1])
    sigmas = jnp.asarray(levels, start.dtype)
    noise = sigmas if at_levels is None else at_levels

    def predict(start: Array, inputs: Array) -> Prediction:
        return predicted_growth(recurrence.step, params, start, inputs, groups, noise)

    def simulate(level: tuple[Array, Key]) -> Any:
        return monte_carlo_growth(
            recurrence.step,
            params,
            start,
            inputs,
            groups,
            *level,
            paths,
            recurrence.readout,
            recurrence.scaled_step,
        )

    deviations, injections, orders = jax.vmap(predict)(start, inputs)
    lift, injected = (jnp.mean(each, axis=0)[:, horizons - 1] for each in (deviations, injections))
    measured = jax.lax.map(simulate, (noise, jax.random.split(key, sigmas.size)))
    deviation = measured.hidden[:, horizons - 1]
    grown = {
        "noise_sigma": sigmas,
        "horizons": jnp.asarray(horizons),
        "log_predicted": jnp.log(lift),
        "log_injected": jnp.log(injected),
        "log_measured": jnp.log(deviation),
        "log_measured_error": measured.standard_error[:, horizons - 1] / deviation,
        "output_deviation": jnp.mean(measured.output, axis=1),
    }
    return grown, jax.tree.map(lambda leaf: leaf[0], orders)


def evenly_spread(orders: FirstOrder, count: int) -> FirstOrder:
    """Those of `count` evenly spread time steps [count, ...], the last among them."""
    times = np.linspace(0, len(orders.hidden) - 1, count + 1).astype(int)[1:]
    return jax.tree.map(lambda leaf: leaf[times], orders)


def growth_by_power(orders: FirstOrder, sigma: Sigma) -> dict[str, Array]:
    """The lift's growth at each point [count] by power iteration, and what `exact_growth` needs."""
    by_power = jax.vmap(rho_power, (0, 0, None))(orders.J, orders.B, sigma)
    return {"exact_rho_by_power": by_power, "exact_J": orders.J, "exact_B": orders.B}


def exact_growth(
    Js: Float[np.ndarray, "count n n"],
    Bs: Float[np.ndarray, "count groups n n"],
    sigma: float | Float[np.ndarray, ""] | Float[np.ndarray, " groups"],
) -> dict[str, np.ndarray]:
    """The exact growth of the lift at each point, and the norm's estimate, on the host [count].

    With one sigma a group the norm's estimate is the bound `|J|_2^2 + sum_g sigma_g^2 |B_g|_2^2`.
    """
    squares = np.linalg.norm(Js, 2, axis=(1, 2)) ** 2
    if np.ndim(sigma):
        by_norm = squares + np.linalg.norm(Bs, 2, axis=(2, 3)) ** 2 @ np.square(sigma)
    else:
        by_norm = (1 + sigma**2) * squares
    return {
        "exact_rho": np.array([rho_dense(J, B, sigma) for J, B in zip(Js, Bs, strict=True)]),
        "exact_rho_by_norm": by_norm,
    }
