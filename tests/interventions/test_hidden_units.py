"""Masks, folds and smaller networks against networks written out by hand in numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.base import JaxbenchError, UnitLayer, UnitSlice
from jaxbench.interventions import hidden_units as hu
from jaxbench.models import rnn_small

BATCH, TIME, FEATURES, OUTPUTS = 3, 6, 2, 2
CELL, HEAD = rnn_small.CELL, rnn_small.HEAD


def gru_params(rng, units):
    """Numpy parameters of `rnn_small`, of which none is zero."""

    def affine(inputs, outputs, *names):
        arrays = {"kernel": rng.normal(size=(inputs, outputs)), "bias": rng.normal(size=outputs)}
        return {name: arrays[name] for name in names}

    cell = {f"i{gate}": affine(FEATURES, units, "kernel", "bias") for gate in "rzn"}
    cell |= {f"h{gate}": affine(units, units, "kernel") for gate in "rz"}
    cell |= {"hn": affine(units, units, "kernel", "bias")}
    return {CELL: cell, HEAD: affine(units, OUTPUTS, "kernel", "bias")}


def gru(params, inputs, port=lambda hidden: hidden):
    """The network in numpy: recurrent products and head see `port(h)`, the leak sees `h`."""
    cell, head = params[CELL], params[HEAD]
    hidden = np.zeros((len(inputs), len(head["kernel"])), inputs.dtype)
    outputs = []
    for now in inputs.swapaxes(0, 1):
        seen = port(hidden)
        from_input = {g: now @ cell[f"i{g}"]["kernel"] + cell[f"i{g}"]["bias"] for g in "rzn"}
        from_hidden = {g: seen @ cell[f"h{g}"]["kernel"] for g in "rzn"}
        reset = 1 / (1 + np.exp(-from_input["r"] - from_hidden["r"]))
        update = 1 / (1 + np.exp(-from_input["z"] - from_hidden["z"]))
        candidate = np.tanh(from_input["n"] + reset * (from_hidden["n"] + cell["hn"]["bias"]))
        hidden = (1 - update) * candidate + update * hidden
        outputs.append(port(hidden) @ head["kernel"] + head["bias"])
    return np.stack(outputs, axis=1)


def gru_case(seed, units):
    rng = np.random.default_rng(seed)
    (layer,) = rnn_small.build(outputs=OUTPUTS, hidden=units).unit_layers
    return rng, layer, gru_params(rng, units), rng.normal(size=(BATCH, TIME, FEATURES))


def mlp_case(seed, units):
    """A list of layers, with weights [out, in] as Equinox has them."""
    rng = np.random.default_rng(seed)
    params = [(rng.normal(size=(units, 3)), rng.normal(size=units)), (rng.normal(size=(2, units)),)]
    slices = (UnitSlice((0, 0), 0, "incoming"), UnitSlice((0, 1), 0, "incoming"))
    return rng, UnitLayer("tanh", units, (*slices, UnitSlice((1, 0), 1, "outgoing"))), params


def mlp(params, inputs, port=lambda hidden: hidden):
    (first, bias), (second,) = params
    return port(np.tanh(inputs @ first.T + bias)) @ second.T


sizes = st.integers(1, 7)
seeds = st.integers(0, 2**31)


# Masks and folds ----------------------------------------------------------------------------------


def test_the_network_by_hand_is_rnn_small() -> None:
    with jax.enable_x64(True):
        _, _, params, inputs = gru_case(0, 4)
        model = rnn_small.build(outputs=OUTPUTS, hidden=4)
        expected = jax.jit(lambda *given: model.apply(*given)[0])(params, inputs)
    np.testing.assert_allclose(gru(params, inputs), expected, atol=1e-12)


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_any_real_mask_folds_exactly(seed: int, units: int) -> None:
    rng, layer, params, inputs = gru_case(seed, units)
    mask = rng.normal(size=units)
    masked = gru(params, inputs, lambda hidden: mask * hidden)
    np.testing.assert_allclose(gru(hu.fold(params, layer, mask), inputs), masked, atol=1e-12)


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_any_fill_folds_exactly(seed: int, units: int) -> None:
    rng, layer, params, inputs = gru_case(seed, units)
    mask, fill = rng.normal(size=(2, units))
    filled = gru(params, inputs, lambda hidden: mask * hidden + (1 - mask) * fill)
    np.testing.assert_allclose(gru(hu.fold(params, layer, mask, fill), inputs), filled, atol=1e-12)


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_masking_whole_units_is_masking_their_ports(seed: int, units: int) -> None:
    rng, layer, params, inputs = gru_case(seed, units)
    mask = rng.integers(0, 2, size=units).astype(float)
    masked = gru(hu.mask_params(params, layer, mask), inputs)
    np.testing.assert_allclose(masked, gru(hu.fold(params, layer, mask), inputs), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(deadline=None, max_examples=50)
@given(seed=seeds, units=sizes, data=st.data())
def test_the_smaller_gru_is_the_masked_one(dtype, seed: int, units: int, data) -> None:
    rng, layer, params, inputs = gru_case(seed, units)
    params, inputs = jax.tree.map(lambda leaf: leaf.astype(dtype), (params, inputs))
    keep = rng.permutation(units)[: data.draw(st.integers(1, units))]
    mask = np.isin(np.arange(units), keep).astype(dtype)
    for fill in (None, rng.normal(size=units).astype(dtype)):
        constant = 0 if fill is None else (1 - mask) * fill
        expected = gru(params, inputs, lambda hidden, c=constant: mask * hidden + c)
        small = hu.compact(params, layer, keep, fill)
        found = gru(small, inputs)
        assert found.dtype == dtype
        assert small[CELL]["hn"]["kernel"].shape == (keep.size, keep.size)
        limit = 1e-12 if dtype == np.float64 else 1e-5
        assert np.abs(found - expected).max() <= limit * max(1, np.abs(expected).max())


def test_half_of_a_gru_of_64_units_over_80_steps_in_single_precision() -> None:
    """The size of the notes: within 1e-5, filled with zeros or with the units' means."""
    rng, layer, params, _ = gru_case(0, 64)
    params = jax.tree.map(lambda leaf: (leaf / 8).astype(np.float32), params)
    inputs = rng.normal(size=(8, 80, FEATURES)).astype(np.float32)
    keep = np.sort(rng.permutation(64)[:32])
    mask = np.isin(np.arange(64), keep).astype(np.float32)
    for fill in (None, rng.uniform(-0.5, 0.5, size=64).astype(np.float32)):
        constant = np.float32(0) if fill is None else (1 - mask) * fill
        expected = gru(params, inputs, lambda hidden, c=constant: mask * hidden + c)
        found = gru(hu.compact(params, layer, keep, fill), inputs)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - expected).max() <= 1e-5 * max(1, np.abs(expected).max())


