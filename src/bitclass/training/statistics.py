"""Everything that training needs of the rows, as sums: one pass, any batches, mergeable.

The ridge regression needs ``G = X'X``, the column sums and ``X'B``. With the hinge loss B = W[y],
so ``X'B = S'W`` with S the per-class feature sums, and W needs only the per-class sums of the
starting codes. So these sums are all of hinge training. The other losses also keep the packed
starting codes, ceil(r / 8) bytes a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import add_gram, class_sums
from bitclass.codes import pack, packed_width, unpack
from bitclass.rows import Features, dense_rows, row_blocks, sample_rows
from bitclass.training.groups import Groups
from bitclass.training.starting_codes import StartingCodes

__all__ = ["Statistics", "standardisation"]

_SAMPLE_ROWS = 10_000


def standardisation(
    X: Features, weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale of the features, from all rows or 10,000 spread over them.

    Parameters
    ----------
    X : (n, d)
    weights : (n,) sample weights

    Returns
    -------
    centre : (d,) weighted means
    scale : (d,) weighted standard deviations, 1 for constant features
    """
    chosen = sample_rows(X.shape[0], _SAMPLE_ROWS)
    sample, weights = X[chosen], weights[chosen]
    total = weights.sum()
    centre = np.zeros(X.shape[1])
    for rows, block in row_blocks(sample):
        centre += weights[rows] @ block.astype(np.float64)
    centre /= total
    variance = np.zeros(X.shape[1])
    for rows, block in row_blocks(sample):
        variance += weights[rows] @ (block - centre) ** 2
    variance /= total
    # Below this a column is constant, and what is left is the rounding of its values.
    constant = variance <= (1e-7 * np.abs(centre)) ** 2
    return centre, np.sqrt(np.where(constant, 1.0, variance))


