"""Problems to learn, and estimators that learned the same."""

import numpy as np

from bitclass import BinaryCodeClassifier


def clusters(n=900, d=12, n_classes=6, noise=2.0, seed=0, dtype=np.float32):
    """Rows and labels of classes that are normal about centres of deviation 2."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.standard_normal((n_classes, d))
    y = rng.integers(0, n_classes, size=n)
    return (centres[y] + noise * rng.standard_normal((n, d))).astype(dtype), y


def make(n_bits=32, **parameters):
    """An estimator that is the same every time."""
    return BinaryCodeClassifier(n_bits, **{"random_state": 0, **parameters})


def assert_same_model(a, b, atol=0.0):
    """Two fitted estimators are equal, but for rounding of the hash function by `atol`."""
    np.testing.assert_array_equal(a.classes_, b.classes_)
    np.testing.assert_array_equal(a.weights_, b.weights_)
    for name in ("projection_", "intercept_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=atol)
    assert a.report_.refined == b.report_.refined
    if atol == 0.0:
        assert a.packed().temperature == b.packed().temperature
