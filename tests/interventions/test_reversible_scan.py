"""Scans that do without most states: their gradients against plain backpropagation through time."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.interventions import checkpoint_schedules as cs
from jaxbench.interventions import reversal_checkpointing as rc
from jaxbench.models import leapfrog_small, rev_gru_small

TIME, BATCH, FEATURES, HIDDEN = 7, 2, 3, 4


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def tanh_step(params, hidden, now):
    return jnp.tanh(hidden @ params["W"] + now["x"] @ params["U"])


class Setting:
    """A cell with its loss as output, over inputs that hold the targets too."""

    def __init__(self, step=tanh_step, inverse=None, params=None):
        rng = np.random.default_rng(0)
        real = jnp.zeros(()).dtype

        def draw(*shape):
            return jnp.asarray(rng.normal(size=shape), real)

        self.step, self.inverse = step, inverse or rc.reflect(step)
        plain = {"W": draw(HIDDEN, HIDDEN), "U": draw(FEATURES, HIDDEN)}
        inputs = {"x": draw(TIME, BATCH, FEATURES), "y": draw(TIME, BATCH, HIDDEN)}
        self.arguments = plain if params is None else params, draw(BATCH, HIDDEN), inputs

    @staticmethod
    def emit(params, hidden, now):
        """Give the squared error of the state itself."""
        return jnp.sum((hidden - now["y"]) ** 2)

    def gradient(self, scan, *more, each=False):
        """Of all losses and of the last state, for parameters, first state and inputs.

        With `each`, further arguments have a leading axis, and so has the result.
        """

        def loss(params, hidden, inputs, *more):
            last, losses = scan(params, hidden, inputs, *more)
            return jnp.sum(losses) + jnp.sum(last**3)

        given = (*self.arguments, *more)
        function = jax.grad(loss, argnums=(0, 1, 2))
        if each:
            function = jax.vmap(function, (None, None, None, *[0] * len(more)))
        return jax.jit(function)(*given)

    def dense(self):
        """Give the gradient of plain backpropagation through time."""
        return self.gradient(rc.dense_scan(self.step, self.emit))


def setting_of(model):
    """A model's cell with its own exact inverse."""
    recurrence = model.recurrence
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1, FEATURES)))
    return Setting(
        lambda params, hidden, now: recurrence.step(params, hidden, now["x"]),
        lambda params, after, now: recurrence.inverse(params, after, now["x"]),
        params,
    )


def gap(one, other):
    """The norm of the difference of two trees, relative to that of the second."""
    one, other = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (one, other))
    return np.linalg.norm(one - other) / np.linalg.norm(other)


# The gradient that is exact -----------------------------------------------------------------------


def test_recompute_gives_the_dense_gradient(float64) -> None:
    """Where the last segment is shorter, and where there is one alone."""
    setting = Setting()
    dense = setting.dense()
    for interval in (3, TIME):
        scan = rc.rev_scan(setting.step, interval=interval, mode="recompute", emit=setting.emit)
        assert gap(setting.gradient(scan), dense) < 1e-12


def test_an_interval_of_one_gives_the_dense_gradient_in_float32() -> None:
    """Whatever the inverse: this one gives nothing but NaN, and is never asked."""
    setting = Setting(inverse=lambda params, after, now: after * jnp.nan)
    scan = rc.rev_scan(setting.step, setting.inverse, interval=1, emit=setting.emit)
    emulated = rc.emulated_scan(setting.step, setting.inverse, setting.emit)
    dense = setting.dense()
    assert gap(setting.gradient(scan), dense) < 1e-6
    flags = rc.checkpoint_flags(TIME, 1)
    assert gap(setting.gradient(emulated, flags), dense) < 1e-6


@pytest.mark.parametrize("model", [rev_gru_small, leapfrog_small])
def test_an_exact_inverse_gives_the_dense_gradient(model, float64) -> None:
    setting = setting_of(model.build(outputs=2, hidden=HIDDEN))
    scan = rc.rev_scan(setting.step, setting.inverse, interval=TIME, emit=setting.emit)
    assert gap(setting.gradient(scan), setting.dense()) < 1e-11


def test_states_are_the_default_output(float64) -> None:
    setting = Setting()
    scan = rc.rev_scan(setting.step, setting.inverse, interval=3)
    last, hidden = jax.jit(scan)(*setting.arguments)
    expected, _ = jax.jit(rc.dense_scan(setting.step, setting.emit))(*setting.arguments)
    assert hidden.shape == (TIME, BATCH, HIDDEN)
    np.testing.assert_allclose(last, expected, rtol=1e-14)
    np.testing.assert_array_equal(hidden[-1], last)


# The emulation ------------------------------------------------------------------------------------


def test_the_emulation_has_the_gradient_of_rev_scan_at_every_interval(float64) -> None:
    """With an inverse that is far from exact, so that gradients differ from one k to the next.

    The emulation takes all intervals at once, as data under `vmap`.
    """
    setting = Setting()
    intervals = [1, 3, TIME]
    flags = jnp.stack([rc.checkpoint_flags(TIME, k) for k in intervals])
    emulated = rc.emulated_scan(setting.step, setting.inverse, setting.emit)

    together = setting.gradient(emulated, flags, each=True)
    dense = setting.dense()
    for row, k in enumerate(intervals):
        scan = rc.rev_scan(setting.step, setting.inverse, interval=k, emit=setting.emit)
        one = jax.tree.map(lambda leaf, row=row: leaf[row], together)
        assert gap(one, setting.gradient(scan)) < 1e-12
        assert (gap(one, dense) > 1e-3) == (k > 1)


