"""The starting codes by CCA-ITQ, against the properties of the method."""

import numpy as np
import scipy.linalg
from sklearn.datasets import load_digits

from bitclass.training import cca_itq


def problem():
    X, y = load_digits(return_X_y=True)
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9), y


def test_directions_are_those_of_a_dense_generalised_eigenproblem():
    Z, y = problem()
    weights = np.ones(len(y))
    directions, correlations = cca_itq.canonical_directions(Z, y, weights, 128)
    assert directions.shape == (64, 9)  # ten classes differ in nine directions
    covariance = Z.T @ Z / len(y)
    covariance += 1e-4 * np.trace(covariance) * np.eye(64)
    means = np.array([Z[y == c].mean(axis=0) for c in range(10)])
    between = (means * np.bincount(y)[:, None]).T @ means / len(y)
    values = scipy.linalg.eigh(between, covariance, eigvals_only=True)[::-1][:9]
    np.testing.assert_allclose(correlations**2, values, rtol=1e-6)
    gram = directions.T @ covariance @ directions
    np.testing.assert_allclose(gram, np.eye(9), atol=1e-8)


def test_the_quantisation_error_never_rises_and_does_fall():
    Z, y = problem()
    directions, _ = cca_itq.canonical_directions(Z, y, np.ones(len(y)), 128)
    for n_bits in (9, 64):
        rotation, errors = cca_itq.quantising_rotation(
            Z @ directions, n_bits, 50, np.random.RandomState(0)
        )
        assert np.all(np.diff(errors) <= 1e-9 * errors[0])
        assert errors[-1] < 0.999 * errors[1]
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(9), atol=1e-8)


def test_the_codes_are_rotated_as_often_as_published():
    assert cca_itq._N_ROTATIONS == 50
