"""The hash function h(x) = sign(P'x + t), of the features or of similarities to kernel anchors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import (
    HammingIndex,
    Precision,
    QuantisedProjection,
    SparseRows,
    _kernels,
    product,
    quantise,
)
from bitclass._native.ngrams import TEXTS_PER_CHUNK, HashedTexts, NgramFeatures
from bitclass._native.prediction import QUANTISED_MAX, threads_for
from bitclass.arrays import Features, RowError, check_finite, dense_rows

#: Range of the kernel coefficient.
MIN_GAMMA, MAX_GAMMA = 1e-30, 1e30
#: Largest standardised value of an anchor or row: larger values are clipped, so that the similarity
#: to every anchor is 0.
MAX_STANDARDISED = 1e9
#: Maximum number of features if P covers only some of them.
MAX_COLUMNS = 1 << 24
# Up to this many, a table has the row of P for each column. Above, columns are looked up by binary
# search, so that a small file that claims many columns does not take memory for them.
_MAX_TABLE_COLUMNS = 1 << 20
# Types that the kernels read directly; all others are converted block by block.
_KERNEL_TYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.float16))
# Rows per kernel call, so that Ctrl-C is handled between calls.
_ROWS_PER_BLOCK = 1 << 16
# Scores per block, which stay in the last-level cache between product and packing.
_SCORES_PER_BLOCK = 1 << 20
# Features per block that has to be copied or converted.
_FEATURES_PER_BLOCK = 1 << 21
_MIN_BLOCK_ROWS = 16
# Rows that a kernel thread takes at a time.
_ROWS_PER_CHUNK = _kernels.ROWS_PER_CHUNK
#: Largest magnitude of an entry of P in four bits.
MAX_IN_FOUR_BITS = 7
# Units of four-bit entries that are tried, relative to that of the largest entry of a column.
_UNITS = (1.0, 0.85, 0.7, 0.55, 0.4)
# Columns that are rounded at once.
_COLUMNS_PER_BLOCK = 4096


def squared_distances(X: NDArray[Any], anchors: NDArray[Any]) -> NDArray[Any]:
    """Squared distances of rows (n, d) to anchors (m, d), shape (n, m)."""
    row_squares = np.einsum("nd,nd->n", X, X)
    anchor_squares = np.einsum("md,md->m", anchors, anchors)
    return np.asarray(np.maximum(row_squares[:, None] - 2 * (X @ anchors.T) + anchor_squares, 0))


class RbfAnchors:
    """The feature map ``exp(-gamma |z - a|^2)`` of standardised rows z, for m anchors a.

    Parameters
    ----------
    anchors : (m, d) float32, standardised
    centre, scale : (d,) float32, mean and standard deviation of the features
    gamma : float

    Examples
    --------
    >>> import numpy as np
    >>> anchors = np.array([[0.0], [1.0]], dtype=np.float32)
    >>> anchors = RbfAnchors(anchors, np.zeros(1, np.float32), np.ones(1, np.float32), gamma=1.0)
    >>> anchors.similarities(np.array([[1.0]], dtype=np.float32)).round(3)
    array([[0.368, 1.   ]], dtype=float32)
    """

    def __init__(
        self,
        anchors: NDArray[np.float32],
        centre: NDArray[np.float32],
        scale: NDArray[np.float32],
        gamma: float,
    ) -> None:
        self.anchors = anchors
        self.centre = centre
        self.scale = scale
        self.gamma = gamma
        # Expanded distance: -gamma |z - a|^2 = 2 gamma z.a - gamma |z|^2 - gamma |a|^2.
        self._factors = np.ascontiguousarray((2.0 * gamma * anchors).T, dtype=np.float32)
        self._lengths = (gamma * np.einsum("md,md->m", anchors, anchors)).astype(np.float32)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.anchors.shape[1])

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return self.anchors.nbytes + self.centre.nbytes + self.scale.nbytes

    def fingerprint(self) -> str:
        """Digest that is equal for two maps with the same parameters."""
        parts = (self.anchors, self.centre, self.scale, np.float64(self.gamma))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def similarities(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Similarities of a block of dense rows (n, d) to the anchors, shape (n, m)."""
        with np.errstate(over="ignore"):
            unclipped: NDArray[Any] = (X - self.centre) / self.scale
        # Squares of larger numbers would overflow. NaN is kept, and rejected later.
        Z = np.clip(unclipped, -MAX_STANDARDISED, MAX_STANDARDISED, out=unclipped)
        Z = Z.astype(np.float32, copy=False)
        similarities: NDArray[np.float32] = product(Z, self._factors)
        similarities -= self._lengths
        similarities -= np.float32(self.gamma) * np.einsum("nd,nd->n", Z, Z)[:, None]
        np.minimum(similarities, 0.0, out=similarities)  # rounding must not make distances negative
        np.exp(similarities, out=similarities)
        return similarities


