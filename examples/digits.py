"""Learn, predict, look at codes, and learn on from batches: the whole estimator in one script."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

from bitclass import BinaryCodeClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)

# An ordinary scikit-learn classifier.
classifier = BinaryCodeClassifier(n_bits=128, random_state=0).fit(X, y)
print(f"accuracy with the exponential loss: {classifier.score(X_test, y_test):.3f}")

# The nearest classes and their Hamming distances.
labels, distances = classifier.top_classes(X_test[:3], k=3)
for true, nearest, bits in zip(y_test, labels, distances, strict=False):
    print(f"a {true}: nearest {nearest.tolist()} at {bits.tolist()} bits")

# Codes: 16 bytes a sample, good for searching as well.
codes = classifier.encode(X_test)
print(f"codes: {codes.shape[0]} x {codes.shape[1]} bytes")

# Data that comes in batches, with a class that appears only later.
online = BinaryCodeClassifier(n_bits=128, loss="hinge", random_state=0)
for rows in np.array_split(np.argsort(y == 9, kind="stable"), 5):
    online.partial_fit(X[rows], y[rows])
print(f"accuracy from five batches, hinge loss: {online.score(X_test, y_test):.3f}")

# Parameters are searched as with any estimator.
search = GridSearchCV(classifier, {"scale": [1.0, 8 / 128], "loss": ["exponential", "logistic"]})
search.fit(X, y)
print(f"best of the grid: {search.best_params_}, {search.score(X_test, y_test):.3f}")
