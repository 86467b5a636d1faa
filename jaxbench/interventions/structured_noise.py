"""Structured uncertainty: groups of weights whose noise has a standard deviation of its own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp

from jaxbench.base import Hyper, JaxbenchError
from jaxbench.interventions.mean_square import TINY
from jaxbench.interventions.weight_noise import Groups

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Scalar
    from jaxbench.interventions.mean_square import Sigma

COMMON = Hyper(0.2, 0.0, 1.0, "relative standard deviation of the weights' noise")


def sigma_hyper(groups: Groups, own: Sequence[str]) -> dict[str, Hyper]:
    """The hyperparameters: `sigma_<group>` of each group in `own`, and `sigma` of the others.

    Raises:
        JaxbenchError: `own` names a group that is not there.
    """
    for name in own:
        if name not in groups:
            near = difflib.get_close_matches(name, list(groups), n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise JaxbenchError(
                f"sigma_groups names {name!r}, but the groups are {', '.join(groups)}{hint}"
            )
    common = {} if set(own) == set(groups) else {"sigma": COMMON}
    return common | {
        f"sigma_{name}": Hyper(0.2, 0.0, 1.0, f"relative standard deviation of the noise on {name}")
        for name in own
    }


def sigma_of(hyper: Mapping[str, Scalar], groups: Groups, own: Sequence[str]) -> Sigma:
    """The standard deviation of all groups, or of each [groups] where some have their own."""
    if not own:
        return hyper["sigma"]
    return jnp.stack([hyper[f"sigma_{name}" if name in own else "sigma"] for name in groups])


def root_mean_square(sigma: Sigma) -> Scalar:
    """The one standard deviation of the same total variance, `sqrt(mean_g sigma_g^2)`."""
    return jnp.sqrt(jnp.mean(jnp.asarray(sigma) ** 2))


def relative_levels(sigma: Sigma, levels: Sequence[float]) -> Float[Array, "levels groups"]:
    """Noise of the same structure at other levels: each row has the root mean square `level`."""
    relative = jnp.asarray(sigma) / jnp.maximum(root_mean_square(sigma), TINY)
    return jnp.outer(jnp.asarray(levels, relative.dtype), relative)
