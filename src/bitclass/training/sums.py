"""Sums over rows, and the rows that are kept beside them: one pass, in any batches, mergeable.

`Sums` holds the mass and the feature sums of each class, and X'X for dense rows or the squares per
column for wide ones. `Collected` adds the rows that training needs one by one: a pool, from which
the judged rows are taken *before* they are summed, and a bounded random sample of the others.
Which rows these are depends on row numbers alone, not on how the rows were split into batches.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass._native import add_gram, class_sums, effective_threads, standardise
from bitclass._native.ngrams import NgramFeatures
from bitclass.arrays import (
    Features,
    compute_dtype,
    dense_rows,
    row_blocks,
    row_slices,
    sample_rows,
)
from bitclass.hash_function import RbfAnchors
from bitclass.labels import check_label_kinds, joined_labels, which_classes

# Size of the blocks that are summed: the larger, the fewer products (d, d) are added.
_SUMMED_BYTES = 64 << 20
# Sample weights outside this range are multiplied in float64.
_FLOAT32_WEIGHTS = (1e-12, 1e12)
# A value farther than this from the mean, in standard deviations, is considered a data error.
_MAX_DEVIATIONS = 1e9
# The projection is float32 and divides by the scale, so both must stay well within its range.
_MIN_SCALE, _MAX_SCALE = 1e-30, 1e30
# Deviations smaller than this, relative to the mean, are lost in float32 and in float64.
_FLOAT32_DIGITS, _FLOAT64_DIGITS = 1e-7, 1e-13
# A feature's scatter below this, relative to its mean square, is rounding error of the sums.
_ROUNDING_OF_SUMS = 1e-12
_STANDARDISATION_ROWS = 10_000
# Rows are standardised anew before they are summed if the first ones had other units than that.
_OTHER_UNITS = 1000.0
# If a single row accounts for this share of a feature's deviation, it may be an outlier.
_OUTLIER_SHARE = 0.9
# Consecutive rows that judge a model together, and number of different keys of such runs.
ROWS_PER_RUN, _RUN_KEYS = 10, 1 << 24
# Classes whose means are compared at once.
_CLASSES_AT_ONCE = _ROWS_AT_ONCE = 1024


# -------------------------------------------------------------------------------------------------
# Sums
# -------------------------------------------------------------------------------------------------


class Sums:
    """Sums over rows; adding batches and merging give the same sums as all rows at once.

    Parameters
    ----------
    shift, scale : (d,)
        Features are summed as ``z = (x - shift) / scale``, so that no digits are lost to a large
        mean or an unusual unit. Approximate means and standard deviations suffice. Wide rows are
        summed as they are.
    anchors : RbfAnchors, optional
        The summed features are then the similarities of the rows to these anchors.
    wide : bool
        Whether rows are wide: feature sums are then sparse, and `gram` is None.
    span_of : int, optional
        Number of features in whose span these are coordinates, which have no units of their own.

    Attributes
    ----------
    classes : (C,) labels, sorted
    mass : (C,) float64, total sample weight of each class
    feature_sums : (C, d) float64 ``sum weight z`` over the rows of each class; CSR for wide rows
    gram : (d, d) float64 ``sum weight z z'``, None for wide rows
    squares : (d,) float64 ``sum weight x^2`` of wide rows
    counts : (d,) float64, number of wide rows in which each column is not 0
    n_rows : int
    mass_squares : (C,) float64, sum of the squared sample weights of each class
    """

    def __init__(
        self,
        shift: NDArray[np.float64],
        scale: NDArray[np.float64],
        *,
        anchors: RbfAnchors | None = None,
        wide: bool = False,
        span_of: int | None = None,
    ) -> None:
        d = len(shift)
        self.shift, self.scale, self.anchors, self.wide = shift, scale, anchors, wide
        self.span_of = span_of
        self.classes: NDArray[Any] = np.empty(0)
        self.mass, self.mass_squares = np.zeros((2, 0))
        self.n_rows = 0
        self.gram: Any = None if wide else np.zeros((d, d))
        self.squares, self.counts = np.zeros((2, d if wide else 0))
        # One row per class in order of first appearance, with spare rows: a batch with new classes
        # does not copy the sums of all others.
        self._buffer: Any = sp.csr_array((0, d)) if wide else np.zeros((0, d))
        self._places: NDArray[np.intp] = np.arange(0)

    @classmethod
    def of_wide(cls, n_features: int) -> Self:
        """Empty sums of wide rows."""
        return cls(np.zeros(n_features), np.ones(n_features), wide=True)

    def empty(self) -> Sums:
        """Empty sums of the same kind."""
        return Sums(
            self.shift, self.scale, anchors=self.anchors, wide=self.wide, span_of=self.span_of
        )

    @property
    def feature_sums(self) -> Any:
        """``sum weight z`` over the rows of each class, shape (C, d)."""
        n_classes = len(self.classes)
        if not np.array_equal(self._places, np.arange(n_classes)):
            self._buffer, self._places = self._buffer[self._places], np.arange(n_classes)
        return self._buffer[:n_classes]

    @property
    def n_features(self) -> int:
        """Number of features of a row, before similarities to anchors."""
        return len(self.shift) if self.anchors is None else self.anchors.n_features

    @property
    def total(self) -> float:
        """Sum of all sample weights."""
        return float(self.mass.sum())

    @property
    def effective_rows(self) -> float:
        """Effective number of rows, given their weights; equal weights are no weights."""
        squares = float(self.mass_squares.sum())
        if squares == 0:
            return float(self.n_rows)
        return min(self.total**2 / squares, float(self.n_rows))

    @property
    def rows_per_class(self) -> NDArray[np.float64]:
        """Effective number of rows of each class, (C,), given the weights within the class."""
        return np.asarray(self.mass**2 / np.maximum(self.mass_squares, 1e-300))

    @property
    def has_single_rows(self) -> bool:
        """Whether no class has more than one row."""
        return float(self.rows_per_class.max()) <= 1.0 + 1e-9

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of the features z over all rows, (d,)."""
        return np.asarray(self.feature_sums.sum(axis=0)).ravel() / max(self.total, 1e-300)

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Mask (d,) of the features that are constant up to rounding."""
        mean, mean_square = self.mean, np.diag(self.gram) / max(self.total, 1e-300)
        # A feature that was constant when it was standardised has scale 1, so very small
        # deviations are rounding error, too.
        of_values = _FLOAT32_DIGITS * (self.shift / self.scale + mean)
        rounding = np.maximum(of_values**2, _ROUNDING_OF_SUMS * np.maximum(mean_square, 1.0))
        return np.asarray(mean_square - mean**2 <= rounding)

    def features(
        self,
        X: Features,
        rows: slice | NDArray[np.intp],
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Standardised features z (m, d) of some dense rows, as they enter the sums.

        `out` is memory for them, of the type of the result.
        """
        is_ready = isinstance(X, np.ndarray) and compute_dtype(X) == X.dtype
        if self.anchors is None and is_ready and X.flags.carray:
            some = np.arange(*rows.indices(len(X))) if isinstance(rows, slice) else rows
            return standardise(X, some, self.shift, self.scale, out)
        block = dense_rows(X, rows)
        if self.anchors is not None:
            block = self.anchors.similarities(block)
        return standardise(block, np.arange(len(block)), self.shift, self.scale, out)

    def with_rows(self) -> Sums:
        """These sums without classes that have no rows."""
        seen = self.mass > 0
        if seen.all():
            return self
        reduced = copy.copy(self)
        reduced._buffer = self.feature_sums[np.flatnonzero(seen)]
        reduced._places = np.arange(int(seen.sum()))
        reduced.classes, reduced.mass = self.classes[seen], self.mass[seen]
        reduced.mass_squares = self.mass_squares[seen]
        return reduced

    def copy(self) -> Sums:
        """An independent copy."""
        other = copy.copy(self)
        # In the order of the classes, which would take another copy later.
        other._buffer, other._places = self._buffer[self._places], np.arange(len(self.classes))
        for name in ("mass", "mass_squares", "gram", "squares", "counts"):
            setattr(other, name, copy.copy(getattr(self, name)))
        return other

    def renamed(self, labels: NDArray[Any]) -> Sums:
        """The same sums with other labels (C,), to be read only: arrays are shared."""
        order, other = np.argsort(labels, kind="stable"), copy.copy(self)
        other.classes, other._places = labels[order], self._places[order]
        other.mass, other.mass_squares = self.mass[order], self.mass_squares[order]
        return other

    def add(self, X: Features, labels: NDArray[Any], weights: NDArray[np.float64]) -> None:
        """Add rows; if an exception is raised, none is added.

        Parameters
        ----------
        X : (n, d) dense array or CSR
        labels : (n,) labels of known or new classes
        weights : (n,); rows of weight 0 are left out
        """
        batch = self.empty()
        classes, y = np.unique(labels, return_inverse=True)
        check_label_kinds(self.classes, classes)
        batch.classes, batch._places = classes, np.arange(len(classes))
        batch.mass, batch.mass_squares = (
            np.bincount(y, values, minlength=len(classes)).astype(np.float64)
            for values in (weights, weights**2)
        )
        batch.n_rows = int(np.count_nonzero(weights))
        (batch._sum_wide if self.wide else batch._sum_dense)(X, y, weights)
        self.add_once(batch)

    def _sum_dense(self, X: Features, y: NDArray[np.intp], weights: NDArray[np.float64]) -> None:
        self._buffer = np.zeros((len(self.classes), len(self.shift)))
        low, high = _FLOAT32_WEIGHTS
        used = np.flatnonzero(weights)  # others stay in the pool
        positive = weights[used]
        even = bool((positive == 1.0).all())
        in_float32 = even or (positive.min(initial=1.0) >= low and weights.max() <= high)

        memory: Any = None
        with np.errstate(over="ignore", invalid="ignore"):
            for part in row_slices(X, _SUMMED_BYTES):
                rows = used[part]
                Z = self.features(X, rows, None if memory is None else memory[: len(rows)])
                memory = Z if memory is None else memory
                class_sums(Z, y[rows], weights[rows], self._buffer)
                if not even:
                    Z = Z if in_float32 else Z.astype(np.float64)
                    Z *= np.sqrt(weights[rows])[:, None].astype(Z.dtype)
                add_gram(Z, self.gram)
        self._check(X, float(weights.max(initial=1.0)))

    def _sum_wide(self, X: Features, y: NDArray[np.intp], weights: NDArray[np.float64]) -> None:
        rows = sp.csr_array(X, dtype=np.float64)
        shape = len(self.classes), len(y)
        by_class = sp.csr_array((weights, (y, np.arange(len(y)))), shape=shape)
        self._buffer = by_class @ rows
        of_entries = np.repeat(weights, np.diff(rows.indptr)) * rows.data**2
        self.squares = np.asarray(
            np.bincount(rows.indices, of_entries, minlength=rows.shape[1]), dtype=np.float64
        )
        present = rows.indices[rows.data != 0]
        self.counts = np.bincount(present, minlength=rows.shape[1]).astype(np.float64)
        overflown = np.flatnonzero(~np.isfinite(self.squares))
        if len(overflown):
            raise ValueError(f"X: the values of feature {overflown[0]} are too large to be squared")

    def _check(self, X: Features, heaviest: float) -> None:
        """Raise an error that names row and feature if a value was too large to be summed."""
        finite = bool(np.isfinite(self.gram).all() and np.isfinite(self._buffer).all())
        if not finite or np.diag(self.gram).max(initial=0.0) > _MAX_DEVIATIONS**2 * heaviest:
            self.check_rows(X, finite=finite)

    def check_rows(self, X: Features, *, finite: bool = True) -> None:
        """Raise an error that names row and feature if a value is too large to be summed.

        If the sums are not `finite`, the largest value is named even if it is not that large.
        """
        if self.wide:
            return
        largest, row, column = 0.0, 0, 0
        for part in row_slices(X):
            size = np.abs(self.features(X, part))
            if size.max() > largest:
                place = divmod(int(np.argmax(size)), size.shape[1])
                largest, row, column = float(size.max()), part.start + place[0], place[1]
        if finite and largest <= _MAX_DEVIATIONS:
            return
        if self.anchors is not None:
            raise ValueError("X: similarities to the anchors overflow; set another gamma")
        value = dense_rows(X, slice(row, row + 1))[0, column]
        raise ValueError(
            f"X must contain numbers whose squares can be summed: row {row} has {value:g} in "
            f"feature {column}, while earlier rows have mean {self.shift[column]:g} and standard "
            f"deviation {self.scale[column]:g}; the batch was not added"
        )

    def restore(
        self,
        classes: NDArray[Any],
        mass: NDArray[np.float64],
        mass_squares: NDArray[np.float64],
        feature_sums: Any,
        gram: NDArray[np.float64] | None,
        squares: NDArray[np.float64] | None,
        counts: NDArray[np.float64] | None,
        n_rows: int,
    ) -> None:
        """Replace all sums by those of a file."""
        self.classes, self.mass, self.mass_squares = classes, mass, mass_squares
        self._buffer, self._places, self.gram = feature_sums, np.arange(len(classes)), gram
        if squares is not None and counts is not None:
            self.squares, self.counts = squares, counts
        self.n_rows = n_rows

    def add_classes(self, labels: NDArray[Any]) -> None:
        """Add classes without rows."""
        check_label_kinds(self.classes, labels)
        self._extend(joined_labels(self.classes, labels))

    def _extend(self, union: NDArray[Any]) -> None:
        """Make room for new classes; `union` (C,) contains all known ones."""
        n_known, n_classes = len(self.classes), len(union)
        if n_classes == n_known:
            self.classes = union
            return
        old = np.searchsorted(union, self.classes)
        mass, squares = np.zeros((2, n_classes))
        places = np.full(n_classes, -1)
        mass[old], squares[old], places[old] = self.mass, self.mass_squares, self._places
        places[places < 0] = np.arange(n_known, n_classes)
        if self._buffer.shape[0] < n_classes:
            n_new = n_classes + (0 if self.wide else n_known) - self._buffer.shape[0]
            if self.wide:
                spare: Any = sp.csr_array((n_new, self._buffer.shape[1]))
                buffer: Any = sp.vstack([self._buffer, spare], format="csr")
            else:  # spare rows cost only address space until they are written
                buffer = np.zeros((self._buffer.shape[0] + n_new, self._buffer.shape[1]))
                buffer[:n_known] = self._buffer[:n_known]
            self._buffer = buffer
        self.classes, self._places = union, places
        self.mass, self.mass_squares = mass, squares

    def add_once(self, other: Sums) -> None:
        """Add sums with the same shift and scale, which are not used any more.

        If these are empty, they take over the arrays of the others.
        """
        if len(self.classes):
            self._add(other)
            return
        self.classes = joined_labels(self.classes, other.classes)
        self._buffer, self._places = other._buffer, other._places
        self.mass, self.mass_squares, self.n_rows = other.mass, other.mass_squares, other.n_rows
        self.gram, self.squares, self.counts = other.gram, other.squares, other.counts

    def _add(self, other: Sums) -> None:
        """Add sums with the same shift and scale."""
        if not self.wide and not np.isfinite(self.gram[0] + other.gram[0]).all():
            raise ValueError("X: the sums overflow float64; the batch was not added")
        self._extend(joined_labels(self.classes, other.classes))
        where = np.searchsorted(self.classes, other.classes)
        theirs = other.feature_sums
        if self.wide:
            n = self._buffer.shape[0]
            place = sp.csr_array(
                (np.ones(len(where)), (self._places[where], np.arange(len(where)))),
                shape=(n, len(where)),
            )
            self._buffer = self._buffer + place @ theirs
            self.squares, self.counts = self.squares + other.squares, self.counts + other.counts
        else:
            self._buffer[self._places[where]] += theirs
            self.gram += other.gram
        self.mass[where] += other.mass
        self.mass_squares[where] += other.mass_squares
        self.n_rows += other.n_rows

    def merge(self, other: Sums) -> None:
        """Add the sums over other rows of the same features."""
        if (other.n_features, other.wide) != (self.n_features, self.wide):
            raise ValueError(
                f"sums over {other.n_features} features cannot be merged into sums over "
                f"{self.n_features}"
            )
        mine, theirs = (s.anchors and s.anchors.fingerprint() for s in (self, other))
        if mine != theirs:
            raise ValueError("sums with different kernel anchors cannot be merged")
        check_label_kinds(self.classes, other.classes)
        self._add(other._restandardised(self.shift, self.scale))

    def _restandardised(self, shift: NDArray[np.float64], scale: NDArray[np.float64]) -> Sums:
        """Sums over the same rows with a different `shift` and `scale`."""
        stretch, move = self.scale / scale, (self.shift - shift) / scale
        if self.wide or ((stretch == 1.0).all() and not move.any()):
            return self
        moved = self.copy()
        moved.shift, moved.scale = shift, scale
        feature_sums = self.feature_sums * stretch
        crossed = np.outer(feature_sums.sum(axis=0), move)
        moved.gram = self.gram * np.outer(stretch, stretch) + crossed + crossed.T
        moved.gram += self.total * np.outer(move, move)
        moved._buffer = feature_sums + np.outer(self.mass, move)
        moved._places = np.arange(len(self.classes))
        return moved

    def remove_classes(self, labels: NDArray[Any]) -> None:
        """Remove classes.

        What their rows contributed to the scatter within classes is not stored by class; the
        shared scatter is kept, with its share of the mass.
        """
        gone = which_classes(self.classes, labels)
        sums, share = self.feature_sums, self.mass[gone].sum() / max(self.total, 1e-300)
        if self.wide:
            scaled = sp.diags_array(1.0 / np.where(self.mass > 0, self.mass, 1.0)) @ sums
            of_classes = sp.csr_array(scaled.multiply(sums))
            between = np.asarray(of_classes.sum(axis=0)).ravel()
            stays = np.asarray(of_classes[np.flatnonzero(~gone)].sum(axis=0)).ravel()
            self.squares = (1.0 - share) * np.maximum(self.squares - between, 0.0) + stays
            self.counts = self.counts * (1.0 - share)
        else:
            scaled = sums / np.sqrt(np.where(self.mass > 0, self.mass, 1.0))[:, None]
            within = self.gram - scaled.T @ scaled
            self.gram = (1.0 - share) * within + scaled[~gone].T @ scaled[~gone]
        self.n_rows -= round(self.n_rows * share)
        self._buffer, self._places = sums[np.flatnonzero(~gone)], np.arange(int((~gone).sum()))
        self.classes, self.mass = self.classes[~gone], self.mass[~gone]
        self.mass_squares = self.mass_squares[~gone]


