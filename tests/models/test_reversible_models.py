"""`rev_gru_small` and `leapfrog_small`: what they compute, and that their steps are undone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import JaxbenchError
from jaxbench.models import leapfrog_small, rev_gru_small, rnn_small

MODELS = [rev_gru_small, leapfrog_small]
BATCH, TIME, FEATURES, HIDDEN = 2, 4, 3, 4


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def setting(module, **options):
    rng = np.random.default_rng(0)
    model = module.build(outputs=2, hidden=HIDDEN, **options)
    inputs = jnp.asarray(rng.normal(size=(BATCH, TIME, FEATURES)))
    params = jax.jit(model.init)(jax.random.key(0), inputs)
    return model, params, inputs


@pytest.mark.parametrize("module", MODELS)
def test_apply_is_step_and_readout_one_after_another(module, float64) -> None:
    model, params, inputs = setting(module)
    recurrence = model.recurrence
    outputs, intermediates = jax.jit(model.apply)(params, inputs)
    hidden, step = recurrence.initial_hidden(params, (BATCH,)), jax.jit(recurrence.step)
    for time in range(TIME):
        hidden = step(params, hidden, inputs[:, time])
        np.testing.assert_allclose(intermediates["hidden"][:, time], hidden, atol=1e-14)
    np.testing.assert_allclose(outputs[:, -1], recurrence.readout(params, hidden), atol=1e-14)


@pytest.mark.parametrize("module", MODELS)
def test_the_inverse_undoes_a_step_from_any_state(module, float64) -> None:
    model, params, inputs = setting(module)
    before = jnp.asarray(np.random.default_rng(1).normal(size=(BATCH, HIDDEN)))

    @jax.jit
    def there_and_back(params, before, now):
        after = model.recurrence.step(params, before, now)
        return after, model.recurrence.inverse(params, after, now)

    after, again = there_and_back(params, before, inputs[:, 0])
    assert jnp.abs(after - before).max() > 0.01
    np.testing.assert_allclose(again, before, rtol=0, atol=1e-14)


def test_a_leapfrog_step_is_stormer_verlets(float64) -> None:
    """`q'' = f` as `q_{t+1} - 2 q_t + q_{t-1} = dt^2 f(q_t)`, where the input stays the same."""
    model, params, inputs = setting(leapfrog_small, dt=0.25)
    now, hidden, positions = inputs[:, 0], jnp.ones((BATCH, HIDDEN)), []
    for _ in range(3):
        hidden = model.recurrence.step(params, hidden, now)
        positions.append(hidden[:, : HIDDEN // 2])
    force = leapfrog_small.force(params["force"], positions[1], now)
    second = positions[2] - 2 * positions[1] + positions[0]
    np.testing.assert_allclose(second, 0.25**2 * force, atol=1e-14)


def test_the_gates_of_the_reversible_gru_stay_above_z_min(float64) -> None:
    _, params, inputs = setting(rev_gru_small, z_min=0.6)
    half = jax.tree.map(lambda leaf: 100 * leaf, params["first"])
    update, candidate = rev_gru_small.half_gates(half, jnp.ones((BATCH, 2)), inputs[:, 0], 0.6)
    assert (update >= 0.6).all()
    assert (update <= 1).all()
    assert (jnp.abs(candidate) <= 1).all()


def test_inactive_columns_take_no_part_and_get_no_gradient(float64) -> None:
    model, params, inputs = setting(leapfrog_small, rank=1, max_rank=3)
    other = jax.tree.map(lambda leaf: leaf, params)
    other["force"] = {**params["force"], "U": params["force"]["U"].at[:, 1:].set(7.0)}
    apply = jax.jit(model.apply)
    np.testing.assert_array_equal(apply(other, inputs)[0], apply(params, inputs)[0])
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(model.apply(p, inputs)[0] ** 2)))(other)["force"]
    for name in ("U", "V", "W"):
        assert (gradient[name][:, 1:] == 0).all()
        assert (gradient[name][:, 0] != 0).any()
    assert (gradient["active"] == 0).all()


def test_the_grus_gates_make_its_step(float64) -> None:
    model, params, inputs = setting(rnn_small)
    hidden = jnp.ones((BATCH, HIDDEN))
    update, candidate = model.recurrence.gates(params, hidden, inputs[:, 0])
    step = model.recurrence.step(params, hidden, inputs[:, 0])
    np.testing.assert_allclose(step, (1 - update) * candidate + update * hidden, atol=1e-15)


def test_more_active_columns_than_there_are_is_refused() -> None:
    with pytest.raises(JaxbenchError, match="max_rank of at least rank = 5, got 4"):
        leapfrog_small.build(outputs=2, rank=5, max_rank=4)
