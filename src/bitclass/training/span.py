"""Fewer rows than features: training in the span of the rows.

The scatter of n rows of d features has rank n at most, and no direction outside their span can be
learned from them. With Y the rows (n, d) and Y Y' = L L', the rows of L are their coordinates along
an orthonormal basis ``Y' L^-T`` of the span: a model of n features, trained in n^3 operations
instead of d^3, and a model of all columns of wide rows instead of their variances alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass._native import cholesky, product, solve_triangular
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.closed_form import ENTRIES_LEFT
from bitclass.training.sums import Collected, Sample, Sums

# Share of entries from which on products of rows are faster if zeros are multiplied, too.
_DENSE_SHARE = 0.1
# Added to the squared lengths of rows: equal rows have no Cholesky factor otherwise.
_JITTER = 1e-9


def spans(collected: Collected, max_dimensions: int) -> list[Span]:
    """The span of the rows in the features' own units and with standardised features.

    Empty if it has too many dimensions, if rows were summed already, or if dense rows are at least
    as many as their features, whose covariance is then no larger.
    """
    sums, n_rows, pool = collected.sums, collected.n_rows, collected.pool
    is_summed = sums.n_rows > 0 or sums.anchors is not None or n_rows > len(pool)
    if is_summed or (n_rows >= sums.n_features and not sums.wide):
        return []
    if sums.wide and sp.csr_array(pool.X).nnz < ENTRIES_LEFT * n_rows:
        # Of rows of few entries, such as categories, many columns occur once. Only together with
        # the others do they tell more than their class.
        max_dimensions *= 2
    if min(n_rows, sums.n_features) > max_dimensions:
        return []
    return [Span(collected, own_units=own_units) for own_units in (True, False)]


class Span:
    """Rows, all of which are in the pool, in coordinates of their span, and the way back.

    Features keep their own units or are standardised. `collected` has the same rows in coordinates
    of their span.
    """

    def __init__(self, collected: Collected, *, own_units: bool) -> None:
        pool, sums = collected.pool, collected.sums
        self._sums, n = sums, len(pool)
        if sums.wide:
            X = sp.csc_array(pool.X, dtype=np.float64)
            occurs = np.diff(X.indptr) > 0
            occurs[0] |= not occurs.any()
            self._columns = np.flatnonzero(occurs).astype(np.int32)
            X = sp.csr_array(X[:, self._columns])
            squares, present = np.zeros((2, len(self._columns)))
            np.add.at(squares, X.indices, X.data**2)
            np.add.at(present, X.indices, X.data != 0)
            self._deviation = np.sqrt(np.maximum(squares / np.maximum(present, 1.0), 1e-30))
            factors = np.ones(X.shape[1]) if own_units else 1.0 / self._deviation
            rows: Any = X @ sp.diags_array(factors)
            if rows.nnz > _DENSE_SHARE * rows.shape[0] * rows.shape[1]:
                rows = rows.toarray()
        else:
            Z = sums.features(pool.X, slice(None)).astype(np.float64)
            share = pool.weights / pool.weights.sum()
            self._mean = share @ Z
            deviation = np.sqrt(share @ (Z - self._mean) ** 2)
            deviation[deviation <= 1e-7 * np.abs(sums.shift / sums.scale + self._mean)] = 0.0
            self._deviation = np.where(deviation > 0, deviation, 1.0)
            factors = np.where(deviation > 0, sums.scale if own_units else 1 / self._deviation, 0)
            rows = (Z - self._mean) * factors
        # Coordinates of about unit size, in whatever units the features are.
        size = math.sqrt(float(np.sum((rows * rows).sum(axis=1)))) / n or 1.0
        self._factors, self._rows = factors / size, rows / size
        self._factor: NDArray[np.float64] | None = None
        if n < self._rows.shape[1]:
            if isinstance(self._rows, np.ndarray):
                gram = product(self._rows, self._rows.T)
            else:
                gram = (self._rows @ self._rows.T).toarray()
            gram[np.diag_indices(n)] += _JITTER * n
            coordinates = self._factor = cholesky(gram)
        else:  # the span is that of the columns
            dense = isinstance(self._rows, np.ndarray)
            coordinates = self._rows if dense else self._rows.toarray()
        k = coordinates.shape[1]
        within = Sums(np.zeros(k), np.ones(k), span_of=self._rows.shape[1])
        within.add_classes(sums.classes)
        self.collected = Collected(within, collected.seed, n)
        sample = Sample(coordinates.astype(np.float32), pool.labels, pool.weights, pool.keys)
        self.collected.keep_in_pool(sample)
        self.collected.n_rows = n

    def of_features(self, model: PackedModel) -> PackedModel:
        """A model of coordinates as a model of the features."""
        h, sums = model.hash_function, self._sums
        P = h.projection.astype(np.float64)
        if self._factor is not None:
            P = np.asarray(self._rows.T @ solve_triangular(self._factor, P, transposed=True))
        P *= self._factors[:, None]
        if sums.wide:
            hash_function = HashFunction(
                np.ascontiguousarray(P, dtype=np.float32),
                h.intercept,
                scale=self._deviation.astype(np.float32),
                columns=self._columns,
                n_features=sums.n_features,
            ).in_few_bits(4)  # whose rounding is small beside what so few rows leave unknown
        else:
            projection = np.ascontiguousarray(P / sums.scale[:, None], dtype=np.float32)
            mean = sums.shift + self._mean * sums.scale
            hash_function = HashFunction(
                projection,
                h.intercept - mean @ projection.astype(np.float64),
                centre=mean.astype(np.float32),
                scale=(self._deviation * sums.scale).astype(np.float32),
            )
        return model.replaced(hash_function=hash_function)
