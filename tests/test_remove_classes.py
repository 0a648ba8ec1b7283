"""Forgetting classes: the sums are as if their rows had never been added."""

import numpy as np
import pytest

from bitclass.training import RandomCodes, Statistics

N_CLASSES, D, N_BITS = 5, 6, 20


def alike(seed=0, copies=1):
    """Rows whose classes have the same scatter about their means, exactly: whole numbers."""
    rng = np.random.default_rng(seed)
    half = rng.integers(-4, 5, (10, D))
    around = np.concatenate([half, -half])
    means = rng.integers(-9, 10, (N_CLASSES, D))
    # A class may be several times as frequent as another; its scatter per row is the same.
    times = [1 + copies * c for c in range(N_CLASSES)]
    X = np.concatenate([np.tile(means[c] + around, (times[c], 1)) for c in range(N_CLASSES)])
    y = np.repeat(np.arange(N_CLASSES) * 10, [20 * n for n in times])
    order = rng.permutation(len(y))
    return X[order].astype(np.float64), y[order]


def summed(X, y, keep_codes, weights=None):
    statistics = Statistics(RandomCodes(N_BITS, 3), np.zeros(D), np.ones(D), keep_codes)
    for part in np.array_split(np.arange(len(y)), 3):
        statistics.add(X[part], y[part], None if weights is None else weights[part])
    return statistics


@pytest.mark.parametrize("keep_codes", [False, True])
@pytest.mark.parametrize("gone", [[0], [20], [10, 40], [40, 0, 20]])
@pytest.mark.parametrize("copies", [0, 1])
def test_what_is_left_is_as_if_the_class_was_never_there(keep_codes, gone, copies):
    X, y = alike(copies=copies)
    found = summed(X, y, keep_codes)
    found.remove_classes(np.array(gone))
    stays = ~np.isin(y, gone)
    expected = summed(X[stays], y[stays], keep_codes)
    for name in ("classes", "feature_sums", "code_sums", "class_weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-12, atol=1e-8)
    assert found.n_rows == expected.n_rows == stays.sum()
    if keep_codes:
        for ours, theirs in zip(found.kept_rows(), expected.kept_rows(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(5))
def test_the_gram_matrix_stays_symmetric_and_positive(seed):
    # Classes of few rows and of very different scatter, where the assumption is far off.
    rng = np.random.default_rng(seed)
    y = np.arange(24) % N_CLASSES
    X = 10 * rng.standard_normal((N_CLASSES, D))[y] + (
        10.0 ** (y - 2)[:, None] * rng.standard_normal((24, D))
    )
    statistics = summed(X, y, False, rng.uniform(0.5, 2, 24))
    total = np.trace(statistics.gram)
    for gone in (4, 0, 2):
        statistics.remove_classes(np.array([gone]))
        np.testing.assert_array_equal(statistics.gram, statistics.gram.T)
        assert np.linalg.eigvalsh(statistics.gram).min() > -1e-12 * total
        assert np.trace(statistics.gram) < total


def test_weights_count():
    X, y = alike(copies=0)
    of_classes = np.array([1.0, 2.0, 0.5, 4.0, 3.0])[y // 10]
    found = summed(X, y, True, of_classes)
    found.remove_classes(np.array([30]))
    stays = y != 30
    expected = summed(X[stays], y[stays], True, of_classes[stays])
    np.testing.assert_array_equal(found.class_weights, expected.class_weights)
    np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(found.kept_rows()[2], expected.kept_rows()[2])
    assert found.n_rows == expected.n_rows


def test_rows_may_come_after():
    X, y = alike()
    found = summed(X, y, True)
    found.remove_classes(np.array([20]))
    back = y == 20
    found.add(X[back], y[back], None)
    expected = summed(X, y, True)
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_array_equal(found.code_sums, expected.code_sums)
    np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-12, atol=1e-8)
    assert found.n_rows == expected.n_rows


def test_a_class_without_rows_leaves_the_sums_alone():
    X, y = alike()
    found, expected = summed(X, y, False), summed(X, y, False)
    found.add_classes(np.array([25]))
    found.remove_classes(np.array([25]))
    np.testing.assert_array_equal(found.gram, expected.gram)
    np.testing.assert_array_equal(found.classes, expected.classes)


def test_unknown_classes_are_refused_and_nothing_is_forgotten():
    X, y = alike()
    found, expected = summed(X, y, True), summed(X, y, True)
    with pytest.raises(ValueError, match="known classes"):
        found.remove_classes(np.array([10, 11]))
    np.testing.assert_array_equal(found.gram, expected.gram)
    np.testing.assert_array_equal(found.classes, expected.classes)
    assert found.n_rows == expected.n_rows
