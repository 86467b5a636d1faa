"""`rank_enrichment`: give a low-rank force another column where its gradient asks for one.

The force `U tanh(V^T q + W x) - K q` of a leapfrog cell has `max_rank` columns, of which some are
active.  The gradient G of the loss for a whole operator `A q` added to the force says what the
columns cannot do: where the loss has stopped falling and the share of G outside the span of U,
`|(I - P_U) G| / |G|`, exceeds `threshold`, a column is switched on with V the top right singular
vector of `(I - P_U) G` and U = 0.  The function is preserved exactly, and the next gradient of the
new column of U is, to first order, the residual's strongest direction.  Compare the rank-adaptive
integrators of Ceruti, Kusch & Lubich 2022 and DLRT (Schotthöfer et al. 2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge

from jaxbench.base import Context, Hyper, Intervention
from jaxbench.interventions.mean_square import irregular, top_singular_vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Array, Float

    from jaxbench.base import PyTree, Scalar

FORCE = "force"
POWER_STEPS = 30
NEGLIGIBLE = 1e-6


def operator_gradient(
    loss: Callable[[PyTree], Scalar], params: PyTree
) -> tuple[Scalar, Float[Array, "units units"]]:
    """The loss, and its gradient G for an operator A added to the force as `A q`, at A = 0.

    It is minus the gradient for a whole stiffness matrix in place of the diagonal `K`.

    Args:
        loss: of the parameters; its force takes `K` as a vector or as a matrix.
        params: with `force/K` [units].
    """
    stiffness = params[FORCE]["K"]

    def of(matrix: Array) -> Scalar:
        return loss({**params, FORCE: {**params[FORCE], "K": matrix}})

    value, gradient = jax.value_and_grad(of)(jnp.diag(stiffness))
    return value, -gradient


def span(columns: Float[Array, "units columns"]) -> Float[Array, "units columns"]:
    """Orthonormal columns with the span of the given ones, 0 for those that add nothing.

    Gram-Schmidt, twice for each column; it calls no LAPACK (see `state_inverses.solve`).
    """

    def add(basis: Array, each: tuple[Array, Array]) -> tuple[Array, None]:
        at, column = each
        size = jnp.linalg.norm(column)
        for _ in range(2):
            column = column - basis @ (basis.T @ column)
        length = jnp.linalg.norm(column)
        new = jnp.where(length > NEGLIGIBLE * size, column / jnp.where(length > 0, length, 1), 0)
        return basis.at[:, at].set(new), None

    return jax.lax.scan(add, jnp.zeros_like(columns), (jnp.arange(columns.shape[1]), columns.T))[0]


def residual(
    gradient: Float[Array, "units units"], columns: Float[Array, "units columns"]
) -> tuple[Float[Array, "units units"], Scalar]:
    """`(I - P_U) G` with the projection on the columns' span, and its share `|.| / |G|` of G."""
    basis = span(columns)
    rest = gradient - basis @ (basis.T @ gradient)
    size = jnp.linalg.norm(gradient)
    return rest, jnp.minimum(jnp.linalg.norm(rest) / jnp.where(size > 0, size, 1), 1)


def enrich(params: PyTree, direction: Float[Array, " units"]) -> PyTree:
    """Switch the first inactive column on, with `V = direction`, `W = 0` and `U = 0`.

    The force is the same function before and after.  Without an inactive column nothing changes.
    """
    force = params[FORCE]
    columns = jnp.arange(force["active"].size)
    active = force["active"] > 0
    new = ~active & (columns == jnp.argmin(active))
    put = {
        "U": jnp.where(new[None, :], 0, force["U"]),
        "V": jnp.where(new[None, :], direction[:, None], force["V"]),
        "W": jnp.where(new[None, :], 0, force["W"]),
        "active": jnp.where(new, 1, force["active"]),
    }
    return {**params, FORCE: {**force, **put}}


def build(
    *,
    direction: Literal["residual", "random"] = "residual",
    patience: Annotated[int, Ge(1)] = 1,
) -> Intervention:
    """Add a column to a leapfrog cell's force where the loss stalls and its gradient asks for one.

    Loss and gradient are those of the first training samples, after each epoch.

    Args:
        direction: of a new column: the residual's top right singular vector, or a random one, the
            control that grows at the same signs without following the gradient.
        patience: epochs without an improvement by the share `improvement` that count as a stall.
    """

    def init_state(ctx: Context) -> dict[str, Array]:
        real = jax.tree.leaves(ctx.params0)[0].dtype
        return {"best": jnp.array(jnp.inf, real), "stalled": jnp.zeros((), jnp.int32)}

    def after_epoch(
        ctx: Context, params: PyTree, opt_state: PyTree, state: PyTree, epoch: Any
    ) -> tuple[PyTree, PyTree, PyTree, dict[str, Scalar]]:
        def loss(params: PyTree) -> Scalar:
            outputs, _ = ctx.model.apply(params, ctx.probe.inputs)
            assert ctx.track is not None
            return ctx.track.loss(outputs, ctx.probe.targets)

        value, gradient = operator_gradient(loss, params)
        force = params[FORCE]
        rest, share = residual(gradient, force["U"] * force["active"][None, :])
        better = value < (1 - ctx.hyper["improvement"]) * state["best"]
        stalled = jnp.where(better, 0, state["stalled"] + 1)
        room = jnp.any(force["active"] == 0)
        grow = room & (stalled >= patience) & (share > ctx.hyper["threshold"])
        if direction == "random":
            drawn = jax.random.normal(jax.random.fold_in(ctx.key, epoch), gradient.shape[:1])
            column = (drawn / jnp.linalg.norm(drawn)).astype(gradient.dtype)
        else:
            start = irregular(len(gradient), gradient.dtype)
            _, column = top_singular_vectors(
                lambda v: rest @ v, lambda u: rest.T @ u, start, POWER_STEPS
            )
        params = jax.tree.map(
            lambda new, old: jnp.where(grow, new, old), enrich(params, column), params
        )
        state = {
            "best": jnp.minimum(value, state["best"]),
            "stalled": jnp.where(grow, 0, stalled),
        }
        log = {
            "probe_loss": value,
            "residual_share": share,
            "rank": jnp.sum(params[FORCE]["active"]),
        }
        return params, opt_state, state, log

    return Intervention(
        name="rank_enrichment",
        summary="add columns to a low-rank force where its gradient points outside their span",
        static={"direction": direction, "patience": patience},
        hyper={
            "threshold": Hyper(
                0.3, 0.0, 1.0, "share of the gradient outside the span that asks for a column",
                neutral=1.0,
            ),
            "improvement": Hyper(0.05, 0.0, 1.0, "relative fall of the loss that is no stall"),
        },
        requires=frozenset({"low_rank_force"}),
        limitations=(
            "The stall is that of the loss on the first training samples, not of the validation "
            "loss, which no hook sees.",
        ),
        init_state=init_state,
        after_epoch=after_epoch,
    )  # fmt: skip
