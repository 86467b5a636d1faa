"""The penalty in training, what is measured, and models of the user's own."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import pytest

from jaxbench import registry
from jaxbench.base import Batch, Context, JaxbenchError, Model, Recurrence
from jaxbench.interventions import stability_penalty as sp
from jaxbench.models import rnn_small

HIDDEN, BATCH, TIME, FEATURES = 5, 6, 8, 3
MODEL = rnn_small.build(outputs=2, hidden=HIDDEN)
SMALL = {"samples": 3, "times": 2, "paths": 16, "test_sequences": 2}


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def setting(model: Model = MODEL, scale: float = 1.0, weight: float = 1.0):
    """Parameters of which none is zero, data and a context."""
    rng = np.random.default_rng(0)
    real = jnp.zeros(()).dtype
    inputs = jnp.asarray(rng.normal(size=(BATCH, TIME, FEATURES)), real)
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(scale * rng.normal(size=leaf.shape), real), shapes
    )
    batch = Batch(inputs, jnp.zeros((BATCH, TIME, 2), real))
    hyper = {"weight": jnp.asarray(weight, real), "sigma": jnp.asarray(0.2, real)}
    return Context(jax.random.key(7), hyper, model, params, batch, (), 10), params, batch


def loss(intervention, ctx, params, batch, key):
    outputs, intermediates = ctx.model.apply(params, batch.inputs)
    return intervention.loss_term(ctx, params, (), batch, outputs, intermediates, 0, key)


def weighted(ctx, weight):
    return dataclasses.replace(ctx, hyper={**ctx.hyper, "weight": weight})


def plain_model() -> Model:
    """A recurrence `h' = tanh(W h + U x)` whose parameters are a plain dict, `apply` a loop."""

    def init(key, inputs):
        return {"W": jnp.eye(HIDDEN), "U": jnp.ones((HIDDEN, inputs.shape[-1]))}

    def step(params, hidden, now):
        return jnp.tanh(hidden @ params["W"].T + now @ params["U"].T)

    def apply(params, inputs, *, ctx=None, state=None, key=None):
        hidden, states = jnp.zeros((len(inputs), HIDDEN), inputs.dtype), []
        for time in range(inputs.shape[1]):
            hidden = step(params, hidden, inputs[:, time])
            states.append(hidden)
        states = jnp.stack(states, axis=1)
        return states, {"hidden": states}

    start = lambda params, shape: jnp.zeros((*shape, HIDDEN), params["W"].dtype)  # noqa: E731
    recurrence = Recurrence(start, step, lambda params, hidden: hidden)
    return Model(
        name="plain",
        summary="",
        options={},
        features=frozenset({"recurrent"}),
        init=init,
        apply=apply,
        flops=lambda shape: 0.0,
        recurrence=recurrence,
    )


# The growths along a trajectory -------------------------------------------------------------------


def test_the_norm_along_points_is_that_of_each_jacobian(float64) -> None:
    del float64
    _, params, _ = setting()
    rng = np.random.default_rng(1)
    hidden = jnp.asarray(rng.normal(size=(4, HIDDEN)))
    inputs = jnp.asarray(rng.normal(size=(4, FEATURES)))
    step = MODEL.recurrence.step

    @jax.jit
    def both(params, hidden, inputs):
        rho = [sp.rho_norm_along(step, params, hidden, inputs, 0.5, n) for n in (1, 400)]
        return rho, jax.vmap(lambda h, x: sp.local_jacobian(step, params, h, x))(hidden, inputs)

    (few, many), J = both(params, hidden, inputs)
    np.testing.assert_allclose(many, 1.25 * np.linalg.norm(J, 2, axis=(1, 2)) ** 2, rtol=1e-8)
    assert (few <= many * (1 + 1e-12)).all()


def test_the_power_level_is_the_growth_of_each_lift(float64) -> None:
    del float64
    _, params, _ = setting()
    rng = np.random.default_rng(1)
    hidden = jnp.asarray(rng.normal(size=(3, HIDDEN)))
    inputs = jnp.asarray(rng.normal(size=(3, FEATURES)))
    step = MODEL.recurrence.step

    @jax.jit
    def both(params, hidden, inputs):
        rho = sp.rho_power_along(step, params, hidden, inputs, 0.5, sp.GRU_GROUPS, 300)
        return rho, jax.vmap(lambda h, x: sp.first_order(step, params, h, x, sp.GRU_GROUPS))(
            hidden, inputs
        )

    rho, order = both(params, hidden, inputs)
    exact = [sp.rho_dense(J, B, 0.5) for J, B in zip(order.J, order.B, strict=True)]
    np.testing.assert_allclose(rho, exact, rtol=1e-3)


def test_the_hinge_is_zero_for_stable_points_and_their_gradient_too() -> None:
    rho = jnp.array([0.2, 1.0, 1.5, 3.0])
    value, gradient = jax.value_and_grad(sp.penalty)(rho)
    assert float(value) == pytest.approx((0.25 + 4) / 4)
    np.testing.assert_allclose(gradient, [0, 0, 0.25, 1.0])


def test_points_start_from_the_state_before_the_step() -> None:
    _, params, batch = setting()
    hidden = jax.jit(lambda p: MODEL.apply(p, batch.inputs)[1]["hidden"])(params)
    samples, times = np.array([[1], [4]]), np.array([[0, 3], [TIME - 1, 2]])
    before, now = sp.trajectory_points(
        MODEL.recurrence, params, batch.inputs, hidden, samples, times
    )
    after = MODEL.recurrence.step(params, before, now)
    np.testing.assert_allclose(after, hidden[samples, times].reshape(4, -1), atol=1e-6)
    np.testing.assert_array_equal(before[0], 0)


# The loss term ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def term():
    """Compile the loss term and its gradient, `(params, weight, key)`, in float64."""
    with jax.enable_x64(True):
        intervention = sp.build(power_steps=200, **SMALL)
        ctx, params, batch = setting(scale=1.5)

        def of(params, weight, key):
            return loss(intervention, weighted(ctx, weight), params, batch, key)

        yield params, jax.jit(jax.value_and_grad(of))


def test_weight_zero_is_exactly_nothing(term) -> None:
    params, value_and_gradient = term
    value, gradient = value_and_gradient(params, 0.0, jax.random.key(3))
    assert float(value) == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def test_the_gradient_is_the_full_derivative(term) -> None:
    """Through the Jacobian and through the trajectory, against finite differences."""
    params, value_and_gradient = term
    key = jax.random.key(3)
    value, gradient = value_and_gradient(params, 1.0, key)
    assert float(value) > 0
    rng = np.random.default_rng(4)
    for _ in range(3):
        towards = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), params)
        ahead, behind = (
            jax.tree.map(lambda leaf, d, h=h: leaf + h * d, params, towards) for h in (1e-5, -1e-5)
        )
        difference = (
            value_and_gradient(ahead, 1.0, key)[0] - value_and_gradient(behind, 1.0, key)[0]
        )
        slope = sum(
            jax.tree.leaves(jax.tree.map(lambda g, d: float((g * d).sum()), gradient, towards))
        )
        assert slope == pytest.approx(float(difference) / 2e-5, rel=1e-4)


def test_points_are_drawn_anew_with_each_key_and_only_from_it(term) -> None:
    params, value_and_gradient = term
    first, again, other = (
        float(value_and_gradient(params, 1.0, jax.random.key(seed))[0]) for seed in (0, 0, 1)
    )
    assert first == again != other


def test_a_network_cannot_hide_from_the_power_iteration() -> None:
    """Two keys start it differently, at the same points: one step of it differs too."""
    intervention = sp.build(power_steps=1, samples=1, times=1)
    ctx, params, batch = setting(scale=2.0)
    still = Batch(jnp.zeros((1, 1, FEATURES)), batch.targets)
    term = jax.jit(lambda key: loss(intervention, ctx, params, still, key))
    assert float(term(jax.random.key(0))) != float(term(jax.random.key(1)))


# Measuring ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    """Measure a small GRU with mild weights."""
    intervention = sp.build(**SMALL | {"paths": 512}, exact_points=2)
    ctx, params, batch = setting(scale=0.5)
    values = jax.jit(lambda params: intervention.measure(ctx, params, (), batch))(params)
    values = jax.device_get(values)
    on_host = intervention.measure_host(
        dataclasses.replace(ctx, measured=values), params, (), batch
    )
    return ctx, params, batch, values, on_host


def test_what_is_measured_has_a_fixed_shape_and_is_finite(measured) -> None:
    _, _, _, values, _ = measured
    shapes = {name: np.shape(value) for name, value in values.items()}
    table = (4, 4)
    assert shapes == {
        "rho_hat": (),
        "state_growth": (),
        "relative_error": (),
        "active_fraction": (),
        "weight": (),
        "sigma": (),
        "pair": (2,),
        "noise_sigma": (4,),
        "horizons": (4,),
        "log_predicted": table,
        "log_injected": table,
        "log_measured": table,
        "log_measured_error": table,
        "output_deviation": (4,),
        "exact_rho_by_power": (2,),
        "exact_J": (2, HIDDEN, HIDDEN),
        "exact_B": (2, len(sp.GRU_GROUPS), HIDDEN, HIDDEN),
    }
    assert all(np.isfinite(value).all() for value in values.values())
    assert values["horizons"].tolist() == [1, 2, 4, 8]


def test_the_measured_deviations_are_the_predicted_ones_at_small_noise(measured) -> None:
    _, _, _, values, _ = measured
    gap = np.abs(values["log_measured"] - values["log_predicted"])[:2]
    assert (gap < 4 * values["log_measured_error"][:2] + 0.02).all()
    np.testing.assert_allclose(
        values["log_predicted"][:, 0], values["log_injected"][:, 0], rtol=1e-4
    )
    assert (np.diff(values["output_deviation"]) > 0).all()


def test_the_state_growth_is_that_of_the_test_trajectories(measured) -> None:
    ctx, params, batch, values, _ = measured
    _, intermediates = ctx.model.apply(params, batch.inputs)
    energy = (np.asarray(intermediates["hidden"]) ** 2).sum(axis=-1).mean(axis=0)
    assert values["state_growth"] == pytest.approx(energy[1:].sum() / energy[:-1].sum(), rel=1e-5)
    expected = abs(values["rho_hat"] - values["state_growth"]) / values["rho_hat"]
    assert values["relative_error"] == pytest.approx(expected, rel=1e-5)


def test_the_exact_growth_is_measured_on_the_host(measured) -> None:
    ctx, params, batch, values, on_host = measured
    assert {name: value.shape for name, value in on_host.items()} == {
        "exact_rho": (2,),
        "exact_rho_by_norm": (2,),
    }
    np.testing.assert_allclose(values["exact_rho_by_power"], on_host["exact_rho"], rtol=0.05)
    _, intermediates = ctx.model.apply(params, batch.inputs)
    last = intermediates["hidden"][0, -2], batch.inputs[0, -1]
    J = sp.local_jacobian(MODEL.recurrence.step, params, *last)
    norm = 1.04 * np.linalg.norm(J, 2) ** 2
    assert on_host["exact_rho_by_norm"][-1] == pytest.approx(norm, rel=1e-5)


def test_large_models_have_no_exact_growth() -> None:
    intervention = sp.build(**SMALL)
    model = rnn_small.build(outputs=2, hidden=65)
    ctx, params, batch = setting(model=model)
    values = jax.eval_shape(lambda params: intervention.measure(ctx, params, (), batch), params)
    assert not [name for name in values if name.startswith("exact")]
    assert intervention.measure_host(ctx, params, (), batch) == {}
    assert sp.build(exact_points=0).measure_host is None


@pytest.mark.parametrize("level", ["norm", "power"])
def test_training_and_measuring_lower_for_accelerators(level: str) -> None:
    intervention = sp.build(level=level, **SMALL)
    ctx, params, batch = setting()

    def both(params, batch):
        gradient = jax.grad(lambda p: loss(intervention, ctx, p, batch, ctx.key))(params)
        return gradient, intervention.measure(ctx, params, (), batch)

    exported = jax.export.export(jax.jit(jax.vmap(both, (0, None))), platforms=["tpu", "cuda"])
    exported(jax.tree.map(lambda leaf: leaf[None], params), batch)


# Models of the user's own -------------------------------------------------------------------------


def test_a_plain_dict_model_trains_and_measures() -> None:
    groups = {"recurrent": ["W"], "input": ["U"]}
    intervention = sp.build(level="power", groups=groups, **SMALL)
    ctx, params, batch = setting(plain_model())
    term = jax.jit(
        jax.value_and_grad(
            lambda p, weight: loss(intervention, weighted(ctx, weight), p, batch, ctx.key)
        )
    )
    value, gradient = term(params, 1.0)
    assert float(value) > 0
    assert float(jnp.abs(gradient["W"]).max()) > 0
    value, gradient = term(params, 0.0)
    assert float(value) == 0
    assert (gradient["W"] == 0).all()
    values = jax.eval_shape(lambda p: intervention.measure(ctx, p, (), batch), params)
    assert values["log_measured"].shape == (4, 4)


def test_a_model_that_does_not_fit_is_refused() -> None:
    ctx, params, batch = setting(plain_model())
    with pytest.raises(JaxbenchError, match=r"'hr' .* matches no leaf of the parameters.*: U, W"):
        jax.eval_shape(lambda p: sp.build().measure(ctx, p, (), batch), params)
    ctx = dataclasses.replace(ctx, model=dataclasses.replace(ctx.model, recurrence=None))
    with pytest.raises(JaxbenchError, match="'plain' has no recurrence"):
        jax.eval_shape(lambda p: loss(sp.build(), ctx, p, batch, ctx.key), params)


# Options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"level": "dense"},
        {"samples": 0},
        {"paths": 1},
        {"groups": {}},
        {"noise_levels": [0.0]},
        {"power_steps": 2.5},
    ],
)
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(pydantic.ValidationError):
        registry.load("interventions", "stability_penalty").make(options)


def test_static_values_say_all_and_fit_into_json() -> None:
    options = {"level": "power", "groups": {"recurrent": ["*h?/kernel"]}, "noise_levels": [0.1]}
    intervention = registry.load("interventions", "stability_penalty").make(options)
    static = json.loads(json.dumps(intervention.static))
    assert static == dict(intervention.static)
    assert static | options == static
    assert static["power_steps"] == 20
    assert set(intervention.surgery_static) < set(static)