@settings(deadline=None, max_examples=50)
@given(seeds, sizes, st.data())
def test_the_smaller_list_of_layers_is_the_masked_one(seed: int, units: int, data) -> None:
    rng, layer, params = mlp_case(seed, units)
    inputs = rng.normal(size=(4, 3))
    keep = np.sort(rng.permutation(units)[: data.draw(st.integers(1, units))])
    mask = np.isin(np.arange(units), keep).astype(float)
    expected = mlp(params, inputs, lambda hidden: mask * hidden)
    np.testing.assert_allclose(mlp(hu.fold(params, layer, mask), inputs), expected, atol=1e-12)
    np.testing.assert_allclose(mlp(hu.compact(params, layer, keep), inputs), expected, atol=1e-12)


def test_gates_fused_in_one_leaf_are_cut_out_of_each() -> None:
    """Three gates side by side in one kernel [H, 3 H]: slices that start at 0, H and 2 H."""
    units, gates = 4, 3
    kernel = np.arange(units * gates * units, dtype=float).reshape(units, gates * units)
    slices = [UnitSlice(("W",), 1, "incoming", start=gate * units) for gate in range(gates)]
    layer = UnitLayer("fused", units, (*slices, UnitSlice(("W",), 0, "outgoing", bias=("b",))))
    params = {"W": kernel, "b": np.zeros(gates * units)}
    fill = np.array([0.0, 2.0, 0.0, 0.0])
    small = hu.compact(params, layer, [0, 2, 3], fill)
    columns = [0, 2, 3, 4, 6, 7, 8, 10, 11]
    np.testing.assert_array_equal(small["W"], kernel[np.ix_([0, 2, 3], columns)])
    np.testing.assert_array_equal(small["b"], 2 * kernel[1])


