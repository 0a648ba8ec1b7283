"""Small problems, their sums and rows, as training sees them."""

import numpy as np

from bitclass.training.closed_form import _Scatter
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected, Sample, Sums


def problem(n=90, d=6, n_classes=4, seed=0, noise=1.0):
    """Rows and labels of classes about centres, with correlated noise."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.standard_normal((n_classes, d))
    y = np.arange(n) % n_classes
    mixing = np.eye(d) + 0.5 * rng.standard_normal((d, d))
    return centres[y] + noise * rng.standard_normal((n, d)) @ mixing, y


def sums_of(X, y, weights=None, shift=0.0, scale=1.0):
    sums = Sums(np.full(X.shape[1], float(shift)), np.full(X.shape[1], float(scale)))
    sums.add(X, y, np.ones(len(y)) if weights is None else weights)
    return sums


def sample_of(X, y, weights=None):
    n = len(y)
    return Sample(X, y, np.ones(n) if weights is None else weights, np.arange(n) / n)


def scatter_of(X, y, **given):
    return _Scatter(sums_of(X, y, **given))


def settings(n_bits=16, **given):
    chosen = {
        "alpha": None,
        "refine": True,
        "kernel": False,
        "n_anchors": "auto",
        "gamma": "scale",
        "rescore": None,
        "prior": "train",
        "seed": 0,
        "print_line": lambda line: None,
    }
    return Settings(n_bits, **(chosen | given))


def collected_of(X, y, weights=None, judged=None, **given):
    collected = Collected(Sums(np.zeros(X.shape[1]), np.ones(X.shape[1])), 0, **given)
    collected.add(X, y, np.ones(len(y)) if weights is None else weights, judged=judged)
    return collected
