"""Regression on tables: `diabetes` and a user's file, against scikit-learn and their text."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxbench.base import JaxbenchError, Splits, Track
from jaxbench.tracks import csv, diabetes, regression, tables

RNG = np.random.default_rng(0)


def generate(track: Track, seed: int = 0) -> Splits:
    return jax.tree.map(np.asarray, jax.jit(track.generate)(jax.random.key(seed)))


# diabetes


def test_least_squares_on_the_last_twenty_patients_is_as_published() -> None:
    """2004.57 and R^2 .585, in an old tutorial of scikit-learn, whose data had fewer digits."""
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_diabetes(return_X_y=True)
    predicted = regression.least_squares(x[:-20], y[:-20, None], x[-20:])[:, 0]
    error = np.mean((predicted - y[-20:]) ** 2)
    assert error == pytest.approx(2004.57, abs=0.1)
    assert 1 - error / y[-20:].var() == pytest.approx(0.585, abs=5e-4)


def test_the_linear_reference_is_scikit_learns_to_rounding() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    track = diabetes.build()
    splits = generate(track)
    x, y, x_test, y_test = (each.astype(float) for each in (*splits.train, *splits.test))
    fitted = linear_model.LinearRegression().fit(x, y)
    expected = np.mean((fitted.predict(x_test) - y_test) ** 2)
    found = track.references(splits)
    assert found["linear"] == pytest.approx(expected, rel=1e-6)
    assert found["constant"] == pytest.approx(np.mean(y_test**2), rel=1e-4)
    assert found["linear"] < found["constant"]


def test_splits_are_patients_each_once_standardised_on_the_training_split() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    splits = generate(diabetes.build())
    assert [len(each.inputs) for each in splits] == [262, 90, 90]
    for leaf in splits.train:
        np.testing.assert_allclose(leaf.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(leaf.std(0), 1, rtol=1e-4)
    _, y = datasets.load_diabetes(return_X_y=True)
    drawn = np.concatenate([each.targets[:, 0] for each in splits])
    scaled = np.sort(drawn - drawn.min()) / np.ptp(drawn)
    np.testing.assert_allclose(scaled, np.sort(y - y.min()) / np.ptp(y), atol=1e-5)


def test_a_column_that_does_not_vary_becomes_zero() -> None:
    parts = tables.standardise(np.full((4, 1), 3.0), [np.full((2, 1), 3.0)])
    for part in parts:
        np.testing.assert_array_equal(part, 0)


# csv


def write(path: Path, table: np.ndarray, header: str = "", delimiter: str = ",") -> str:
    lines = [delimiter.join(map(repr, row)) for row in table.tolist()]
    path.write_text("\n".join([*([header] if header else []), *lines, ""]))
    return str(path)


@pytest.mark.parametrize("target", [None, "price"])
def test_a_table_is_read_with_its_target(tmp_path: Path, target: str | None) -> None:
    table = RNG.normal(1e4, 1, (30, 3))
    path = write(tmp_path / "house.csv", table, "price; rooms; age", ";")
    track = csv.build(path=path, delimiter=";", target=target)
    assert track.options["target"] == (target or "age")
    splits = generate(track)
    assert [len(each.inputs) for each in splits] == [18, 6, 6]
    chosen = 0 if target else 2
    others = [place for place in range(3) if place != chosen]
    found = np.concatenate([each.inputs for each in splits])
    expected = table[:, others]
    for column, drawn in zip(expected.T, found.T, strict=True):
        scale = np.ptp(column) / np.ptp(drawn)
        np.testing.assert_allclose(np.sort(drawn) * scale - drawn.min() * scale,
                                   np.sort(column) - column.min(), atol=1e-4)  # fmt: skip


def test_a_linear_target_is_predicted_by_the_reference(tmp_path: Path) -> None:
    x = RNG.normal(size=(40, 3))
    table = np.column_stack([x, x @ [1.0, -2.0, 0.5] + 7])
    track = csv.build(path=write(tmp_path / "linear.csv", table))
    assert track.options["target"] == "4"
    assert track.references(generate(track))["linear"] < 1e-10


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n" * 1, {}, "1 lines of 2 columns"),
        ("1\n2\n3\n4\n5\n6\n", {}, "6 lines of 1 columns"),
        ("a,b\n1,2\n1,2\n1,x\n1,2\n1,2\n", {}, r"line 4, column 'b': .* got 'x'"),
        ("a,b\n1,2\n1,\n1,2\n1,2\n1,2\n", {}, r"line 3, column 'b': .* got ''"),
        ("a,b\n1,2\n1,nan\n1,2\n1,2\n1,2\n", {}, "got 'nan'"),
        ("a,b\n1,2\n1,2,3\n1,2\n1,2\n1,2\n", {}, "line 3: expected 2 columns, got 3"),
        ("a,a\n" + "1,2\n" * 6, {}, "two columns 'a'"),
        ("age,price\n" + "1,2\n" * 6, {"target": "prize"}, "did you mean price"),
        ("a,b\n" + "1,2\n" * 6, {"test_share": 0.9}, "cannot be split"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, text: str, options: dict[str, object], message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(JaxbenchError, match=message):
        csv.build(path=str(path), **options)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(JaxbenchError, match=r"needs track\.path"):
        csv.build()
    with pytest.raises(JaxbenchError, match=r"no file 'nowhere\.csv'"):
        csv.build(path="nowhere.csv")