def test_an_equinox_module_is_pruned_like_any_pytree() -> None:
    network = eqx.nn.MLP(3, 2, 5, 2, key=jax.random.key(0))
    layer = UnitLayer(
        "second",
        5,
        (
            UnitSlice(("layers", 1, "weight"), 0, "incoming"),
            UnitSlice(("layers", 1, "bias"), 0, "incoming"),
            UnitSlice(("layers", 2, "weight"), 1, "outgoing", bias=("layers", 2, "bias")),
        ),
    )
    inputs = jax.random.normal(jax.random.key(1), (7, 3))
    keep, fill = [1, 4], np.full(5, 0.5, np.float32)
    mask = np.array([0, 1, 0, 0, 1], np.float32)
    small, folded = hu.compact(network, layer, keep, fill), hu.fold(network, layer, mask, fill)
    assert isinstance(small, eqx.nn.MLP)
    assert small.layers[1].weight.shape == (2, 5)
    np.testing.assert_allclose(jax.vmap(small)(inputs), jax.vmap(folded)(inputs), atol=1e-5)
    assert np.abs(jax.vmap(small)(inputs) - jax.vmap(network)(inputs)).max() > 1e-3


# Scores and choices -------------------------------------------------------------------------------


def test_norms_and_products_are_sums_over_a_unit_s_slices() -> None:
    rng, layer, params, _ = gru_case(0, 4)
    cell, head = params[CELL], params[HEAD]["kernel"]
    outgoing = np.hstack([*(cell[f"h{gate}"]["kernel"] for gate in "rzn"), head])
    norms = hu.unit_norms(params, layer, ("outgoing",))
    np.testing.assert_allclose(norms, np.linalg.norm(outgoing, axis=1))
    into = [cell[f"{source}{gate}"]["kernel"] for source in "ih" for gate in "rzn"]
    kernels = np.vstack(into)
    np.testing.assert_allclose(
        hu.unit_norms(params, layer, ("incoming",), biases=False), np.linalg.norm(kernels, axis=0)
    )
    biases = [*(cell[f"i{gate}"]["bias"] for gate in "rzn"), cell["hn"]["bias"]]
    np.testing.assert_allclose(
        hu.unit_norms(params, layer, ("incoming",)),
        np.linalg.norm(np.vstack([kernels, *biases]), axis=0),
    )
    other = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), params)
    products = hu.unit_products(params, other, layer, ("outgoing",))
    expected = head * other[HEAD]["kernel"]
    for gate in "rzn":
        expected = np.hstack(
            [expected, cell[f"h{gate}"]["kernel"] * other[CELL][f"h{gate}"]["kernel"]]
        )
    np.testing.assert_allclose(products, expected.sum(axis=1))


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.data())
def test_top_k_keeps_exactly_k_and_the_first_of_equals(values, data) -> None:
    keep = data.draw(st.integers(1, len(values)))
    mask = np.asarray(hu.top_k(np.array(values, np.float32), keep))
    best = sorted(range(len(values)), key=lambda unit: (-values[unit], unit))[:keep]
    assert sorted(best) == hu.kept_units(mask).tolist()
    assert set(mask.tolist()) <= {0.0, 1.0}


def test_nan_is_the_lowest_score() -> None:
    assert hu.top_k(jnp.array([jnp.nan, -jnp.inf, 1.0]), 2).tolist() == [0.0, 1.0, 1.0]


# Training under a mask ----------------------------------------------------------------------------


