"""Sums over rows from which models are fitted: one pass, any batches, mergeable.

The ridge regression needs ``G = X'X``, the column sums and ``X'B``. With the hinge loss B = W[y],
so ``X'B = S'W`` with S the per-class feature sums, and W needs only the per-class sums of the
starting codes. These sums suffice for the hinge loss, and for any loss if every sample starts with
the code of its class. With starting codes per row, the other losses also keep these codes, packed
into ceil(r / 8) bytes per sample.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitclass.arrays import (
    Array,
    Features,
    add_gram,
    class_sums,
    compute_dtype,
    dense_rows,
    device,
    hosted,
    is_foreign,
    like,
    namespace,
    put,
    row_blocks,
    sample_rows,
    take,
    to_host,
)
from bitclass.codes import packed_width, unpack
from bitclass.hash_function import RbfAnchors

if TYPE_CHECKING:
    from bitclass.training.starting_codes import StartingCodes

__all__ = [
    "Correlation",
    "KeptRows",
    "Statistics",
    "Sums",
    "check_label_kinds",
    "joined_labels",
    "standardisation",
    "which_classes",
]

# Sample weights outside this range are multiplied in float64.
MIN_FLOAT32_WEIGHT, MAX_FLOAT32_WEIGHT = 1e-12, 1e12
# A value farther than this from the mean, in standard deviations, is considered a data error.
MAX_DEVIATIONS = 1e9
# The projection is float32 and divides by the scale, so both must stay well within its range.
MIN_SCALE, MAX_SCALE = 1e-30, 1e30
# Deviations smaller than this, relative to the mean, are lost in float32 and in float64.
_FLOAT32_DIGITS, _FLOAT64_DIGITS = 1e-7, 1e-13
# A feature's scatter below this, relative to its mean square, is rounding error: of sums, and of
# differences of float32 sums.
_ROUNDING_OF_SUMS, _ROUNDING_OF_DIFFERENCES = 1e-12, 1e-5
_STANDARDISATION_ROWS = 10_000
# If a single row accounts for this share of a feature's deviation, it may be an outlier.
_OUTLIER_SHARE = 0.9


class KeptRows(NamedTuple):
    """What is kept of the rows if each has its own starting code.

    Attributes
    ----------
    labels : (n,) index of each row's class
    codes : (n, bytes) packed starting codes
    sample_weight : (n,)
    """

    labels: NDArray[np.intp]
    codes: NDArray[np.uint8]
    sample_weight: NDArray[np.float64]


class Correlation(NamedTuple):
    """Correlations of the features over all rows.

    Attributes
    ----------
    matrix : (d, d) correlations; 0 for constant features, including the diagonal
    mean : (d,) mean of the summed features z
    norms : (d,) ``sqrt(sum weight (z - mean)^2)``, 1 for constant features
    """

    matrix: NDArray[np.float64]
    mean: NDArray[np.float64]
    norms: NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of C classes, each of which has rows.

    `gram` and `feature_sums` are on the device of the rows, all others are NumPy arrays.

    Attributes
    ----------
    classes : (C,) labels
    gram : (d, d) ``sum weight z z'`` with ``z = (x - shift) / scale``
    feature_sums : (C, d) ``sum weight z`` over the rows of each class
    class_weights : (C,) ``sum weight`` over the rows of each class
    code_sums : (C, r) ``sum weight b`` over the starting codes of each class's rows, or (C, 0) if
        starting codes are per class
    n_rows : int
    shift, scale : (d,)
    anchors : RbfAnchors, if x are similarities to anchors
    effective_rows : float, effective number of rows, given their weights; None for `n_rows`
    """

    classes: NDArray[Any]
    gram: NDArray[np.float64]
    feature_sums: NDArray[np.float64]
    class_weights: NDArray[np.float64]
    code_sums: NDArray[np.float64]
    n_rows: int
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    anchors: RbfAnchors | None = None
    effective_rows: float | None = None

    @property
    def total_weight(self) -> float:
        """Sum of all sample weights."""
        return float(self.class_weights.sum())

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Mask (d,) of the features that are constant up to rounding."""
        total = max(self.total_weight, np.finfo(np.float64).tiny)
        mean, mean_square = self.column_sums / total, self.diagonal / total
        # Rounding error of the values, and of the sums. A feature that was constant when it was
        # standardised has scale 1, so very small deviations are rounding error, too.
        of_values = _FLOAT32_DIGITS * (self.shift / self.scale + mean)
        rounding = np.maximum(of_values**2, _ROUNDING_OF_SUMS * np.maximum(mean_square, 1.0))
        return np.asarray(mean_square - mean**2 <= rounding)

    @property
    def count(self) -> float:
        """Number of rows that the sums represent: the total weight, or the effective number.

        Multiplying all weights by a factor below 1 does not lower it; uneven weights do.
        """
        rows = self.n_rows if self.effective_rows is None else self.effective_rows
        return max(self.total_weight, min(rows, float(self.n_rows)))

    @property
    def column_sums(self) -> NDArray[np.float64]:
        """Sum of ``weight z`` over all rows, shape (d,)."""
        return np.asarray(to_host(namespace(self.gram).sum(self.feature_sums, axis=0)))

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """Sum of ``weight z^2`` over all rows, shape (d,)."""
        return np.asarray(to_host(namespace(self.gram).linalg.diagonal(self.gram)))

    def features(self, block: NDArray[Any]) -> NDArray[Any]:
        """A block of dense rows, or its similarities to the anchors if there are any."""
        return block if self.anchors is None else self.anchors.similarities(block)

    def standardised(self, block: NDArray[Any]) -> NDArray[Any]:
        """``(x - shift) / scale`` of a block of rows (n, d), in the same dtype; always a copy."""
        xp = namespace(block)
        Z: NDArray[Any] = block - xp.astype(like(self.shift, block), block.dtype)
        Z *= xp.astype(like(1.0 / self.scale, block), block.dtype)
        return Z

    def standardised_rows(self, X: Features, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        """Standardised features (m, d) of selected rows of X, as they enter the sums."""
        return self.standardised(self.features(dense_rows(X, rows)))

    def correlation(self) -> Correlation:
        """Correlations of the features over all rows."""
        constant, column_sums = self.constant, self.column_sums
        mean = column_sums / self.total_weight
        scatter = np.diag(self.gram) - column_sums * mean
        # A constant feature is uncorrelated with all others; dividing by 1 leaves its weight at 0.
        norms = np.sqrt(np.where(constant, 1.0, scatter))
        usable = np.where(constant, 0.0, 1.0 / norms)
        matrix = self.gram - np.outer(column_sums, mean)
        matrix *= usable[:, None]
        matrix *= usable
        matrix[np.diag_indices_from(matrix)] = np.where(constant, 0.0, 1.0)
        return Correlation(matrix, mean, norms)

    def check(self, X: Features, sample_weight: NDArray[np.float64] | None) -> None:
        """Raise an error that names row and feature if a value is too large to be summed."""
        finite = all(map(_is_finite, (self.gram, self.feature_sums, self.class_weights)))
        heaviest = 1.0 if sample_weight is None else float(sample_weight.max(initial=1.0))
        if finite and self.diagonal.max(initial=0.0) <= MAX_DEVIATIONS**2 * heaviest:
            return
        X, largest, row, column = to_host(X), 0.0, 0, 0
        for part, block in row_blocks(X):
            size = np.abs(self.standardised(block) if self.anchors is None else block)
            if size.max() > largest:
                place = divmod(int(np.argmax(size)), size.shape[1])
                largest, row, column = float(size.max()), part.start + place[0], place[1]
        if finite and largest <= MAX_DEVIATIONS:
            return
        value = dense_rows(X, slice(row, row + 1))[0, column]
        expected = (
            f", while earlier rows have mean {self.shift[column]:g} and standard deviation "
            f"{self.scale[column]:g}"
        )
        raise ValueError(
            f"X must contain numbers whose squares can be summed: row {row} has {value:g} in "
            f"feature {column}{expected if self.anchors is None else ''}; the batch was not added"
        )

    def restandardised(self, shift: NDArray[np.float64], scale: NDArray[np.float64]) -> Sums:
        """Sums over the same rows with a different `shift` and `scale`."""
        # z becomes z * stretch + move.
        stretch, move = self.scale / scale, (self.shift - shift) / scale
        if (stretch == 1.0).all() and not move.any():
            return self
        feature_sums = self.feature_sums * stretch
        crossed = np.outer(feature_sums.sum(axis=0), move)
        gram = self.gram * np.outer(stretch, stretch) + crossed + crossed.T
        gram += self.total_weight * np.outer(move, move)
        feature_sums += np.outer(self.class_weights, move)
        return replace(self, gram=gram, feature_sums=feature_sums, shift=shift, scale=scale)

    def without(self, other: Sums) -> Sums:
        """Sums over the rows that are not in `other`; every class must keep some weight."""
        place = np.searchsorted(self.classes, other.classes)
        xp, code_sums = namespace(self.gram), self.code_sums.copy()
        feature_sums = xp.asarray(self.feature_sums, copy=True)
        class_weights = self.class_weights.copy()
        put(feature_sums, (place,), take(feature_sums, place) - other.feature_sums)
        code_sums[place] -= other.code_sums
        class_weights[place] -= other.class_weights
        gram = self.gram - other.gram
        # If a feature varies only in the removed rows, the remaining scatter is rounding error.
        totals = to_host(xp.sum(feature_sums, axis=0))
        scatter = self.diagonal - other.diagonal - totals**2 / class_weights.sum()
        gone = scatter <= _ROUNDING_OF_DIFFERENCES * self.diagonal
        if gone.any():
            stays = like(1.0 - gone, gram)
            gram *= stays
            gram *= stays[:, None]
            feature_sums *= stays
        return replace(
            self,
            gram=gram,
            feature_sums=feature_sums,
            class_weights=class_weights,
            code_sums=code_sums,
            n_rows=self.n_rows - other.n_rows,
        )


def standardisation(
    X: Features, sample_weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale of the features, from at most 10,000 rows; both are exact in float32.

    Parameters
    ----------
    X : (n, d)
    sample_weight : (n,)

    Returns
    -------
    centre : (d,) weighted means
    scale : (d,) weighted standard deviations, 1 for constant features
    """
    chosen = sample_rows(X.shape[0], _STANDARDISATION_ROWS)
    sample, sample_weight = take(X, chosen), sample_weight[chosen]
    total = sample_weight.sum()
    centre = np.zeros(X.shape[1])
    xp = namespace(X)
    for rows, block in row_blocks(sample):
        centre += to_host(like(sample_weight[rows], block) @ xp.astype(block, xp.float64))
    centre /= total
    variance = np.zeros(X.shape[1])
    largest = np.zeros(X.shape[1])
    for rows, block in row_blocks(sample):
        deviation = xp.astype(block, xp.float64) - like(centre, block)
        np.maximum(largest, to_host(xp.max(xp.abs(deviation), axis=0)), out=largest)
        variance += to_host(like(sample_weight[rows], block) @ deviation**2)
    variance /= total
    digits = _FLOAT32_DIGITS if compute_dtype(X) == np.float32 else _FLOAT64_DIGITS
    # Below this the column is constant, up to the rounding of its values.
    constant = largest <= digits * np.abs(centre)
    if compute_dtype(X) == np.float32:
        # Activations that would be zero if they had not underflowed to subnormal numbers.
        constant |= largest < np.finfo(np.float32).tiny
    scale = np.where(constant, 1.0, np.sqrt(variance))
    unfit = (scale < MIN_SCALE) | (scale > MAX_SCALE) | (np.abs(centre) > MAX_SCALE)
    unfit |= ~constant & (scale < _FLOAT32_DIGITS * np.abs(centre))
    for j in np.flatnonzero(largest > _OUTLIER_SHARE * math.sqrt(len(sample_weight)) * scale):
        column = to_host(dense_rows(sample[:, j : j + 1], slice(None)))[:, 0].astype(np.float64)
        typical = float(np.quantile(np.abs(column - np.median(column)), 0.75))
        # Compared with other features too: rare events and similarities may have one large value.
        if 0.0 < max(typical, float(np.median(scale))) < largest[j] / MAX_DEVIATIONS:
            raise ValueError(
                f"X must contain numbers that can be summed: feature {j} has a value "
                f"{largest[j]:g} from the mean, while most are within {typical:g}"
            )
    if unfit.any():
        j = np.argmax(unfit)
        raise ValueError(
            f"X must have features with a standard deviation from {MIN_SCALE:g} to {MAX_SCALE:g} "
            f"and a mean within {MAX_SCALE:g} and {1 / _FLOAT32_DIGITS:g} standard deviations of "
            f"0; found mean {centre[j]:g} and standard deviation "
            f"{largest[j] if scale[j] == 0 else scale[j]:g} in feature {j}: rescale it, for "
            "instance with StandardScaler"
        )
    return centre.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64)