def test_the_emulation_with_all_states_is_recompute(float64) -> None:
    setting = Setting()
    emulated = rc.emulated_scan(setting.step, setting.inverse, setting.emit)
    scan = rc.rev_scan(setting.step, interval=4, mode="recompute", emit=setting.emit)
    kept = setting.gradient(emulated, jnp.ones(TIME, bool))
    assert gap(kept, setting.gradient(scan)) < 1e-12


# Memory -------------------------------------------------------------------------------------------


def test_memory_at_2000_steps_is_at_most_a_quarter_of_the_dense_scans() -> None:
    """At interval 32; and it is little more than the checkpoints take, `T / k + 2` states."""
    length, batch, hidden, interval = 2000, 8, 16, 32
    real = jnp.float32
    params = {
        "W": jax.ShapeDtypeStruct((hidden, hidden), real),
        "U": jax.ShapeDtypeStruct((FEATURES, hidden), real),
    }
    start = jax.ShapeDtypeStruct((batch, hidden), real)
    inputs = {"x": jax.ShapeDtypeStruct((length, batch, FEATURES), real)}

    def temporary_bytes(scan):
        def loss(*given):
            return jnp.sum(scan(*given)[1])

        compiled = jax.jit(jax.grad(loss)).lower(params, start, inputs).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    def emit(params, hidden, now):
        return jnp.mean(hidden**2)

    dense = temporary_bytes(rc.dense_scan(tanh_step, emit))
    reverse = rc.rev_scan(tanh_step, rc.reflect(tanh_step), interval=interval, emit=emit)
    kept, states = temporary_bytes(reverse), math.ceil(length / interval) + 2
    assert kept <= dense / 4
    assert states * batch * hidden * 4 <= kept < 3 * states * batch * hidden * 4


# References ---------------------------------------------------------------------------------------


def test_segments_and_revolve_give_the_dense_gradient(float64) -> None:
    setting = Setting()
    dense = setting.dense()
    scans = [
        cs.segment_scan(setting.step, emit=setting.emit),
        cs.segment_scan(setting.step, segment=3, emit=setting.emit),
        cs.revolve_scan(setting.step, snapshots=1, emit=setting.emit),
        cs.revolve_scan(setting.step, snapshots=3, emit=setting.emit),
    ]
    for scan in scans:
        assert gap(setting.gradient(scan), dense) < 1e-12


@pytest.mark.parametrize(("snapshots", "r"), [(3, 6), (8, 3)])
def test_revolve_reverses_80_steps(snapshots, r) -> None:
    """`C(s + r, s) >= 80`: no step is done more than r times before it is reversed."""
    assert cs.repetitions(80, snapshots) == r
    actions = execute(80, snapshots)
    done = np.bincount([a.time for a in actions if a.kind == cs.ADVANCE], minlength=80)
    assert done.max() <= r
    assert done.sum() == cs.fewest_advances(80, snapshots)


@functools.cache
def fewest_by_search(steps, snapshots):
    """The fewest advances over all splits: `min_m m + t(l - m, s - 1) + t(m, s)`."""
    if steps == 1 or snapshots == 1:
        return steps * (steps - 1) // 2
    return min(
        m + fewest_by_search(steps - m, snapshots - 1) + fewest_by_search(m, snapshots)
        for m in range(1, steps)
    )


def test_revolve_is_optimal_and_does_what_it_says() -> None:
    for snapshots in range(1, 6):
        for steps in range(1, 26):
            actions = execute(steps, snapshots)
            advances = sum(action.kind == cs.ADVANCE for action in actions)
            assert advances == fewest_by_search(steps, snapshots)
            assert advances == cs.fewest_advances(steps, snapshots)


def execute(steps, snapshots):
    """Run a schedule on the numbers of the states: every step is reversed once, last first."""
    actions = cs.revolve(steps, snapshots)
    kept, current, reversed_steps = {}, 0, []
    for action in actions:
        if action.kind == cs.STORE:
            assert (action.time, action.slot < snapshots) == (current, True)
            kept[action.slot] = current
        elif action.kind == cs.RESTORE:
            current = kept[action.slot]
            assert action.time == current
        else:
            assert action.time == current
            if action.kind == cs.ADVANCE:
                current += 1
            else:
                reversed_steps.append(current)
    assert reversed_steps == list(range(steps))[::-1]
    return actions


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, TIME + 1])
def test_an_interval_that_does_not_fit_is_refused(interval) -> None:
    setting = Setting()
    scan = rc.rev_scan(setting.step, setting.inverse, interval=interval)
    with pytest.raises(JaxbenchError, match=rf"interval of {interval} .* expected 1 to {TIME}"):
        scan(*setting.arguments)


def test_reversing_without_an_inverse_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="'reverse' needs an inverse"):
        rc.rev_scan(tanh_step, interval=2)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="one of reverse, recompute; got 'forward'"):
        rc.rev_scan(tanh_step, interval=2, mode="forward")


def test_a_schedule_without_snapshots_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="at least one step and one snapshot; got 5 and 0"):
        cs.revolve(5, 0)
