"""The adaptive solver against scipy's, evaluation by evaluation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxbench.models.dormand_prince import ERROR, SOLUTION, STAGES, solve


def pendulum(state, xp):
    return xp.stack([state[1], -9.0 * xp.sin(state[0]) - 0.1 * state[1]])


def van_der_pol(state, xp):
    return xp.stack([state[1], 8.0 * (1 - state[0] ** 2) * state[1] - state[0]])


def decay(state, xp):
    return -state


def rest(state, xp):
    return 0 * state


CASES = [
    (pendulum, [1.0, 0.5], 3.0, 1e-6),
    (pendulum, [0.0, 0.0], 3.0, 1e-6),
    (van_der_pol, [2.0, 0.0], 12.0, 1e-6),
    (van_der_pol, [2.0, 0.0], 12.0, 1e-9),
    (decay, [1e-8, 3.0], 0.01, 1e-6),
    (rest, [1.0, 2.0], 5.0, 1e-6),
]


@pytest.mark.parametrize(("equation", "initial", "duration", "tolerance"), CASES)
def test_it_evaluates_as_often_as_scipy_and_finds_the_same(
    equation, initial, duration, tolerance
) -> None:
    """In float64 the same steps are tried, rejected ones too."""
    expected = solve_ivp(
        lambda t, x: equation(x, np), (0, duration), initial,
        method="RK45", rtol=tolerance, atol=tolerance,
    )  # fmt: skip
    with jax.enable_x64(True):
        found = solve(
            lambda x: equation(x, jnp), jnp.array(initial), jnp.array(duration),
            tolerance, tolerance,
        )  # fmt: skip
    assert found.solved
    assert found.evaluations == expected.nfev
    np.testing.assert_allclose(found.state, expected.y[:, -1], rtol=1e-7, atol=1e-9)


def test_a_stiff_case_rejects_steps() -> None:
    """The case above that tells rejected steps from accepted ones has some of both."""
    equation, initial, duration, tolerance = CASES[2]
    solution = solve_ivp(
        lambda t, x: equation(x, np), (0, duration), initial,
        method="RK45", rtol=tolerance, atol=tolerance,
    )  # fmt: skip
    assert solution.nfev > 2 + 6 * (len(solution.t) - 1)


def test_over_no_time_nothing_is_evaluated() -> None:
    found = solve(lambda x: pendulum(x, jnp), jnp.array([1.0, 2.0]), jnp.array(0.0), 1e-6, 1e-6)
    assert found.solved
    assert found.evaluations == 0
    assert found.state.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_cannot_be_solved_ends_and_says_so(value: float) -> None:
    def explodes(x):
        return x**2 * value

    found = solve(explodes, jnp.array([1.0]), jnp.array(1.0), 1e-6, 1e-6)
    assert not found.solved
    blows_up = solve(lambda x: x**2, jnp.array([1.0]), jnp.array(2.0), 1e-6, 1e-6)
    assert not blows_up.solved


def test_its_weights_are_consistent() -> None:
    """The fifth-order weights sum to 1, their errors to 0; each stage's to Dormand and Prince's."""
    assert sum(SOLUTION) == pytest.approx(1)
    assert sum(ERROR) == pytest.approx(0, abs=1e-15)
    nodes = [sum(stage) for stage in STAGES]
    assert nodes == pytest.approx([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1])
