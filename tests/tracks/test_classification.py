"""Cross-entropy and accuracy against their formulas, and splits against what they promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbench.base import Batch, JaxbenchError, Splits
from jaxbench.tracks import classification, samples

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(7, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1, 2, 2, 0, 3], np.int32)


def test_cross_entropy_is_the_mean_negative_log_likelihood() -> None:
    shares = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    expected = -np.mean([np.log(shares[i, label]) for i, label in enumerate(LABELS)])
    found = classification.cross_entropy(jnp.asarray(SCORES), jnp.asarray(LABELS))
    assert found == pytest.approx(expected, rel=1e-6)
    equal = classification.cross_entropy(jnp.zeros((7, 4)), jnp.asarray(LABELS))
    assert equal == pytest.approx(np.log(4), rel=1e-6)


def test_accuracy_counts_the_highest_scores() -> None:
    expected = 100 * np.mean(SCORES.argmax(1) == LABELS)
    assert classification.accuracy(jnp.asarray(SCORES), jnp.asarray(LABELS)) == pytest.approx(
        expected
    )
    sure = 9 * np.eye(4, dtype=np.float32)[LABELS]
    assert classification.accuracy(jnp.asarray(sure), jnp.asarray(LABELS)) == 100
    assert classification.accuracy(-jnp.asarray(sure), jnp.asarray(LABELS)) == 0


def test_of_a_sequence_the_last_output_counts() -> None:
    sequence = np.stack([-SCORES, 0 * SCORES, SCORES], axis=1)
    for measure in (classification.accuracy, classification.cross_entropy):
        found = measure(jnp.asarray(sequence), jnp.asarray(LABELS))
        assert found == measure(jnp.asarray(SCORES), jnp.asarray(LABELS))


def test_a_network_that_broke_has_no_accuracy() -> None:
    """Else NaN everywhere would be the first class everywhere, and pass for a trained network."""
    broken = SCORES.copy()
    broken[3, 1] = np.nan
    assert np.isnan(classification.accuracy(jnp.asarray(broken), jnp.asarray(LABELS)))


def test_the_best_constant_has_the_labels_entropy() -> None:
    counts = np.bincount(LABELS, minlength=5)
    shares = counts[counts > 0] / len(LABELS)
    found = classification.constant_loss(jnp.asarray(LABELS), 5)
    assert found == pytest.approx(-np.sum(shares * np.log(shares)), rel=1e-6)
    constant = np.log(np.maximum(counts[:4] / len(LABELS), 1e-30)).astype(np.float32)
    as_network = classification.cross_entropy(
        jnp.asarray(np.tile(constant, (7, 1))), jnp.asarray(LABELS)
    )
    assert found == pytest.approx(float(as_network), rel=1e-5)


def test_references_are_the_majority_and_a_linear_classifier() -> None:
    """Two separated clouds: the classifier is always right, the majority two times of three."""
    inputs = np.concatenate([RNG.normal(-5, 1, (20, 3)), RNG.normal(5, 1, (10, 3))])
    batch = Batch(inputs.astype(np.float32)[..., None], np.repeat([0, 1], [20, 10]).astype(int))
    found = classification.references(Splits(batch, batch, batch), 2)
    assert found == {"constant": pytest.approx(200 / 3), "linear": 100}


def test_the_linear_reference_is_scikit_learns() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = RNG.normal(size=(60, 5)), RNG.integers(0, 3, 60)
    test = RNG.normal(size=(20, 5))
    mine = classification.logistic_regression(x, y, test, 3)
    other = linear_model.LogisticRegression(tol=1e-10, max_iter=10_000).fit(x, y)
    scores = other.decision_function(test)
    centred = [each - each.mean(1, keepdims=True) for each in (mine, scores)]
    np.testing.assert_allclose(centred[0], centred[1], atol=1e-4)


# Splits


@pytest.mark.parametrize("counts", [(40, 40, 40), (1, 30, 7, 19), (12,)])
def test_stratified_splits_are_disjoint_and_keep_the_classes_shares(
    counts: tuple[int, ...],
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(0).shuffle(labels)
    total = len(labels)
    sizes = (total // 2, total // 4, total - total // 2 - total // 4)
    keys = jax.random.split(jax.random.key(0), 50)
    drawn = jax.jit(jax.vmap(lambda key: samples.stratified_split(key, labels, sizes)))(keys)
    assert [part.shape for part in drawn] == [(50, size) for size in sizes]
    for parts in zip(*map(np.asarray, drawn), strict=True):
        assert sorted(np.concatenate(parts).tolist()) == list(range(total))
        for part, size in zip(parts, sizes, strict=True):
            found = np.bincount(labels[part], minlength=len(counts))
            assert np.all(np.abs(found - size * np.array(counts) / total) <= 2), found


def test_every_sample_comes_to_the_test_equally_often() -> None:
    labels = np.repeat([0, 1, 2], [6, 3, 3])
    split = jax.jit(jax.vmap(lambda key: samples.stratified_split(key, labels, (6, 2, 4))[2]))
    counts = np.bincount(np.ravel(split(jax.random.split(jax.random.key(0), 900))), minlength=12)
    assert np.all(np.abs(counts - 300) < 5 * np.sqrt(900 * (1 / 3) * (2 / 3)))


def test_too_large_splits_are_refused() -> None:
    with pytest.raises(JaxbenchError, match=r"5 \+ 4 = 9 samples, but the pool has 8"):
        samples.check_sizes((5, 4), 8, "the pool")


def test_a_digest_tells_values_types_and_shapes() -> None:
    values = np.arange(6)
    others = [values + 1, values.astype(np.int32), values.reshape(2, 3)]
    assert samples.digest(values) == samples.digest(values.copy())
    assert len({samples.digest(each) for each in (values, *others)}) == 4
