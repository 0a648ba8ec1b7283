"""Random problems for the tests of the training kernels."""

import numpy as np

from bitclass.codes import pack


class Problem:
    """Random rows, sorted by class, whose codes are close to the weights of their class."""

    def __init__(self, n, n_classes, n_bits, seed, n_threads=1):
        self.rng = np.random.default_rng(seed)
        self.n, self.n_classes, self.n_bits, self.n_threads = n, n_classes, n_bits, n_threads
        signs = self.rng.integers(0, 2, (n_classes, n_bits)) > 0
        self.weights = pack(signs)
        self.y = np.sort(self.rng.integers(0, n_classes, n)).astype(np.intp)
        noise = self.rng.random((n, n_bits)) < self.rng.choice([0.05, 0.3, 0.5])
        self.codes = pack(signs[self.y] ^ noise)
        self.row_weights = self.rng.choice([0.0, 1.0, 1.0, 1.0, 0.37, 5.1], n)
        if self.rng.random() < 0.3:
            self.row_weights[:] = 1.0


def strided(array):
    """The same entries, not contiguous in memory."""
    spread = np.zeros(tuple(2 * s for s in array.shape), dtype=array.dtype)
    view = spread[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def losses(n_bits, scale):
    """Tables of the B-step: a hinge, and the exponential loss relative to the largest margin."""
    half = np.arange(-2 * n_bits, 2 * n_bits + 1)
    hinge = np.maximum(0.0, 1.0 + 2.0 * scale * half)
    with np.errstate(over="ignore"):
        return [(hinge, 0.0), (np.exp(2.0 * scale * half), 2.0 * scale)]
