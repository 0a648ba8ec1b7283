"""Small problems to refine, and refining with everything in hand."""

import numpy as np

from bitclass import BinaryCodeClassifier
from bitclass.drawing import Drawing
from bitclass.learning import learn
from bitclass.refining import refine
from bitclass.training import Refinement, Schedule, Statistics
from bitclass.training.starting_codes import MeanCodes
from bitclass.validation import check_parameters


def blobs(n=900, d=12, n_classes=6, noise=2.0, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.standard_normal((n_classes, d))
    y = rng.integers(0, n_classes, size=n)
    return (centres[y] + noise * rng.standard_normal((n, d))).astype(dtype), y


def make(n_bits=32, **parameters):
    return BinaryCodeClassifier(
        n_bits, **({"random_state": 0, "loss": "hinge", "refine": True} | parameters)
    )


def same_model(a, b):
    assert np.array_equal(a.classes_, b.classes_)
    np.testing.assert_array_equal(a.weights_, b.weights_)
    np.testing.assert_array_equal(a.projection_, b.projection_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)
    assert a.packed().temperature == b.packed().temperature


def start(rng, d=4, r=6, n_classes=3, n_steps=10, refit=None):
    weights = rng.choice([-1, 1], size=(n_classes, r))
    given = rng.standard_normal((d, r)), rng.standard_normal(r), weights, Schedule(n_steps)
    return Refinement(*given, np.random.default_rng(5), refit)


def statistics_of(X, y, weights=None, **parameters):
    classifier = make(refine=False, **parameters).fit(X, y, sample_weight=weights)
    return classifier.statistics_


def in_batches(X, y, weights, sizes):
    """A replay of rows in batches of the given sizes, the last of them for all the rest."""
    cuts = np.minimum(np.cumsum(sizes), len(y))

    def replay():
        for begin, end in zip([0, *cuts], [*cuts, len(y)], strict=True):
            part = slice(begin, end)
            yield int(begin), X[part], y[part], None if weights is None else weights[part]

    return replay


def refined(X, y, weights=None, sizes=(), max_bytes=1 << 30, seed=3, statistics=None):
    statistics = statistics_of(X, y, weights) if statistics is None else statistics
    parameters = make(kernel=None if statistics.anchors is None else "rbf").get_params()
    solution = learn(statistics, check_parameters(parameters)[0])
    return refine(
        solution.model,
        statistics,
        in_batches(X, y, weights, sizes),
        n_rows=len(y),
        alpha=solution.alpha,
        seed=seed,
        max_bytes=max_bytes,
        report=lambda line: None,
    )


def drawing(X, y, seed=3, max_bytes=1 << 30):
    d = X.shape[1]
    statistics = Statistics(MeanCodes(8, seed=0), np.zeros(d), np.ones(d), keep_codes=False)
    statistics.add(X, y, None)
    return Drawing(statistics, statistics.classes, len(y), seed, max_bytes)


class NoWhitening:
    """Leaves rows as they are, so that one sees which they were."""

    @staticmethod
    def rows(statistics, X):
        return X