@dataclass(slots=True)
class FeatureBlock:
    """A block of features f(x), to which P is applied."""

    first_row: int  # its index in X
    features: Any  # (n, d) float16, float32 or float64, or SparseRows

    @property
    def rows(self) -> slice:
        """Indices of the rows in X."""
        return slice(self.first_row, self.first_row + len(self.features))


class HashFunction:
    """Hash function ``h(x) = sign(P'f(x) + t)`` of features or similarities f(x).

    Parameters
    ----------
    projection : (d, r) float32, the matrix P
    intercept : (r,) float64, the offset t
    centre, scale : (d,) float32, optional
        Mean and standard deviation of the features, with which int8 encoding quantises rows, so
        that features of any magnitude keep their precision. A value more than 32 standard
        deviations from the mean counts as 32, and features without weight are ignored, so that no
        single value costs the others their digits.
    precision : {"int8", "float32"}
        "int8" quantises rows on the fly and computes in integers, several times faster; for
        Gaussian features about one bit in 260 differs.
    anchors : RbfAnchors, optional
        Rows are hashed by their similarities to these d anchors, always in float32.
    quantised : QuantisedProjection, optional
        P and t in eight-bit integers, if they were saved in this form.
    columns : (k,) int32, ascending, optional
        For wide rows: the k features that P has a row for; all others are ignored. Rows are then
        hashed by their nonzero entries, whose values are never rounded.
    n_features : int, optional
        Total number of features; required with `columns`.

    Examples
    --------
    >>> import numpy as np
    >>> hash_function = HashFunction(np.eye(2, dtype=np.float32), np.array([0.0, -2.0]))
    >>> hash_function.encode(np.array([[1.0, 1.0], [1.0, 3.0]]))
    array([[1],
           [3]], dtype=uint8)
    """

    def __init__(
        self,
        projection: NDArray[np.float32],
        intercept: NDArray[np.float64],
        *,
        centre: NDArray[np.float32] | None = None,
        scale: NDArray[np.float32] | None = None,
        precision: Precision = "int8",
        anchors: RbfAnchors | None = None,
        quantised: QuantisedProjection | None = None,
        columns: NDArray[np.int32] | None = None,
        n_features: int | None = None,
    ) -> None:
        self.projection = np.ascontiguousarray(projection)
        self.intercept = intercept
        self.centre = centre
        self.scale = scale
        self.precision: Precision = precision if anchors is None else "float32"
        self.anchors = anchors
        self.columns = columns
        #: Whether P is applied to all features directly.
        self.is_linear = anchors is None and columns is None
        if columns is not None:
            self._check_columns(columns, n_features)
        self.n_bits = projection.shape[1]
        if columns is None or n_features is None:
            n_features = projection.shape[0] if anchors is None else anchors.n_features
        self.n_features = n_features
        self._saved_quantised = quantised
        # Scores are computed by one of these, or by a product in float32.
        self._int8: _kernels.Int8Projection | None = None
        self._sparse: _kernels.SparseProjection | None = None
        with np.errstate(over="ignore"):  # rejected below, or with the scores
            self._shift = intercept.astype(np.float32)
        if columns is not None:
            self._sparse = self._sparse_projection(columns)
        elif self.precision == "int8":
            quantised = self.quantised()
            if not np.isfinite(quantised.thresholds).all():
                raise ValueError(
                    "intercept: too large compared to the projection for int8 precision"
                )
            self._int8 = _kernels.Int8Projection(*quantised)

    def _check_columns(self, columns: NDArray[np.int32], n_features: int | None) -> None:
        if n_features is None or self.centre is not None or self.precision == "float32":
            raise ValueError("columns need n_features and int8, and exclude centre and anchors")
        d = len(self.projection)
        ascending = len(columns) == d and (columns[1:] > columns[:-1]).all()
        if not ascending or not 0 <= columns[0] <= columns[-1] < n_features:
            raise ValueError(
                f"columns: expected {d} ascending numbers from 0 to {n_features - 1}, one per row "
                "of the projection"
            )

    def _sparse_projection(self, columns: NDArray[np.int32]) -> _kernels.SparseProjection:
        kept = np.arange(len(columns), dtype=np.int32)
        if self.n_features > _MAX_TABLE_COLUMNS:  # a column is looked up before: see `_scores`
            places = np.append(kept, np.int32(-1))
        else:
            places = np.full(self.n_features, -1, dtype=np.int32)
            places[columns] = kept
        self._places = places
        weights, thresholds, _, factors, steps = self.quantised()
        self._shift = (thresholds * steps).astype(np.float32)
        return _kernels.SparseProjection(
            places, factors, weights, steps.astype(np.float32), self._shift
        )

    def quantised(self) -> QuantisedProjection:
        """P and t in eight-bit integers: as saved, or else computed at each call."""
        if self._saved_quantised is not None:
            return QuantisedProjection(*self._saved_quantised).without_idle_features()
        centre = self.centre
        if self.columns is not None and self.scale is not None:
            centre = np.zeros_like(self.scale)
        with np.errstate(over="ignore", invalid="ignore"):
            quantised = quantise(self.projection, self.intercept, centre, self.scale)
        return quantised.without_idle_features()

    @property
    def entry_bits(self) -> int:
        """Bits that an entry of the quantised P takes: 1, 4 or 8."""
        if self._saved_quantised is None or self.columns is None:
            return 8
        sizes = np.abs(self._saved_quantised.weights)
        if sizes.max() > MAX_IN_FOUR_BITS:
            return 8
        return 1 if sizes.min() == sizes.max() == 1 else 4

    def in_few_bits(self, bits: int) -> HashFunction:
        """The function of wide rows with 4 or 1 bits per entry of P, and a unit per column.

        The unit is the one of the smallest squared error, or the mean magnitude of the entries of a
        column. The kernels compute with such entries as they do with eight bits.
        """
        if self.columns is None:
            raise ValueError(f"{bits} bits per entry need a projection of wide sparse rows")
        P = self.projection
        entries, rounded = np.empty(P.shape, np.int8), np.empty_like(P)
        units = np.empty(len(P), np.float32)
        for start in range(0, len(P), _COLUMNS_PER_BLOCK):
            part = slice(start, start + _COLUMNS_PER_BLOCK)
            entries[part], units[part] = _in_few_bits(P[part], bits)
        scale = np.float32(1) / units
        np.divide(entries, scale.astype(np.float64)[:, None], out=rounded, casting="same_kind")
        factors, steps = np.float32(1) / scale, np.ones(self.n_bits)
        quantised = QuantisedProjection(
            entries, self.intercept, np.zeros_like(scale), factors, steps
        )
        state = self.__getstate__() | {
            "projection": rounded,
            "scale": scale,
            "quantised": quantised,
        }
        return HashFunction(**state)

    def with_columns(self, kept: NDArray[np.intp]) -> HashFunction:
        """The function of wide rows with some of its columns: indices (k,) into `columns`."""
        state = self.__getstate__()
        for name in ("projection", "columns", "scale"):
            state[name] = None if state[name] is None else state[name][kept]
        quantised = self._saved_quantised
        if quantised is not None:
            centre, factors = quantised.centre, quantised.inverse_scale
            state["quantised"] = quantised._replace(
                weights=quantised.weights[kept],
                centre=None if centre is None else centre[kept],
                inverse_scale=None if factors is None else factors[kept],
            )
        return HashFunction(**state)

    @property
    def nbytes(self) -> int:
        """Size in bytes of the arrays that encoding needs."""
        arrays = (
            self.projection,
            self.intercept,
            self.centre,
            self.scale,
            self.anchors,
            self.columns,
        )
        return sum(array.nbytes for array in arrays if array is not None)

    def rows_of(self, columns: NDArray[Any]) -> NDArray[np.float32]:
        """Of wide rows: rows (k, r) of P for some features; 0 for features without a row."""
        places = self._places_of(columns)
        return np.where(places[:, None] >= 0, self.projection[places], np.float32(0))

    def _places_of(self, columns: NDArray[Any]) -> NDArray[np.int32]:
        """Rows of P for some of its columns, or -1."""
        assert self.columns is not None
        if self.n_features <= _MAX_TABLE_COLUMNS:
            found: NDArray[np.int32] = self._places[columns]
            return found
        places = np.searchsorted(self.columns, columns).clip(max=len(self.columns) - 1)
        return np.where(self.columns[places] == columns, places, -1).astype(np.int32)

    def has_columns(self, X: SparseRows, without: int = -1) -> NDArray[np.bool_]:
        """Mask (n,) of the rows with an entry in any column of the projection except `without`.

        An explicit zero is not an entry, as in a dense row.
        """
        is_known = (self._places_of(X.indices) >= 0) & (X.indices != without) & (X.data != 0)
        n_before = np.concatenate([[0], np.cumsum(is_known)])
        mask: NDArray[np.bool_] = np.diff(n_before[X.indptr]) > 0
        return mask

    def blocks(
        self, X: Features | FeatureBlock, max_rows: int = _ROWS_PER_BLOCK
    ) -> Iterable[FeatureBlock]:
        """Features f(x) of rows X, in blocks of at most `max_rows`; a block is returned itself."""
        if isinstance(X, FeatureBlock):
            return (X,)
        unchanged = self.is_linear and _is_readable(X)
        if self._int8 is None:
            max_rows = min(max_rows, max(_SCORES_PER_BLOCK // self.n_bits, _MIN_BLOCK_ROWS))
        if not unchanged and self._sparse is None:
            max_rows = min(max_rows, max(_FEATURES_PER_BLOCK // X.shape[1], _MIN_BLOCK_ROWS))
        if X.shape[0] <= max_rows:  # no generator, whose overhead matters for a single row
            return (FeatureBlock(0, X if unchanged else self._features(X, 0)),)
        starts = range(0, X.shape[0], max_rows)
        parts = ((start, X[start : start + max_rows]) for start in starts)
        return (
            FeatureBlock(start, part if unchanged else self._features(part, start))
            for start, part in parts
        )

    def _features(self, X: Features, first_row: int) -> Any:
        if self.columns is not None:
            return SparseRows.of(X[:] if isinstance(X, HashedTexts) else X)
        if self.anchors is not None:
            dense = dense_rows(X, slice(None))
            check_finite(dense, first_row)  # clipping would hide infinity
            return self.anchors.similarities(dense)
        if not isinstance(X, np.ndarray) or X.dtype not in _KERNEL_TYPES:
            X = dense_rows(X, slice(None))
        return X.copy(order="C") if self._int8 is not None and not _is_readable(X) else X

    def _scores(self, features: Any, threads: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores P'f(x) of a block (n, r), and the intercept in the same type."""
        if self._sparse is not None:
            X, columns = features, features.indices
            if self.n_features > _MAX_TABLE_COLUMNS:  # the last place is that of all others
                columns = self._places_of(columns) % np.int32(len(self._places))
            return self._sparse.scores(X.indptr, columns, X.data, threads), self._shift
        with np.errstate(over="ignore"):  # the caller checks for infinity
            rows = np.ascontiguousarray(features, dtype=np.float32)
        return _kernels.product(rows, False, self.projection, False, threads), self._shift

    def _map_blocks(
        self, X: Features | FeatureBlock, kernel: Callable[[Any, int], tuple[Any, ...]]
    ) -> tuple[NDArray[Any], ...]:
        """Apply a kernel to the blocks of rows X, and concatenate the results.

        `kernel` takes a block of features and a number of threads. It returns arrays and, last, the
        index of the first non-finite row, or the number of rows.
        """
        results = []
        for block in self.blocks(X):
            n = len(block.features)
            threads = threads_for(n, _ROWS_PER_CHUNK)
            *arrays, bad = kernel(block.features, threads)
            if bad < n:
                _raise_row_error(block.features[bad : bad + 1], block.first_row + bad)
            results.append(tuple(arrays))
        if len(results) == 1:
            return results[0]
        return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))

    def encode(self, X: Features | FeatureBlock) -> NDArray[np.uint8]:
        """Packed codes h(x), (n, ceil(r / 8)).

        A row that is not finite, or whose scores overflow, is a ValueError.
        """
        if self._int8 is not None:
            return self._map_blocks(X, self._int8.encode)[0]
        return self._map_blocks(X, self._codes_by_scores)[0]

    def _codes_by_scores(self, features: Any, threads: int) -> tuple[NDArray[np.uint8], int]:
        return _kernels.pack_signs(*self._scores(features, threads))

    def nearest(
        self, X: Features | FeatureBlock, index: HammingIndex
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The nearest class of each row: ``index.nearest(encode(X))``, block by block."""
        if self._int8 is not None:
            indices, distances = self._map_blocks(X, partial(self._int8.nearest, index.kernel))
            return indices, distances

        def by_scores(features: Any, threads: int) -> tuple[Any, ...]:
            codes, bad = self._codes_by_scores(features, threads)
            return *index.kernel.nearest(codes, threads), bad

        indices, distances = self._map_blocks(X, by_scores)
        return indices, distances

    def rescored(
        self,
        X: Features | FeatureBlock,
        index: HammingIndex,
        n_candidates: int,
        k: int = 1,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
        """The best of the nearest classes, by inner product with the real-valued code.

        The `n_candidates` nearest classes, ties by lowest index, are ranked by ``w_c.q + bias_c``,
        with ``q = tanh(P'f(x) + t)`` and the bias of the index rounded to multiples of 1/127. With
        int8 precision, results are the same on every machine.

        Returns indices, scores (float32) and distances (n, k), best first; ties go to the nearer
        class, then to the lower index.
        """
        int8 = self._int8

        def kernel(features: Any, threads: int) -> tuple[Any, ...]:
            if int8 is not None:
                return int8.rescored(index.kernel, features, n_candidates, k, threads)
            scores, intercept = self._scores(features, threads)
            return _kernels.rescore(index.kernel, scores, intercept, n_candidates, k, threads)

        indices, scores, distances = self._map_blocks(X, kernel)
        return indices, scores.astype(np.float32) / QUANTISED_MAX, distances

    def best_of_texts(
        self,
        features: NgramFeatures,
        texts: Sequence[str | bytes],
        index: HammingIndex,
        n_candidates: int = 0,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
        """The best class of each text, in one pass from bytes to class.

        Equivalent to `rescored`, or to `nearest` if `n_candidates` is 0, on the rows of the texts.
        Returns indices, scores (undefined if `n_candidates` is 0) and distances (n,).
        """
        assert self._sparse is not None
        threads = threads_for(len(texts), TEXTS_PER_CHUNK)
        indices, scores, distances = self._sparse.predict_texts(
            features.kernel, index.kernel, texts, n_candidates, threads
        )
        return indices, scores.astype(np.float32) / QUANTISED_MAX, distances

    def __getstate__(self) -> dict[str, Any]:
        names = ("projection", "intercept", "centre", "scale", "precision", "anchors", "columns")
        state = {name: getattr(self, name) for name in names}
        return state | {"quantised": self._saved_quantised, "n_features": self.n_features}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _in_few_bits(P: NDArray[np.float32], bits: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Entries (k, r) of columns in 4 or 1 bits, and the unit (k,) of each column."""
    sizes = np.abs(P)
    if bits == 1:
        units = np.maximum(sizes.mean(axis=1), np.finfo(np.float32).tiny * 4)
        return np.where(P >= 0, np.int8(1), np.int8(-1)), units
    largest = np.maximum(sizes.max(axis=1), np.finfo(np.float32).tiny * 256)
    entries, units = np.zeros(P.shape, np.int8), largest
    errors = np.full(len(P), np.inf)
    for share in _UNITS:
        unit = largest * np.float32(share / MAX_IN_FOUR_BITS)
        scaled = P / unit[:, None]
        found = np.clip(np.rint(scaled), -MAX_IN_FOUR_BITS, MAX_IN_FOUR_BITS)
        scaled -= found
        error = np.einsum("kr,kr->k", scaled, scaled) * unit**2
        better = error < errors
        entries[better], errors[better] = found[better], error[better]
        units = np.where(better, unit, units)
    return entries, units


def _is_readable(X: Features) -> bool:
    """Whether the kernels can read X without a copy: floats, with contiguous rows."""
    if not isinstance(X, np.ndarray) or X.dtype not in _KERNEL_TYPES:
        return False
    flags = X.flags
    return flags.aligned and (flags.c_contiguous or X.strides[1] == X.itemsize)


def _raise_row_error(row: Any, number: int) -> None:
    """Raise a RowError about a row (1, d) whose scores are not finite."""
    check_finite(row, number)
    values = row[0] if isinstance(row, np.ndarray) else row.data
    largest = int(np.argmax(np.abs(values)))
    column = largest if isinstance(row, np.ndarray) else row.indices[largest]
    raise RowError(
        f"X: row {number}, feature {column} is {values[largest]:g}, too large to be encoded"
    )
