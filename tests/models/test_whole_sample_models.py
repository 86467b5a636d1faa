"""Models of a whole sample against their equations, written out in numpy, and against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxbench.base import Model
from jaxbench.models import bigru_small, conv_small, linear, residual_mlp, rnn_small

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(5, 11, 2)).astype(np.float32)


def run(model: Model) -> tuple[dict, np.ndarray, dict]:
    """Parameters that no bias of which is 0, outputs and intermediates."""
    params = jax.jit(model.init)(jax.random.key(0), INPUTS)
    params = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.1, params)
    outputs, intermediates = jax.jit(lambda p, x: model.apply(p, x))(params, INPUTS)
    return params, np.asarray(outputs), intermediates


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def test_linear_is_one_product() -> None:
    params, outputs, _ = run(linear.build(outputs=3))
    head = params["Dense_0"]
    np.testing.assert_allclose(
        outputs, INPUTS.reshape(5, 22) @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-5
    )
    assert linear.build(outputs=3).flops((11, 2)) == 2 * 22 * 3


def test_residual_mlp_adds_its_second_layer_to_the_first() -> None:
    model = residual_mlp.build(outputs=3, hidden=4)
    params, outputs, intermediates = run(model)
    layers = [params[f"Dense_{number}"] for number in range(3)]
    first = INPUTS.reshape(5, 22) @ layers[0]["kernel"] + layers[0]["bias"]
    second = relu(first) @ layers[1]["kernel"] + layers[1]["bias"]
    expected = (relu(first) + relu(second)) @ layers[2]["kernel"] + layers[2]["bias"]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(intermediates["Dense_1"], second, rtol=1e-4, atol=1e-5)
    assert model.flops((11, 2)) == 2 * (22 * 4 + 4 * 4 + 4 * 3)


def test_conv_small_is_flaxs_convolutions() -> None:
    model = conv_small.build(outputs=3, channels=4)
    params, outputs, intermediates = run(model)
    value = INPUTS
    for name, width in (("Conv_0", 5), ("Conv_1", 3), ("Conv_2", 3)):
        layer = nn.Conv(4, (width,), strides=2, padding=1)
        value = np.asarray(layer.apply({"params": params[name]}, value))
        np.testing.assert_allclose(intermediates[name], value, rtol=1e-4, atol=1e-5)
        value = relu(value)
    assert value.shape == (5, 2, 4)
    expected = value.reshape(5, 8) @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    products = 5 * 5 * 2 * 4 + 3 * 3 * 4 * 4 + 2 * 3 * 4 * 4 + 8 * 3
    assert model.flops((11, 2)) == 2 * products


def test_the_published_numbers_of_parameters() -> None:
    """Linear 410, perceptron 15210, GRU 5134 (torch has 36 further recurrent biases), conv 5210."""
    models = [linear, residual_mlp, bigru_small, conv_small]
    x = jax.ShapeDtypeStruct((1, 40, 1), jnp.float32)
    counts = []
    for module in models:
        params = jax.eval_shape(module.build(outputs=10).init, jax.random.key(0), x)
        counts.append(sum(leaf.size for leaf in jax.tree.leaves(params)))
    assert counts == [410, 15210, 5134, 5210]


def test_bigru_small_runs_a_gru_in_either_direction() -> None:
    """The cell is that of `rnn_small`, whose test holds it equal to flax's."""
    model = bigru_small.build(outputs=3, hidden=4)
    params, outputs, intermediates = run(model)

    def states(cell: dict, inputs: np.ndarray) -> np.ndarray:
        fused = [cell[side][leaf] for side in ("input", "hidden") for leaf in ("kernel", "bias")]
        hidden, found = np.zeros((5, 4), np.float32), []
        for time in range(inputs.shape[1]):
            hidden = np.asarray(rnn_small.gru_step(tuple(fused), hidden, inputs[:, time]))
            found.append(hidden)
        return np.stack(found, axis=1)

    back = states(params["backward"], INPUTS[:, ::-1])[:, ::-1]
    expected = np.concatenate([states(params["forward"], INPUTS), back], axis=-1)
    np.testing.assert_allclose(intermediates["hidden"], expected, rtol=1e-4, atol=1e-5)
    head = params["Dense_0"]
    np.testing.assert_allclose(
        outputs, expected.reshape(5, -1) @ head["kernel"] + head["bias"], rtol=1e-4, atol=1e-4
    )
    kernels = jax.jit(model.init)(jax.random.key(1), INPUTS)["forward"]["hidden"]["kernel"]
    for gate in np.split(np.asarray(kernels), 3, axis=1):
        np.testing.assert_allclose(gate @ gate.T, np.eye(4), atol=1e-5)
