"""The digit tracks: scikit-learn's digits, and MNIST's files from a folder that the user names."""

import gzip
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxbench import config
from jaxbench.base import JaxbenchError, Splits, Track
from jaxbench.tracks import seqdigits, smnist

RNG = np.random.default_rng(0)


def generate(track: Track, seed: int = 0) -> Splits:
    lowered = jax.jit(track.generate).lower(jax.random.key(seed))
    compiled = lowered.compile({"xla_backend_optimization_level": 0})
    return jax.tree.map(np.asarray, compiled(jax.random.key(seed)))


# seqdigits


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    datasets = pytest.importorskip("sklearn.datasets")
    return datasets.load_digits(return_X_y=True)


def test_splits_are_the_packages_digits_each_once(digits: tuple[np.ndarray, np.ndarray]) -> None:
    track = seqdigits.build(layout="8x8")
    splits = generate(track)
    assert [each.inputs.shape for each in splits] == [(1000, 8, 8), (300, 8, 8), (497, 8, 8)]
    pixels = 16 * np.concatenate([each.inputs.reshape(-1, 64) for each in splits])
    labels = np.concatenate([each.targets for each in splits])
    found = np.column_stack([pixels, labels]).astype(int)
    expected = np.column_stack(digits).astype(int)
    order = [np.lexsort(each.T) for each in (found, expected)]
    np.testing.assert_array_equal(found[order[0]], expected[order[1]])
    references = track.references(splits)
    assert references["constant"] < 12
    assert references["linear"] > 90
    assert not np.array_equal(generate(track, 1).test.targets, splits.test.targets)


@pytest.mark.usefixtures("digits")
def test_layouts_are_the_same_pixels() -> None:
    sizes = {"train_size": 20, "validation_size": 10, "test_size": 10}
    tracks = [seqdigits.build(layout=each, **sizes) for each in ("64x1", "8x8", "flat")]
    splits = [generate(track) for track in tracks]
    for each in splits:
        np.testing.assert_array_equal(
            each.train.inputs.reshape(20, 64), splits[0].train.inputs.reshape(20, 64)
        )
    assert splits[0].train.inputs.shape == (20, 64, 1)
    assert ["sequence" in track.features for track in tracks] == [True, True, False]
    assert all(track.metric.direction == "higher" for track in tracks)


@pytest.mark.usefixtures("digits")
def test_more_digits_than_there_are_are_refused() -> None:
    with pytest.raises(JaxbenchError, match="1797"):
        seqdigits.build(train_size=1500)


def test_without_scikit_learn_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(JaxbenchError, match=r"needs the package scikit-learn.*jaxbench\[data\]"):
        seqdigits.build()


# smnist


def idx(array: np.ndarray) -> bytes:
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


