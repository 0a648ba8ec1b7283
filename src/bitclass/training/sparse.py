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
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass._native import HammingIndex, Precision, SparseRows, sparse_scores, sparse_step
from bitclass.arrays import Features, row_blocks
from bitclass.codes import pack
from bitclass.hash_function import MAX_COLUMNS, HashFunction
from bitclass.model import PackedModel
from bitclass.training.alternation import HISTORY_DTYPE
from bitclass.training.calibration import fitted_temperature
from bitclass.training.fit import Fitted
from bitclass.training.refinement.refine import RESCORE_LENGTHS
from bitclass.training.refinement.split import Rows
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
from bitclass.training.settings import Epoch, Settings

__all__ = [
    "ColumnSums",
    "SparseLearner",
    "SparseSample",
    "SparseState",
    "fit_sparse",
    "fitted_sparse",
    "learns_sparse",
]

# Wider rows are learned from here: sums of all pairs of features would take 8 d^2 bytes and d^3
# operations. Sparse rows sooner, since the other way makes them dense.
MAX_DENSE_FEATURES, MAX_DENSE_FEATURES_OF_SPARSE = 8192, 2048
# Who asks for something else gets the sums as long as they take 2 GB.
MAX_FEATURES_OF_SUMS = 16_384
# A column that occurs in fewer rows is not kept; the second number where there are many rows.
_MIN_OCCURRENCES, _MIN_OCCURRENCES_OF_MANY, _MANY_ROWS = 2, 3, 10_000
# A row of less weight than this share of the mean is learned from in some epochs only, as often as
# its weight says, and its columns are not kept for its sake: steps have the same size in every
# column, so that a row of hardly any weight would move columns of its own as far as any other.
_LEAST_WEIGHT = 0.1
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
_ROWS_PER_BLOCK, _ROWS_PER_DENSE_BLOCK, _ROWS_TO_ADD = 4096, 256, 65_536
_ROWS_TO_START = 2048  # that give the random projection its size


def learns_sparse(settings: Settings, initial_codes: str | NDArray[Any], X: Features) -> bool:
    """Whether rows (n, d) are learned from here, because they have too many features.

    Other losses, starting codes and kernels than the default need sums of all pairs of features,
    or distances, and refuse rows that are too wide for these.
    """
    n_features = X.shape[1]
    limit = MAX_DENSE_FEATURES_OF_SPARSE if hasattr(X, "tocsr") else MAX_DENSE_FEATURES
    if n_features <= limit:
        return False
    default = isinstance(initial_codes, str) and initial_codes == "discriminant"
    needs_sums = {
        f"loss={settings.loss.name!r}": not settings.loss.closed_form,
        "initial_codes other than 'discriminant'": not default,
        "kernel='rbf'": settings.kernel,
    }
    wanted = [name for name, needed in needs_sums.items() if needed]
    if wanted and n_features > MAX_FEATURES_OF_SUMS:
        raise ValueError(
            f"X has {n_features:,} features, but {wanted[0]} takes at most "
            f"{MAX_FEATURES_OF_SUMS:,}; wider rows are learned with loss='hinge', "
            "initial_codes='discriminant' and kernel=None"
        )
    return not wanted


