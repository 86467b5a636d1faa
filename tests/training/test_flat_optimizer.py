"""Adam on one vector is Adam on the tree: same numbers, and a state that hooks read as a tree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxbench.training.flat_optimizer import flat_optimizer

PARAMS = {
    "layer": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)},
    "scale": jnp.array(2.0),
}


def plain(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    return optax.with_extra_args_support(inner)


def counting(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """A wrapper with a state of its own beside that of Adam, one array a parameter."""

    def update(updates, state, params=None, **extra):
        moved, rest = state
        updates, rest = inner.update(updates, rest, params)
        return updates, (jax.tree.map(jnp.add, moved, updates), rest)

    return optax.GradientTransformationExtraArgs(
        lambda params: (jax.tree.map(jnp.zeros_like, params), inner.init(params)), update
    )


def replacing(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """An idea that brings its own optimizer."""
    del inner
    return optax.with_extra_args_support(optax.sgd(0.1, momentum=0.9))


@pytest.mark.parametrize("wrap", [plain, counting, replacing])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_both_forms_give_the_same_steps(wrap, clip) -> None:
    """Clipping by the global norm does not see the difference either."""
    adam = optax.adam(0.1) if clip is None else optax.chain(
        optax.clip_by_global_norm(clip), optax.adam(0.1)
    )  # fmt: skip
    optimizer = flat_optimizer(adam, wrap)
    on_tree = state = optimizer.on_tree.init(PARAMS)
    with jax.numpy_dtype_promotion("standard"):
        for step in range(3):
            gradient = jax.tree.map(lambda leaf, at=step: jnp.sin(leaf + at), PARAMS)
            expected, on_tree = optimizer.on_tree.update(gradient, on_tree, PARAMS)
            flat = optimizer.flatten(state, PARAMS)
            found, flat = optimizer.on_vector.update(gradient, flat, PARAMS)
            state = optimizer.unflatten(flat, PARAMS)
            assert jax.tree.structure(state) == jax.tree.structure(on_tree)
            for a, b in zip(
                jax.tree.leaves((expected, on_tree)), jax.tree.leaves((found, state)), strict=True
            ):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_moments_are_one_vector_and_come_back_in_their_places() -> None:
    optimizer = flat_optimizer(optax.adam(0.1), plain)
    state = optimizer.on_tree.init(PARAMS)
    marked = (state[0]._replace(mu=PARAMS), *state[1:])
    flat = optimizer.flatten(marked, PARAMS)
    assert flat[0].mu.shape == (10,)
    back = optimizer.unflatten(flat, PARAMS)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(marked), strict=True):
        np.testing.assert_array_equal(a, b)