IMAGES = {
    part: RNG.integers(0, 256, (size, 3, 4), dtype=np.uint8)
    for part, size in (("train", 40), ("t10k", 20))
}
LABELS = {part: np.arange(len(images), dtype=np.uint8) % 10 for part, images in IMAGES.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """MNIST's four files in small: one plain, the others gzipped, one with a dot in its name."""
    contents = {
        "train-images-idx3-ubyte.gz": IMAGES["train"],
        "train-labels-idx1-ubyte": LABELS["train"],
        "t10k-images.idx3-ubyte.gz": IMAGES["t10k"],
        "t10k-labels-idx1-ubyte.gz": LABELS["t10k"],
    }
    for name, array in contents.items():
        content = idx(array)
        packed = gzip.compress(content) if name.endswith(".gz") else content
        (tmp_path / name).write_bytes(packed)
    return tmp_path


SIZES = {"train_size": 20, "validation_size": 10, "test_size": 10}


def test_training_and_test_samples_come_from_their_files(folder: Path) -> None:
    track = smnist.build(folder=str(folder), **SIZES)
    splits = generate(track)
    assert splits.train.inputs.shape == (20, 12, 1)

    def known(part: str) -> set[tuple[int, ...]]:
        flat = IMAGES[part].reshape(len(IMAGES[part]), -1)
        return {(*row, label) for row, label in zip(flat.tolist(), LABELS[part], strict=True)}

    for split, part in zip(splits, ("train", "train", "t10k"), strict=True):
        pixels = np.round(255 * split.inputs[..., 0]).astype(int).tolist()
        drawn = {(*row, label) for row, label in zip(pixels, split.targets, strict=True)}
        assert len(drawn) == len(split.targets)
        assert drawn <= known(part)
        assert np.bincount(split.targets, minlength=10).tolist() == [len(split.targets) // 10] * 10


def test_layouts_and_one_permutation_for_all_seeds(folder: Path) -> None:
    plain, rows, mixed = (
        smnist.build(folder=str(folder), **SIZES, **more)
        for more in ({}, {"layout": "rows"}, {"permuted": True})
    )
    pixels = generate(plain).train.inputs[..., 0]
    np.testing.assert_array_equal(generate(rows).train.inputs.reshape(20, 12), pixels)
    for seed in (0, 1):
        pixels = generate(plain, seed).train.inputs[..., 0]
        order = np.random.default_rng(0).permutation(12)
        np.testing.assert_array_equal(generate(mixed, seed).train.inputs[..., 0], pixels[:, order])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-labels-idx1-ubyte", b"", "begin with 00 00 08 01, got nothing"),
        ("train-labels-idx1-ubyte", idx(IMAGES["train"]), "begin with 00 00 08 01"),
        ("train-labels-idx1-ubyte", idx(LABELS["train"])[:-1], "needs 40 values, but 39 follow"),
        ("train-labels-idx1-ubyte", idx(LABELS["train"][:30]), "has 40 images, but .* 30 labels"),
        ("train-labels-idx1-ubyte", idx(LABELS["train"] + 7), "has the label 16"),
        ("train-labels-idx1-ubyte", gzip.compress(b"abc", mtime=0)[:9], "cannot be read"),
        ("t10k-labels-idx1-ubyte.gz", None, "no file t10k-labels-idx1-ubyte.*cvdfoundation"),
    ],
    ids=["empty", "images", "too_short", "too_few", "no_digit", "broken_gzip", "missing"],
)
def test_broken_files_are_refused(
    folder: Path, name: str, content: bytes | None, message: str
) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(JaxbenchError, match=message):
        smnist.build(folder=str(folder), **SIZES)


@pytest.mark.parametrize("named", ["", "nowhere"])
def test_without_a_folder_it_says_where_to_get_the_files(tmp_path: Path, named: str) -> None:
    with pytest.raises(JaxbenchError, match=r"no folder.*train-images.*track\.folder"):
        smnist.build(folder=named and str(tmp_path / named))


def test_other_files_make_another_study(folder: Path) -> None:
    """The content of a user's files is part of what identifies a study and its baselines."""

    def loaded() -> config.Config:
        return config.from_run(
            {
                "name": "digits",
                "track": {"name": "smnist", "folder": str(folder), **SIZES},
                "model": {"name": "linear"},
                "grid": {"learning_rate": [0.01]},
                "arms": {
                    "baseline": {"intervention": "none"},
                    "idea": {"intervention": "lottery_ticket"},
                },
                "training": {"epochs": 9, "batch_size": 10},
            }
        )

    (folder / "notes.txt").write_text("beside the data")
    one = loaded()
    (folder / "notes.txt").write_text("has nothing to do with it")
    assert config.digest(loaded()) == config.digest(one)
    track = smnist.build(folder=str(folder), **SIZES)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(LABELS["train"][::-1].copy()))
    other = loaded()
    assert config.digest(other) != config.digest(one)
    assert other.identity_of("baseline") != one.identity_of("baseline")
    assert smnist.build(folder=str(folder), **SIZES).options["data"] != track.options["data"]