def standardisation(
    X: Features, weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale of the features, from at most 10,000 rows; both are exact in float32.

    Parameters
    ----------
    X : (n, d)
    weights : (n,)

    Returns
    -------
    centre : (d,) weighted means
    scale : (d,) weighted standard deviations, 1 for constant features
    """
    chosen = sample_rows(X.shape[0], _STANDARDISATION_ROWS)
    sample, weights = X[chosen], weights[chosen]

    def sums_of(block: tuple[slice, NDArray[Any]]) -> NDArray[np.float64]:
        rows, values = block
        return weights[rows] @ values.astype(np.float64)

    def moments_of(block: tuple[slice, NDArray[Any]]) -> tuple[NDArray[np.float64], ...]:
        rows, values = block
        deviation = values.astype(np.float64) - centre
        largest = np.maximum(deviation.max(axis=0), -deviation.min(axis=0))
        return largest, weights[rows] @ np.square(deviation, out=deviation)

    with ThreadPoolExecutor(effective_threads(None)) as pool:
        centre = sum(pool.map(sums_of, row_blocks(sample))) / weights.sum()
        of_blocks = list(pool.map(moments_of, row_blocks(sample)))
    largest = np.max([one for one, _ in of_blocks], axis=0)
    variance = sum(square for _, square in of_blocks) / weights.sum()
    in_float32 = compute_dtype(X) == np.float32
    # Below this the column is constant, up to the rounding of its values.
    constant = largest <= (_FLOAT32_DIGITS if in_float32 else _FLOAT64_DIGITS) * np.abs(centre)
    if in_float32:  # activations that would be zero if they had not underflowed
        constant |= largest < np.finfo(np.float32).tiny
    scale = np.where(constant, 1.0, np.sqrt(variance))
    unfit = (scale < _MIN_SCALE) | (scale > _MAX_SCALE) | (np.abs(centre) > _MAX_SCALE)
    unfit |= ~constant & (scale < _FLOAT32_DIGITS * np.abs(centre))
    for j in np.flatnonzero(largest > _OUTLIER_SHARE * math.sqrt(len(weights)) * scale):
        column = dense_rows(sample[:, j : j + 1], slice(None))[:, 0].astype(np.float64)
        typical = float(np.quantile(np.abs(column - np.median(column)), 0.75))
        # Compared with other features too: rare events and similarities may have one large value.
        if 0.0 < max(typical, float(np.median(scale))) < largest[j] / _MAX_DEVIATIONS:
            raise ValueError(
                f"X must contain numbers that can be summed: feature {j} has a value "
                f"{largest[j]:g} from the mean, while most are within {typical:g}"
            )
    if unfit.any():
        j = np.argmax(unfit)
        raise ValueError(
            f"X must have features with a standard deviation from {_MIN_SCALE:g} to {_MAX_SCALE:g} "
            f"and a mean within {_MAX_SCALE:g} and {1 / _FLOAT32_DIGITS:g} standard deviations of "
            f"0; found mean {centre[j]:g} and standard deviation "
            f"{largest[j] if scale[j] == 0 else scale[j]:g} in feature {j}: rescale it, for "
            "instance with StandardScaler"
        )
    return centre.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64)


# -------------------------------------------------------------------------------------------------
# Rows
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Some rows: their features, labels, weights and random keys.

    Attributes
    ----------
    X : (m, d) dense array or CSR
    labels : (m,)
    weights : (m,), positive
    keys : (m,) random numbers in [0, 1) that depend on row numbers alone: see `run_keys`
    rows : (m,) indices of the rows in X if these are not all, so that X need not be copied
    """

    X: Any
    labels: NDArray[Any]
    weights: NDArray[np.float64]
    keys: NDArray[np.float64]
    rows: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def features(self, chosen: slice | NDArray[np.intp] = slice(None)) -> Any:
        """Features of some of the rows."""
        return self.X[chosen] if self.rows is None else self.X[self.rows[chosen]]

    def select(self, chosen: NDArray[np.intp]) -> Sample:
        """Some of the rows, without copying their features."""
        rows = chosen if self.rows is None else self.rows[chosen]
        return Sample(self.X, self.labels[chosen], self.weights[chosen], self.keys[chosen], rows)

    def take(self, chosen: NDArray[np.intp]) -> Sample:
        """Copies of some of the rows."""
        return replace(self.select(chosen), X=self.features(chosen), rows=None)

    @property
    def nbytes(self) -> int:
        """Size of the features of these rows in bytes."""
        share = 1.0 if self.rows is None else len(self.rows) / max(self.X.shape[0], 1)
        if isinstance(self.X, np.ndarray):
            return int(share * self.X.nbytes)
        return int(share * (self.X.data.nbytes + self.X.indices.nbytes))

    @classmethod
    def joined(cls, parts: Sequence[Sample]) -> Sample:
        """All rows of several samples."""
        parts = [part for part in parts if len(part)] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        labels, weights, keys = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("labels", "weights", "keys")
        )
        X, rows = parts[0].X, [part.rows for part in parts if part.rows is not None]
        if len(rows) == len(parts) and all(part.X is X for part in parts):
            return cls(X, labels, weights, keys, np.concatenate(rows))
        blocks = [part.features() for part in parts]
        if all(isinstance(block, np.ndarray) for block in blocks):
            X = np.concatenate(blocks)
        else:
            X = sp.vstack([sp.csr_array(block) for block in blocks], format="csr")
        return cls(X, labels, weights, keys)