class Statistics:
    """Sums over rows; adding batches and merging give the same sums as all rows at once.

    Parameters
    ----------
    starting : StartingCodes
    shift, scale : (d,)
        Features are summed as ``z = (x - shift) / scale``, so that no digits are lost to a large
        mean or an unusual unit. Approximate means and standard deviations suffice.
    keep_codes : bool
        Whether to keep the packed starting codes of all rows, if they are per row.
    anchors : RbfAnchors, optional
        The summed features are then the similarities of the rows to these anchors.

    Attributes
    ----------
    classes : (C,) labels, sorted
    gram : (d, d) float64, ``sum weight z z'``
    feature_sums : (C, d) float64, ``sum weight z`` over the rows of each class
    code_sums : (C, r) float64, ``sum weight b`` over the rows of each class; (C, 0) if starting
        codes are per class
    class_weights : (C,) float64, ``sum weight`` over the rows of each class
    class_weights_when_refined : (C,) float64
        The class weights when the model was refined, 0 for classes added later; all 0 if there is
        no refined model for these sums.
    n_rows : int
    n_changes : int
        Number of times that rows or classes were added or removed.
    weight_squares : float
        Sum of the squared sample weights; 0 if unknown, because files do not store it.

    Notes
    -----
    `gram` and `feature_sums` are on the device of the last batch: see `to_host`.
    """

    def __init__(
        self,
        starting: StartingCodes,
        shift: NDArray[np.float64],
        scale: NDArray[np.float64],
        *,
        keep_codes: bool = False,
        anchors: RbfAnchors | None = None,
    ) -> None:
        n_features = len(shift)
        self.starting = starting
        self.shift = shift
        self.scale = scale
        self.anchors = anchors
        self.keep_codes = keep_codes and starting.per_row
        self.classes: NDArray[Any] = np.empty(0)
        self.gram = np.zeros((n_features, n_features))
        # Feature sums, one row per class in order of first appearance, with spare rows at the end.
        self._buffer = np.zeros((0, n_features))
        self._rows_of_classes: NDArray[np.intp] = np.arange(0)
        self.code_sums = np.zeros((0, starting.n_bits if starting.per_row else 0))
        self.class_weights = np.zeros(0)
        self.class_weights_when_refined = np.zeros(0)
        self.n_rows = 0
        self.n_changes = 0
        self.weight_squares = 0.0
        self._kept: list[KeptRows] = []

    @property
    def feature_sums(self) -> NDArray[np.float64]:
        """``sum weight z`` over the rows of each class, shape (C, d)."""
        n_classes = len(self.classes)
        if not np.array_equal(self._rows_of_classes, np.arange(n_classes)):
            self.feature_sums = take(self._buffer, self._rows_of_classes)
        return self._buffer[:n_classes, :]

    @feature_sums.setter
    def feature_sums(self, values: NDArray[np.float64]) -> None:
        self._buffer, self._rows_of_classes = values, np.arange(values.shape[0])

    def __getstate__(self) -> dict[str, Any]:
        self.to_host()
        self.feature_sums = self.feature_sums  # in the order of the classes, without spare rows
        return self.__dict__

    # ---------------------------------------------------------------------------------------------
    # Adding rows, all or nothing
    # ---------------------------------------------------------------------------------------------

    def add(
        self,
        X: Features,
        labels: NDArray[Any],
        sample_weight: NDArray[np.float64] | None = None,
        classes: NDArray[Any] | None = None,
    ) -> None:
        """Add a batch of rows; if an exception is raised, none is added.

        Parameters
        ----------
        X : (n, d)
        labels : (n,) labels of known or new classes
        sample_weight : (n,), or None for ones
        classes : (k,) labels of further classes to add without rows

        Raises
        ------
        ValueError
            If the sums over the batch are not finite; the message names a row and a feature.
        """
        rows = np.arange(self.n_rows, self.n_rows + X.shape[0])
        self.move_to_device_of(X)
        sums, codes = self.summed(X, labels, sample_weight, rows)
        sums.check(X, sample_weight)
        all_classes = sums.classes if classes is None else joined_labels(sums.classes, classes)
        weights = np.ones(len(rows)) if sample_weight is None else sample_weight
        kept = []
        if codes is not None:
            kept.append(KeptRows(np.searchsorted(all_classes, labels), codes, weights))
        self._add_sums(sums, all_classes, kept, float(weights @ weights))

    def summed(
        self,
        X: Features,
        labels: NDArray[Any],
        sample_weight: NDArray[np.float64] | None,
        rows: NDArray[np.intp],
    ) -> tuple[Sums, NDArray[np.uint8] | None]:
        """Sums over a batch of rows, without adding them.

        Parameters
        ----------
        X : (n, d)
        labels : (n,)
        sample_weight : (n,), or None for ones
        rows : (n,) row numbers, to look up starting codes given by the user

        Returns
        -------
        sums : Sums, with the classes that occur in the batch
        codes : (n, bytes) packed starting codes, or None if they are not kept
        """
        found = namespace(labels).unique_inverse(labels)
        # `y` (n,) is the index of each row's class.
        classes, y = to_host(found.values), found.inverse_indices
        check_label_kinds(self.classes, classes)
        xp, place, d = namespace(X), device(X), len(self.shift)
        sums = Sums(
            classes,
            xp.zeros((d, d), dtype=xp.float64, device=place),
            # On a device, float32 is enough for a single batch.
            xp.zeros(
                (len(classes), d),
                dtype=xp.float32 if is_foreign(X) else xp.float64,
                device=place,
            ),
            np.bincount(to_host(y), sample_weight, minlength=len(classes)).astype(np.float64),
            np.zeros((len(classes), self.code_sums.shape[1])),
            X.shape[0],
            self.shift,
            self.scale,
            self.anchors,
        )
        kept = [np.empty((0, packed_width(self.starting.n_bits)), dtype=np.uint8)]

        def weighted_blocks() -> Iterator[Array]:
            """Yield rows times the roots of their weights, adding them to the class sums."""
            for part, block in row_blocks(X):
                weights = None if sample_weight is None else sample_weight[part]
                block = sums.features(block)
                if self.starting.per_row:
                    codes = self.starting.row_codes(block, rows[part])
                    signs = unpack(codes, self.starting.n_bits).astype(np.float32)
                    class_sums(signs, y[part], weights, sums.code_sums)
                    if self.keep_codes:
                        kept.append(codes)
                Z = sums.standardised(block)
                class_sums(Z, y[part], weights, sums.feature_sums)
                if weights is not None:
                    if weights.min() < MIN_FLOAT32_WEIGHT or weights.max() > MAX_FLOAT32_WEIGHT:
                        Z = xp.astype(Z, xp.float64)
                    Z *= xp.astype(like(np.sqrt(weights)[:, None], Z), Z.dtype)
                yield Z

        with np.errstate(over="ignore", invalid="ignore"):
            add_gram(weighted_blocks(), sums.gram)
        return sums, np.concatenate(kept) if self.keep_codes else None

    def _add_sums(
        self,
        sums: Sums,
        classes: NDArray[Any],
        kept: Sequence[KeptRows],
        weight_squares: float,
    ) -> None:
        """Add sums and `classes`, a superset of the classes of `sums` and `kept`.

        The feature sums of the first batch are not copied.
        """
        union = joined_labels(self.classes, classes)
        old, new = np.searchsorted(union, self.classes), np.searchsorted(union, sums.classes)
        grown: dict[str, Any] = {"classes": union, "n_changes": self.n_changes + 1}
        for name in ("code_sums", "class_weights", "class_weights_when_refined"):
            values = getattr(self, name)
            grown[name] = np.zeros((len(union), *values.shape[1:]))
            grown[name][old] = values
        grown["code_sums"][new] += sums.code_sums
        grown["class_weights"][new] += sums.class_weights
        if sums.n_rows:
            grown["gram"] = self.gram + sums.gram
            if not _is_finite(grown["gram"]):
                raise ValueError(
                    "X must contain numbers whose squares can be summed, found sums that overflow "
                    "float64; the batch was not added"
                )
        before_kept = self._kept
        if len(union) > len(old):
            before_kept = [_relabelled(rows, old) for rows in before_kept]
        place = np.searchsorted(union, classes)
        grown["_kept"] = before_kept + [_relabelled(rows, place) for rows in kept]
        grown["n_rows"] = self.n_rows + sums.n_rows
        is_known = self.n_rows == 0 or self.weight_squares > 0
        grown["weight_squares"] = self.weight_squares + weight_squares if is_known else 0.0
        if len(old) == 0 and len(new) == len(union):
            xp = namespace(sums.feature_sums)
            buffer = xp.astype(sums.feature_sums, xp.float64, copy=False)
            self.__dict__.update(grown, _buffer=buffer, _rows_of_classes=new)
            return
        buffer, rows = self._with_room(old, len(union))
        grown |= {"_buffer": buffer, "_rows_of_classes": rows}
        rows = rows[new]
        before = take(buffer, rows)
        after = before + sums.feature_sums
        was = {name: getattr(self, name) for name in grown}
        try:  # nothing allocates from here on, but an interrupt may still occur
            put(buffer, (rows,), after)
            self.__dict__.update(grown)
        except BaseException:
            put(buffer, (rows,), before)
            self.__dict__.update(was)
            raise

    def _with_room(self, old: NDArray[np.intp], n_classes: int) -> tuple[Array, NDArray[np.intp]]:
        """A buffer of feature sums with rows for new classes, and the row of each class.

        New classes are appended, and sorted in only when the sums are read, so that a batch with
        new classes does not copy the sums of all others. `old` holds the indices of the known
        classes among all classes.
        """
        buffer, n_known = self._buffer, len(old)
        if buffer.shape[0] < n_classes:
            # Spare rows cost only address space until they are written.
            xp, shape = namespace(buffer), (n_classes + n_known, buffer.shape[1])
            buffer = xp.zeros(shape, dtype=xp.float64, device=device(buffer))
            buffer[:n_known, :] = self._buffer[:n_known, :]
        rows = np.full(n_classes, -1)
        rows[old] = self._rows_of_classes
        rows[rows < 0] = np.arange(n_known, n_classes)
        return buffer, rows

    # ---------------------------------------------------------------------------------------------
    # Reading the sums
    # ---------------------------------------------------------------------------------------------

    @property
    def n_bits(self) -> int:
        """Number of bits per code."""
        return self.starting.n_bits

    @property
    def n_features(self) -> int:
        """Number of features per row."""
        return len(self.shift) if self.anchors is None else self.anchors.n_features

    @property
    def total_weight(self) -> float:
        """Sum of all sample weights."""
        return float(self.class_weights.sum())

    @property
    def effective_rows(self) -> float:
        """Effective number of rows, given their weights; `n_rows` if weights are unknown."""
        if self.weight_squares == 0:
            return float(self.n_rows)
        return min(self.total_weight**2 / self.weight_squares, float(self.n_rows))

    def sums(self) -> Sums:
        """Sums of the classes that have rows; a view if all classes have rows."""
        seen: Any = self.class_weights > 0
        feature_sums = self.feature_sums
        if seen.all():
            seen = slice(None)
        else:
            feature_sums = take(feature_sums, np.flatnonzero(seen))
        return Sums(
            self.classes[seen],
            self.gram,
            feature_sums,
            self.class_weights[seen],
            self.code_sums[seen],
            self.n_rows,
            self.shift,
            self.scale,
            self.anchors,
            self.effective_rows,
        )

    def kept_rows(self) -> KeptRows:
        """What is kept of all rows."""
        if len(self._kept) != 1:  # concatenated once, so that the next call copies nothing
            width = packed_width(self.starting.n_bits)
            empty = KeptRows(np.empty(0, np.intp), np.empty((0, width), np.uint8), np.empty(0))
            parts = zip(*(self._kept or [empty]), strict=True)
            self._kept = [KeptRows(*(np.concatenate(part) for part in parts))]
        return self._kept[0]

    def keep_rows(self, rows: KeptRows) -> None:
        """Keep rows that are already included in the sums."""
        self._kept.append(rows)

    def fingerprint(self) -> str:
        """Digest (32 hexadecimal digits) that identifies the sums."""
        self.to_host()
        about = f"{self.starting.fingerprint()} {self.n_rows}"
        digest = hashlib.blake2b(about.encode(), digest_size=16)
        for sums in (self.gram, self.feature_sums, self.code_sums, self.class_weights):
            digest.update(np.ascontiguousarray(sums).data)
        return digest.hexdigest()

    # ---------------------------------------------------------------------------------------------
    # Merging and removing
    # ---------------------------------------------------------------------------------------------

    def merge(self, other: Statistics) -> None:
        """Add the sums over other rows, which must have been created with the same settings."""
        if other.n_features != self.n_features:
            raise ValueError(
                f"statistics with {other.n_features} features cannot be merged into statistics "
                f"with {self.n_features}"
            )
        if _fingerprint(other.anchors) != _fingerprint(self.anchors):
            raise ValueError("statistics with different kernel anchors cannot be merged")
        if other.keep_codes != self.keep_codes:
            raise ValueError("statistics for the hinge loss and for another loss cannot be merged")
        if other.starting.fingerprint() != self.starting.fingerprint():
            raise ValueError("statistics with different starting codes cannot be merged")
        check_label_kinds(self.classes, other.classes)
        self.to_host()
        theirs = hosted(other.sums()).restandardised(self.shift, self.scale)
        if len(self.classes) == 0:  # or both would share the same array
            theirs = replace(theirs, feature_sums=theirs.feature_sums.copy())
        self._add_sums(theirs, other.classes, other._kept, other.weight_squares)

    def move_to_device_of(self, X: Features) -> None:
        """Move the sums over features to the device of the rows X."""
        if namespace(X) is not namespace(self.gram) or device(X) != device(self.gram):
            moved = (like(to_host(sums), X) for sums in (self.gram, self.feature_sums))
            self.gram, self.feature_sums = moved

    def to_host(self) -> None:
        """Convert all sums to NumPy arrays."""
        self.move_to_device_of(self.shift)

    def remove_classes(self, labels: NDArray[Any]) -> None:
        """Remove classes.

        The contribution of their rows to `gram` is not stored separately; it is estimated from
        their means and weights, assuming that all classes share the same within-class scatter.

        Parameters
        ----------
        labels : (k,) labels of known classes
        """
        self.to_host()
        gone = which_classes(self.classes, labels)
        divisors = np.where(self.class_weights > 0, self.class_weights, 1.0)
        scaled = self.feature_sums / np.sqrt(divisors)[:, None]
        within = (self.gram - scaled.T @ scaled) / max(self.total_weight, 1e-300)
        removed = self.class_weights[gone].sum() * within + scaled[gone].T @ scaled[gone]
        # Exact if all rows have the same weight.
        share = self.class_weights[gone].sum() / max(self.total_weight, 1e-300)
        left: dict[str, Any] = {
            "gram": self.gram - removed,
            "n_changes": self.n_changes + 1,
            "n_rows": self.n_rows - round(self.n_rows * share),
            "weight_squares": self.weight_squares * (1.0 - share),
        }
        if self.keep_codes:
            kept = self.kept_rows()
            stay = ~gone[kept.labels]
            if len(stay) == self.n_rows:  # no kept row represents several
                left["n_rows"] = int(stay.sum())
            place = np.cumsum(~gone) - 1
            labels = place[kept.labels[stay]]
            left["_kept"] = [KeptRows(labels, kept.codes[stay], kept.sample_weight[stay])]
        left |= {"_buffer": self.feature_sums[~gone], "_rows_of_classes": np.arange((~gone).sum())}
        for name in ("classes", "code_sums", "class_weights", "class_weights_when_refined"):
            left[name] = getattr(self, name)[~gone]
        self.__dict__.update(left)


