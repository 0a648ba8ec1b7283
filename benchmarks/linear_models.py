"""Real-valued linear classifiers that `regimes.py` and `random_problems.py` compare with.

Each method is tried with a few settings, and all of them are reported: the best one on the test
rows is an upper bound of what a careful user gets. Rows are centred and scaled to mean square
length 1. If there are more features than rows, the rows are rotated into as many dimensions as
there are rows, which changes none of the methods but makes them fast.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

#: More rows than this are not rotated, because of the size of their Gram matrix.
MAX_ROTATED = 3500
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)

Array = NDArray[Any]
#: Settings, predicted class indices and, where a method has them, probabilities.
Answers = Iterator[tuple[str, Array, Array | None]]


class Problem(NamedTuple):
    """Training and test rows, dense or CSR; labels are 0, 1, ..., each of which has rows."""

    X: Any
    y: Array
    X_test: Any
    y_test: Array


def metrics(y_test: Array, predicted: Array, probabilities: Array | None) -> dict[str, Any]:
    """Accuracy, mean recall, log loss, mean confidence and expected calibration error."""
    right = predicted == y_test
    counts = np.bincount(y_test)
    recalls = np.bincount(y_test, weights=right)[counts > 0] / counts[counts > 0]
    found: dict[str, Any] = {"accuracy": float(right.mean()), "recall": float(recalls.mean())}
    if probabilities is not None:
        own = probabilities[np.arange(len(y_test)), y_test]
        confidence = probabilities.max(axis=1)
        bins = np.minimum((15 * confidence).astype(int), 14)
        gaps = np.bincount(bins, weights=confidence - right, minlength=15)
        found |= {
            "log_loss": float(-np.log(np.maximum(own, 1e-15)).mean()),
            "confidence": float(confidence.mean()),
            "ece": float(np.abs(gaps).sum() / len(right)),
        }
    return found


def measure(method: str, problem: Problem, *, in_units: bool) -> list[dict[str, Any]]:
    """Metrics of a method, for each of its settings.

    Parameters
    ----------
    method : str, a key of `METHODS`
    problem : Problem
    in_units : bool
        Whether features keep their own units; otherwise they are standardised.
    """
    start = time.process_time()
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for settings, predicted, probabilities in METHODS[method](problem, in_units):
            found = metrics(problem.y_test, predicted, probabilities)
            results.append({"settings": settings, **found})
    seconds = time.process_time() - start
    return [result | {"cpu": seconds / len(results)} for result in results]


_last: dict[str, Any] = {}


def rotated(problem: Problem, in_units: bool) -> Problem:
    """Rows centred, scaled, and in at most as many dimensions as there are training rows."""
    if _last.get("problem") is not problem.X or _last["in_units"] != in_units:
        found = _rotated(problem, in_units)
        _last.update(problem=problem.X, in_units=in_units, rows=found)  # for the next method
    rows: Problem = _last["rows"]
    return rows


def _rotated(problem: Problem, in_units: bool) -> Problem:
    X, y, X_test, y_test = problem
    n, d = X.shape
    if sp.issparse(X):
        if n > MAX_ROTATED:
            return problem
        squares, basis = np.linalg.eigh((X @ X.T).toarray().astype(np.float64))
        kept = squares > 1e-9 * squares[-1]
        basis = basis[:, kept] / np.sqrt(squares[kept])
        Z, Z_test = (X @ X.T) @ basis, (X_test @ X.T) @ basis
        centre = Z.mean(axis=0)
        return Problem(Z - centre, y, Z_test - centre, y_test)
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    centre = X.mean(axis=0)
    X, X_test = X - centre, X_test - centre
    if not in_units:
        deviation = X.std(axis=0)
        deviation[deviation < 1e-9] = 1
        X, X_test = X / deviation, X_test / deviation
    length = np.sqrt((X**2).sum(axis=1).mean())
    X, X_test = X / length, X_test / length
    if n >= d or n > MAX_ROTATED:
        return Problem(X, y, X_test, y_test)
    squares, basis = np.linalg.eigh(X @ X.T)
    kept = squares > 1e-9 * squares[-1]
    basis = X.T @ (basis[:, kept] / np.sqrt(squares[kept]))
    return Problem(X @ basis, y, X_test @ basis, y_test)


def log_priors(y: Array) -> Array:
    """Logarithms of the shares of the classes."""
    counts = np.bincount(y)
    return np.log(counts / counts.sum())


def logistic_regression(problem: Problem, in_units: bool, variant: str = "plain") -> Answers:
    """Multinomial logistic regression, each C from the solution of the one before."""
    X, y, X_test, _ = rotated(problem, in_units)
    if X.shape[0] * X.shape[1] * (y.max() + 1) > 3e9:
        return  # minutes
    if not sp.issparse(X):
        X, X_test = X.astype(np.float32), X_test.astype(np.float32)
    weights = "balanced" if variant == "balanced" else None
    model = LogisticRegression(warm_start=True, class_weight=weights, max_iter=300, tol=1e-8)
    for C in (3.0, 30.0, 300.0, 3e3, 3e4):
        scores = model.set_params(C=C).fit(X, y).decision_function(X_test)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        if variant == "adjusted":
            scores = scores - log_priors(y)
        yield f"C={C:g}", scores.argmax(axis=1), softmax(scores.astype(np.float64), axis=1)


def linear_svc(problem: Problem, in_units: bool, variant: str = "plain") -> Answers:
    """LibLinear, one class against the rest."""
    X, y, X_test, _ = problem if sp.issparse(problem.X) else rotated(problem, in_units)
    weights = "balanced" if variant == "balanced" else None
    size = 0 if sp.issparse(X) else X.size * (y.max() + 1)
    if size > 2e9:
        return  # minutes
    for C in (0.1, 1.0, 10.0) if size < 2e8 else (10.0,):
        model = LinearSVC(C=C, class_weight=weights, max_iter=300, random_state=0)
        yield f"C={C:g}", model.fit(X, y).predict(X_test), None


def discriminant_analysis(problem: Problem, in_units: bool, variant: str = "plain") -> Answers:
    """LDA; a multiple of the mean variance is added to the scatter within classes."""
    X, y, X_test, _ = rotated(problem, in_units)
    if sp.issparse(X):
        return
    counts = np.bincount(y)
    means = np.zeros((len(counts), X.shape[1]))
    np.add.at(means, y, X)
    means /= counts[:, None]
    within = X - means[y] if len(y) > len(counts) else X  # of all rows with one row per class
    squares, basis = np.linalg.eigh(within.T @ within / max(1, len(y) - len(counts)))
    X_test, means = X_test @ basis, means @ basis
    prior = log_priors(y) if variant == "plain" else 0.0
    for alpha in PENALTIES:
        scaled = means / (np.maximum(squares, 0) + alpha * squares.mean())
        scores = X_test @ scaled.T - 0.5 * (scaled * means).sum(axis=1) + prior
        yield f"alpha={alpha:g}", scores.argmax(axis=1), softmax(scores, axis=1)


def ridge(problem: Problem, in_units: bool) -> Answers:
    """Ridge regression of the indicators of the classes."""
    X, y, X_test, _ = rotated(problem, in_units)
    if sp.issparse(X):
        return
    squares, basis = np.linalg.eigh(X.T @ X)
    X, X_test = X @ basis, X_test @ basis
    sums = np.zeros((y.max() + 1, X.shape[1]))
    np.add.at(sums, y, X)
    share = np.bincount(y) / len(y)
    for alpha in PENALTIES:
        scores = X_test @ (sums / (np.maximum(squares, 0) + alpha)).T + share
        yield f"alpha={alpha:g}", scores.argmax(axis=1), None


def cosine_to_centroid(problem: Problem, in_units: bool) -> Answers:
    """The class whose mean row has the largest cosine."""
    X, y, X_test, _ = problem
    rows = sp.csr_matrix((np.ones(len(y), dtype=np.float32), (y, np.arange(len(y)))))
    means = rows @ X if sp.issparse(X) else rows @ X.astype(np.float32)
    if sp.issparse(means):
        lengths = np.sqrt(np.asarray(means.multiply(means).sum(axis=1))).ravel()
        scores = np.asarray((X_test @ means.T).todense()) / np.maximum(lengths, 1e-12)
    else:
        scores = X_test.astype(np.float32) @ means.T
        scores /= np.maximum(np.linalg.norm(means, axis=1), 1e-12)
    yield "", scores.argmax(axis=1), None


def variant(method: Callable[..., Answers], name: str) -> Callable[..., Answers]:
    return lambda problem, in_units: method(problem, in_units, name)


#: Methods that take the shares of the classes as they are.
PLAIN: dict[str, Callable[..., Answers]] = {
    "logistic regression": logistic_regression,
    "LinearSVC": linear_svc,
    "LDA": discriminant_analysis,
    "ridge": ridge,
    "cosine to centroid": cosine_to_centroid,
}
#: Methods for test rows in which all classes are equally frequent.
EVEN: dict[str, Callable[..., Answers]] = {
    "logistic regression, balanced": variant(logistic_regression, "balanced"),
    "logistic regression, adjusted": variant(logistic_regression, "adjusted"),
    "LinearSVC, balanced": variant(linear_svc, "balanced"),
    "LDA, uniform priors": variant(discriminant_analysis, "uniform"),
    "cosine to centroid": cosine_to_centroid,
}
METHODS = PLAIN | EVEN
