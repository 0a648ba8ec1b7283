"""Everything that training needs of the rows, as sums: one pass, any batches, mergeable.

The ridge regression needs ``G = X'X``, the column sums and ``X'B``. With the hinge loss B = W[y],
so ``X'B = S'W`` with S the per-class feature sums, and W needs only the per-class sums of the
starting codes. So these sums are all of hinge training, and of all training where every sample
starts with the code of its class. Where rows start with codes of their own, the other losses also
keep these, packed, ceil(r / 8) bytes a sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import add_gram, class_sums
from bitclass.anchors import RbfAnchors
from bitclass.codes import pack, packed_width, unpack
from bitclass.rows import Features, dense_rows, row_blocks
from bitclass.training.groups import Groups
from bitclass.training.starting_codes import GivenCodes, MeanCodes, StartingCodes

__all__ = ["Statistics", "check_label_kinds"]

# Sample weights outside this range are not multiplied in float32.
_SMALLEST_WEIGHT, _LARGEST_WEIGHT = 1e-12, 1e12


class Statistics:
    """Sums over rows; adding rows and merging two objects give what all rows at once would.

    Parameters
    ----------
    starting : StartingCodes
    shift, scale : (d,)
        Features are summed as ``z = (x - shift) / scale``, so that no digits are lost to a large
        mean or a strange unit. Any values near mean and standard deviation will do.
    keep_codes : bool
        Whether to keep the packed starting codes of all rows, where they have codes of their own.
    anchors : RbfAnchors, optional
        The features that are summed are then the similarities of rows to these.

    Attributes
    ----------
    classes : (C,) labels, sorted
    gram : (d, d) float64, ``sum weight z z'``
    feature_sums : (C, d) float64, ``sum weight z`` over the rows of each class
    code_sums : (C, r) float64, ``sum weight b`` over the rows of each class; (C, 0) where the
        starting codes are those of the classes
    class_weights : (C,) float64, ``sum weight`` over the rows of each class
    n_rows : int
    """

    def __init__(
        self,
        starting: StartingCodes,
        shift: NDArray[np.float64],
        scale: NDArray[np.float64],
        keep_codes: bool,
        anchors: RbfAnchors | None = None,
    ) -> None:
        n_features = len(shift)
        self.starting = starting
        self.shift = shift
        self.scale = scale
        self.anchors = anchors
        self.keep_codes = keep_codes and starting.of_rows
        self.classes: NDArray[Any] = np.empty(0)
        self.gram = np.zeros((n_features, n_features))
        self.feature_sums = np.zeros((0, n_features))
        self.code_sums = np.zeros((0, starting.n_bits if starting.of_rows else 0))
        self.class_weights = np.zeros(0)
        self.n_rows = 0
        self._labels: list[NDArray[np.intp]] = []
        self._codes: list[NDArray[np.uint8]] = []
        self._row_weights: list[NDArray[np.float64]] = []

    def add_classes(self, classes: NDArray[Any]) -> None:
        """Make room for classes that are not known yet."""
        check_label_kinds(self.classes, classes)
        if len(classes) == 0:
            return
        union = np.unique(classes) if len(self.classes) == 0 else np.union1d(self.classes, classes)
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
            block = self._features(block)
            if self.starting.of_rows:
                codes = self.starting.codes(block, self.classes, own[rows], self.n_rows)
                signs = unpack(codes, self.starting.n_bits).astype(np.float32)
                class_sums(signs, own[rows], of_block, self.code_sums)
            Z = self.standardised(block)
            class_sums(Z, own[rows], of_block, self.feature_sums)
            if of_block is not None:
                extreme = of_block.min() < _SMALLEST_WEIGHT or of_block.max() > _LARGEST_WEIGHT
                Z = Z.astype(np.float64) if extreme else Z
                Z *= np.sqrt(of_block).astype(Z.dtype)[:, None]
            add_gram(Z, self.gram)
            self.n_rows += len(block)
            if self.keep_codes:
                self._codes.append(codes)
        if self.keep_codes:
            self._labels.append(own)
            self._row_weights.append(np.ones(len(own)) if weights is None else weights)

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return len(self.shift) if self.anchors is None else self.anchors.n_features

    def _features(self, block: NDArray[Any]) -> NDArray[Any]:
        """The features that are summed, of a block of dense rows."""
        return block if self.anchors is None else self.anchors.similarities(block)

    def standardised(self, block: NDArray[Any]) -> NDArray[Any]:
        """``(x - shift) / scale`` of a block of rows (n, d), in its own dtype; always a copy."""
        Z: NDArray[Any] = block - self.shift.astype(block.dtype)
        Z *= (1.0 / self.scale).astype(block.dtype)
        return Z

    def standardised_rows(self, X: Features, rows: NDArray[np.intp]) -> NDArray[Any]:
        """Features of chosen rows of X as they are summed, shape (m, d)."""
        return self.standardised(self._features(dense_rows(X, rows)))

    def without_rows(self) -> Statistics:
        """Statistics of the same features and starting codes, for some of the rows.

        Codes that are given go by the place of a row, and do not count here.
        """
        given = isinstance(self.starting, GivenCodes)
        starting = MeanCodes(self.starting.n_bits, seed=0) if given else self.starting
        return Statistics(starting, self.shift, self.scale, False, self.anchors)

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
        if other.n_features != self.n_features:
            raise ValueError(
                f"statistics of {other.n_features} features cannot be merged into statistics of "
                f"{self.n_features}"
            )
        if _fingerprint(other.anchors) != _fingerprint(self.anchors):
            raise ValueError("statistics of different kernel anchors cannot be merged")
        if other.keep_codes != self.keep_codes:
            raise ValueError("statistics of the hinge loss and of another cannot be merged")
        if other.starting.fingerprint() != self.starting.fingerprint():
            raise ValueError("statistics of different starting codes cannot be merged")
        self.add_classes(other.classes)
        place = np.searchsorted(self.classes, other.classes)
        # Their z becomes ours by z * stretch + move.
        stretch = other.scale / self.scale
        move = (other.shift - self.shift) / self.scale
        stretched = other.feature_sums * stretch
        crossed = np.outer(stretched.sum(axis=0), move)
        self.gram += other.gram * np.outer(stretch, stretch) + crossed + crossed.T
        self.gram += other.total_weight * np.outer(move, move)
        self.feature_sums[place] += stretched + np.outer(other.class_weights, move)
        self.code_sums[place] += other.code_sums
        self.class_weights[place] += other.class_weights
        self.n_rows += other.n_rows
        self._labels += [place[labels] for labels in other._labels]
        self._codes += other._codes
        self._row_weights += other._row_weights

    def remove_classes(self, labels: NDArray[Any]) -> None:
        """Forget classes.

        What their rows added to `gram` is not known apart; it is taken as their weight times the
        scatter within classes, which all classes are assumed to share, about their own means.

        Parameters
        ----------
        labels : (k,) of known classes
        """
        gone = np.isin(self.classes, labels)
        if gone.sum() != len(np.unique(labels)):
            raise ValueError(f"{labels!r} must be among the known classes")
        weights = np.where(self.class_weights > 0, self.class_weights, 1.0)
        scaled = self.feature_sums / np.sqrt(weights)[:, None]
        within = (self.gram - scaled.T @ scaled) / max(self.total_weight, 1e-300)
        self.gram -= self.class_weights[gone].sum() * within + scaled[gone].T @ scaled[gone]
        # Exact where all rows have the same weight.
        share = self.class_weights[gone].sum() / max(self.total_weight, 1e-300)
        n_rows = self.n_rows
        self.n_rows -= round(n_rows * share)
        if self.keep_codes:
            own, codes, row_weights = self.kept_rows()
            stay = ~gone[own]
            kept_all = len(own) == n_rows  # and no kept row stands for several
            place = np.cumsum(~gone) - 1
            self._labels, self._codes = [place[own[stay]]], [codes[stay]]
            self._row_weights = [row_weights[stay]]
            if kept_all:
                self.n_rows = int(stay.sum())
        for name in ("classes", "feature_sums", "code_sums", "class_weights"):
            setattr(self, name, getattr(self, name)[~gone])

    def fingerprint(self) -> str:
        """Text that differs for the sums of other rows, in 32 digits."""
        about = f"{self.starting.fingerprint()} {self.n_rows}"
        digest = hashlib.blake2b(about.encode(), digest_size=16)
        for sums in (self.gram, self.feature_sums, self.code_sums, self.class_weights):
            digest.update(np.ascontiguousarray(sums).data)
        return digest.hexdigest()

    @property
    def total_weight(self) -> float:
        """Sum of all sample weights."""
        return float(self.class_weights.sum())

    def starting_sums(self) -> NDArray[np.float64]:
        """Weighted sums of the starting codes of the S classes that have rows, shape (S, r)."""
        seen = self.class_weights > 0
        if not isinstance(self.starting, MeanCodes):
            return self.code_sums[seen]
        weights = self.class_weights[seen]
        codes = self.starting.of_sums(self.gram, self.feature_sums[seen], weights)
        return codes * weights[:, None]

    def groups(self, starting_sums: NDArray[np.float64]) -> Groups:
        """All rows with their starting codes, grouped: one group a class, or from kept codes.

        Labels count the classes that have rows, from 0 on.
        """
        if not self.starting.of_rows:
            weights = self.class_weights[self.class_weights > 0]
            own = np.arange(len(weights))
            return Groups(own, pack(starting_sums >= 0), weights, own)
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
        batches: Iterable[tuple[int, Features]] = (),
        codes: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of ``weight z b'`` and ``weight b`` over all rows.

        Every row has the code of its class, unless it comes once more with a code of its own.

        Parameters
        ----------
        class_codes : (C, r) int8
        batches : rows that were added, each batch as its first row's number and X (m, d)
        codes : (n, bytes) packed, the codes of all rows

        Returns
        -------
        cross : (d, r) float64
        code_sum : (r,) float64
        """
        cross = self.feature_sums.T @ class_codes.astype(np.float64)
        code_sum = self.class_weights @ class_codes.astype(np.float64)
        if codes is None:
            return cross, code_sum
        own, weights = np.concatenate(self._labels), np.concatenate(self._row_weights)
        packed = pack(class_codes)
        differs = np.any(codes != packed[own], axis=1)
        if not differs.any():
            return cross, code_sum
        for first_row, X in batches:
            chosen = np.flatnonzero(differs[first_row : first_row + X.shape[0]])
            rows = first_row + chosen
            old = packed[own[rows]]
            self.add_differences(X, chosen, codes[rows], old, weights[rows], cross, code_sum)
        return cross, code_sum

    def add_differences(
        self,
        X: Features,
        chosen: NDArray[np.intp],
        new: NDArray[np.uint8],
        old: NDArray[np.uint8],
        weights: NDArray[np.float64],
        cross: NDArray[np.float64],
        code_sum: NDArray[np.float64],
    ) -> None:
        """Add ``weight z (new - old)'`` to `cross` and ``weight (new - old)`` to `code_sum`.

        Parameters
        ----------
        X : (n, d)
        chosen : (k,) the rows of X to count
        new, old : (k, bytes) packed codes of these rows
        weights : (k,) sample weights of these rows
        cross : (d, r), changed in place
        code_sum : (r,), changed in place
        """
        n_bits = len(code_sum)
        for start in range(0, len(chosen), 4096):
            part = slice(start, start + 4096)
            Z = self.standardised_rows(X, chosen[part]).astype(np.float64)
            change = (unpack(new[part], n_bits) - unpack(old[part], n_bits)).astype(np.float64)
            change *= weights[part, None]
            cross += Z.T @ change
            code_sum += change.sum(axis=0)


def _fingerprint(anchors: RbfAnchors | None) -> str | None:
    return None if anchors is None else anchors.fingerprint()


def _joined(parts: list[NDArray[Any]], empty: tuple[int, ...], dtype: type) -> NDArray[Any]:
    if not parts:
        return np.empty(empty, dtype=dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_label_kinds(known: NDArray[Any], new: NDArray[Any]) -> None:
    """Refuse labels that are text where the known ones are numbers, or the other way round."""
    numeric = "biuf"
    if len(known) and len(new) and (known.dtype.kind in numeric) != (new.dtype.kind in numeric):
        raise ValueError(
            f"y has labels of type {new.dtype}, but the classes known so far are of type "
            f"{known.dtype}; text and numbers cannot be mixed"
        )
