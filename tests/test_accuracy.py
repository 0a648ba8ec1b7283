"""Accuracy on real data: lower bounds for a correct implementation of the paper's method."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from bitclass import BinaryCodeClassifier

pytestmark = pytest.mark.slow

DATA = Path(os.environ.get("BITCLASS_DATA", Path(__file__).parents[2] / "shared" / "data"))

FLOORS = {
    "letter16": 0.54,
    "cifar10_gist512": 0.545,
    "caltech101_cnn1280": 0.92,
    "clinc150_minilm384": 0.885,
    "tinyimagenet100_cnn1280": 0.67,
}


@pytest.fixture(scope="module", params=FLOORS)
def standardised(request):
    """Name of a dataset, and its rows and labels for training and testing."""
    path = DATA / f"{request.param}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set BITCLASS_DATA to the folder with {path.name}")
    with np.load(path, allow_pickle=False) as arrays:
        X, y, X_test, y_test = (arrays[k] for k in ("X_train", "y_train", "X_test", "y_test"))
    scaler = StandardScaler().fit(X.astype(np.float32))
    X, X_test = (scaler.transform(part.astype(np.float32)) for part in (X, X_test))
    return request.param, X, y, X_test, y_test


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_accuracy_at_128_bits(standardised, loss):
    """With the better of random and projection codes."""
    name, X, y, X_test, y_test = standardised
    found = {}
    for codes in ("random", "projection"):
        given = {"initial_codes": codes, "refine": False, "random_state": 0}
        classifier = BinaryCodeClassifier(128, loss=loss, **given).fit(X, y)
        found[codes] = classifier.score(X_test, y_test)
    assert max(found.values()) >= FLOORS[name], found
