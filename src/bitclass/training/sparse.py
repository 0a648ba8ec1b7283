"""Wide rows: a projection learned directly on sparse mini-batches.

Sums of all pairs of d features do not fit where d is 100,000. Here nothing is summed but how often
each column occurs and how large its values are; then the projection, at first random, learns with
the loss of refinement (`refinement.steps`) from mini-batches of rows, of which only the entries are
touched. Each column has a step size of its own: a rare one moves as far as a frequent one.

With up to 2,048 classes, weights learn as they do in refinement. With more, the weights of a class
are the signs of the mean score of its rows, and a mini-batch holds all rows of some classes: a row
is compared with the mean of the *other* rows of its class and with the means of the other classes
of the batch, half of which are chosen for being near. Without leaving the row out of its own mean,
the projection would learn to recognise rows it has seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass._native.sparse import SparseRows, sparse_scores, sparse_step
from bitclass.codes import pack
from bitclass.rows import Features, row_blocks
from bitclass.training.refinement.steps import (
    LATENT_SIZE,
    SHARE_OF_SIGNS,
    STEP_OF_INTERCEPT,
    STEP_OF_WEIGHTS,
    Adam,
    Schedule,
    mini_batches,
    sharpness,
    softmax,
)

__all__ = ["ColumnSums", "SparseLearner", "is_wide"]

#: Passes over batches of rows, their classes' indices, and their weights or None.
Passes = Callable[[], Iterator[tuple[Features, NDArray[np.intp], NDArray[np.float64] | None]]]

# Wider rows are learned from here: sums of all pairs of features would take 8 d^2 bytes and d^3
# operations. Sparse rows sooner, since the other way makes them dense.
MAX_DENSE_FEATURES, MAX_DENSE_FEATURES_OF_SPARSE = 8192, 2048
# A column that occurs in fewer rows is not kept; the second number where there are many rows.
_MIN_OCCURRENCES, _MIN_OCCURRENCES_OF_MANY, _MANY_ROWS = 2, 3, 10_000
# More than this share of entries, and the rows are standardised as dense ones are.
_DENSE_SHARE = 0.5

# Chosen on held-out training rows of CLINC-150 and of place names: see docs/accuracy.md.
_MAX_LEARNED_CLASSES = 2048
_STEP_OF_COLUMNS = 0.6  # in units of the root mean square of the projection at its start
_EPOCHS, _MIN_STEPS, _MAX_EPOCHS, _MAX_VISITS = 5, 200, 40, 1_000_000
_ROWS_PER_STEP = 256
# The same where weights are means.
_STEP_OF_COLUMNS_BY_MEANS = 0.16
_SHARPNESS_BY_MEANS = 0.7  # times that of learned weights
_DEVIATION_BY_MEANS = 0.5  # of the scores at the start
_EPOCHS_BY_MEANS = 4
_CLASSES_PER_STEP, _NEAR_CLASSES = 512, 3
_MAX_ROWS_PER_CLASS = 16
# Codes of all classes, by which near ones are found, are computed anew after so many steps, then
# each time the number of steps has grown by half.
_STEPS_TO_RENEW = 32
# With later batches, the share of the first step size.
_STEP_OF_LATER_BATCHES = 0.1
_HELD_OUT_SHARE, _MAX_HELD_OUT, _MIN_ROWS_TO_HOLD_OUT = 0.05, 2048, 500
_ROWS_PER_BLOCK = 4096


def is_wide(X: Features) -> bool:
    """Whether rows (n, d) have too many features for sums of all pairs of them."""
    limit = MAX_DENSE_FEATURES if isinstance(X, np.ndarray) else MAX_DENSE_FEATURES_OF_SPARSE
    return bool(X.shape[1] > limit)


class ColumnSums:
    """How often each column occurs, and how large its values are.

    Parameters
    ----------
    n_features : int, number d of columns
    """

    def __init__(self, n_features: int) -> None:
        self.n_rows = 0
        self.counts = np.zeros(n_features, dtype=np.int64)
        self.sums = np.zeros(n_features)
        self.squares = np.zeros(n_features)

    def add(self, X: Features) -> None:
        """Count rows (n, d)."""
        self.n_rows += X.shape[0]
        if isinstance(X, np.ndarray):
            for _, block in row_blocks(X):
                self.counts += np.count_nonzero(block, axis=0)
                self.sums += block.sum(axis=0, dtype=np.float64)
                self.squares += np.einsum("nd,nd->d", block, block, dtype=np.float64)
            return
        d, values = X.shape[1], X.data.astype(np.float64)
        self.counts += np.bincount(X.indices, minlength=d)
        self.sums += np.bincount(X.indices, values, minlength=d)
        self.squares += np.bincount(X.indices, values * values, minlength=d)

    def columns(self) -> Columns:
        """Which columns to keep, and what makes their values alike in size."""
        least = _MIN_OCCURRENCES if self.n_rows < _MANY_ROWS else _MIN_OCCURRENCES_OF_MANY
        dense = self.counts.sum() > _DENSE_SHARE * self.n_rows * len(self.counts)
        if dense:
            mean = self.sums / self.n_rows
            variance = self.squares / self.n_rows - mean**2
            kept = np.flatnonzero(variance > 1e-12 * self.squares / self.n_rows)
            centre, sizes = mean[kept], np.sqrt(variance[kept])
        else:
            for least in range(least, 0, -1):  # of very few rows all columns may be rare
                kept = np.flatnonzero((self.counts >= least) & (self.squares > 0))
                if len(kept):
                    break
            centre, sizes = None, np.sqrt(self.squares[kept] / self.counts[kept])
        if len(kept) == 0:
            kept, centre, sizes = np.zeros(1, dtype=np.intp), None, np.ones(1)
        places = np.full(len(self.counts), -1, dtype=np.int32)
        places[kept] = np.arange(len(kept))
        factors = (1.0 / np.maximum(sizes, 1e-30)).astype(np.float32)
        centre = None if centre is None else centre.astype(np.float32)
        return Columns(kept.astype(np.int32), places, factors, centre)


@dataclass(frozen=True)
class Columns:
    """The columns that a projection has, and how their values are scaled.

    Attributes
    ----------
    kept : (k,) int32, ascending
    places : (d,) int32, the place of each column among these, or -1
    factors : (k,) float32, by which values are multiplied
    centre : (k,) float32, what is subtracted first, or None
    """

    kept: NDArray[np.int32]
    places: NDArray[np.int32]
    factors: NDArray[np.float32]
    centre: NDArray[np.float32] | None

    def rows(self, X: Features) -> SparseRows:
        """Rows (n, d) in these columns, scaled."""
        k = len(self.kept)
        if self.centre is not None:
            dense = X[:, self.kept] if isinstance(X, np.ndarray) else X[:, self.kept].toarray()
            dense = np.ascontiguousarray(dense, dtype=np.float32)
            dense -= self.centre
            dense *= self.factors
            indptr = np.arange(len(dense) + 1, dtype=np.int64) * k
            indices = np.tile(np.arange(k, dtype=np.int32), len(dense))
            return SparseRows(indptr, indices, dense.ravel(), k)
        found = SparseRows.of(X)
        places = self.places[found.indices]
        here = places >= 0
        passed = np.concatenate([[0], np.cumsum(here)])
        places = places[here]
        return SparseRows(
            passed[found.indptr], places, found.data[here] * self.factors[places], k
        )


class SparseLearner:
    """A hash function and class weights that learn from sparse rows.

    Parameters
    ----------
    n_bits : int
    columns : Columns
    n_classes : int
    seed : int

    Attributes
    ----------
    projection : (k, r) float32, for values as `columns` scales them
    intercept : (r,) float32
    class_weights : (C,) float64, weights of the rows that were taken in
    """

    def __init__(self, n_bits: int, columns: Columns, n_classes: int, seed: int) -> None:
        self.columns = columns
        self.by_means = n_classes > _MAX_LEARNED_CLASSES
        self._random = np.random.default_rng(seed)
        k = len(columns.kept)
        self.projection = self._random.standard_normal((k, n_bits), dtype=np.float32)
        self.intercept = np.zeros(n_bits, dtype=np.float32)
        self.class_weights = np.zeros(n_classes)
        self._sums = np.zeros((n_classes, n_bits), dtype=np.float32)  # of scores, by class
        self._latent: NDArray[np.float32] | None = None
        self._squares = np.zeros(k, dtype=np.float32)
        self._counts = np.zeros(k, dtype=np.int32)
        self._size = 1.0  # root mean square of the projection at its start

    @property
    def n_bits(self) -> int:
        """Number of bits r of a code."""
        return int(self.projection.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_weights)

    @property
    def weights(self) -> NDArray[np.int8]:
        """Weights (C, r) in {-1, +1}, +1 for classes without rows."""
        values = self._sums if self._latent is None else self._latent
        return np.where(values >= 0, 1, -1).astype(np.int8)

    def scores(self, X: Features) -> NDArray[np.float32]:
        """Scores F = P'x + t of rows, (n, r)."""
        found = np.empty((X.shape[0], self.n_bits), dtype=np.float32)
        for start in range(0, len(found), _ROWS_PER_BLOCK):
            rows = slice(start, start + _ROWS_PER_BLOCK)
            found[rows] = sparse_scores(self.columns.rows(X[rows]), self.projection)
        found += self.intercept
        return found

    def start(self, X: Features, own: NDArray[np.intp]) -> None:
        """Give the random projection a size, and the bits their thresholds, by sample rows."""
        scores = self.scores(X)
        deviation = _DEVIATION_BY_MEANS if self.by_means else 1.0
        self._size = deviation / max(float(np.sqrt(np.mean(scores.var(axis=0)))), 1e-12)
        self.projection *= np.float32(self._size)
        scores *= np.float32(self._size)
        # Half of the classes on either side of every threshold.
        sums, totals = _sums_by_class(scores, own, None, self.n_classes)
        seen = totals > 0
        means = sums[seen] / totals[seen, None].astype(np.float32)
        self.intercept = -means.mean(axis=0).astype(np.float32)
        if not self.by_means:
            self._latent = np.zeros((self.n_classes, self.n_bits), dtype=np.float32)
            self._latent[seen] = _latent(means + self.intercept)

    def add_to_sums(
        self, X: Features, own: NDArray[np.intp], sample_weight: NDArray[np.float64] | None
    ) -> None:
        """Add rows to the sums of scores by class; these are the weights of many classes."""
        for start in range(0, len(own), 16 * _ROWS_PER_BLOCK):
            rows = slice(start, start + 16 * _ROWS_PER_BLOCK)
            weight = None if sample_weight is None else sample_weight[rows]
            scores = self.scores(X[rows]) if self.by_means else None
            if scores is not None:
                _add_by_class(self._sums, scores, own[rows], weight)
            self.class_weights += np.bincount(own[rows], weight, minlength=self.n_classes)

    def copy(self) -> SparseLearner:
        """An independent copy."""
        other = SparseLearner.__new__(SparseLearner)
        for name, value in self.__dict__.items():
            copied = value.copy() if isinstance(value, np.ndarray) else value
            setattr(other, name, copied)
        return other

    # ---------------------------------------------------------------------------------------------
    # Learned weights
    # ---------------------------------------------------------------------------------------------

    def learn(
        self,
        samples: Iterator[tuple[Features, NDArray[np.intp], NDArray[np.float64] | None]],
        n_rows: int,
        on_epoch: Callable[[int, int, float], bool],
        *,
        later: bool = False,
    ) -> None:
        """Learn from rows.

        Parameters
        ----------
        samples : endless; rows to show in each epoch, with indices of classes and weights
        n_rows : int, rows per sample
        on_epoch : given the epoch, their number and the mean loss, tells whether to stop
        later : bool, whether these rows add to what was learned from others: one epoch of small
            steps
        """
        if self.by_means:
            self._learn_by_means(samples, on_epoch)
            return
        per_step = max(1, min(_ROWS_PER_STEP, n_rows))
        per_epoch = n_rows // per_step
        n_epochs = 1
        if not later:
            n_epochs = max(_EPOCHS, min(_MAX_EPOCHS, math.ceil(_MIN_STEPS / per_epoch)))
            n_epochs = max(1, min(n_epochs, _MAX_VISITS // n_rows))
        n_steps = n_epochs * per_epoch
        schedule = Schedule(n_steps, _STEP_OF_LATER_BATCHES if later else 1.0)
        assert self._latent is not None
        of_intercept, of_weights = Adam(self.intercept.shape), Adam(self._latent.shape)
        step = epoch = 0
        for X, own, sample_weight in samples:
            losses = []
            for rows in mini_batches(len(own), per_step, self._random):
                step += 1
                factor = schedule.at(step)
                batch = self.columns.rows(X[rows])
                scores = sparse_scores(batch, self.projection)
                scores += self.intercept
                weight = None if sample_weight is None else sample_weight[rows]
                loss, by_scores, by_weights = self._gradient(scores, own[rows], weight)
                losses.append(loss)
                self._move(batch, by_scores, factor * _STEP_OF_COLUMNS)
                by_intercept = by_scores.sum(axis=0)
                of_intercept.move(self.intercept, by_intercept, factor * STEP_OF_INTERCEPT, step)
                of_weights.move(self._latent, by_weights, factor * STEP_OF_WEIGHTS, step)
                np.clip(self._latent, -1.0, 1.0, out=self._latent)
                if step >= n_steps:
                    break
            epoch += 1
            if on_epoch(epoch, n_epochs, float(np.mean(losses))) or step >= n_steps:
                return

    def _move(self, batch: SparseRows, by_scores: NDArray[np.float32], size: float) -> None:
        sparse_step(
            batch, by_scores, size * self._size, self.projection, self._squares, self._counts
        )

    def _gradient(
        self,
        scores: NDArray[np.float32],
        own: NDArray[np.intp],
        sample_weight: NDArray[np.float64] | None,
    ) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
        """Loss of rows, and its gradient by their scores (m, r) and by the weights (C, r)."""
        assert self._latent is not None
        sharp_signs, sharp_tanh = sharpness(self.n_classes, self.n_bits)
        signs = _signs(self._latent)
        codes, values = _signs(scores), np.tanh(scores, out=scores)
        by_signs = softmax(codes @ signs.T * sharp_signs)
        by_tanh = softmax(values @ signs.T * sharp_tanh)
        shares = _shares(len(own), sample_weight)
        at = (np.arange(len(own)), own)
        loss = _cross_entropy(by_signs[at], by_tanh[at], shares)
        by_signs[at] -= 1.0
        by_tanh[at] -= 1.0
        by_signs *= (np.float32(SHARE_OF_SIGNS) * sharp_signs * shares)[:, None]
        by_tanh *= (np.float32(1.0 - SHARE_OF_SIGNS) * sharp_tanh * shares)[:, None]
        by_weights = by_signs.T @ codes
        by_weights += by_tanh.T @ values
        by_signs += by_tanh
        by_scores = by_signs @ signs
        # The slope of tanh, also in the place of that of sign.
        by_scores -= by_scores * values * values
        return loss, by_scores, by_weights

    # ---------------------------------------------------------------------------------------------
    # Weights that are class means
    # ---------------------------------------------------------------------------------------------

    def _learn_by_means(
        self,
        samples: Iterator[tuple[Features, NDArray[np.intp], NDArray[np.float64] | None]],
        on_epoch: Callable[[int, int, float], bool],
    ) -> None:
        schedule: Schedule | None = None
        of_intercept = Adam(self.intercept.shape)
        step = epoch = renewed = 0
        index: HammingIndex | None = None
        for X, own, _ in samples:
            groups = _Groups(own, self._random)
            per_epoch = max(1, len(groups) // _CLASSES_PER_STEP)
            if not groups.has_pairs:
                return
            if schedule is None:
                schedule = Schedule(per_epoch * _EPOCHS_BY_MEANS)
            seeds = self._random.permutation(len(groups))
            per_step = _CLASSES_PER_STEP // (1 + _NEAR_CLASSES)
            losses = []
            for start in range(0, per_epoch * per_step, per_step):
                if index is None or step >= max(renewed + _STEPS_TO_RENEW, renewed * 3 // 2):
                    codes = self._codes_of_groups(X, groups)
                    index, renewed = HammingIndex(codes), step
                step += 1
                near, _ = index.top_k(
                    codes[seeds[start : start + per_step]], min(1 + _NEAR_CLASSES, len(groups))
                )
                chosen = np.union1d(seeds[start : start + per_step], near.ravel())
                rows, lengths = groups.rows(chosen)
                batch = self.columns.rows(X[rows])
                scores = sparse_scores(batch, self.projection)
                scores += self.intercept
                loss, by_scores = _gradient_by_means(scores, lengths, self._sharpness_by_means)
                losses.append(loss)
                factor = schedule.at(step)
                self._move(batch, by_scores, factor * _STEP_OF_COLUMNS_BY_MEANS)
                size = factor * STEP_OF_INTERCEPT * _DEVIATION_BY_MEANS
                of_intercept.move(self.intercept, by_scores.sum(axis=0), size, step)
                if step >= schedule.n_steps:
                    break
            index = None  # the next sample may have other classes
            epoch += 1
            if (
                on_epoch(epoch, _EPOCHS_BY_MEANS, float(np.mean(losses)))
                or step >= schedule.n_steps
            ):
                return

    @property
    def _sharpness_by_means(self) -> tuple[np.float32, np.float32]:
        of_signs, of_tanh = sharpness(self.n_classes, self.n_bits)
        return np.float32(_SHARPNESS_BY_MEANS * of_signs), np.float32(_SHARPNESS_BY_MEANS * of_tanh)

    def _codes_of_groups(self, X: Features, groups: _Groups) -> NDArray[np.uint8]:
        """Packed signs of the mean scores of each class of a sample."""
        sums = np.zeros((len(groups), self.n_bits), dtype=np.float32)
        for start in range(0, len(groups.order), 16 * _ROWS_PER_BLOCK):
            rows = slice(start, start + 16 * _ROWS_PER_BLOCK)
            _add_by_class(sums, self.scores(X[rows]), groups.group_of_row[rows], None)
        return pack(sums >= 0)


class _Groups:
    """Rows of a sample by class, in random order within each.

    Parameters
    ----------
    own : (n,) index of each row's class
    random : numpy Generator
    """

    def __init__(self, own: NDArray[np.intp], random: np.random.Generator) -> None:
        _, self.group_of_row, counts = np.unique(own, return_inverse=True, return_counts=True)
        shuffled = random.permutation(len(own))
        self.order = shuffled[np.argsort(self.group_of_row[shuffled], kind="stable")]
        self._counts = counts
        self._starts = np.cumsum(counts) - counts

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def has_pairs(self) -> bool:
        """Whether any class has two rows."""
        return bool((self._counts > 1).any())

    def rows(self, groups: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of some classes, one class after the other, and how many each has."""
        lengths = np.minimum(self._counts[groups], _MAX_ROWS_PER_CLASS)
        begin = np.cumsum(lengths) - lengths
        at = np.arange(int(lengths.sum())) + np.repeat(self._starts[groups] - begin, lengths)
        return self.order[at], lengths


def _gradient_by_means(
    scores: NDArray[np.float32], lengths: NDArray[np.intp], sharp: tuple[np.float32, np.float32]
) -> tuple[float, NDArray[np.float32]]:
    """Loss of rows against the means of classes, and its gradient by their scores (m, r).

    The score of a row's own class is that of the mean of the other rows of the class. Rows that
    are alone in their class are not compared with others, but others are compared with them.

    Parameters
    ----------
    scores : (m, r), rows of one class after the other
    lengths : (C,) how many each class has
    sharp : factors of the scores in the softmax, by signs and by tanh
    """
    own = np.repeat(np.arange(len(lengths)), lengths)
    counts = lengths.astype(np.float32)[:, None]
    sums = np.add.reduceat(scores, np.cumsum(lengths) - lengths, axis=0)
    means = sums / counts
    others_count = np.maximum(counts[own] - 1.0, 1.0)
    others = (sums[own] - scores) / others_count
    codes, values = _signs(scores), np.tanh(scores)
    of_classes, of_others = _signs(means), _signs(others)

    at = (np.arange(len(own)), own)
    has_others = lengths[own] > 1
    shares = (has_others / np.float32(max(1, np.count_nonzero(has_others)))).astype(np.float32)
    slopes = []
    likelihoods = []
    for queries, factor, share in (
        (codes, sharp[0], SHARE_OF_SIGNS),
        (values, sharp[1], 1.0 - SHARE_OF_SIGNS),
    ):
        logits = queries @ of_classes.T
        logits[at] = np.einsum("mr,mr->m", queries, of_others)
        logits *= factor
        slope = softmax(logits)
        likelihoods.append(slope[at])
        slope[at] -= 1.0
        slope *= (np.float32(share) * factor * shares)[:, None]
        slopes.append(slope)
    loss = _cross_entropy(*likelihoods, shares)

    of_own = [slope[at][:, None] for slope in slopes]
    by_others = of_own[0] * codes + of_own[1] * values
    for slope in slopes:
        slope[at] = 0.0
    by_classes = slopes[0].T @ codes
    by_classes += slopes[1].T @ values
    slopes[0] += slopes[1]
    by_scores = slopes[0] @ of_classes
    by_scores += (of_own[0] + of_own[1]) * of_others
    # The slope of tanh, also in the place of that of sign.
    by_scores *= 1.0 - values * values
    by_classes *= (1.0 - np.tanh(means) ** 2) / counts
    by_others *= (1.0 - np.tanh(others) ** 2) / others_count
    # The mean of the others has the scores of all rows of the class but one.
    by_others[~has_others] = 0.0
    by_classes += np.add.reduceat(by_others, np.cumsum(lengths) - lengths, axis=0)
    by_scores += by_classes[own]
    by_scores -= by_others
    return loss, by_scores


def _signs(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(values >= 0, np.float32(1), np.float32(-1))


def _latent(means: NDArray[np.float32]) -> NDArray[np.float32]:
    """Latent weights from the mean scores (C, r) of classes."""
    size = max(float(np.sqrt(np.mean(means**2))), 1e-12)
    return np.clip(LATENT_SIZE * means / size, -1.0, 1.0).astype(np.float32)


def _shares(n: int, sample_weight: NDArray[np.float64] | None) -> NDArray[np.float32]:
    """Shares (n,) of the loss."""
    if sample_weight is None:
        return np.full(n, 1.0 / n, dtype=np.float32)
    return (sample_weight / max(float(sample_weight.sum()), 1e-300)).astype(np.float32)


def _cross_entropy(
    by_signs: NDArray[np.float32], by_tanh: NDArray[np.float32], shares: NDArray[np.float32]
) -> float:
    """Mean of two cross-entropies, from the probabilities (m,) of the own classes."""
    logarithms = SHARE_OF_SIGNS * np.log(by_signs + np.float32(1e-9))
    logarithms += (1.0 - SHARE_OF_SIGNS) * np.log(by_tanh + np.float32(1e-9))
    return -float(shares @ logarithms)


def _add_by_class(
    sums: NDArray[np.float32],
    scores: NDArray[np.float32],
    own: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None,
) -> None:
    """Add scores (n, r) to the sums (C, r) of their classes."""
    if sample_weight is not None:
        scores = scores * sample_weight[:, None].astype(np.float32)
    order = np.argsort(own, kind="stable")
    present, starts = np.unique(own[order], return_index=True)
    sums[present] += np.add.reduceat(scores[order], starts, axis=0)


def _sums_by_class(
    scores: NDArray[np.float32],
    own: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None,
    n_classes: int,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    sums = np.zeros((n_classes, scores.shape[1]), dtype=np.float32)
    _add_by_class(sums, scores, own, sample_weight)
    return sums, np.bincount(own, sample_weight, minlength=n_classes).astype(np.float64)
