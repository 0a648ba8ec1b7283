"""The estimator in one script: fit, predict, codes, incremental training, batches, grid search."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

from bitclass import BinaryCodeClassifier
from bitclass.paper import PaperClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)

# An ordinary scikit-learn classifier.
classifier = BinaryCodeClassifier(n_bits=128, random_state=0).fit(X, y)
print(f"accuracy: {classifier.score(X_test, y_test):.3f}")

# The best classes, their Hamming distances and probabilities.
labels, distances, probabilities, _ = classifier.top_classes(X_test[:3], k=2, probabilities=True)
assert probabilities is not None  # they were asked for
for true, best, bits, p in zip(y_test, labels, distances, probabilities, strict=False):
    print(f"digit {true}: {best.tolist()} at {bits.tolist()} bits, {p.round(3).tolist()}")

# Codes: 16 bytes per sample, also useful for similarity search.
codes = classifier.encode(X_test)
print(f"codes: {codes.shape[0]} x {codes.shape[1]} bytes")

# The method as published.
for loss in ("hinge", "exponential"):
    paper = PaperClassifier(n_bits=128, loss=loss, random_state=0).fit(X, y)
    print(f"accuracy of the paper's method, {loss} loss: {paper.score(X_test, y_test):.3f}")

# A class that appears later: the hash function is extended, without the old rows.
is_new = y == 9
online = BinaryCodeClassifier(n_bits=128, keep_sums=True, random_state=0)
online.fit(X[~is_new], y[~is_new]).partial_fit(X[is_new], y[is_new])
print(f"accuracy with the 9 added later: {online.score(X_test, y_test):.3f}")


# Rows in batches, as from a file larger than memory.
def batches() -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Yield the rows, always in the same order."""
    for first in range(0, len(X), 500):
        yield X[first : first + 500], y[first : first + 500]


batched = BinaryCodeClassifier(n_bits=128, random_state=0).fit_batches(batches)
print(f"accuracy from batches: {batched.score(X_test, y_test):.3f}")

# Grid search works as with any estimator.
search = GridSearchCV(classifier, {"kernel": [None, "rbf"], "n_bits": [64, 128]}, cv=3).fit(X, y)
print(f"best of the grid: {search.best_params_}, {search.score(X_test, y_test):.3f}")
