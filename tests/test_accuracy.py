"""Accuracy on real data: floors that a correct implementation of the paper's method reaches."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from bitclass import BinaryCodeClassifier

pytestmark = pytest.mark.slow

FLOORS = {
    "letter16": 0.54,
    "cifar10_gist512": 0.545,
    "caltech101_cnn1280": 0.92,
    "clinc150_minilm384": 0.885,
    "tinyimagenet100_cnn1280": 0.67,
}


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.parametrize("name", FLOORS)
def test_accuracy_at_128_bits(load_data, name, loss):
    """The mean of 3 seeds, with the better of random and projection codes."""
    X, y, X_test, y_test = load_data(name)
    scaler = StandardScaler().fit(X.astype(np.float32))
    X, X_test = (scaler.transform(part.astype(np.float32)) for part in (X, X_test))
    means = {}
    for codes in ("random", "projection"):
        classifier = BinaryCodeClassifier(128, loss=loss, initial_codes=codes, refine=False)
        means[codes] = np.mean(
            [
                classifier.set_params(random_state=seed).fit(X, y).score(X_test, y_test)
                for seed in range(3)
            ]
        )
    print(f"\n{name} {loss}: " + ", ".join(f"{k} {v:.4f}" for k, v in means.items()))
    assert max(means.values()) >= FLOORS[name]