def _placed(places: NDArray[np.intp], n: int) -> Any:
    """The matrix (n, k) that adds row j of another one to row ``places[j]``."""
    return sp.csr_array(
        (np.ones(len(places)), (places, np.arange(len(places)))), shape=(n, len(places))
    )


def random_keys(rows: NDArray[np.intp], seed: int) -> NDArray[np.float64]:
    """Pseudo-random number in [0, 1) for each row number: the mixing function of SplitMix64."""
    start = (seed * 0xD1342543DE82EF95) % 2**64  # another factor: seeds must not be shifts of rows
    mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def run_keys(rows: NDArray[np.intp], seed: int) -> NDArray[np.float64]:
    """Pseudo-random numbers in [0, 1), adjacent for the rows of a run of consecutive numbers.

    Neighbours in a file often have the same source: queries of one writer, images of one series.
    Rows whose neighbours were trained on are easier than those which a model will meet.
    """
    of_runs = np.floor(random_keys(rows // ROWS_PER_RUN, seed) * _RUN_KEYS)
    return np.asarray((of_runs + random_keys(rows, seed)) / _RUN_KEYS)


def row_keys(keys: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of keys of rows in runs that is independent of the run."""
    return np.asarray(keys * _RUN_KEYS % 1.0)


def random_sample(
    kept: Sample | None, X: Features, labels: NDArray[Any], n_before: int, n_rows: int
) -> Sample:
    """At most `n_rows` random rows of those kept so far and a batch, after `n_before` rows."""
    keys = random_keys(np.arange(n_before, n_before + len(labels)), 0)
    batch = Sample(X, labels, np.ones(len(labels)), keys)
    joined = batch if kept is None else Sample.joined([kept, batch])
    return joined.take(np.sort(np.argsort(joined.keys, kind="stable")[:n_rows]))


class Collected:
    """Rows that were collected for training: summed, waiting in the pool, or sampled.

    The pool holds the rows with the smallest keys, unsummed, so that those which judge a model can
    be left out of its sums. All others are summed, and a sample of these is kept.

    Parameters
    ----------
    sums : Sums, empty
    seed : int, of the keys
    pool_rows : int, number of rows in the pool
    max_bytes : int, maximum size of the sample

    Attributes
    ----------
    sums : Sums, of the rows that left the pool
    pool : Sample
    sample : Sample of the summed rows
    n_rows : int, number of all rows
    sources : list of str, identities of the batches that were added, for those who keep them
    text : NgramFeatures, optional, that made the rows of texts
    """

    def __init__(
        self, sums: Sums, seed: int, pool_rows: int = 4096, max_bytes: int = 64 << 20
    ) -> None:
        self.sums, self.seed = sums, seed
        self._pool_rows, self._max_bytes = pool_rows, max_bytes
        self._waiting: list[Sample] = []
        self._sampled: list[Sample] = []
        self.n_rows = 0
        self.sources: list[str] = []
        self.text: NgramFeatures | None = None

    @property
    def classes(self) -> NDArray[Any]:
        """Labels of all classes, sorted."""
        labels = self.sums.classes
        for part in self._waiting:
            labels = joined_labels(labels, np.unique(part.labels))
        return labels

    @property
    def pool(self) -> Sample:
        """The rows in the pool."""
        if not self._waiting:
            X = (
                sp.csr_array((0, self.sums.n_features))
                if self.sums.wide
                else np.empty((0, self.sums.n_features), np.float32)
            )
            return Sample(X, self.sums.classes[:0], np.empty(0), np.empty(0))
        joined = Sample.joined(self._waiting)
        if (np.diff(joined.keys) < 0).any():  # in an order that does not depend on the batches
            joined = joined.take(np.argsort(joined.keys, kind="stable"))
        self._waiting = [joined]
        return joined

    @property
    def sample(self) -> Sample | None:
        """The sample of the summed rows, None if nothing was summed."""
        if not self._sampled:
            return None
        if len(self._sampled) > 1:
            self._sampled = [Sample.joined(self._sampled)]
        return self._sampled[0]

    def add(
        self,
        X: Features,
        labels: NDArray[Any],
        weights: NDArray[np.float64],
        classes: NDArray[Any] | None = None,
        judged: NDArray[np.bool_] | None = None,
        *,
        copy: bool = True,
    ) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        X : (n, d)
        labels : (n,)
        weights : (n,), positive
        classes : (k,) labels that are known from now on, with or without rows
        judged : (n,) mask of rows that must judge the model, optional
        copy : bool, whether the rows that are kept are copied, because X may be reused
        """
        known = self.classes
        for new in (labels, labels if classes is None else classes):
            check_label_kinds(known, new)
            known = joined_labels(known, np.unique(new))  # raises if they cannot be joined
        keys = run_keys(np.arange(self.n_rows, self.n_rows + len(labels)), self.seed)
        if judged is not None:
            keys[judged] = -1.0
            self._pool_rows = max(self._pool_rows, int(np.count_nonzero(judged)))
        batch = Sample(X, labels, weights, keys)
        if sum(map(len, self._waiting)) + len(batch) > self._pool_rows + self._pool_rows // 4:
            if self._waiting and not self.sums.n_rows:
                self._check_units(batch)
            self._sum(batch, copy=copy)
        else:
            try:
                self.sums.check_rows(X)
            except ValueError:
                if not self._check_units(batch):
                    raise
            self._waiting.append(batch.take(np.arange(len(batch))))
        self.n_rows += len(labels)
        if classes is not None:
            self.sums.add_classes(classes)

    def standardise(self) -> None:
        """Standardise by all rows, if they wait in the pool.

        Until then they are by those of the first batch, which may be a single one.
        """
        if not self.sums.n_rows and len(self.pool):
            self._restandardise(self.pool, least_change=1.0)

    def _check_units(self, batch: Sample) -> bool:
        """Whether another standardisation suits a batch that is added while no row is summed."""
        some = batch.take(sample_rows(len(batch), _STANDARDISATION_ROWS))
        rows = Sample.joined([*self._waiting, some])
        return not self.sums.n_rows and self._restandardise(rows, least_change=_OTHER_UNITS)

    def _restandardise(self, rows: Sample, least_change: float) -> bool:
        """Standardise by these rows if that changes units by some factor; whether it did."""
        old = self.sums
        if old.wide or old.anchors is not None or old.span_of is not None:
            return False
        try:
            shift, scale = standardisation(rows.X, rows.weights)
        except ValueError:  # those of the first batch stay
            return False
        change = np.maximum(scale / old.scale, old.scale / scale)
        change = np.maximum(change, np.abs(shift - old.shift) / scale)
        if change.max() < least_change:
            return False
        new = Sums(shift, scale)
        new.check_rows(rows.X)
        new.add_classes(old.classes)
        self.sums = new
        return True

    def keep_in_pool(self, rows: Sample) -> None:
        """Put rows into the pool that were there before."""
        self._waiting.append(rows)

    def keep_in_sample(self, rows: Sample) -> None:
        """Put rows into the sample that were there before."""
        self._sampled.append(rows)

    def masses(self) -> NDArray[np.float64]:
        """Total weight (C,) of the rows of each class."""
        classes = self.classes
        masses = np.zeros(len(classes))
        masses[np.searchsorted(classes, self.sums.classes)] = self.sums.mass
        for part in self._waiting:
            np.add.at(masses, np.searchsorted(classes, part.labels), part.weights)
        return masses

    def _sum(self, batch: Sample, *, copy: bool = True) -> None:
        """Keep the rows with the smallest keys in the pool; sum the others, and sample them."""
        old = self.pool if self._waiting else batch.select(np.arange(0))
        keys = np.concatenate([old.keys, batch.keys])
        n_pool = min(self._pool_rows, len(keys))
        stay = keys <= np.partition(keys, n_pool - 1)[n_pool - 1]
        sums = self.sums.empty()
        kept: list[Sample] = []
        sampled: list[Sample] = []
        for part, stays in ((old, stay[: len(old)]), (batch, stay[len(old) :])):
            if not len(part):
                continue
            # A weight of 0 leaves a row out of the sums without a copy of all others.
            sums.add(part.features(), part.labels, np.where(stays, 0.0, part.weights))
            # In the order of the keys, in which the pool is kept.
            chosen = np.flatnonzero(stays)
            try:
                self.sums.check_rows(part.features(chosen))  # they will be summed later
            except ValueError:
                self.sums.check_rows(part.features())  # names the number of the row in the batch
                raise
            chosen = chosen[np.argsort(part.keys[chosen], kind="stable")]
            for rows, samples in ((chosen, kept), (np.flatnonzero(~stays), sampled)):
                samples.append(part.take(rows) if copy else part.select(rows))
        # All at once: an exception must not leave some rows counted twice.
        check_label_kinds(self.sums.classes, sums.classes)
        self.sums.add_once(sums)
        self._waiting = kept
        self._sampled += sampled
        self._trim()

    def _trim(self) -> None:
        """Reduce the sample to its maximum size."""
        self._sampled = [part for part in self._sampled if len(part)]
        n_bytes = sum(part.nbytes for part in self._sampled)
        if n_bytes <= self._max_bytes:
            return
        n = int(sum(map(len, self._sampled)) * self._max_bytes / n_bytes)
        if len(self._sampled) > 1:  # room for more, so that not every batch copies the sample
            n = max(1, int(0.8 * n))
        keys = [row_keys(part.keys) for part in self._sampled]
        threshold = np.partition(np.concatenate(keys), n)[n]
        parts = [
            part.select(np.flatnonzero(of_rows < threshold))
            for part, of_rows in zip(self._sampled, keys, strict=True)
        ]
        self._sampled = parts if len(parts) == 1 else [Sample.joined(parts)]

    def merge(self, other: Collected) -> None:
        """Add rows that were collected elsewhere, with another seed."""
        self.sums.merge(other.sums)
        self._sampled += other._sampled
        self._waiting += other._waiting
        self.n_rows += other.n_rows
        self.sources += other.sources
        if sum(map(len, self._waiting)) > self._pool_rows:
            pool = self.pool
            self._waiting = []
            self._sum(pool)
        self._trim()

    def remove_classes(self, labels: NDArray[Any]) -> None:
        """Remove classes; rows of theirs that are still at hand are removed exactly."""
        which_classes(self.classes, labels)
        summed = labels[np.isin(labels, self.sums.classes)]
        if len(summed):
            self.sums.remove_classes(summed)
        self._waiting = [p.take(np.flatnonzero(~np.isin(p.labels, labels))) for p in self._waiting]
        self._sampled = [p.take(np.flatnonzero(~np.isin(p.labels, labels))) for p in self._sampled]
        self.n_rows = self.sums.n_rows + sum(map(len, self._waiting))

    def skewness_of_classes(self) -> NDArray[np.float64]:
        """Sum (C,) of the cubes of the standardised features of the mean of each class."""
        sums, pool, classes, masses = self.sums, self.pool, self.classes, self.masses()
        found, y = np.unique(pool.labels, return_inverse=True)
        of_sums, of_pool = (
            _placed(np.searchsorted(classes, some), len(classes)) for some in (sums.classes, found)
        )
        by_class = sp.csr_array(sp.diags_array(pool.weights) @ _placed(y, len(found)).T)
        inverse, total_mass = 1.0 / np.maximum(masses, 1e-300), max(masses.sum(), 1e-300)
        if sums.wide:
            squares, total = sums.squares.copy(), of_sums @ sums.feature_sums
            for start in range(0, len(pool), _ROWS_AT_ONCE):  # dense rows have many entries
                some = slice(start, start + _ROWS_AT_ONCE)
                X = sp.csr_array(pool.features(some), dtype=np.float64)
                squares += pool.weights[some] @ X.power(2)
                total = total + of_pool @ (by_class[some].T @ X)
            mean_squares = squares / total_mass
            scales = sp.diags_array(1.0 / np.sqrt(np.maximum(mean_squares, 1e-300)))
            means = sp.csr_array(sp.diags_array(inverse) @ total @ scales)
            return np.asarray(means.power(3).sum(axis=1)).ravel()
        Z = sums.features(pool.features(), slice(None)).astype(np.float64)
        pooled, skewness = by_class.T @ Z, np.empty(len(classes))
        mean = (sums.feature_sums.sum(axis=0) + pooled.sum(axis=0)) / total_mass
        mean_squares = (np.diag(sums.gram) + pool.weights @ Z**2) / total_mass
        variance = mean_squares - mean**2
        variance[variance <= _FLOAT32_DIGITS * np.maximum(mean_squares, 1e-300)] = np.inf
        for start in range(0, len(classes), _CLASSES_AT_ONCE):
            some = slice(start, start + _CLASSES_AT_ONCE)
            total = of_sums[some] @ sums.feature_sums + of_pool[some] @ pooled
            D = (total * inverse[some, None] - mean) / np.sqrt(variance)
            skewness[some] = np.einsum("cd,cd,cd->c", D, D, D)
        return skewness

    def renamed(self, labels: NDArray[Any]) -> Collected:
        """The same rows with other labels (C,) for the `classes`, to be learned from."""
        classes, other = self.classes, copy.copy(self)
        other.sums = self.sums.renamed(labels[np.searchsorted(classes, self.sums.classes)])
        other._waiting, other._sampled = (
            [replace(rows, labels=labels[np.searchsorted(classes, rows.labels)]) for rows in parts]
            for parts in (self._waiting, self._sampled)
        )
        return other

    def all_sums(self) -> Sums:
        """Sums over all rows, including the pool."""
        return self._and(self.pool)

    def _and(self, rows: Sample) -> Sums:
        """Sums over the rows that were summed, and others."""
        if not len(rows):
            return self.sums.copy()
        sums = self.sums.empty()
        sums.add(rows.features(), rows.labels, rows.weights)
        sums.merge(self.sums)
        sums.classes = joined_labels(self.sums.classes, sums.classes)  # in the type of the known
        return sums

    def without(
        self, judged: NDArray[np.bool_], *, with_sample: bool = True
    ) -> tuple[Sums, Sample]:
        """Sums and rows to train on, if some rows of the pool (a mask) are left out.

        The rows are those of the pool and, `with_sample`, all others at hand.
        """
        rest = self.pool.select(np.flatnonzero(~judged))
        sums = self._and(rest)
        sample = self.sample if with_sample or not len(rest) else None
        return sums, rest if sample is None else Sample.joined([rest, sample])

    def kept(self, max_bytes: int) -> Collected:
        """The same with a smaller sample, to be kept for later batches."""
        kept = copy.copy(self)
        kept._max_bytes = max_bytes
        kept._sampled = list(self._sampled)
        kept._trim()
        # Copies: the caller may change the rows.
        kept._sampled, kept._waiting = (
            [part.take(np.arange(len(part))) for part in parts]
            for parts in (kept._sampled, self._waiting)
        )
        return kept
