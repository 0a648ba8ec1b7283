"""Supervised discrete hashing: codes from which the labels follow by least squares.

Minimises over codes B (n, r), a classifier W (r, C) and a hash function P (d, r)

    |Y - B W|^2 + lambda |W|^2 + nu (|B - X P|^2 + mu |P|^2)

with Y the (n, C) indicator of the classes. W and P are ridge regressions; B is updated bit by bit
(discrete cyclic coordinate descent), each bit to the sign that is best with all others fixed.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from bitclass._native import add_gram, class_sums
from bitclass.baselines.linear_encoder import SupervisedEncoder
from bitclass.rows import Features

__all__ = ["SDHEncoder"]

_HASH_PENALTY = 1e-2  # mu, as published
_ROWS_A_BLOCK = 2048


class SDHEncoder(SupervisedEncoder):
    """Supervised discrete hashing, with the published settings.

    Published on 1,000 radial basis functions; put :class:`AnchorFeatures` before it for that.

    Parameters
    ----------
    n_bits : int, default=128
    penalty : float, default=1.0
        lambda, on the classifier.
    fidelity : float, default=1e-5
        nu, how much the codes must be what the hash function says.
    max_iter : int, default=5
        Most rounds over B, W and P.
    n_sweeps : int, default=10
        Most passes over the bits within a round.
    track_objective : bool, default=False
        Whether the objective is computed after each step, which takes longer than the step.
    random_state : int, RandomState instance or None, default=None
        Seed of the first codes.

    Attributes
    ----------
    projection_ : ndarray of shape (n_features, n_bits), float32
    intercept_ : ndarray of shape (n_bits,), float32
    objective_history_ : list of float
        The objective after the first W and P, and after each step B, W, P; empty unless tracked.
    n_iter_ : int, rounds that were made
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> encoder = SDHEncoder(32, track_objective=True, random_state=0).fit(X, y)
    >>> encoder.objective_history_[-1] < encoder.objective_history_[0]
    True
    """

    def __init__(
        self,
        n_bits: int = 128,
        *,
        penalty: float = 1.0,
        fidelity: float = 1e-5,
        max_iter: int = 5,
        n_sweeps: int = 10,
        track_objective: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.penalty = penalty
        self.fidelity = fidelity
        self.max_iter = max_iter
        self.n_sweeps = n_sweeps
        self.track_objective = track_objective
        self.random_state = random_state

    def fit(self, X: Features, y: ArrayLike) -> Self:
        """Learn from X of shape (n_samples, n_features) and labels y of shape (n_samples,)."""
        centred, own, centre = self._checked(X, y)
        random = check_random_state(self.random_state)
        problem = _Problem(centred, own, self.penalty, self.fidelity)
        codes = np.where(random.standard_normal((len(own), self.n_bits)) >= 0, 1, -1)
        codes = codes.astype(np.float32)

        problem.update_classifier(codes)
        problem.update_hash_function(codes)
        history: list[float] = []

        def track() -> None:
            if self.track_objective:
                history.append(problem.objective(codes))

        track()
        self.n_iter_ = 0
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            changed = problem.update_codes(codes, self.n_sweeps)
            track()
            problem.update_classifier(codes)
            track()
            problem.update_hash_function(codes)
            track()
            if not changed:
                break
        self.objective_history_ = history
        self._set_map(problem.projection, centre)
        return self


class _Problem:
    """The objective and its three steps, for rows X (n, d) and class indices own (n,)."""

    projection: NDArray[np.float64]

    def __init__(
        self, X: NDArray[Any], own: NDArray[np.intp], penalty: float, fidelity: float
    ) -> None:
        self.X = X
        self.own = own
        self.penalty = penalty
        self.fidelity = fidelity
        gram = np.zeros((X.shape[1], X.shape[1]))
        add_gram(X, gram)
        gram[np.diag_indices_from(gram)] += _HASH_PENALTY
        self._factor = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True)

    def update_classifier(self, codes: NDArray[np.float32]) -> None:
        """W, a ridge regression of the class indicators on the codes (n, r)."""
        n_bits = codes.shape[1]
        gram = np.zeros((n_bits, n_bits))
        add_gram(codes, gram)
        gram[np.diag_indices_from(gram)] += self.penalty
        sums = np.zeros((int(self.own.max()) + 1, n_bits))
        class_sums(codes, self.own, np.ones(len(self.own)), sums)
        self.classifier = scipy.linalg.solve(gram, sums.T, assume_a="pos")

    def update_hash_function(self, codes: NDArray[np.float32]) -> None:
        """P, a ridge regression of the codes (n, r) on the features."""
        cross = np.zeros((self.X.shape[1], codes.shape[1]))
        for begin in range(0, len(codes), _ROWS_A_BLOCK):
            rows = slice(begin, begin + _ROWS_A_BLOCK)
            cross += self.X[rows].T @ codes[rows].astype(self.X.dtype)
        self.projection = scipy.linalg.cho_solve(self._factor, cross)

    def update_codes(self, codes: NDArray[np.float32], n_sweeps: int) -> bool:
        """B, bit by bit, in place; whether any bit changed.

        With the others fixed, the part of the objective that bit k of a row has is
        ``-2 b_k (W Y' + nu P'x - sum_{j != k} b_j (W W')_jk)_k``.
        """
        gram = self.classifier @ self.classifier.T
        any_changed = False
        for begin in range(0, len(codes), _ROWS_A_BLOCK):
            rows = slice(begin, begin + _ROWS_A_BLOCK)
            block = codes[rows].astype(np.float64)
            wanted = self.classifier.T[self.own[rows]]
            wanted += self.fidelity * (self.X[rows] @ self.projection.astype(self.X.dtype))
            before = block.copy()
            _descend(block, wanted, gram, n_sweeps)
            any_changed |= not np.array_equal(before, block)
            codes[rows] = block
        return any_changed

    def objective(self, codes: NDArray[np.float32]) -> float:
        """The objective at the present codes (n, r), classifier and hash function."""
        total = self.penalty * float(np.sum(self.classifier**2))
        total += self.fidelity * _HASH_PENALTY * float(np.sum(self.projection**2))
        classes = np.arange(self.classifier.shape[1])
        for begin in range(0, len(codes), _ROWS_A_BLOCK):
            rows = slice(begin, begin + _ROWS_A_BLOCK)
            block = codes[rows].astype(np.float64)
            indicator = (self.own[rows, None] == classes).astype(np.float64)
            total += float(np.sum((indicator - block @ self.classifier) ** 2))
            predicted = self.X[rows].astype(np.float64) @ self.projection
            total += self.fidelity * float(np.sum((block - predicted) ** 2))
        return total


def _descend(
    codes: NDArray[np.float64],
    wanted: NDArray[np.float64],
    gram: NDArray[np.float64],
    n_sweeps: int,
) -> None:
    """Discrete cyclic coordinate descent on codes (m, r), in place; a tie keeps the bit."""
    pull = codes @ gram
    for _ in range(n_sweeps):
        n_changed = 0
        for k in range(codes.shape[1]):
            lead = wanted[:, k] - pull[:, k] + codes[:, k] * gram[k, k]
            changed = np.flatnonzero(lead * codes[:, k] < 0)
            if changed.size:
                codes[changed, k] *= -1
                pull[changed] += 2 * codes[changed, k, None] * gram[k]
                n_changed += changed.size
        if n_changed == 0:
            break
