"""`ringsolve`: solve `(I + kappa L) u = f` on a graph, node by node.

`L` is the graph's Laplacian and `f` is white noise, one number a node.  The exact answer is
`u = (I + kappa L)^-1 f`; the score of an answer `v` is the mean square of its residual
`f - (I + kappa L) v`, which is 1 on average for `v = 0`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Le

from jaxbench import graphs
from jaxbench.base import Batch, Metric, Splits, Track
from jaxbench.graphs import GraphName
from jaxbench.tracks import regression

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from jaxbench.base import Key, Scalar

REFERENCE_SWEEPS = 3


def jacobi(
    neighbours: graphs.Neighbours,
    kappa: float,
    f: Float[np.ndarray, "*batch nodes"],
    sweeps: int,
    damping: float = 1.0,
) -> Float[np.ndarray, "*batch nodes"]:
    """Do sweeps of Jacobi's iteration `u <- u + damping (M u + f / D - u)` from 0."""
    M, scale = graphs.jacobi_map(neighbours, kappa)
    u = np.zeros_like(f, dtype=np.float64)
    for _ in range(sweeps):
        u = u + damping * (u @ M.T + scale * f - u)
    return u


def gauss_seidel(
    neighbours: graphs.Neighbours,
    kappa: float,
    f: Float[np.ndarray, "*batch nodes"],
    sweeps: int,
) -> Float[np.ndarray, "*batch nodes"]:
    """Do sweeps over the nodes in order, each with its neighbours' newest values, from 0."""
    M, scale = graphs.jacobi_map(neighbours, kappa)
    u = np.zeros_like(f, dtype=np.float64)
    for _ in range(sweeps):
        for node in range(len(neighbours)):
            u[..., node] = u @ M[node] + scale[node] * f[..., node]
    return u


def build(
    *,
    graph: GraphName = "ring",
    nodes: Annotated[int, Ge(3), Le(1024)] = 16,
    degree: Annotated[int, Ge(2)] = 4,
    graph_seed: Annotated[int, Ge(0)] = 0,
    kappa: Annotated[float, Gt(0)] = 1.0,
    train_size: Annotated[int, Ge(1)] = 400,
    validation_size: Annotated[int, Ge(1)] = 200,
    test_size: Annotated[int, Ge(1)] = 100,
) -> Track:
    """Build the screened Poisson equation on a graph, as sequences of one time step.

    Args:
        graph: `ring`, `torus` or `random_regular`.
        nodes: of the graph.
        degree: of the random regular graph.
        graph_seed: of the random regular graph.
        kappa: coupling between neighbours; the larger, the further an `f` is felt.
        train_size: training samples.
        validation_size: validation samples.
        test_size: test samples.
    """
    options = dict(locals())
    neighbours = graphs.make_graph(graph, nodes, degree, graph_seed)
    matrix = graphs.screened_laplacian(neighbours, kappa)
    inverse = np.linalg.inv(matrix)
    sizes = (train_size, validation_size, test_size)

    def generate(key: Key) -> Splits:
        def sample(split: Array, number: Array) -> Array:
            own_key = jax.random.fold_in(jax.random.fold_in(key, split), number)
            return jax.random.normal(own_key, (1, nodes))

        splits = jnp.asarray(np.repeat(np.arange(3), sizes))
        numbers = jnp.concatenate([jnp.arange(size) for size in sizes])
        f = jax.vmap(sample)(splits, numbers)
        u = jnp.matmul(f, jnp.asarray(inverse, f.dtype), precision="highest")
        parts = [jnp.split(each, np.cumsum(sizes)[:2]) for each in (f, u)]
        return Splits(*(Batch(*part) for part in zip(*parts, strict=True)))

    def residual(
        outputs: Float[Array, "*batch nodes"], targets: Float[Array, "*batch nodes"]
    ) -> Scalar:
        A = jnp.asarray(matrix, targets.dtype)
        return jnp.mean(jnp.matmul(outputs - targets, A, precision="highest") ** 2)

    def constant_loss(targets: Float[Array, "samples time nodes"]) -> Scalar:
        return residual(jnp.mean(targets, axis=(0, 1), keepdims=True), targets)

    def references(splits: Splits) -> dict[str, float]:
        train, test = splits.train, splits.test
        f = np.asarray(test.inputs[:, 0], np.float64)
        predictions = {
            "constant": regression.constant_prediction(train.targets)[:, 0],
            "identity": f,
            "linear": regression.least_squares(train.inputs[:, 0], train.targets[:, 0], f),
            f"jacobi_{REFERENCE_SWEEPS}_sweeps": jacobi(neighbours, kappa, f, REFERENCE_SWEEPS),
            f"gauss_seidel_{REFERENCE_SWEEPS}_sweeps": gauss_seidel(
                neighbours, kappa, f, REFERENCE_SWEEPS
            ),
            "solve": np.linalg.solve(matrix, f.T).T,
        }
        return {
            name: float(np.mean((prediction @ matrix - f) ** 2))
            for name, prediction in predictions.items()
        }

    return Track(
        name="ringsolve",
        summary="solve (I + kappa L) u = f on a ring, a torus or a random regular graph",
        options=options,
        metric=Metric("mean squared residual", "squared units of f", "lower"),
        output_size=nodes,
        features=frozenset({"sequence", "regression", "graph"}),
        generate=generate,
        loss=residual,
        score=residual,
        constant_loss=constant_loss,
        references=references,
    )
