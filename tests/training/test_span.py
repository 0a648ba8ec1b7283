"""Fewer rows than features: coordinates in the span of the rows, and the way back."""

import numpy as np
import pytest
import scipy.sparse as sp

from bitclass import BinaryCodeClassifier
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.span import spans
from bitclass.training.sums import Collected, Sums, standardisation


def collected_rows(share, seed=0, n=30, d=90):
    """Rows whose features have different units; two are equal, and one feature is constant.

    Rows are wide, and have this share of their entries, unless it is None.
    """
    rng = np.random.default_rng(seed)
    X = (3.0 + rng.standard_normal((n, d))) * 10.0 ** rng.uniform(-2, 2, d)
    X[1], X[:, 5] = X[0], 4.0
    if share is not None:
        X = sp.csr_array(X * (rng.random((n, d)) < share))
    sums = Sums.of_wide(d) if share else Sums(*standardisation(X, np.ones(n)))
    collected = Collected(sums, seed)
    collected.add(X, np.arange(n) % 3, np.ones(n))
    return collected


@pytest.mark.parametrize("share", [None, 0.3, 0.08])  # products of dense and of sparse rows
@pytest.mark.parametrize("which", [0, 1])
def test_a_model_of_coordinates_scores_rows_as_the_one_of_features_does(share, which):
    collected, wide = collected_rows(share), share is not None
    span = spans(collected, 100)[which]
    pool, coordinates = collected.pool, span.collected.pool
    np.testing.assert_array_equal(pool.labels, coordinates.labels)
    rng = np.random.default_rng(1)
    Q, t = rng.standard_normal((30, 16)).astype(np.float32), rng.standard_normal(16)
    codes = pack(rng.integers(2, size=(3, 16)) * 2 - 1)
    model = PackedModel(np.arange(3), codes, HashFunction(Q, t, precision="float32"))
    function = span.of_features(model).hash_function
    P = function.projection.astype(np.float64)
    X = pool.X.toarray() if wide else pool.X
    found = X[:, function.columns] @ P if wide else X @ P
    expected = coordinates.X @ Q.astype(np.float64) + t
    tolerance = 0.3 if wide else 2e-3  # wide rows are stored in four bits
    np.testing.assert_allclose(found + function.intercept, expected, atol=tolerance * 16)
    correlation = np.corrcoef((found + function.intercept).ravel(), expected.ravel())[0, 1]
    assert correlation > (0.98 if wide else 0.99999)


def test_more_rows_than_features_or_than_allowed_are_not_reduced():
    assert spans(collected_rows(None, d=30), 100) == []
    assert spans(collected_rows(None), 29) == []


def test_units_of_features_do_not_matter_where_they_are_standardised():
    """Few rows of features in mixed units, of which few tell the class."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 8
    X = rng.standard_normal((400, 300))
    X[:, :20] += 1.5 * rng.standard_normal((8, 20))[y]
    units = 10.0 ** rng.uniform(-3, 3, 300)
    scores = [
        BinaryCodeClassifier(64, random_state=0).fit(A[:120], y[:120]).score(A[120:], y[120:])
        for A in (X / X.std(axis=0), X * units)
    ]
    assert scores[0] > 0.7
    assert scores[1] > scores[0] - 0.06