class Statistics:
    """Sums over rows; adding rows and merging two objects give what all rows at once would.

    Parameters
    ----------
    starting : StartingCodes
    shift : (d,)
        Subtracted from the features before they are summed, so that no digits are lost to a large
        mean. Any value near the mean will do.
    keep_codes : bool
        Whether to keep the packed starting codes of all rows.

    Attributes
    ----------
    classes : (C,) labels, sorted
    gram : (d, d) float64, ``sum weight (x - shift) (x - shift)'``
    feature_sums : (C, d) float64, ``sum weight (x - shift)`` over the rows of each class
    code_sums : (C, r) float64, ``sum weight b`` over the rows of each class
    class_weights : (C,) float64, ``sum weight`` over the rows of each class
    n_rows : int
    """

    def __init__(
        self, starting: StartingCodes, shift: NDArray[np.float64], keep_codes: bool
    ) -> None:
        n_features = len(shift)
        self.starting = starting
        self.shift = shift
        self.keep_codes = keep_codes
        self.classes: NDArray[Any] = np.empty(0)
        self.gram = np.zeros((n_features, n_features))
        self.feature_sums = np.zeros((0, n_features))
        self.code_sums = np.zeros((0, starting.n_bits))
        self.class_weights = np.zeros(0)
        self.n_rows = 0
        self._labels: list[NDArray[np.intp]] = []
        self._codes: list[NDArray[np.uint8]] = []
        self._row_weights: list[NDArray[np.float64]] = []

    def add_classes(self, classes: NDArray[Any]) -> None:
        """Make room for classes that are not known yet."""
        if len(self.classes) == 0:
            union = np.unique(classes)
        else:
            check_label_kinds(self.classes, classes)
            union = np.union1d(self.classes, classes)
            if len(union) == len(self.classes):
                return
        place = np.searchsorted(union, self.classes)
        for name in ("feature_sums", "code_sums", "class_weights"):
            old = getattr(self, name)
            new = np.zeros((len(union), *old.shape[1:]))
            new[place] = old
            setattr(self, name, new)
        self._labels = [place[labels] for labels in self._labels]
        self.classes = union

    def add(self, X: Features, labels: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        X : (n, d)
        labels : (n,) labels, of classes new or known
        weights : (n,) sample weights, or None for ones
        """
        batch_classes, own = np.unique(labels, return_inverse=True)
        self.add_classes(batch_classes)
        own = np.searchsorted(self.classes, batch_classes)[own]
        self.class_weights += np.bincount(own, weights=weights, minlength=len(self.classes))
        for rows, block in row_blocks(X):
            of_block = None if weights is None else weights[rows]
            codes = self.starting.codes(block, self.classes, own[rows], self.n_rows)
            signs = unpack(codes, self.starting.n_bits).astype(np.float32)
            class_sums(signs, own[rows], of_block, self.code_sums)
            shifted = block - self.shift.astype(block.dtype)
            class_sums(shifted, own[rows], of_block, self.feature_sums)
            if of_block is not None:
                shifted *= np.sqrt(of_block).astype(block.dtype)[:, None]
            add_gram(shifted, self.gram)
            self.n_rows += len(block)
            if self.keep_codes:
                self._codes.append(codes)
        if self.keep_codes:
            self._labels.append(own)
            self._row_weights.append(np.ones(len(own)) if weights is None else weights)

    def kept_rows(
        self,
    ) -> tuple[NDArray[np.intp], NDArray[np.uint8], NDArray[np.float64]]:
        """What is kept of each row: the index of its class, its packed code, its weight."""
        width = packed_width(self.starting.n_bits)
        # Joined once, so that asking again copies nothing.
        self._labels = [_joined(self._labels, (0,), np.intp)]
        self._codes = [_joined(self._codes, (0, width), np.uint8)]
        self._row_weights = [_joined(self._row_weights, (0,), np.float64)]
        return self._labels[0], self._codes[0], self._row_weights[0]

    def keep_rows(
        self,
        labels: NDArray[np.intp],
        codes: NDArray[np.uint8],
        weights: NDArray[np.float64],
    ) -> None:
        """Keep rows that were counted in the sums before: see `kept_rows`."""
        self._labels.append(labels)
        self._codes.append(codes)
        self._row_weights.append(weights)

    def merge(self, other: Statistics) -> None:
        """Add the sums of other rows, whose starting codes must come from the same function."""
        if (
            other.keep_codes != self.keep_codes
            or other.code_sums.shape[1] != self.code_sums.shape[1]
        ):
            raise ValueError("statistics of different losses or numbers of bits cannot be merged")
        if len(other.shift) != len(self.shift):
            raise ValueError(
                f"statistics of {len(other.shift)} features cannot be merged into statistics of "
                f"{len(self.shift)}"
            )
        self.add_classes(other.classes)
        place = np.searchsorted(self.classes, other.classes)
        move = other.shift - self.shift
        sums = other.feature_sums.sum(axis=0)
        crossed = np.outer(sums, move)
        self.gram += other.gram + crossed + crossed.T
        self.gram += other.total_weight * np.outer(move, move)
        self.feature_sums[place] += other.feature_sums + np.outer(other.class_weights, move)
        self.code_sums[place] += other.code_sums
        self.class_weights[place] += other.class_weights
        self.n_rows += other.n_rows
        self._labels += [place[labels] for labels in other._labels]
        self._codes += other._codes
        self._row_weights += other._row_weights

    @property
    def total_weight(self) -> float:
        """Sum of all sample weights."""
        return float(self.class_weights.sum())

    def groups(self) -> Groups:
        """All rows with their starting codes, grouped. Needs `keep_codes`.

        Labels count the classes that have rows, from 0 on.
        """
        place = np.cumsum(self.class_weights > 0) - 1
        return Groups.of_samples(
            place[np.concatenate(self._labels)],
            np.concatenate(self._codes),
            np.concatenate(self._row_weights),
        )

    def follow(
        self,
        moved: NDArray[np.bool_],
        class_codes: NDArray[np.uint8],
        codes: NDArray[np.uint8],
    ) -> NDArray[np.uint8]:
        """Give the rows of moved classes (C,) the code of their class; `codes` (n, bytes)."""
        own = np.concatenate(self._labels)
        return np.where(moved[own, None], class_codes[own], codes)

    def cross(
        self,
        class_codes: NDArray[np.int8],
        X: Features | None = None,
        codes: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of ``weight (x - shift) b'`` and ``weight b`` over all rows.

        Every row has the code of its class, unless X and `codes` say otherwise.

        Parameters
        ----------
        class_codes : (C, r) int8
        X : (n, d), all rows that were added, optional
        codes : (n, bytes) packed, their codes

        Returns
        -------
        cross : (d, r) float64
        code_sum : (r,) float64
        """
        n_bits = class_codes.shape[1]
        cross = self.feature_sums.T @ class_codes.astype(np.float64)
        code_sum = self.class_weights @ class_codes.astype(np.float64)
        if X is None or codes is None:
            return cross, code_sum
        own, weights = np.concatenate(self._labels), np.concatenate(self._row_weights)
        differing = np.flatnonzero(np.any(codes != pack(class_codes)[own], axis=1))
        for start in range(0, len(differing), 4096):
            rows = differing[start : start + 4096]
            block = dense_rows(X, rows) - self.shift
            change = (unpack(codes[rows], n_bits) - class_codes[own[rows]]).astype(np.float64)
            change *= weights[rows, None]
            cross += block.T @ change
            code_sum += change.sum(axis=0)
        return cross, code_sum


def _joined(parts: list[NDArray[Any]], empty: tuple[int, ...], dtype: type) -> NDArray[Any]:
    if not parts:
        return np.empty(empty, dtype=dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_label_kinds(known: NDArray[Any], new: NDArray[Any]) -> None:
    """Refuse labels that are text where the known ones are numbers, or the other way round."""
    numeric = "biuf"
    if (known.dtype.kind in numeric) != (new.dtype.kind in numeric):
        raise ValueError(
            f"y has labels of type {new.dtype}, but the classes known so far are of type "
            f"{known.dtype}; text and numbers cannot be mixed"
        )
