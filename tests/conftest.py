"""Shared helpers: small random problems, brute force, and the real data where it is at hand."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

DATA = Path(os.environ.get("BITCLASS_DATA", Path(__file__).parents[2] / "shared" / "data"))

# A shell that runs the tests in the background has its children ignore the interrupts that some
# of them send to commands.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def load_data():
    """Load a real data set by name; skip, saying so, where it is absent."""

    def load(name):
        path = DATA / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path} is not here; set BITCLASS_DATA to the folder with {name}.npz")
        with np.load(path, allow_pickle=False) as arrays:
            return tuple(arrays[key] for key in ("X_train", "y_train", "X_test", "y_test"))

    return load


@pytest.fixture
def blobs():
    """A small classification problem that a linear model solves well: 6 classes, 20 features."""
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.standard_normal((6, 20))
    labels = rng.integers(0, 6, size=400)
    X = centres[labels] + rng.standard_normal((400, 20))
    return X, labels
