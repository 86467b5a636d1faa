"""Scores of groups of parameters in closed form, and the groups of the networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import Batch, JaxbenchError, UnitLayer, UnitSlice
from jaxbench.interventions import group_scores as gs
from jaxbench.interventions import hidden_units as hu
from jaxbench.interventions import sensitivity_pruning as sp
from jaxbench.interventions.forward_mode import forward_of
from jaxbench.models import mlp_tiny, rnn_small

RIDGE = 1e-3


def dense_costs(A, theta, groups, level):
    """`theta_G^T ([F^-1]_GG)^-1 theta_G / 2` with the inverse of the whole matrix."""
    F = 2 * A.T @ A / len(A) + level * np.eye(A.shape[1])
    inverse = np.linalg.inv(F)
    return [
        theta[group] @ np.linalg.solve(inverse[np.ix_(group, group)], theta[group]) / 2
        for group in groups
    ]


def padded(groups):
    longest = max(map(len, groups))
    return np.array([[*group, *[-1] * (longest - len(group))] for group in groups])


def information(A, theta, entries, ridge=RIDGE):
    with jax.enable_x64(True):
        found = jax.jit(gs.group_information)(A, theta, entries, ridge)
        return np.asarray(found)


def level_of(A, ridge=RIDGE):
    return ridge * 2 * (A**2).sum() / len(A) / min(A.shape)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000), st.booleans())
def test_woodbury_s_identity_gives_the_dense_inverse(seed: int, many_rows: bool) -> None:
    """With more rows than parameters and with fewer; groups of one, two and four parameters."""
    rng = np.random.default_rng(seed)
    A, theta = rng.normal(size=(30 if many_rows else 5, 8)), rng.normal(size=8)
    groups = [[0], [1, 5], [2, 3, 4, 6]]
    found = information(A, theta, padded(groups))
    np.testing.assert_allclose(found, dense_costs(A, theta, groups, level_of(A)), rtol=1e-8)


def test_a_group_of_one_parameter_costs_what_the_surgeon_says() -> None:
    """`theta_j^2 / (2 [F^-1]_jj)` (Hassibi & Stork 1993, equation 5)."""
    rng = np.random.default_rng(0)
    A, theta = rng.normal(size=(20, 6)), rng.normal(size=6)
    F = 2 * A.T @ A / 20 + level_of(A) * np.eye(6)
    found = information(A, theta, np.arange(6)[:, None])
    np.testing.assert_allclose(found, theta**2 / (2 * np.diag(np.linalg.inv(F))), rtol=1e-9)


def test_a_copied_group_costs_nothing_and_the_rest_does() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 6))
    A[:, 2:4] = A[:, :2]
    theta = np.ones(6)
    groups = [[0, 1], [2, 3], [4, 5]]
    costs = information(A, theta, padded(groups), 1e-10)
    assert (costs[:2] < 1e-8).all()
    assert costs[2] > 0.5


def test_it_is_the_cost_of_refitting_all_other_parameters() -> None:
    """A network that is linear in its parameters, at its optimum: the residual of a regression."""
    rng = np.random.default_rng(1)
    X, theta = rng.normal(size=(60, 5)), rng.normal(size=5)
    noise = rng.normal(size=60)
    noise -= X @ np.linalg.lstsq(X, noise)[0]
    y = X @ theta + noise
    layer = UnitLayer("pairs", 2, (UnitSlice(("w",), 0, "outgoing", start=1, units=2),))
    with jax.enable_x64(True):
        batch = Batch(jnp.asarray(X), jnp.asarray(y)[:, None])
        params = {"w": jnp.asarray(theta)}

        @jax.jit
        def costs(params):
            return gs.parameter_information(
                lambda params, x: (x @ params["w"])[:, None], params, layer, batch,
                ridge=1e-9, rows=60,
            )  # fmt: skip

        found = np.asarray(costs(params))
    for unit, column in enumerate((1, 2)):
        others = np.delete(X, column, axis=1)
        refitted = y - others @ np.linalg.lstsq(others, y)[0]
        cost = (refitted @ refitted - noise @ noise) / 60
        np.testing.assert_allclose(found[unit], cost, rtol=1e-5)


# Groups of networks -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gru():
    model = rnn_small.build(outputs=2, hidden=3)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 1, 4), np.float32))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    return model, params


def test_the_jacobian_is_that_of_the_chosen_outputs(gru) -> None:
    model, params = gru
    inputs = np.random.default_rng(1).normal(size=(2, 5, 4)).astype(np.float32)
    batch = Batch(inputs, np.zeros((2, 5, 2), np.float32))

    @jax.jit
    def both(params):
        def outputs(vector):
            return forward_of(model)(unravel(vector), inputs).reshape(2, -1)

        flat, unravel = jax.flatten_util.ravel_pytree(params)
        found = gs.output_jacobian(forward_of(model), params, batch, 8)
        return gs.flatten(params) - flat, found, jax.jacfwd(outputs)(flat)

    zero, found, everything = both(params)
    assert not zero.any()
    assert found.shape == (8, zero.size)
    np.testing.assert_allclose(found, everything[:, [0, 3, 6, 9]].reshape(8, -1), atol=1e-5)


def test_gates_and_inputs_hold_the_parameters_that_their_names_say(gru) -> None:
    """The gate r of unit 1 is group 1, n of unit 2 is group 8; an input is a row of three."""
    model, params = gru
    cell = params[rnn_small.CELL]
    gates, inputs = (model.parameter_groups[name](params) for name in ("gates", "inputs"))
    assert (gates.size, inputs.size) == (9, 4)
    theta = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])

    def members(layer, group):
        entries = gs.group_entries(params, layer)[group]
        return sorted(theta[entries[entries >= 0]].tolist())

    def together(*parts):
        return sorted(np.concatenate([np.ravel(part) for part in parts]).tolist())

    r, n = cell["hr"]["kernel"][:, 1], cell["hn"]["kernel"][:, 2]
    assert members(gates, 1) == together(r, cell["ir"]["kernel"][:, 1], cell["ir"]["bias"][1])
    assert members(gates, 8) == together(
        n, cell["in"]["kernel"][:, 2], cell["in"]["bias"][2], cell["hn"]["bias"][2]
    )
    assert members(inputs, 3) == together(*(cell[f"i{gate}"]["kernel"][3] for gate in "rzn"))
    for layer in (gates, inputs):
        squares = [np.sum(np.square(members(layer, group))) for group in range(layer.size)]
        np.testing.assert_allclose(hu.unit_norms(params, layer), np.sqrt(squares), rtol=1e-5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_masked_gates_are_0_and_nothing_else_changes(seed: int) -> None:
    model = rnn_small.build(outputs=1, hidden=2)
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 1, 2), np.float32))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
    gates = model.parameter_groups["gates"](params)
    mask = rng.integers(0, 2, size=6).astype(float)
    masked = hu.mask_params(params, gates, mask)
    for place, gate in enumerate("rzn"):
        own = mask[2 * place : 2 * place + 2]
        for side in "ih":
            for name, leaf in masked[rnn_small.CELL][f"{side}{gate}"].items():
                np.testing.assert_array_equal(
                    leaf, params[rnn_small.CELL][f"{side}{gate}"][name] * own
                )
    assert (masked[rnn_small.HEAD]["kernel"] == params[rnn_small.HEAD]["kernel"]).all()
    folded = hu.fold(params, gates, mask)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a == b).all(), masked, folded)))


def test_a_network_without_an_input_is_a_smaller_one_and_one_without_a_gate_is_none(gru) -> None:
    model, params = gru
    gates, layer = (model.parameter_groups[name](params) for name in ("gates", "inputs"))
    inputs = np.random.default_rng(1).normal(size=(2, 5, 4)).astype(np.float32)
    mask = np.array([1, 0, 1, 0], np.float32)
    small = hu.compact(params, layer, hu.kept_units(mask))
    expected = model.apply(hu.mask_params(params, layer, mask), inputs)[0]
    np.testing.assert_allclose(model.apply(small, inputs[..., ::2])[0], expected, atol=1e-6)
    with pytest.raises(JaxbenchError, match="parameters of 'gates' can be 0"):
        hu.compact(params, gates, [0])
    with pytest.raises(JaxbenchError, match="names no bias"):
        hu.fold(params, gates, np.ones(9), np.ones(9))


def test_any_network_s_groups_are_scored_and_removed() -> None:
    """A perceptron's units by all their parameters: a copied one goes, however large."""
    with jax.enable_x64(True):
        model = mlp_tiny.build(outputs=1, hidden=(4,))
        rng = np.random.default_rng(0)
        first = np.abs(rng.normal(size=(3, 4)))
        first[:, 2] = first[:, 1]
        second = np.array([[1.0], [5.0], [5.0], [1.0]])
        params = {
            "Dense_0": {"kernel": jnp.asarray(first), "bias": jnp.asarray(rng.normal(size=4))},
            "Dense_1": {"kernel": jnp.asarray(second), "bias": jnp.zeros(1)},
        }
        params["Dense_0"]["bias"] = (
            params["Dense_0"]["bias"].at[2].set(params["Dense_0"]["bias"][1])
        )
        inputs = jnp.asarray(rng.normal(size=(40, 3)))
        (layer,) = model.unit_layers

        def forward(params, inputs):
            return model.apply(params, inputs)[0]

        batch = Batch(inputs, forward(params, inputs))

        @jax.jit
        def prune(params):
            return sp.prune(forward, params, layer, batch, keep=3, kind="parameters", ridge=1e-9)

        mask = np.asarray(prune(params)[1])
    assert mask[1:3].sum() == 1
    assert mask[0] == mask[3] == 1


