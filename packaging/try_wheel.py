"""Test of the installed package: train, predict, save and load."""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import bitclass
from bitclass._native import _kernels

X, y = load_digits(return_X_y=True)
classifier = bitclass.BinaryCodeClassifier(n_bits=64, random_state=0).fit(X[:1200], y[:1200])
accuracy = classifier.score(X[1200:], y[1200:])
assert accuracy > 0.8, accuracy
# Windows deletes no file that is mapped to memory.
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    classifier.save(Path(folder) / "model.safetensors")
    model = bitclass.load(Path(folder) / "model.safetensors")
    assert np.array_equal(model.predict(X), classifier.predict(X))
print(f"bitclass {bitclass.__version__}, {Path(_kernels.__file__).name}: accuracy {accuracy:.3f}")