def test_masked_units_stay_zero_and_leave_no_trace_in_adam() -> None:
    """After the units' removal, the others train as they do in the smaller network."""
    rng, layer, params = mlp_case(0, 5)
    params = jax.tree.map(jnp.asarray, params)
    inputs, targets = jnp.asarray(rng.normal(size=(8, 3))), jnp.asarray(rng.normal(size=(8, 2)))
    mask, keep = jnp.array([1.0, 0, 1, 0, 0]), [0, 2]

    @jax.jit
    def gradient(params):
        def loss(params):
            (first, bias), (second,) = params
            hidden = jnp.tanh(inputs @ first.T + jnp.broadcast_to(bias, (8, bias.size)))
            return jnp.mean((hidden @ second.T - targets) ** 2)

        return jax.grad(loss)(params)

    optimizer = hu.masked_optimizer(optax.adam(0.1), layer, lambda state: state)
    plain = optax.adam(0.1)

    def train(params, state, optimizer, steps, **extra):
        for _ in range(steps):
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(gradient(params), state, params, **extra)
            params = optax.apply_updates(params, updates)
        return params, state

    ones = jnp.ones(5)
    params, state = train(params, optimizer.init(params), optimizer, 3, intervention_state=ones)
    moments = [state[0].mu, state[0].nu]
    small = hu.compact(params, layer, keep)
    small_state = (
        state[0]._replace(
            mu=hu.compact(moments[0], layer, keep), nu=hu.compact(moments[1], layer, keep)
        ),
        *state[1:],
    )
    params = hu.mask_params(params, layer, mask)
    state = hu.mask_moments(state, params, layer, mask)
    assert state[0].count == 3
    params, state = train(params, state, optimizer, 4, intervention_state=mask)
    small, _ = train(small, small_state, plain, 4)
    for tree in (params, state[0].mu, state[0].nu):
        assert (hu.unit_norms(tree, layer)[np.array([1, 3, 4])] == 0).all()
    for found, expected in zip(
        jax.tree.leaves(hu.compact(params, layer, keep)), jax.tree.leaves(small), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


# Errors -------------------------------------------------------------------------------------------


def test_errors_say_what_is_wrong() -> None:
    _, layer, params, _ = gru_case(0, 4)
    nan = hu.replace_leaves(params, {(HEAD, "bias"): np.full(2, np.nan)})
    typo = UnitLayer("h", 4, (UnitSlice((CELL, "hr", "kernal"), 0, "outgoing"),))
    bare = UnitLayer("h", 4, (UnitSlice((HEAD, "kernel"), 0, "outgoing"),))
    wrong = UnitLayer(
        "h", 4, (UnitSlice((HEAD, "kernel"), 0, "outgoing", bias=(CELL, "ir", "bias")),)
    )
    long = UnitLayer("h", 9, (UnitSlice((HEAD, "kernel"), 0, "outgoing"),))
    cases = [
        (lambda: hu.top_k(np.ones(4), 0), "keep is 0, but the layer has 4 units"),
        (lambda: hu.top_k(np.ones(4), 5), "keep is 5"),
        (lambda: hu.compact(params, layer, []), "keep is 0"),
        (lambda: hu.compact(params, layer, range(5)), "keep is 5"),
        (lambda: hu.compact(params, layer, [1, 1]), r"different unit numbers of 0\.\.3"),
        (lambda: hu.compact(params, layer, [4]), "different unit numbers"),
        (lambda: hu.compact(params, layer, [True, False]), "kept_units"),
        (lambda: hu.compact(nan, layer, [1]), "'Dense_0/bias' are not all finite"),
        (lambda: hu.fold(params, layer, np.ones(3)), r"the mask has shape \[3\]"),
        (
            lambda: hu.fold(params, layer, np.ones(4), np.ones((4, 1))),
            r"the fill has shape \[4, 1\]",
        ),
        (lambda: hu.unit_norms(params, typo), "the nearest is 'GRUCell_0/hr/kernel'"),
        (lambda: hu.fold({}, bare, np.ones(4)), "no leaf at all"),
        (lambda: hu.fold(params, bare, np.ones(4), np.ones(4)), "names no bias"),
        (lambda: hu.fold(params, wrong, np.ones(4), np.ones(4)), "name another bias"),
        (lambda: hu.fold(params, long, np.ones(9)), "has 4 entries, too few for 9 units"),
    ]
    for call, text in cases:
        with pytest.raises(JaxbenchError, match=text):
            call()
