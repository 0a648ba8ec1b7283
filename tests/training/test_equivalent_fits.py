"""The same rows in another form: differences of rounding must not become other models."""

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier

FORMS = ("float32", "order of columns")


def rows_of(seed, spread=1.0):
    """Rows of a few classes, with values that are exact in float32."""
    rng = np.random.default_rng([28, seed])
    n_classes, d = int(rng.integers(3, 9)), int(rng.integers(2, 20))
    y = np.arange(int(rng.integers(60, 200))) % n_classes
    X = spread * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((len(y), d))
    return np.round(X * 16) / 16, y


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(8))
def test_weights_and_temperature_do_not_depend_on_rounding(form, seed):
    X, y = rows_of(seed)
    columns = np.random.default_rng(seed).permutation(X.shape[1])
    other = X.astype(np.float32) if form == "float32" else X[:, columns]
    classifier = BinaryCodeClassifier(64, refine=False, random_state=seed)
    one = classifier.fit(X, y).packed()
    again = classifier.fit(other, y).packed()
    np.testing.assert_array_equal(again.weights, one.weights)
    assert again.temperature == pytest.approx(one.temperature, rel=1e-4)
    projection = one.hash_function.projection
    projection = projection if form == "float32" else projection[columns]
    # Two factors of the fitted hyperplanes are found by a search, to about four digits.
    size = np.abs(projection).max()
    np.testing.assert_allclose(again.hash_function.projection, projection, atol=1e-3 * size)


def test_penalty_is_the_usual_one_if_all_are_as_good():
    X, y = rows_of(4, spread=4.0)  # every row is right by far
    assert BinaryCodeClassifier(32, refine=False, random_state=0).fit(X, y).report_.alpha == 1.0


@pytest.mark.parametrize("sizes", [(1, 40), (30, 1), (7, 13)])
def test_partial_fit_is_fit_to_the_last_bit(sizes):
    """Rows of a first batch have other means and deviations than all rows."""
    X, y = rows_of(3)
    classifier = BinaryCodeClassifier(32, random_state=0)
    one, batches = classifier.fit(X * 3.7 + 1e3, y).packed(), BinaryCodeClassifier(32)
    batches.set_params(random_state=0)
    order = np.arange(len(y))
    for part in np.split(order, np.cumsum(sizes)):
        batches.partial_fit(X[part] * 3.7 + 1e3, y[part], classes=np.unique(y))
    other = batches.packed()
    np.testing.assert_array_equal(other.weights, one.weights)
    np.testing.assert_array_equal(other.hash_function.projection, one.hash_function.projection)
    assert other.temperature == one.temperature


@pytest.mark.parametrize("unit", [1e-12, 1e12])
@pytest.mark.parametrize("n_rows", [150, 6000])
def test_single_first_row_says_nothing_about_units(unit, n_rows):
    """Its deviations are 0: units were taken to be 1, and small ones for rounding errors."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % 3
    X = unit * (3.0 * np.eye(3)[y] + rng.standard_normal((n_rows, 3)))
    classifier = BinaryCodeClassifier(32, refine=False, random_state=0)
    for part in (slice(1), slice(1, 2), slice(2, None)):
        classifier.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert classifier.score(X, y) > 0.9


@pytest.mark.parametrize("n_rows", [3, 30, 120])
@pytest.mark.parametrize("unit", [1e-28, 1e-22, 1e22, 1e28])
def test_units_do_not_matter(unit, n_rows):
    """With small ones the penalty had a least size, and every row got the same class."""
    X, y = rows_of(5, spread=3.0)
    X, y = X[: len(np.unique(y)) if n_rows == 3 else n_rows], y[:n_rows]
    y = np.arange(len(X)) if n_rows == 3 else y
    classifier = BinaryCodeClassifier(64, refine=False, random_state=0)
    found = classifier.fit(X * unit, y).predict(X * unit)
    np.testing.assert_array_equal(found, classifier.fit(X, y).predict(X))