def test_errors_say_what_is_wrong(gru) -> None:
    model, params = gru
    (units,) = model.unit_layers
    with pytest.raises(JaxbenchError, match="two groups of 'hidden' share parameters"):
        gs.group_entries(params, units)
    gates = model.parameter_groups["gates"](params)
    with pytest.raises(JaxbenchError, match="no leaf 'GRUCell_0/ir/kernel'"):
        gs.group_entries({"kernel": np.ones(3)}, gates)
    with pytest.raises(JaxbenchError, match=r"the mask has shape \[3\]"):
        hu.mask_params(params, gates, np.ones(3))
    empty = Batch(np.zeros((0, 5, 4), np.float32), np.zeros((0, 5, 2), np.float32))
    forward = forward_of(model)
    with pytest.raises(JaxbenchError, match="at least one sample"):
        gs.parameter_information(forward, params, gates, empty)
    broken = {**params, "Dense_0": {**params["Dense_0"], "bias": np.full(2, np.nan, np.float32)}}
    for given_params, keep, text in (
        (broken, 3, "'Dense_0/bias' are not all finite"),
        (params, 0, "keep is 0"),
        (params, 10, "keep is 10, but the layer has 9 units"),
    ):
        with pytest.raises(JaxbenchError, match=text):
            sp.prune(forward, given_params, gates, empty, keep=keep, kind="parameters")
    with pytest.raises(JaxbenchError, match="needs the information of the parameters"):
        sp.scores("parameters", params, gates, jnp.eye(9), jnp.ones(9))