def _is_finite(values: Array) -> bool:
    return bool(namespace(values).all(namespace(values).isfinite(values)))


def _fingerprint(anchors: RbfAnchors | None) -> str | None:
    return None if anchors is None else anchors.fingerprint()


def _relabelled(rows: KeptRows, place: NDArray[np.intp]) -> KeptRows:
    """The same rows, with class index c replaced by `place[c]`."""
    return rows._replace(labels=place[rows.labels])


def joined_labels(known: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Sorted union of the labels; an error if their common type would merge distinct ones.

    If no label is new, the known ones keep their type, as 1 and 1.0 are equal.

    Parameters
    ----------
    known : (C,) labels, sorted and unique
    new : (k,) labels
    """
    if len(known) == 0 or len(new) == 0:
        return np.unique(new if len(known) == 0 else known)
    if known.dtype == new.dtype:  # most batches have no new labels, and need no sorting
        place = np.searchsorted(known, new)
        if np.array_equal(known[np.minimum(place, len(known) - 1)], new):
            return known
    both = known, new
    if np.result_type(known, new).kind == "f":
        for labels in both:
            if labels.dtype.kind in "iu" and int(np.abs(labels.astype(object)).max()) > 2**53:
                raise ValueError(
                    f"y has labels of type {new.dtype}, but the classes known so far are of type "
                    f"{known.dtype}; integers beyond 2**53 cannot be mixed with floats, nor signed "
                    "with unsigned integers"
                )
    joined = np.concatenate(both)
    joined.sort(kind="stable")  # merges the two sorted runs; np.unique would hash all labels
    distinct: NDArray[Any] = joined[np.append(True, joined[1:] != joined[:-1])]
    return known if len(distinct) == len(known) else distinct


def which_classes(classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask (C,) of the classes that are among labels (k,), all of which must be known."""
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ValueError(f"labels must be known classes, found {unknown.tolist()[0]!r}")
    return np.isin(classes, labels)


def check_label_kinds(known: NDArray[Any], new: NDArray[Any]) -> None:
    """Raise an error if one set of labels is text and the other is numeric."""
    numeric = "biuf"
    if len(known) and len(new) and (known.dtype.kind in numeric) != (new.dtype.kind in numeric):
        raise ValueError(
            f"y has labels of type {new.dtype}, but the classes known so far are of type "
            f"{known.dtype}; text and numbers cannot be mixed"
        )
