"""`node_small`: a neural ordinary differential equation of one hidden layer.

`x' = W2 tanh(W1 [x, u] + b1) + b2` from a given state under a control that is constant over each
time step (Chen et al. 2018).  The state is what the outputs are, so the dynamics track's `rollout`
gives all that it needs: the first state and the controls.  Trained through one step of the
classical Runge-Kutta method a time step, which never straddles a change of the control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt

from jaxbench.base import JaxbenchError, Model, UnitLayer, UnitSlice
from jaxbench.models.dormand_prince import Solution, solve
from jaxbench.models.initial_kernels import lecun_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float, Int

    from jaxbench.base import Key, PyTree

FIRST, SECOND = "Dense_0", "Dense_1"
STAGES_A_STEP = 4


def driven(
    params: PyTree, controls: Float[Array, "*batch controls"]
) -> Float[Array, "*batch hidden"]:
    """What the hidden units receive from the control, `W1_u u + b1`."""
    kernel = params[FIRST]["kernel"][len(params[FIRST]["kernel"]) - controls.shape[-1] :]
    received = controls @ kernel
    return received + jnp.broadcast_to(params[FIRST]["bias"], received.shape)


def derivative(
    params: PyTree, state: Float[Array, "*batch state"], drive: Float[Array, "*batch hidden"]
) -> Float[Array, "*batch state"]:
    """The state's time derivative, `W2 tanh(W1_x x + drive) + b2`.

    Args:
        params: the parameters.
        state: in the units of the targets.
        drive: of `driven`.
    """
    kernel = params[FIRST]["kernel"][: state.shape[-1]]
    onwards = jnp.tanh(state @ kernel + drive) @ params[SECOND]["kernel"]
    return onwards + jnp.broadcast_to(params[SECOND]["bias"], onwards.shape)


def rk4_step(
    params: PyTree,
    state: Float[Array, "*batch state"],
    drive: Float[Array, "*batch hidden"],
    time_step: float,
) -> Float[Array, "*batch state"]:
    """One step of the classical Runge-Kutta method, `x + dt/6 (k1 + 2 k2 + 2 k3 + k4)`."""
    k1 = derivative(params, state, drive)
    k2 = derivative(params, state + time_step / 2 * k1, drive)
    k3 = derivative(params, state + time_step / 2 * k2, drive)
    k4 = derivative(params, state + time_step * k3, drive)
    return state + time_step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def pieces(controls: Float[Array, "time controls"]) -> Int[Array, " time"]:
    """The lengths of the stretches of constant control, at their first steps; 0 at the others."""
    changes = (controls[1:] != controls[:-1]).any(axis=-1)
    always = jnp.array([True])
    starts = jnp.concatenate([always, changes])
    places = jnp.arange(len(controls))
    ends = jnp.where(jnp.concatenate([changes, always]), places + 1, len(controls))
    return jnp.where(starts, jax.lax.cummin(ends, reverse=True) - places, 0)


def adaptive_solution(
    params: PyTree,
    initial: Float[Array, " state"],
    controls: Float[Array, "time controls"],
    time_step: float,
    tolerance: float,
) -> tuple[Float[Array, "time state"], Float[Array, ""]]:
    """Solve for one sample by Dormand and Prince's method, each stretch of constant control anew.

    Args:
        params: the parameters.
        initial: the first state.
        controls: one a time step.
        time_step: in the derivative's unit of time.
        tolerance: relative and absolute, of each step.

    Returns:
        the states at the end of the stretch in which each time step lies, and how often the
        derivative was evaluated; not a number where the solver failed.
    """

    def advance(state: Array, at: tuple[Array, Array]) -> tuple[Array, Solution]:
        drive, steps = at
        duration = steps.astype(state.dtype) * time_step
        found = solve(lambda x: derivative(params, x, drive), state, duration, tolerance, tolerance)
        return found.state, found

    _, found = jax.lax.scan(advance, initial, (driven(params, controls), pieces(controls)))
    evaluations = found.evaluations.sum().astype(initial.dtype)
    return found.state, jnp.where(found.solved.all(), evaluations, jnp.nan)


def unit_layer(hidden: int) -> UnitLayer:
    """Which slices of which leaves belong to a hidden unit."""
    return UnitLayer(
        "hidden",
        hidden,
        (
            UnitSlice((FIRST, "kernel"), 1, "incoming"),
            UnitSlice((FIRST, "bias"), 0, "incoming"),
            UnitSlice((SECOND, "kernel"), 0, "outgoing", bias=(SECOND, "bias")),
        ),
    )


def build(
    *,
    outputs: int,
    hidden: Annotated[int, Ge(1)] = 32,
    time_step: Annotated[float, Gt(0)] = 0.05,
    tolerance: Annotated[float, Gt(0)] = 1e-6,
) -> Model:
    """Build a neural differential equation over inputs [batch, time, features].

    Of the features the first `outputs` are the state, of which only that at the first time is read,
    and the others the control.  It has no `recurrence`: its state starts from its inputs.

    Args:
        outputs: width of the state and of the outputs, given by the track.
        hidden: hidden units.
        time_step: between two inputs (s), that of the track.
        tolerance: relative and absolute, of the solver whose evaluations are counted.
    """

    def init(key: Key, inputs: Float[Array, "batch time features"]) -> PyTree:
        if inputs.ndim != 3 or inputs.shape[-1] < outputs:
            raise JaxbenchError(
                f"node_small reads inputs [batch, time, features] with a state of {outputs} and a "
                f"control among the features, but the track's are {list(inputs.shape)}; take a "
                f"track of sequences, such as dynamics"
            )
        first, second = lecun_kernels(key, [(inputs.shape[-1], hidden), (hidden, outputs)])
        return {
            name: {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1:], kernel.dtype)}
            for name, kernel in ((FIRST, first), (SECOND, second))
        }

    def apply(
        params: PyTree,
        inputs: Float[Array, "batch time features"],
        *,
        ctx: Any = None,
        state: Any = None,
        key: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        del ctx, state, key
        drives = driven(params, inputs[..., outputs:].swapaxes(0, 1))

        def advance(state: Array, drive: Array) -> tuple[Array, Array]:
            state = rk4_step(params, state, drive, time_step)
            return state, state

        _, states = jax.lax.scan(advance, inputs[:, 0, :outputs], drives)
        return states.swapaxes(0, 1), {}

    @jax.jit
    def count(params: PyTree, inputs: Float[Array, "batch time features"]) -> Array:
        def one(sample: Array) -> Array:
            initial, controls = sample[0, :outputs], sample[:, outputs:]
            return adaptive_solution(params, initial, controls, time_step, tolerance)[1]

        return jax.vmap(one)(inputs)

    def solver_evaluations(
        params: PyTree, inputs: Float[np.ndarray, "batch time features"]
    ) -> Float[np.ndarray, " batch"]:
        given = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, inputs))
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
            return np.asarray(count(*given))

    def flops(input_shape: tuple[int, ...]) -> float:
        time, features = input_shape
        control = 2 * hidden * (features - outputs)
        return float(time * (control + STAGES_A_STEP * 2 * hidden * 2 * outputs))

    def resized(sizes: Mapping[str, int]) -> Model:
        width = sizes.get("hidden", hidden)
        return build(outputs=outputs, hidden=width, time_step=time_step, tolerance=tolerance)

    return Model(
        name="node_small",
        summary="a neural ordinary differential equation of one hidden layer",
        options={"hidden": hidden, "time_step": time_step, "tolerance": tolerance},
        reads="sequences [samples, steps, features] with the state among the features",
        features=frozenset({"hidden_units"}),
        init=init,
        apply=apply,
        flops=flops,
        unit_layers=(unit_layer(hidden),),
        resized=resized,
        solver_evaluations=solver_evaluations,
    )