class ColumnSums:
    """How often each column occurs, and how large its values are.

    Parameters
    ----------
    n_features : int, number d of columns

    Attributes
    ----------
    n_rows : int
    total_weight : float, of all rows
    counts : (d,) int64, rows in which each column is not 0
    weights, sums, squares : (d,) float64
        Sums of the weights of these rows, and of values and squares times weights.
    """

    def __init__(self, n_features: int) -> None:
        self.n_rows = 0
        self.total_weight = 0.0
        self.counts = np.zeros(n_features, dtype=np.int64)
        self.weights = np.zeros(n_features)
        self.sums = np.zeros(n_features)
        self.squares = np.zeros(n_features)

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows."""
        return self.total_weight / max(1, self.n_rows)

    def add(self, X: Features, sample_weight: NDArray[np.float64] | None = None) -> None:
        """Count rows (n, d) of given weights (n,), or of weight 1."""
        n, d = X.shape
        self.n_rows += n
        self.total_weight += n if sample_weight is None else float(sample_weight.sum())
        if isinstance(X, np.ndarray):
            for rows, block in row_blocks(X):
                counts = np.count_nonzero(block, axis=0)
                self.counts += counts
                if sample_weight is None:
                    self.weights += counts
                    self.sums += block.sum(axis=0, dtype=np.float64)
                    self.squares += np.einsum("nd,nd->d", block, block, dtype=np.float64)
                else:
                    values = block.astype(np.float64)
                    self.weights += sample_weight[rows] @ (values != 0)
                    self.sums += sample_weight[rows] @ values
                    self.squares += sample_weight[rows] @ np.square(values, out=values)
            return
        counts = np.bincount(X.indices, minlength=d)
        values = weighted = X.data.astype(np.float64)
        self.counts += counts
        if sample_weight is None:
            self.weights += counts
        else:
            of_entry = np.repeat(sample_weight, np.diff(X.indptr))
            self.weights += np.bincount(X.indices, of_entry, minlength=d)
            weighted = values * of_entry
        self.sums += np.bincount(X.indices, weighted, minlength=d)
        self.squares += np.bincount(X.indices, weighted * values, minlength=d)

    def copy(self) -> ColumnSums:
        """An independent copy."""
        other = ColumnSums(len(self.counts))
        other.n_rows, other.total_weight = self.n_rows, self.total_weight
        for name in ("counts", "weights", "sums", "squares"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def columns(self) -> Columns:
        """Which columns to keep, and what makes their values alike in size."""
        least = _MIN_OCCURRENCES if self.n_rows < _MANY_ROWS else _MIN_OCCURRENCES_OF_MANY
        dense = self.counts.sum() > _DENSE_SHARE * self.n_rows * len(self.counts)
        if dense:
            mean, mean_square = self.sums / self.total_weight, self.squares / self.total_weight
            variance = mean_square - mean**2
            kept = np.flatnonzero(variance > 1e-12 * mean_square)
            centre, sizes = mean[kept], np.sqrt(variance[kept])
        else:
            # Of very few rows all columns may be rare.
            least = min(least, int(self.counts.max()))
            often = self.counts >= least
            often &= self.weights >= _LEAST_WEIGHT * least * self.mean_weight
            kept = np.flatnonzero(often & (self.squares > 0))
            centre, sizes = None, np.sqrt(self.squares[kept] / self.weights[kept])
        if len(kept) == 0:
            kept, centre, sizes = np.zeros(1, dtype=np.intp), None, np.ones(1)
        places = np.full(len(self.counts), -1, dtype=np.int32)
        places[kept] = np.arange(len(kept))
        factors = (1.0 / np.maximum(sizes, 1e-30)).astype(np.float32)
        middle = None if centre is None else centre.astype(np.float32)
        return Columns(kept.astype(np.int32), places, factors, middle)


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

    def rows(self, X: Features) -> SparseRows | NDArray[np.float32]:
        """Rows (n, d) in these columns, scaled; dense ones are centred, and stay dense."""
        if self.centre is not None:
            dense = X[:, self.kept] if isinstance(X, np.ndarray) else X[:, self.kept].toarray()
            dense = np.ascontiguousarray(dense, dtype=np.float32)
            dense -= self.centre
            dense *= self.factors
            return dense
        found = SparseRows.of(X)
        places = self.places[found.indices]
        here = places >= 0
        passed = np.concatenate([[0], np.cumsum(here)])
        places = places[here]
        return SparseRows(
            passed[found.indptr], places, found.data[here] * self.factors[places], len(self.kept)
        )


@dataclass(frozen=True)
class SparseSample:
    """Rows in memory, and which of them to learn from.

    Attributes
    ----------
    X : (n, d)
    own : (n,) index of each row's class
    sample_weight : (n,), or None for ones
    rows : (m,) numbers of the rows to learn from
    """

    X: Features
    own: NDArray[np.intp]
    sample_weight: NDArray[np.float64] | None
    rows: NDArray[np.intp]

    def drawn(self, mean_weight: float, random: np.random.Generator) -> SparseSample:
        """Rows for one epoch: those of little weight only as often as their weight says.

        Parameters
        ----------
        mean_weight : float, of all rows that count
        random : numpy Generator

        Returns
        -------
        SparseSample
            With weights in units of the mean, none below `_LEAST_WEIGHT`.
        """
        if self.sample_weight is None:
            return self
        weight = self.sample_weight / mean_weight
        drawn = _LEAST_WEIGHT * random.random(len(self.rows)) < weight[self.rows]
        np.maximum(weight, _LEAST_WEIGHT, out=weight)
        return replace(self, sample_weight=weight, rows=self.rows[drawn])


class SparseLearner:
    """A hash function and class weights that learn from sparse rows.

    Parameters
    ----------
    n_bits : int
    columns : Columns
    n_classes : int
    seed : int
    by_means : bool, whether weights are class means even of few classes

    Attributes
    ----------
    projection : (k, r) float32, for values as `columns` scales them
    intercept : (r,) float32
    class_weights : (C,) float64, weights of the rows that were taken in
    random : numpy Generator
    """

    def __init__(
        self, n_bits: int, columns: Columns, n_classes: int, seed: int, *, by_means: bool = False
    ) -> None:
        self.columns = columns
        self.by_means = by_means or n_classes > _MAX_LEARNED_CLASSES
        self.random = np.random.default_rng(seed)
        k = len(columns.kept)
        self.projection = self.random.standard_normal((k, n_bits), dtype=np.float32)
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
        per_block = _ROWS_PER_BLOCK if self.columns.centre is None else _ROWS_PER_DENSE_BLOCK
        for start in range(0, len(found), per_block):
            rows = slice(start, start + per_block)
            found[rows] = _scores(self.columns.rows(X[rows]), self.projection)
        found += self.intercept
        return found

    def hash_function(self, precision: Precision) -> HashFunction:
        """The hash function of rows as they come: of kept columns only, unless rows are dense."""
        columns = self.columns
        intercept = self.intercept.astype(np.float64)
        projection = self.projection * columns.factors[:, None]
        scale = (1.0 / columns.factors).astype(np.float32)
        n_features = len(columns.places)
        if columns.centre is None:
            return HashFunction(
                projection,
                intercept,
                scale=scale,
                precision=precision,
                columns=columns.kept,
                n_features=n_features,
            )
        intercept -= columns.centre.astype(np.float64) @ projection.astype(np.float64)
        every, centre, sizes = (
            np.full((n_features, *part.shape[1:]), value, dtype=np.float32)
            for part, value in ((projection, 0), (columns.centre, 0), (scale, 1))
        )
        every[columns.kept], centre[columns.kept] = projection, columns.centre
        sizes[columns.kept] = scale
        return HashFunction(every, intercept, centre=centre, scale=sizes, precision=precision)

    def start(
        self, X: Features, own: NDArray[np.intp], sample_weight: NDArray[np.float64] | None = None
    ) -> None:
        """Give the random projection a size, and the bits their thresholds, by sample rows."""
        scores = self.scores(X)
        deviation = _DEVIATION_BY_MEANS if self.by_means else 1.0
        self._size = deviation / max(float(np.sqrt(np.mean(scores.var(axis=0)))), 1e-12)
        self.projection *= np.float32(self._size)
        scores *= np.float32(self._size)
        # Half of the classes on either side of every threshold.
        sums, totals = _sums_by_class(scores, own, sample_weight, self.n_classes)
        seen = totals > 0
        means = np.divide(sums[seen], totals[seen, None], dtype=np.float32)
        self.intercept = -means.mean(axis=0).astype(np.float32)
        if not self.by_means:
            self._latent = np.zeros((self.n_classes, self.n_bits), dtype=np.float32)
            self._latent[seen] = _latent(means + self.intercept)

    def add_to_sums(
        self, X: Features, own: NDArray[np.intp], sample_weight: NDArray[np.float64] | None
    ) -> None:
        """Add rows to the sums of scores by class, whose signs are the weights of many classes.

        Parameters
        ----------
        X : (n, d)
        own : (n,) index of each row's class, or -1 for a row to leave out
        sample_weight : (n,), or None for ones
        """
        for start in range(0, len(own), _ROWS_TO_ADD):
            rows = start + np.flatnonzero(own[start : start + _ROWS_TO_ADD] >= 0)
            weight = None if sample_weight is None else sample_weight[rows]
            if self.by_means:
                _add_by_class(self._sums, self.scores(X[rows]), own[rows], weight)
            self.class_weights += np.bincount(own[rows], weight, minlength=self.n_classes)

    def extend_columns(self, sums: ColumnSums) -> None:
        """Give columns a place that occur often enough by now, with random projections."""
        now, before = sums.columns(), self.columns
        if before.centre is not None or now.centre is not None:
            return
        new = np.setdiff1d(now.kept, before.kept)
        if len(new) == 0:
            return
        kept = np.union1d(before.kept, new).astype(np.int32)
        old = np.searchsorted(kept, before.kept)
        places = np.full(len(before.places), -1, dtype=np.int32)
        places[kept] = np.arange(len(kept))
        factors = now.factors[np.maximum(now.places[kept], 0)]
        factors[old] = before.factors
        projection = self.random.standard_normal((len(kept), self.n_bits), dtype=np.float32)
        projection *= np.float32(self._size)
        projection[old] = self.projection
        squares, counts = np.zeros(len(kept), np.float32), np.zeros(len(kept), np.int32)
        squares[old], counts[old] = self._squares, self._counts
        self.columns = Columns(kept, places, factors, None)
        self.projection, self._squares, self._counts = projection, squares, counts

    def place_classes(self, places: NDArray[np.intp], n_classes: int) -> None:
        """Make room for more classes; those that there are get the given places."""
        for name in ("class_weights", "_sums", "_latent"):
            values = getattr(self, name)
            if values is not None:
                wider = np.zeros((n_classes, *values.shape[1:]), dtype=values.dtype)
                wider[places] = values
                setattr(self, name, wider)

    def keep_classes(self, kept: NDArray[np.bool_]) -> None:
        """Forget the other classes."""
        for name in ("class_weights", "_sums", "_latent"):
            values = getattr(self, name)
            if values is not None:
                setattr(self, name, values[kept])

    def start_new_classes(
        self, X: Features, own: NDArray[np.intp], sample_weight: NDArray[np.float64] | None
    ) -> None:
        """Learned weights of classes that had no rows before, from the means of these."""
        new = np.flatnonzero(self.class_weights[own] == 0)
        if self._latent is None or len(new) == 0:
            return
        classes, group = np.unique(own[new], return_inverse=True)
        weight = None if sample_weight is None else sample_weight[new]
        sums, totals = _sums_by_class(self.scores(X[new]), group, weight, len(classes))
        self._latent[classes] = _latent(np.divide(sums, totals[:, None], dtype=np.float32))

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
        samples: Iterator[SparseSample],
        n_rows: int,
        on_epoch: Callable[[int, int, float], bool],
        *,
        later: bool = False,
    ) -> None:
        """Learn from rows.

        Parameters
        ----------
        samples : endless; rows to show in each epoch, with weights of mean 1
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
        # The last step of a schedule has size 0, and a small batch has no other.
        schedule = Schedule(n_steps + 1, _STEP_OF_LATER_BATCHES) if later else Schedule(n_steps)
        assert self._latent is not None
        of_intercept, of_weights = Adam(self.intercept), Adam(self._latent)
        step = 0
        for epoch, sample in enumerate(samples, start=1):
            losses = []
            own, sample_weight = sample.own, sample.sample_weight
            for chosen in mini_batches(len(sample.rows), per_step, self.random):
                rows = sample.rows[chosen]
                step += 1
                factor = schedule.at(step)
                batch = self.columns.rows(sample.X[rows])
                scores = _scores(batch, self.projection)
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
            if on_epoch(epoch, n_epochs, float(np.mean(losses))) or step >= n_steps:
                return

    def _move(
        self,
        batch: SparseRows | NDArray[np.float32],
        by_scores: NDArray[np.float32],
        size: float,
    ) -> None:
        size *= self._size
        if isinstance(batch, SparseRows):
            sparse_step(batch, by_scores, size, self.projection, self._squares, self._counts)
            return
        # The same with a product of dense matrices.
        gradient = batch.T @ by_scores
        self._counts += 1
        self._squares *= np.float32(0.99)
        self._squares += np.float32(0.01) * np.einsum("kr,kr->k", gradient, gradient) / self.n_bits
        unbiased = self._squares / (1.0 - 0.99 ** self._counts.astype(np.float64))
        gradient *= (size / np.sqrt(np.maximum(unbiased, 1e-30)))[:, None].astype(np.float32)
        self.projection -= gradient

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
        samples: Iterator[SparseSample],
        on_epoch: Callable[[int, int, float], bool],
    ) -> None:
        schedule: Schedule | None = None
        of_intercept = Adam(self.intercept)
        step = renewed = 0
        index: HammingIndex | None = None
        for epoch, sample in enumerate(samples, start=1):
            groups = _Groups(sample, self.random)
            per_epoch = max(1, len(groups) // _CLASSES_PER_STEP)
            if not groups.has_pairs:
                return
            if schedule is None:
                schedule = Schedule(per_epoch * _EPOCHS_BY_MEANS)
            seeds = self.random.permutation(len(groups))
            per_step = _CLASSES_PER_STEP // (1 + _NEAR_CLASSES)
            losses = []
            for start in range(0, per_epoch * per_step, per_step):
                if index is None or step >= max(renewed + _STEPS_TO_RENEW, renewed * 3 // 2):
                    codes = self._codes_of_groups(sample, groups)
                    index, renewed = HammingIndex(codes), step
                step += 1
                near, _ = index.top_k(
                    codes[seeds[start : start + per_step]], min(1 + _NEAR_CLASSES, len(groups))
                )
                chosen = np.union1d(seeds[start : start + per_step], near.ravel())
                rows, lengths = groups.rows(chosen)
                batch = self.columns.rows(sample.X[rows])
                scores = _scores(batch, self.projection)
                scores += self.intercept
                weight = None if sample.sample_weight is None else sample.sample_weight[rows]
                sharp = self._sharpness_by_means
                loss, by_scores = _gradient_by_means(scores, lengths, sharp, weight)
                losses.append(loss)
                factor = schedule.at(step)
                self._move(batch, by_scores, factor * _STEP_OF_COLUMNS_BY_MEANS)
                size = factor * STEP_OF_INTERCEPT * _DEVIATION_BY_MEANS
                of_intercept.move(self.intercept, by_scores.sum(axis=0), size, step)
                if step >= schedule.n_steps:
                    break
            index = None  # the next sample may have other classes
            if (
                on_epoch(epoch, _EPOCHS_BY_MEANS, float(np.mean(losses)))
                or step >= schedule.n_steps
            ):
                return

    @property
    def _sharpness_by_means(self) -> tuple[np.float32, np.float32]:
        of_signs, of_tanh = sharpness(self.n_classes, self.n_bits)
        return np.float32(_SHARPNESS_BY_MEANS * of_signs), np.float32(_SHARPNESS_BY_MEANS * of_tanh)

    def _codes_of_groups(self, sample: SparseSample, groups: _Groups) -> NDArray[np.uint8]:
        """Packed signs of the mean scores of each class of a sample."""
        sums = np.zeros((len(groups), self.n_bits), dtype=np.float32)
        for start in range(0, len(groups.order), _ROWS_TO_ADD):
            part = slice(start, start + _ROWS_TO_ADD)
            rows = groups.order[part]
            weight = None if sample.sample_weight is None else sample.sample_weight[rows]
            _add_by_class(sums, self.scores(sample.X[rows]), groups.group_of_order[part], weight)
        return pack(sums >= 0)


class _Groups:
    """Rows of a sample by class, in random order within each.

    Parameters
    ----------
    sample : SparseSample
    random : numpy Generator

    Attributes
    ----------
    order : (m,) rows, one class after the other
    group_of_order : (m,) number of the class of each, counted among those of the sample
    """

    def __init__(self, sample: SparseSample, random: np.random.Generator) -> None:
        shuffled = random.permutation(sample.rows)
        _, groups, counts = np.unique(sample.own[shuffled], return_inverse=True, return_counts=True)
        order = np.argsort(groups, kind="stable")
        self.order, self.group_of_order = shuffled[order], groups[order]
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
    scores: NDArray[np.float32],
    lengths: NDArray[np.intp],
    sharp: tuple[np.float32, np.float32],
    sample_weight: NDArray[np.float64] | None = None,
) -> tuple[float, NDArray[np.float32]]:
    """Loss of rows against the means of classes, and its gradient by their scores (m, r).

    The score of a row's own class is that of the mean of the other rows of the class. Rows that
    are alone in their class are not compared with others, but others are compared with them.

    Parameters
    ----------
    scores : (m, r), rows of one class after the other
    lengths : (C,) how many each class has
    sharp : factors of the scores in the softmax, by signs and by tanh
    sample_weight : (m,) of mean about 1, or None for ones
    """
    own = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    weights = np.ones((len(own), 1), dtype=np.float32)
    if sample_weight is not None:
        weights[:, 0] = sample_weight
    weighted = scores * weights
    sums, totals = np.add.reduceat(weighted, starts), np.add.reduceat(weights, starts)
    means = np.divide(sums, totals, dtype=np.float32)
    has_others = lengths[own] > 1
    others_total = np.where(has_others[:, None], totals[own] - weights, np.float32(1))
    others = np.divide(sums[own] - weighted, others_total, dtype=np.float32)
    codes, values = _signs(scores), np.tanh(scores)
    of_classes, of_others = _signs(means), _signs(others)

    at = (np.arange(len(own)), own)
    n_compared = max(1, int(np.count_nonzero(has_others)))
    shares = (has_others * weights[:, 0] / n_compared).astype(np.float32)
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
    loss = _cross_entropy(likelihoods[0], likelihoods[1], shares)

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
    by_classes *= (1.0 - np.tanh(means) ** 2) / totals
    by_others *= (1.0 - np.tanh(others) ** 2) / others_total
    # The mean of the others has the scores of all rows of the class but one.
    by_others[~has_others] = 0.0
    by_classes += np.add.reduceat(by_others, starts)
    by_scores += weights * (by_classes[own] - by_others)
    return loss, by_scores


def _scores(
    batch: SparseRows | NDArray[np.float32], projection: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Rows (m, k), as `Columns.rows` gives them, times a projection (k, r)."""
    if isinstance(batch, SparseRows):
        return sparse_scores(batch, projection)
    found: NDArray[np.float32] = batch @ projection
    return found


def _signs(values: NDArray[np.float32]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = np.where(values >= 0, np.float32(1), np.float32(-1))
    return found


def _latent(means: NDArray[np.float32]) -> NDArray[np.float32]:
    """Latent weights from the mean scores (C, r) of classes."""
    size = max(float(np.sqrt(np.mean(means**2))), 1e-12)
    latent: NDArray[np.float32] = np.clip(LATENT_SIZE * means / size, -1.0, 1.0)
    return latent.astype(np.float32)


def _shares(n: int, sample_weight: NDArray[np.float64] | None) -> NDArray[np.float32]:
    """Shares (n,) of the loss; weights have mean 1 over all rows, not in every mini-batch."""
    if sample_weight is None:
        return np.full(n, 1.0 / n, dtype=np.float32)
    return np.divide(sample_weight, n).astype(np.float32)


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


# -------------------------------------------------------------------------------------------------
# From rows to a model
# -------------------------------------------------------------------------------------------------


class SparseState:
    """All that a model of wide rows was learned to, from which later batches go on.

    Attributes
    ----------
    classes : (C,) labels, sorted
    n_rows : int, rows that were learned from
    n_changes : int, grows with each change
    learner : SparseLearner
    column_sums : ColumnSums
    rescore : int, length of the short list
    temperature : float
    facts : dict, about the training, in values that JSON can hold
    """

    def __init__(
        self, classes: NDArray[Any], learner: SparseLearner, column_sums: ColumnSums
    ) -> None:
        self.classes = classes
        self.learner = learner
        self.column_sums = column_sums
        self.n_rows = column_sums.n_rows
        self.n_changes = 0
        self.rescore, self.temperature = 0, 1.0
        self.facts: dict[str, Any] = {}

    @property
    def class_weights(self) -> NDArray[np.float64]:
        """Sum of the weights of each class's rows, (C,)."""
        return self.learner.class_weights

    def copy(self) -> SparseState:
        """An independent copy."""
        other = SparseState(self.classes, self.learner.copy(), self.column_sums.copy())
        other.n_rows, other.n_changes = self.n_rows, self.n_changes
        other.rescore, other.temperature = self.rescore, self.temperature
        other.facts = dict(self.facts)
        return other

    def check_continuation(self, settings: Settings) -> None:
        """Raise ValueError unless later batches can go on from here."""
        if settings.n_bits != self.learner.n_bits:
            raise ValueError(
                f"n_bits is {settings.n_bits}, but the model that is continued has "
                f"{self.learner.n_bits}; call fit with all rows"
            )

    def add(
        self,
        X: Features,
        labels: NDArray[Any],
        sample_weight: NDArray[np.float64] | None = None,
        classes: NDArray[Any] | None = None,
    ) -> None:
        """Take in a later batch of rows; nothing changes if it cannot be.

        Columns that have become frequent enough get a place. With learned weights, new classes
        start from the mean score of their rows, and there is one epoch of small steps; with more
        classes the projection stays, and the means take the rows in.
        """
        column_sums = self.column_sums.copy()
        column_sums.add(X, sample_weight)
        _require_finite_sums(column_sums)
        announced = labels if classes is None else np.concatenate([labels, classes])
        learner = self.learner.copy()
        learner.extend_columns(column_sums)
        known, own = self.classes, np.empty(0, dtype=np.intp)
        union = np.union1d(known, announced)
        learner.place_classes(np.searchsorted(union, known), len(union))
        own = np.searchsorted(union, labels)
        if len(own):
            learner.start_new_classes(X, own, sample_weight)
            learner.add_to_sums(X, own, sample_weight)
            if not learner.by_means:
                sample = SparseSample(X, own, sample_weight, np.arange(len(own)))
                sample = sample.drawn(column_sums.mean_weight, learner.random)
                if len(sample.rows):
                    learner.learn(iter([sample]), len(sample.rows), lambda *_: True, later=True)
        self.learner, self.column_sums, self.classes = learner, column_sums, union
        self.n_rows += len(labels)
        self.n_changes += 1

    def remove_classes(self, labels: NDArray[Any]) -> None:
        """Forget classes."""
        gone = np.isin(self.classes, labels)
        unknown = labels[~np.isin(labels, self.classes)]
        if len(unknown):
            raise ValueError(f"labels: {unknown[0]!r} is not a class")
        self.learner = self.learner.copy()
        self.learner.keep_classes(~gone)
        self.classes = self.classes[~gone]
        self.n_changes += 1

    def model(self, precision: Precision) -> PackedModel:
        """The model, of the classes that have rows."""
        learner = self.learner
        seen = learner.class_weights > 0
        return PackedModel(
            self.classes[seen],
            pack(learner.weights[seen]),
            learner.hash_function(precision),
            rescore=self.rescore,
            temperature=self.temperature,
        )


def fitted_sparse(settings: Settings, state: SparseState) -> Fitted:
    """The model of a state, and the facts about its training."""
    history = np.empty(0, dtype=HISTORY_DTYPE)
    return Fitted(state.model(settings.precision), history, 0, None, state.facts)


def fit_sparse(
    settings: Settings, passes: Rows, n_features: int, classes: NDArray[Any] | None = None
) -> SparseState:
    """Learn from wide rows.

    Parameters
    ----------
    settings : Settings
    passes : gives the rows, in the same order every time
    n_features : int
    classes : labels that will come, optional

    Returns
    -------
    SparseState
    """
    if n_features > MAX_COLUMNS:
        raise ValueError(f"X must have at most {MAX_COLUMNS:,} features, found {n_features:,}")
    column_sums, labels, weights, n_bytes = ColumnSums(n_features), [], [], 0
    for X, y, weight in passes():
        column_sums.add(X, weight)
        labels.append(y)
        weights.append(np.ones(len(y)) if weight is None else weight)
        n_bytes += X.nbytes if isinstance(X, np.ndarray) else 12 * X.nnz
    _require_finite_sums(column_sums)
    all_labels, sample_weight = np.concatenate(labels), np.concatenate(weights)
    counts = sample_weight >= _LEAST_WEIGHT * column_sums.mean_weight
    mean_weight = float(sample_weight[counts].mean())
    announced = all_labels if classes is None else np.concatenate([all_labels, classes])
    found = np.unique(announced)
    own = np.searchsorted(found, all_labels)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    random = np.random.default_rng([seed, 1])

    columns = column_sums.columns()
    learner = SparseLearner(
        settings.n_bits, columns, len(found), seed, by_means=not settings.refine
    )
    settings.report(
        f"wide rows: {n_features} features, of which {len(columns.kept)} occur often enough; "
        f"{column_sums.counts.sum() / max(1, column_sums.n_rows):.0f} entries per row; learning on "
        "sparse mini-batches"
    )
    pool = _Pool(passes, own, mean_weight, n_bytes, settings.max_bytes // 4, random)
    held_out = np.empty(0, dtype=np.intp)
    if settings.refine:
        can_judge = np.flatnonzero(counts)
        held_out = can_judge[_held_out(own[can_judge], random)]
    n_training = len(own) - len(held_out)
    first = next(pool.samples(held_out))
    some = first.rows[:: 1 + len(first.rows) // _ROWS_TO_START]
    weight = None if first.sample_weight is None else first.sample_weight[some]
    learner.start(first.X[some], first.own[some], weight)
    epochs: list[Epoch] = []

    def on_epoch(epoch: int, n_epochs: int, loss: float) -> bool:
        settings.report(f"epoch {epoch} of {n_epochs}: mean cross-entropy {loss:.3f}")
        epochs.append(Epoch(epoch, n_epochs, math.nan, loss))
        stopped = settings.callback is not None and bool(settings.callback(epochs[-1]))
        return stopped or settings.out_of_time

    if settings.refine and n_training > 1:
        learner.learn(pool.samples(held_out), min(n_training, len(first.rows)), on_epoch)
    state = SparseState(found, learner, column_sums)
    is_held_out = np.zeros(len(own), dtype=bool)
    is_held_out[held_out] = True
    for X, rows, weight in pool.batches():
        learner.add_to_sums(X, np.where(is_held_out[rows], -1, own[rows]), weight)
    _judge(settings, state, *pool.rows(is_held_out), sample_weight[is_held_out])
    state.facts |= {"taken": True, "epochs": len(epochs), "columns": len(columns.kept)}
    for X, rows, weight in pool.batches() if len(held_out) else ():
        learner.add_to_sums(X, np.where(is_held_out[rows], own[rows], -1), weight)
    return state


def _require_finite_sums(sums: ColumnSums) -> None:
    wrong = np.flatnonzero(~np.isfinite(sums.squares))
    if len(wrong):
        raise ValueError(f"X: the values of feature {wrong[0]} are too large to be squared")


def _held_out(own: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.intp]:
    """Rows to judge by: of classes with three rows or more, at most a fifth of each, at least 1."""
    if len(own) < _MIN_ROWS_TO_HOLD_OUT:
        return np.empty(0, dtype=np.intp)
    order = random.permutation(len(own))
    by_class = order[np.argsort(own[order], kind="stable")]
    counts = np.bincount(own)
    rank = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    most = np.where(counts >= 3, np.maximum(counts // 5, 1), 0)
    allowed = by_class[rank < np.repeat(most, counts)]
    n = min(_MAX_HELD_OUT, int(_HELD_OUT_SHARE * len(own)), len(allowed))
    return np.sort(random.choice(allowed, n, replace=False))


def _judge(
    settings: Settings,
    state: SparseState,
    X: Any,
    own: NDArray[np.intp],
    sample_weight: NDArray[np.float64],
) -> None:
    """Choose the short list and the temperature on held-out rows.

    Parameters
    ----------
    settings : Settings
    state : SparseState
    X : (n, d)
    own : (n,) index of each row's class
    sample_weight : (n,)
    """
    state.rescore = RESCORE_LENGTHS[0] if settings.rescore is None else settings.rescore
    if len(own) < 2:
        return
    model = state.model(settings.precision)
    labels = state.classes[own]
    shares = sample_weight / sample_weight.sum()
    right = {}
    for length in RESCORE_LENGTHS if settings.rescore is None else (settings.rescore,):
        model.rescore = length
        right[length] = (model.predict(X) == labels).astype(np.float64)
    chosen = state.rescore
    for length in right:
        # Another length only where it is clearly better.
        gain = right[length] - right[chosen]
        lead = shares @ gain
        if lead > math.sqrt(shares @ (gain - lead) ** 2 * (shares @ shares)):
            chosen = length
    model.rescore = state.rescore = chosen
    place = np.searchsorted(model.classes, labels)
    state.temperature = fitted_temperature(model, X, place, sample_weight)
    accuracy = float(shares @ right[chosen])
    state.facts |= {"held_out_rows": len(own), "accuracy_after": accuracy}
    settings.report(f"{accuracy:.2%} of {len(own)} held-out rows; short list of {chosen}")


class _Pool:
    """Rows to learn from: all in memory, or a fresh sample in each epoch.

    Parameters
    ----------
    passes : gives the rows
    own : (n,) index of each row's class
    mean_weight : float, of the rows that count
    n_bytes : int, of all rows
    max_bytes : int, that a sample may take
    random : numpy Generator
    """

    def __init__(
        self,
        passes: Rows,
        own: NDArray[np.intp],
        mean_weight: float,
        n_bytes: int,
        max_bytes: int,
        random: np.random.Generator,
    ) -> None:
        self._passes, self._own, self._random = passes, own, random
        self._mean_weight = mean_weight
        self._share = min(1.0, max_bytes / max(1, n_bytes))
        self._kept: SparseSample | None = None

    def batches(
        self,
    ) -> Iterator[tuple[Features, NDArray[np.intp], NDArray[np.float64] | None]]:
        """Batches of all rows, with their numbers and weights."""
        begin = 0
        for X, _, weight in self._passes():
            rows = np.arange(begin, begin + X.shape[0])
            begin += X.shape[0]
            yield X, rows, weight

    def samples(self, without: NDArray[np.intp]) -> Iterator[SparseSample]:
        """Rows for one epoch after the other, without those that are held out."""
        while True:
            if self._kept is None:
                parts = list(self._drawn(without))
                sample = self._joined(parts)
                del parts
                if self._share == 1.0:
                    self._kept = sample
            else:
                sample = self._kept
            drawn = sample.drawn(self._mean_weight, self._random)
            yield drawn if len(drawn.rows) else sample
            del sample, drawn

    def rows(self, chosen: NDArray[np.bool_]) -> tuple[Features, NDArray[np.intp]]:
        """Some rows, and the indices of their classes."""
        found = [X[chosen[rows]] for X, rows, _ in self.batches()]
        if isinstance(found[0], np.ndarray):
            return np.concatenate(found), self._own[chosen]
        return SparseRows.of(_vstack(found)), self._own[chosen]

    def _drawn(
        self, without: NDArray[np.intp]
    ) -> Iterator[tuple[Features, NDArray[np.intp], NDArray[np.float64] | None, Any]]:
        # Whole classes where each has few rows, or no row would have others of its class.
        n_classes = int(self._own.max()) + 1
        by_class = self._random.random(n_classes) < self._share
        whole = len(self._own) < _MAX_ROWS_PER_CLASS * n_classes
        for X, rows, weight in self.batches():
            to_learn = ~np.isin(rows, without)
            if self._share == 1.0:
                yield X, rows, weight, to_learn
                continue
            drawn = (
                by_class[self._own[rows]] if whole else self._random.random(len(rows)) < self._share
            )
            drawn &= to_learn
            yield X[drawn], rows[drawn], None if weight is None else weight[drawn], to_learn[drawn]

    def _joined(self, parts: list[Any]) -> SparseSample:
        if len(parts) == 1:
            X, rows, weight, to_learn = parts[0]
            return SparseSample(X, self._own[rows], weight, np.flatnonzero(to_learn))
        blocks, rows, weights, to_learn = zip(*parts, strict=True)
        stack = np.concatenate if isinstance(blocks[0], np.ndarray) else _vstack
        weight = None
        if any(part is not None for part in weights):
            ones = (
                np.ones(len(at)) if part is None else part
                for at, part in zip(rows, weights, strict=True)
            )
            weight = np.concatenate(list(ones))
        own = self._own[np.concatenate(rows)]
        return SparseSample(stack(blocks), own, weight, np.flatnonzero(np.concatenate(to_learn)))


def _vstack(blocks: Any) -> Any:
    return scipy.sparse.vstack(blocks, format="csr")
