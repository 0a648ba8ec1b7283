"""The paper's baselines: linear SVMs, and linear SVMs on binary codes.

The SVMs are those of LibLinear with its own defaults. The encoders (LSH, CCA-ITQ, SDH) are
scikit-learn transformers that return codes in {-1, +1}; a pipeline of an encoder and an SVM is one
method.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.metrics import pairwise_distances
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import gen_batches

__all__ = [
    "PENALTIES",
    "AnchorFeatures",
    "CCAITQEncoder",
    "LSHEncoder",
    "SDHEncoder",
    "choose_penalty",
    "linear_svm",
    "on_codes",
]

#: Values of C that the paper tries.
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)

ROWS_PER_BLOCK = 4096
MAX_HELD_OUT_ROWS = 10_000


def linear_svm(multi_class: str, seed: int) -> LinearSVC:
    """LibLinear with its own default solver and tolerance.

    scikit-learn's default tolerance is a thousand times smaller, which takes many times as long
    for the same accuracy and would make every other method look better.

    Parameters
    ----------
    multi_class : {"ovr", "crammer_singer"}
    seed : int
    """
    return LinearSVC(multi_class=multi_class, tol=0.1, dual=True, max_iter=1000, random_state=seed)


def on_codes(encoder: Any, seed: int, n_anchors: int | None = None) -> Pipeline:
    """Crammer-Singer SVM on the codes of an encoder, optionally of RBF features."""
    anchors = [] if n_anchors is None else [AnchorFeatures(n_anchors, random_state=seed)]
    return make_pipeline(*anchors, encoder, linear_svm("crammer_singer", seed))


def choose_penalty(estimator: Any, X: NDArray[Any], y: NDArray[Any]) -> float:
    """Choose the best C of `PENALTIES` on held-out rows: a fifth of at most 10,000 training rows.

    Values increase until one is worse: LibLinear takes longer with larger C, up to hours, and
    accuracy has a single peak. Encoders are fitted without the held-out rows.

    Parameters
    ----------
    estimator : LinearSVC, or a pipeline that ends with one
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)

    Returns
    -------
    float
    """
    order = np.random.default_rng(0).permutation(len(y))[:MAX_HELD_OUT_ROWS]
    held_out, learned = np.split(order, [max(1, len(order) // 5)])
    rows, scored, svm = X[learned], X[held_out], estimator
    if isinstance(estimator, Pipeline):
        encoder = clone(estimator[:-1]).fit(rows, y[learned])
        rows, scored, svm = encoder.transform(rows), encoder.transform(scored), estimator[-1]
    best, best_score = PENALTIES[0], -np.inf
    for penalty in PENALTIES:
        score = clone(svm).set_params(C=penalty).fit(rows, y[learned]).score(scored, y[held_out])
        if score < best_score:
            break
        if score > best_score:
            best, best_score = penalty, score
    return best


class AnchorFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """RBF features ``exp(-|x - a_j|^2 / width^2)``, on which SDH was published.

    The squared width is the mean squared distance of rows to anchors, about the same as the
    published width of 0.4 for rows of length 1.

    Parameters
    ----------
    n_anchors : int
        Number of anchors, drawn from the training rows; all rows if there are fewer.
    random_state : int
    """

    def __init__(self, n_anchors: int = 1000, random_state: int = 0) -> None:
        self.n_anchors = n_anchors
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: Any = None) -> Self:
        """Draw the anchors from X of shape (n, d)."""
        rng = np.random.default_rng(self.random_state)
        self.anchors_ = X[rng.choice(len(X), min(self.n_anchors, len(X)), replace=False)]
        sample = X[rng.choice(len(X), min(2000, len(X)), replace=False)]
        self.squared_width_ = float(self._squared_distances(sample).mean()) or 1.0
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Compute features (n, n_anchors) of rows X (n, d)."""
        features = np.empty((len(X), len(self.anchors_)), dtype=np.float32)
        for rows in gen_batches(len(X), ROWS_PER_BLOCK):
            features[rows] = np.exp(-self._squared_distances(X[rows]) / self.squared_width_)
        return features

    def _squared_distances(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(pairwise_distances(X, self.anchors_, metric="sqeuclidean"))


class Encoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Codes ``sign(P'(x - mean))``; subclasses learn P.

    Parameters
    ----------
    n_bits : int
    random_state : int
    """

    def __init__(self, n_bits: int = 128, random_state: int = 0) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit to X of shape (n, d) and labels y of shape (n,)."""
        mean = X.mean(axis=0, dtype=np.float64)
        _, y = np.unique(y, return_inverse=True)
        rng = np.random.default_rng(self.random_state)
        projection = self._learn(X - mean.astype(X.dtype), y, rng)
        self.projection_ = projection.astype(np.float32)
        self.intercept_ = -(mean @ self.projection_).astype(np.float32)
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Encode rows X (n, d) as codes (n, n_bits) in {-1, +1}, in float64 for LibLinear."""
        codes = np.empty((len(X), self.n_bits))
        for rows in gen_batches(len(X), ROWS_PER_BLOCK):
            codes[rows] = signs(X[rows] @ self.projection_ + self.intercept_)
        return codes

    def _learn(
        self, X: NDArray[Any], y: NDArray[np.intp], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Learn P (d, n_bits) from centred rows X (n, d) and class indices y (n,)."""
        raise NotImplementedError


class LSHEncoder(Encoder):
    """Locality-sensitive hashing: signs of Gaussian random projections."""

    def _learn(
        self, X: NDArray[Any], y: NDArray[np.intp], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        return rng.standard_normal((X.shape[1], self.n_bits))


class CCAITQEncoder(Encoder):
    """CCA-ITQ: canonical directions of features and labels, rotated towards binary values.

    C classes have at most C - 1 canonical directions; a longer code rotates these into more
    dimensions. Covariances are regularised by 1e-4 of their trace, and there are 50 iterations, as
    published.
    """

    def _learn(
        self, X: NDArray[Any], y: NDArray[np.intp], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        directions = canonical_directions(X, y, self.n_bits)
        V = (X @ directions.astype(X.dtype)).astype(np.float64)
        start, _ = np.linalg.qr(rng.standard_normal((self.n_bits, self.n_bits)))
        rotation = start[: V.shape[1]]
        for _ in range(50):
            left, _, right = scipy.linalg.svd(V.T @ signs(V @ rotation), full_matrices=False)
            rotation = left @ right
        return np.asarray(directions @ rotation)


def canonical_directions(
    X: NDArray[Any], y: NDArray[np.intp], max_directions: int
) -> NDArray[np.float64]:
    """Canonical directions (d, k) of centred rows X (n, d), each scaled by its correlation."""
    covariance = gram(X) / len(X)
    covariance[np.diag_indices_from(covariance)] += 1e-4 * np.trace(covariance)
    factor = scipy.linalg.cholesky(covariance, lower=True)
    between = class_sums(X, y) / np.sqrt(np.bincount(y) * len(X))[:, None]
    whitened = scipy.linalg.solve_triangular(factor, between.T, lower=True)
    left, correlations, _ = scipy.linalg.svd(whitened, full_matrices=False)
    k = int(np.count_nonzero(correlations[:max_directions] > 1e-6 * correlations[0]))
    directions = scipy.linalg.solve_triangular(factor, left[:, :k], lower=True, trans="T")
    return np.asarray(directions * correlations[:k])


class SDHEncoder(Encoder):
    """Supervised discrete hashing, with the published settings.

    Minimises over codes B (n, r), a classifier W (r, C) and a hash function P (d, r)

        |Y - B W|^2 + lambda |W|^2 + nu (|B - X P|^2 + mu |P|^2)

    where Y (n, C) are the class indicators. W and P are ridge regressions. B is updated bit by bit
    from its current value, so that the objective never increases; the authors' public code starts
    each round from zeros instead.
    """

    penalty = 1.0  # lambda
    fidelity = 1e-5  # nu
    hash_penalty = 1e-2  # mu
    max_rounds = 5

    def _learn(
        self, X: NDArray[Any], y: NDArray[np.intp], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        regularised = gram(X)
        regularised[np.diag_indices_from(regularised)] += self.hash_penalty
        factor = scipy.linalg.cho_factor(regularised, lower=True, overwrite_a=True)
        B = signs(rng.standard_normal((len(X), self.n_bits))).astype(np.float32)
        for _ in range(self.max_rounds):
            W = self.classifier_step(B, y)
            P = scipy.linalg.cho_solve(factor, cross(X, B))
            if not self.code_step(B, W, P, X, y):
                break
        return np.asarray(scipy.linalg.cho_solve(factor, cross(X, B)))

    def classifier_step(self, B: NDArray[np.float32], y: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute W (r, C) by ridge regression of the class indicators on the codes B (n, r)."""
        regularised = gram(B)
        regularised[np.diag_indices_from(regularised)] += self.penalty
        return np.asarray(scipy.linalg.solve(regularised, class_sums(B, y).T, assume_a="pos"))

    def code_step(
        self,
        B: NDArray[np.float32],
        W: NDArray[np.float64],
        P: NDArray[np.float64],
        X: NDArray[Any],
        y: NDArray[np.intp],
        max_sweeps: int = 10,
    ) -> bool:
        """Update B (n, r) in place, bit by bit; return whether any bit changed.

        With the other bits fixed, bit k of a row contributes
        ``-2 b_k (W Y' + nu P'x - sum_{j != k} b_j (W W')_jk)_k``.
        """
        G = W @ W.T
        any_changed = False
        for rows in gen_batches(len(B), ROWS_PER_BLOCK):
            codes = B[rows].astype(np.float64)
            target = W.T[y[rows]] + self.fidelity * (X[rows] @ P.astype(X.dtype))
            product = codes @ G
            for _ in range(max_sweeps):
                n_changed = 0
                for k in range(codes.shape[1]):
                    wanted = target[:, k] - product[:, k] + codes[:, k] * G[k, k]
                    changed = np.flatnonzero(wanted * codes[:, k] < 0)
                    codes[changed, k] *= -1
                    product[changed] += 2 * codes[changed, k, None] * G[k]
                    n_changed += changed.size
                any_changed |= n_changed > 0
                if not n_changed:
                    break
            B[rows] = codes
        return any_changed


def signs(values: NDArray[Any]) -> NDArray[np.float64]:
    """-1 or +1; the sign of 0 is +1."""
    return np.where(values >= 0, 1.0, -1.0)


def gram(X: NDArray[Any]) -> NDArray[np.float64]:
    """X'X (d, d), summed in float64 in blocks."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for rows in gen_batches(len(X), ROWS_PER_BLOCK):
        block = X[rows].astype(np.float64)
        total += block.T @ block
    return total


def cross(X: NDArray[Any], B: NDArray[np.float32]) -> NDArray[np.float64]:
    """X'B (d, r), summed in float64 in blocks."""
    total = np.zeros((X.shape[1], B.shape[1]))
    for rows in gen_batches(len(X), ROWS_PER_BLOCK):
        total += X[rows].T @ B[rows].astype(X.dtype)
    return total


def class_sums(X: NDArray[Any], y: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sums (C, d) of each class's rows of X (n, d)."""
    indicator = scipy.sparse.csr_matrix((np.ones(len(y)), (y, np.arange(len(y)))))
    return np.asarray(indicator @ X)
