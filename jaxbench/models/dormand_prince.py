"""Dormand and Prince's adaptive solver of fifth order, which counts what it evaluates.

Step sizes and first steps are chosen as `scipy.integrate.solve_ivp` chooses them (`RK45`), so that
both evaluate the differential equation as often.  It is a `while_loop`: for measuring trained
networks, not for training through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

    from jaxbench.base import Scalar

    State = Float[Array, " state"]
    Derivative = Callable[[State], State]
    Carry = tuple[State, State, Scalar, Scalar, Int[Array, ""], Bool[Array, ""]]

STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
)
SOLUTION = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
ERROR = (
    -71 / 57600, 0.0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40,
)  # fmt: skip
"""Fifth-order less fourth-order weights (Dormand & Prince 1980, table 2)."""

SAFETY, SLOWEST, FASTEST = 0.9, 0.2, 10.0
EVALUATIONS_A_STEP = 6


class Solution(NamedTuple):
    """What the solver found.

    Attributes:
        state: at the end [state].
        evaluations: of the derivative, those of rejected steps and of the first step's choice
            included.
        solved: False where the step size fell below what the numbers resolve, as it does where the
            state is not finite; the rest is meaningless then.
    """

    state: State
    evaluations: Int[Array, ""]
    solved: Bool[Array, ""]


def solve(
    derivative: Derivative, initial: State, duration: Scalar, rtol: float, atol: float
) -> Solution:
    """Solve `x' = derivative(x)` from `initial` over `duration`; over 0 nothing is evaluated.

    A step is accepted if the root mean square of its error over `atol + rtol |x|` is below 1.

    Args:
        derivative: autonomous.
        initial: [state].
        duration: in the derivative's unit of time, not negative.
        rtol: relative tolerance of the error of a step.
        atol: absolute tolerance.
    """
    first = derivative(initial)
    smallest = 10 * jnp.finfo(initial.dtype).eps * duration

    def unfinished(carry: Carry) -> Array:
        _, _, step, left, _, _ = carry
        return (left > 0) & (step > smallest)

    def attempt(carry: Carry) -> Carry:
        state, slope, step, left, evaluations, rejected = carry
        length = jnp.minimum(step, left)
        moved, moved_slope, error = try_step(derivative, state, slope, length)
        scale = atol + rtol * jnp.maximum(jnp.abs(state), jnp.abs(moved))
        size = root_mean_square(error / scale)
        accepted = size < 1
        factor = jnp.where(size == 0, FASTEST, SAFETY * jnp.maximum(size, 1e-30) ** (-1 / 5))
        grown = jnp.clip(factor, SLOWEST, jnp.where(rejected, 1.0, FASTEST))
        shrunk = jnp.where(factor > SLOWEST, factor, SLOWEST)
        return (
            jnp.where(accepted, moved, state),
            jnp.where(accepted, moved_slope, slope),
            length * jnp.where(accepted, grown, shrunk),
            jnp.where(accepted, left - length, left),
            evaluations + EVALUATIONS_A_STEP,
            ~accepted,
        )

    step = first_step(derivative, initial, first, duration, rtol, atol)
    begun = jnp.where(duration > 0, 2, 0)
    carry = (initial, first, step, duration, begun, jnp.array(False))
    state, _, _, left, evaluations, _ = jax.lax.while_loop(unfinished, attempt, carry)
    return Solution(state, evaluations, left <= 0)


def try_step(
    derivative: Derivative, state: State, slope: State, length: Scalar
) -> tuple[State, State, State]:
    """One step: the state after it, the derivative there, and the estimate of its error."""
    slopes = [slope]
    for weights in STAGES:
        slopes.append(derivative(state + length * weighted(weights, slopes)))
    moved = state + length * weighted(SOLUTION, slopes)
    slopes.append(derivative(moved))
    return moved, slopes[-1], length * weighted(ERROR, slopes)


def first_step(
    derivative: Derivative,
    initial: State,
    slope: State,
    duration: Scalar,
    rtol: float,
    atol: float,
) -> Scalar:
    """Choose the first step from one Euler step (Hairer, Norsett & Wanner 1993, section II.4)."""
    scale = atol + rtol * jnp.abs(initial)
    size, speed = root_mean_square(initial / scale), root_mean_square(slope / scale)
    tiny = (size < 1e-5) | (speed < 1e-5)
    trial = jnp.minimum(jnp.where(tiny, 1e-6, 0.01 * size / jnp.where(tiny, 1, speed)), duration)
    safe = jnp.where(trial > 0, trial, 1)
    bend = root_mean_square((derivative(initial + trial * slope) - slope) / scale) / safe
    fastest = jnp.maximum(speed, bend)
    flat = fastest <= 1e-15
    step = jnp.where(
        flat, jnp.maximum(1e-6, trial * 1e-3), (0.01 / jnp.where(flat, 1, fastest)) ** (1 / 5)
    )
    return jnp.minimum(jnp.minimum(100 * trial, step), duration)


def weighted(weights: tuple[float, ...], slopes: list[State]) -> State:
    """Sum the slopes with these weights."""
    total = weights[0] * slopes[0]
    for weight, slope in zip(weights[1:], slopes[1:], strict=True):
        total = total + weight * slope
    return total


def root_mean_square(values: State) -> Scalar:
    """The root of the mean of squares."""
    return jnp.sqrt(jnp.mean(values**2))
