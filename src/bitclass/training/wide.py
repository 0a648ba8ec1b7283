"""Wide rows: the projection is learned directly on mini-batches, usually of sparse rows.

A Gram matrix of d features does not fit into memory if d is 100,000. Instead, one pass counts how
often each column occurs and how large its values are. The projection, random at first, is then
trained on mini-batches with the loss of refinement (`refinement.steps`); a step touches only the
columns that occur in its rows. Learning rates are per column, so that rare columns move as far as
frequent ones.

With up to 2,048 classes, weights are learned as in refinement. With more, the weights of a class
are the signs of the mean score of its rows, and a mini-batch has all rows of some classes, many of
them near each other: a row is compared with the mean of the *other* rows of its class and with the
means of the other classes. If the row were part of its own class mean, the projection would learn
to recognise rows it has seen.

`y` (n,) is the index of each row's class throughout.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass._native import HammingIndex, Precision, SparseRows, sparse_scores, sparse_step
from bitclass.arrays import Features, row_blocks, signs
from bitclass.codes import pack
from bitclass.hash_function import MAX_COLUMNS, HashFunction
from bitclass.model import PackedModel
from bitclass.training.alternation import HISTORY_DTYPE
from bitclass.training.fit import Fitted
from bitclass.training.refinement.refine import (
    Rows,
    Sample,
    fitted_temperature,
    with_short_list,
)
from bitclass.training.refinement.steps import (
    LATENT_SIZE,
    LEARNING_RATE_OF_INTERCEPT,
    LEARNING_RATE_OF_WEIGHTS,
    SHARE_OF_SIGNS,
    Adam,
    Schedule,
    cross_entropy,
    mini_batches,
    sharpness,
    softmax,
)
from bitclass.training.settings import Epoch, Settings
from bitclass.training.statistics import check_label_kinds, joined_labels, which_classes

__all__ = [
    "WideState",
    "fit_wide",
    "fitted_wide",
]

# Columns that occur in fewer rows are dropped; the second number applies to many rows.
_MIN_OCCURRENCES, _MIN_OCCURRENCES_IF_MANY, _MANY_ROWS = 2, 3, 10_000
# Rows with less than this share of the mean weight are used in a random subset of the epochs, in
# proportion to their weight, and their columns are not kept for their sake. All columns take steps
# of the same size, so a column that only such rows have would otherwise move as far as any other.
_MIN_WEIGHT = 0.1
# With a larger share of nonzero entries, columns are standardised.
_DENSE_SHARE = 0.5

# Sparse rows with more entries on average take smaller steps, and start from a smaller random
# projection if weights are learned: the steps of their many shared columns add up, and would
# saturate tanh for all rows.
_ENTRIES_PER_ROW = 256
# Chosen on held-out training rows of CLINC-150 and of place names: see docs/accuracy.md.
_MAX_LEARNED_CLASSES = 2048
_LEARNING_RATE = 0.6  # in units of the root mean square of the initial projection
_EPOCHS, _MIN_STEPS, _MAX_EPOCHS, _MAX_VISITS = 5, 200, 40, 1_000_000
_ROWS_PER_STEP = 256
# The same if weights are class means.
_LEARNING_RATE_BY_MEANS = 0.16
_SHARPNESS_BY_MEANS = 0.7  # times that of learned weights
_DEVIATION_BY_MEANS = 0.5  # standard deviation of the initial scores
_EPOCHS_BY_MEANS = 4
_CLASSES_PER_STEP, _NEAR_CLASSES = 512, 3
_MAX_ROWS_PER_CLASS = 16
# The codes of all classes, used to find near ones, are first recomputed after this many steps, then
# each time the number of steps has grown by half.
_STEPS_TO_RENEW = 32
# Later batches: factor of the learning rates, and how many earlier rows are replayed per new row
# and at least per batch. Without replay, a batch of new classes makes the model forget others.
_FACTOR_OF_LATER_BATCHES = 0.3
_REPLAYED_PER_ROW, _MIN_REPLAYED = 5, 1024
_HELD_OUT_SHARE, _MAX_HELD_OUT, _MIN_ROWS_TO_HOLD_OUT = 0.05, 2048, 500
_ROWS_PER_BLOCK, _ROWS_PER_DENSE_BLOCK, _ROWS_TO_ADD = 4096, 256, 65_536
_ROWS_TO_START = 2048  # to scale the random projection


class ColumnSums:
    """How often each of d columns occurs, and how large its values are."""

    def __init__(self, n_features: int) -> None:
        self.n_rows, self.total_weight = 0, 0.0
        # Per column, over the rows in which it is not 0: their number, the sum of their weights,
        # and weighted sums of values and squared values.
        self.counts = np.zeros(n_features, dtype=np.int64)
        self.weights, self.sums, self.squares = np.zeros((3, n_features))

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows."""
        return self.total_weight / max(1, self.n_rows)

    def add(self, X: Features, sample_weight: NDArray[np.float64]) -> None:
        """Add rows (n, d) with weights (n,)."""
        n, d = X.shape
        self.n_rows += n
        self.total_weight += float(sample_weight.sum())
        if isinstance(X, np.ndarray):
            for rows, block in row_blocks(X):
                values, weight = block.astype(np.float64), sample_weight[rows]
                self.counts += np.count_nonzero(values, axis=0)
                self.weights += np.einsum("n,nd->d", weight, values != 0)
                self.sums += np.einsum("n,nd->d", weight, values)
                self.squares += np.einsum("n,nd->d", weight, np.square(values, out=values))
        else:
            self.counts += np.bincount(X.indices, minlength=d)
            of_entries = np.repeat(sample_weight, np.diff(X.indptr)).astype(np.float64)
            self.weights += np.bincount(X.indices, of_entries, minlength=d)
            of_entries *= X.data
            self.sums += np.bincount(X.indices, of_entries, minlength=d)
            of_entries *= X.data
            self.squares += np.bincount(X.indices, of_entries, minlength=d)
        overflown = np.flatnonzero(~np.isfinite(self.squares))
        if len(overflown):
            raise ValueError(f"X: the values of feature {overflown[0]} are too large to be squared")

    def columns(self) -> Columns:
        """Columns to keep, and the factors that scale their values to the same size."""
        min_count = _MIN_OCCURRENCES if self.n_rows < _MANY_ROWS else _MIN_OCCURRENCES_IF_MANY
        centre: NDArray[np.float64] | None = None
        if self.counts.sum() > _DENSE_SHARE * self.n_rows * len(self.counts):
            mean, mean_square = self.sums / self.total_weight, self.squares / self.total_weight
            variance = mean_square - mean**2
            kept = np.flatnonzero(variance > 1e-12 * mean_square)
            centre, sizes = mean[kept], np.sqrt(variance[kept])
        else:
            # With very few rows, all columns may be rare.
            min_count = min(min_count, int(self.counts.max()))
            frequent = self.counts >= min_count
            frequent &= self.weights >= _MIN_WEIGHT * min_count * self.mean_weight
            kept = np.flatnonzero(frequent & (self.squares > 0))
            sizes = np.sqrt(self.squares[kept] / self.weights[kept])
        if len(kept) == 0:
            kept, centre, sizes = np.zeros(1, dtype=np.intp), None, np.ones(1)
        factors = (1.0 / np.maximum(sizes, 1e-30)).astype(np.float32)
        centre_float32 = None if centre is None else centre.astype(np.float32)
        return Columns(kept.astype(np.int32), factors, centre_float32, len(self.counts))


class Columns:
    """The k of d columns that the projection uses, and the scaling of their values.

    Values are multiplied by `factors` (k,); if rows are dense, `centre` (k,) is subtracted first.
    """

    def __init__(
        self,
        kept: NDArray[np.int32],
        factors: NDArray[np.float32],
        centre: NDArray[np.float32] | None,
        n_features: int,
    ) -> None:
        self.kept, self.factors, self.centre = kept, factors, centre
        # Index (d,) of each column among those kept, or -1.
        self.places = np.full(n_features, -1, dtype=np.int32)
        self.places[kept] = np.arange(len(kept))

    def rows(self, X: Features) -> SparseRows | NDArray[np.float32]:
        """These columns of rows (n, d), scaled; dense rows are also centred, and stay dense."""
        if self.centre is not None:
            dense = X[:, self.kept] if isinstance(X, np.ndarray) else X[:, self.kept].toarray()
            dense = np.ascontiguousarray(dense, dtype=np.float32)
            dense -= self.centre
            dense *= self.factors
            return dense
        found = SparseRows.of(X)
        places = self.places[found.indices]
        is_kept = places >= 0
        n_kept = np.concatenate([[0], np.cumsum(is_kept)])
        places = places[is_kept]
        values = found.data[is_kept] * self.factors[places]
        return SparseRows(n_kept[found.indptr], places, values, len(self.kept))


class WideState:
    """A hash function and class weights that are learned from wide rows, batch by batch.

    Parameters
    ----------
    classes : (C,) labels, sorted
    column_sums : ColumnSums
    n_bits : int
    seed : int
    by_means : bool, whether weights are class means even with few classes
    max_bytes : int, limit on the sample of earlier rows that is replayed with later batches

    Attributes
    ----------
    columns : Columns
    projection : (k, r) float32, of values scaled by `columns`
    intercept : (r,) float32
    class_weights : (C,) float64, total sample weight of each class
    n_rows : int, number of training rows so far
    n_changes : int, incremented by each change
    rescore : int, length of the short list
    temperature : float
    facts : dict about the training, with values that can be written as JSON
    """

    def __init__(
        self,
        classes: NDArray[Any],
        column_sums: ColumnSums,
        n_bits: int,
        seed: int,
        *,
        by_means: bool,
        max_bytes: int,
    ) -> None:
        self.classes, self.column_sums, self.n_bits = classes, column_sums, n_bits
        self.by_means = by_means or len(classes) > _MAX_LEARNED_CLASSES
        self.columns = column_sums.columns()
        self._random = np.random.default_rng(seed)
        k = len(self.columns.kept)
        self.projection = self._random.standard_normal((k, n_bits), dtype=np.float32)
        self.intercept = np.zeros(n_bits, dtype=np.float32)
        self._size = 1.0  # root mean square of the initial projection
        self._squares, self._counts = np.zeros(k, np.float32), np.zeros(k, np.int32)
        # Latent weights, or summed scores of each class's rows; their signs are the weights.
        self._values = np.zeros((len(classes), n_bits), dtype=np.float32)
        self.class_weights = np.zeros(len(classes))
        self.n_rows, self.n_changes = column_sums.n_rows, 0
        self.rescore, self.temperature = 0, 1.0
        self.facts: dict[str, Any] = {}
        self._max_bytes = max_bytes
        self._reservoir: Reservoir | None = None

    # ---------------------------------------------------------------------------------------------
    # The model
    # ---------------------------------------------------------------------------------------------

    def scores(self, X: Features) -> NDArray[np.float32]:
        """Scores F = P'x + t of rows, shape (n, r)."""
        found = np.empty((X.shape[0], self.n_bits), dtype=np.float32)
        per_block = _ROWS_PER_BLOCK if self.columns.centre is None else _ROWS_PER_DENSE_BLOCK
        for start in range(0, len(found), per_block):
            rows = slice(start, start + per_block)
            found[rows] = _product(self.columns.rows(X[rows]), self.projection)
        found += self.intercept
        return found

    def model(self, precision: Precision) -> PackedModel:
        """The model, without classes that have no rows."""
        seen = self.class_weights > 0
        return PackedModel(
            self.classes[seen],
            pack(self._values[seen] >= 0),
            self._hash_function(precision),
            rescore=self.rescore,
            temperature=self.temperature,
        )

    def _hash_function(self, precision: Precision) -> HashFunction:
        """The hash function of unscaled rows, of kept columns only unless rows are dense."""
        columns, intercept = self.columns, self.intercept.astype(np.float64)
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

    # ---------------------------------------------------------------------------------------------
    # Rows and classes
    # ---------------------------------------------------------------------------------------------

    def start(self, X: Features, y: NDArray[np.intp], sample_weight: NDArray[np.float64]) -> None:
        """Scale the random projection and set the thresholds of the bits, by sample rows."""
        scores = self.scores(X)
        deviation = _DEVIATION_BY_MEANS
        if not self.by_means:
            deviation = math.sqrt(self._long_row_factor())
        self._size = deviation / max(float(np.sqrt(np.mean(scores.var(axis=0)))), 1e-12)
        self.projection *= np.float32(self._size)
        scores *= np.float32(self._size)
        # About half of the classes are then on either side of each threshold.
        classes, means = _class_means(scores, y, sample_weight)
        self.intercept = -means.mean(axis=0).astype(np.float32)
        if not self.by_means:
            self._values[classes] = _latent(means + self.intercept)

    def add_to_sums(
        self, X: Features, y: NDArray[np.intp], sample_weight: NDArray[np.float64]
    ) -> None:
        """Add rows to the class weights and, if weights are class means, to the summed scores.

        Rows with a `y` (n,) of -1 are skipped.
        """
        for start in range(0, len(y), _ROWS_TO_ADD):
            rows = start + np.flatnonzero(y[start : start + _ROWS_TO_ADD] >= 0)
            if self.by_means:
                _add_by_class(self._values, self.scores(X[rows]), y[rows], sample_weight[rows])
            self.class_weights += np.bincount(
                y[rows], sample_weight[rows], minlength=len(self.classes)
            )

    def add(
        self,
        X: Features,
        labels: NDArray[Any],
        sample_weight: NDArray[np.float64] | None = None,
        classes: NDArray[Any] | None = None,
    ) -> None:
        """Add a later batch of rows, as `Statistics.add` does: all of it, or none.

        Columns that have become frequent enough are added to the projection. Learned weights of
        new classes start from the mean score of their rows, compared with that of earlier rows;
        then there is one epoch of small steps on the batch and a sample of earlier rows. With more
        classes the projection stays the same, and the rows are added to the class means.
        """
        announced = labels if classes is None else np.concatenate([labels, classes])
        check_label_kinds(self.classes, announced)
        new = copy.deepcopy(self)
        weight = np.ones(len(labels)) if sample_weight is None else sample_weight
        new.column_sums.add(X, weight)
        new._extend_columns()
        new.classes = joined_labels(self.classes, announced)
        places = np.searchsorted(new.classes, self.classes)
        for name in ("class_weights", "_values"):
            values = getattr(self, name)
            wider = np.zeros((len(new.classes), *values.shape[1:]), dtype=values.dtype)
            wider[places] = values
            setattr(new, name, wider)
        if new._reservoir is not None:
            new._reservoir = replace(new._reservoir, y=places[new._reservoir.y])
        if len(labels):
            new._learn_batch(X, np.searchsorted(new.classes, labels), weight)
        new.n_rows += len(labels)
        new.n_changes += 1
        self.__dict__.update(new.__dict__)

    def _learn_batch(
        self, X: Features, y: NDArray[np.intp], sample_weight: NDArray[np.float64]
    ) -> None:
        is_new = np.flatnonzero(self.class_weights[y] == 0)
        if len(is_new) and not self.by_means:
            scores = np.tanh(self.scores(X[is_new]))
            classes, means = _class_means(scores, y[is_new], sample_weight[is_new])
            if self._reservoir is not None and len(self._reservoir.y):
                # Otherwise new classes with mostly new columns would start with similar weights.
                some = self._reservoir.X[:: 1 + len(self._reservoir.y) // _ROWS_TO_START]
                means -= np.tanh(self.scores(some)).mean(axis=0)
            self._values[classes] = _latent(means)
        self.add_to_sums(X, y, sample_weight)
        if not self.by_means:
            sample = WideSample(X, y, sample_weight, np.arange(len(y)))
            mean_weight = self.column_sums.mean_weight
            n_drawn = len(sample.drawn(mean_weight, self._random).rows)
            if n_drawn:
                sample = self._with_replay(sample, max(_MIN_REPLAYED, _REPLAYED_PER_ROW * n_drawn))
                sample = sample.drawn(mean_weight, self._random)
            if n_drawn and len(sample.rows):
                list(self.learn([sample], len(sample.rows), later=True))
            self.remember(X, y, sample_weight)

    def _with_replay(self, sample: WideSample, n_replayed: int) -> WideSample:
        """The rows of a batch and some earlier rows."""
        earlier = self._reservoir
        if earlier is None:
            return sample
        n_replayed = min(n_replayed, len(earlier.y))
        chosen = np.sort(self._random.choice(len(earlier.y), n_replayed, replace=False))
        return WideSample(
            _stacked([sample.X, earlier.X[chosen]]),
            np.concatenate([sample.y, earlier.y[chosen]]),
            np.concatenate([sample.sample_weight, earlier.sample_weight[chosen]]),
            np.arange(len(sample.y) + n_replayed),
        )

    def remember(
        self, X: Features, y: NDArray[np.intp], sample_weight: NDArray[np.float64]
    ) -> None:
        """Add rows to those that are sampled for replay; class means need no replay."""
        if self.by_means:
            return
        rows = Reservoir(X, y, sample_weight, self._random.random(len(y))).cut(self._max_bytes)
        earlier = self._reservoir
        self._reservoir = rows if earlier is None else earlier.joined(rows).cut(self._max_bytes)

    def _extend_columns(self) -> None:
        """Add columns that have become frequent enough, with random projections."""
        now, before = self.column_sums.columns(), self.columns
        if before.centre is not None or now.centre is not None:
            return
        kept = np.union1d(before.kept, now.kept).astype(np.int32)
        if len(kept) == len(before.kept):
            return
        old = np.searchsorted(kept, before.kept)
        factors = now.factors[np.maximum(now.places[kept], 0)]
        factors[old] = before.factors
        projection = self._random.standard_normal((len(kept), self.n_bits), dtype=np.float32)
        projection *= np.float32(self._size)
        projection[old] = self.projection
        squares, counts = np.zeros(len(kept), np.float32), np.zeros(len(kept), np.int32)
        squares[old], counts[old] = self._squares, self._counts
        self.columns = Columns(kept, factors, None, len(before.places))
        self.projection, self._squares, self._counts = projection, squares, counts

    def remove_classes(self, labels: NDArray[Any]) -> None:
        """Forget classes."""
        stay = ~which_classes(self.classes, labels)
        for name in ("classes", "class_weights", "_values"):
            setattr(self, name, getattr(self, name)[stay])
        if self._reservoir is not None:
            kept = self._reservoir.rows(np.flatnonzero(stay[self._reservoir.y]))
            self._reservoir = replace(kept, y=(np.cumsum(stay) - 1)[kept.y])
        self.n_changes += 1

    # ---------------------------------------------------------------------------------------------
    # Steps
    # ---------------------------------------------------------------------------------------------

    def learn(
        self, samples: Iterable[WideSample], n_rows: int, *, later: bool = False
    ) -> Iterator[tuple[int, int, float]]:
        """Learn from rows, epoch by epoch.

        Parameters
        ----------
        samples : training rows of each epoch, with weights of mean 1
        n_rows : int, rows per sample
        later : bool, whether the model has been trained before: one epoch of small steps

        Yields
        ------
        After each epoch, its number, the planned number of epochs, and the mean loss.
        """
        of_intercept, sharp = Adam(self.intercept), sharpness(*self._values.shape)
        rate_of_columns, rate_of_intercept = _LEARNING_RATE, LEARNING_RATE_OF_INTERCEPT
        if self.by_means:
            rate_of_columns = _LEARNING_RATE_BY_MEANS
            rate_of_intercept *= _DEVIATION_BY_MEANS
            sharp = _SHARPNESS_BY_MEANS * sharp[0], _SHARPNESS_BY_MEANS * sharp[1]
        else:
            of_weights = Adam(self._values)
        rate_of_columns *= self._long_row_factor()
        schedule: Schedule | None = None
        step = 0
        for epoch, sample in enumerate(samples, start=1):
            if schedule is None:
                n_epochs, schedule = self._planned(sample, n_rows, later)
            losses = []
            for rows, lengths in self._mini_batches(sample, n_rows, step):
                step += 1
                factor = schedule.at(step)
                batch = self.columns.rows(sample.X[rows])
                scores = _product(batch, self.projection)
                scores += self.intercept
                y, weight = sample.y[rows], sample.sample_weight[rows]
                if self.by_means:
                    loss, by_scores = _gradient_by_means(scores, lengths, sharp, weight)
                else:
                    loss, by_scores, by_weights = _gradient(scores, y, self._values, sharp, weight)
                    rate = factor * LEARNING_RATE_OF_WEIGHTS
                    of_weights.move(self._values, by_weights, rate, step)
                    np.clip(self._values, -1.0, 1.0, out=self._values)
                losses.append(float(loss))
                self._move(batch, by_scores, factor * rate_of_columns)
                rate = factor * rate_of_intercept
                of_intercept.move(self.intercept, by_scores.sum(axis=0), rate, step)
                if step >= schedule.n_steps:
                    break
            if not losses:
                return
            yield epoch, n_epochs, float(np.mean(losses))
            if step >= schedule.n_steps:
                return

    def _long_row_factor(self) -> float:
        """Factor of the steps and, by its root, of the initial scores, for long sparse rows."""
        if self.columns.centre is not None:
            return 1.0
        entries = self.column_sums.counts[self.columns.kept].sum() / self.column_sums.n_rows
        return float(_ENTRIES_PER_ROW / max(entries, _ENTRIES_PER_ROW))

    def _planned(self, sample: WideSample, n_rows: int, later: bool) -> tuple[int, Schedule]:
        """Number of epochs, and the schedule of their steps."""
        if self.by_means:
            n_classes = len(np.unique(sample.y[sample.rows]))
            per_epoch = max(1, n_classes // _CLASSES_PER_STEP)
            return _EPOCHS_BY_MEANS, Schedule(per_epoch * _EPOCHS_BY_MEANS)
        per_epoch = n_rows // max(1, min(_ROWS_PER_STEP, n_rows))
        if later:
            # The last step of a schedule has size 0; a small batch would have no other.
            return 1, Schedule(per_epoch + 1, _FACTOR_OF_LATER_BATCHES)
        n_epochs = max(_EPOCHS, min(_MAX_EPOCHS, math.ceil(_MIN_STEPS / per_epoch)))
        n_epochs = max(1, min(n_epochs, _MAX_VISITS // n_rows))
        return n_epochs, Schedule(n_epochs * per_epoch)

    def _mini_batches(
        self, sample: WideSample, n_rows: int, step: int
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows of each step and, if weights are class means, the number of rows per class."""
        if not self.by_means:
            per_step = max(1, min(_ROWS_PER_STEP, n_rows))
            for chosen in mini_batches(len(sample.rows), per_step, self._random):
                yield sample.rows[chosen], np.empty(0, dtype=np.intp)
            return
        # Rows by class, in random order within each.
        rows = self._random.permutation(sample.rows)
        _, y, counts = np.unique(sample.y[rows], return_inverse=True, return_counts=True)
        order = np.argsort(y, kind="stable")
        rows, y, starts = rows[order], y[order], np.cumsum(counts) - counts
        if counts.max() < 2:
            return
        seeds = self._random.permutation(len(counts))
        n_seeds = _CLASSES_PER_STEP // (1 + _NEAR_CLASSES)
        renewed: int | None = None
        for start in range(0, max(1, len(seeds) // _CLASSES_PER_STEP) * n_seeds, n_seeds):
            if renewed is None or step >= max(renewed + _STEPS_TO_RENEW, renewed * 3 // 2):
                codes, renewed = self._codes_of_classes(sample, rows, y), step
                index = HammingIndex(codes)
            step += 1
            some = seeds[start : start + n_seeds]
            near, _ = index.top_k(codes[some], min(1 + _NEAR_CLASSES, len(seeds)))
            chosen = np.union1d(some, near.ravel())
            lengths = np.minimum(counts[chosen], _MAX_ROWS_PER_CLASS)
            skipped = starts[chosen] - (np.cumsum(lengths) - lengths)
            yield rows[np.arange(int(lengths.sum())) + np.repeat(skipped, lengths)], lengths

    def _codes_of_classes(
        self, sample: WideSample, rows: NDArray[np.intp], y: NDArray[np.intp]
    ) -> NDArray[np.uint8]:
        """Packed signs of the class mean scores, from the given rows."""
        sums = np.zeros((y[-1] + 1, self.n_bits), dtype=np.float32)
        for start in range(0, len(rows), _ROWS_TO_ADD):
            part = rows[start : start + _ROWS_TO_ADD]
            scores, weight = self.scores(sample.X[part]), sample.sample_weight[part]
            _add_by_class(sums, scores, y[start : start + _ROWS_TO_ADD], weight)
        return pack(sums >= 0)

    def _move(
        self,
        batch: SparseRows | NDArray[np.float32],
        by_scores: NDArray[np.float32],
        learning_rate: float,
    ) -> None:
        """Update the projection by the gradient of a mini-batch."""
        size = learning_rate * self._size
        if isinstance(batch, SparseRows):
            sparse_step(batch, by_scores, size, self.projection, self._squares, self._counts)
            return
        # The same, for dense rows.
        gradient = batch.T @ by_scores
        self._counts += 1
        self._squares *= np.float32(0.99)
        self._squares += np.float32(0.01) * np.einsum("kr,kr->k", gradient, gradient) / self.n_bits
        unbiased = self._squares / (1.0 - 0.99 ** self._counts.astype(np.float64))
        gradient *= (size / np.sqrt(np.maximum(unbiased, 1e-30)))[:, None].astype(np.float32)
        self.projection -= gradient


def _gradient(
    scores: NDArray[np.float32],
    y: NDArray[np.intp],
    latent: NDArray[np.float32],
    sharp: tuple[float, float],
    sample_weight: NDArray[np.float64],
) -> tuple[Any, Any, Any]:
    """Loss of rows, and its gradients by their scores (m, r) and by the latent weights (C, r)."""
    shares = np.divide(sample_weight, len(y)).astype(np.float32)
    codes, values = signs(scores), np.tanh(scores, out=scores)
    loss, by_scores, by_weights = cross_entropy(codes, values, signs(latent), y, shares, sharp)
    # Straight-through: the derivative of tanh also replaces that of sign.
    by_scores -= by_scores * values * values
    return loss, by_scores, by_weights


def _gradient_by_means(
    scores: NDArray[np.float32],
    lengths: NDArray[np.intp],
    sharp: tuple[float, float],
    sample_weight: NDArray[np.float64],
) -> tuple[float, NDArray[np.float32]]:
    """Loss of rows compared with class means, and its gradient by their scores (m, r).

    A row is compared with the mean of the *other* rows of its class. The only row of a class has no
    loss, but other rows are compared with it.

    Parameters
    ----------
    scores : (m, r), of rows grouped by class
    lengths : (C,), number of rows per class
    sharp : factors of the logits, for signs and for tanh
    sample_weight : (m,), with a mean of about 1
    """
    y = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    weights = sample_weight[:, None].astype(np.float32)
    weighted = scores * weights
    sums, totals = np.add.reduceat(weighted, starts), np.add.reduceat(weights, starts)
    means = np.divide(sums, totals, dtype=np.float32)
    has_others = lengths[y] > 1
    others_total = np.where(has_others[:, None], totals[y] - weights, np.float32(1))
    others = np.divide(sums[y] - weighted, others_total, dtype=np.float32)
    values, of_classes, of_others = np.tanh(scores), signs(means), signs(others)
    n_compared = max(1, int(np.count_nonzero(has_others)))
    shares = (has_others * weights[:, 0] / n_compared).astype(np.float32)

    at = (np.arange(len(y)), y)
    log_likelihood = np.zeros(len(y), dtype=np.float32)
    by_classes, by_others = np.zeros_like(means), np.zeros_like(scores)
    slopes = []
    for queries, factor, share in (
        (signs(scores), sharp[0], SHARE_OF_SIGNS),
        (values, sharp[1], 1.0 - SHARE_OF_SIGNS),
    ):
        logits = queries @ of_classes.T
        logits[at] = np.einsum("mr,mr->m", queries, of_others)
        logits *= factor
        slope = softmax(logits)
        log_likelihood += share * np.log(slope[at] + np.float32(1e-9))
        slope[at] -= 1.0
        slope *= (np.float32(share) * factor * shares)[:, None]
        own_slope = slope[at][:, None]
        slope[at] = 0.0
        by_others += own_slope * queries
        by_classes += slope.T @ queries
        slopes.append((slope, own_slope))
    slope, own_slope = (one + other for one, other in zip(*slopes, strict=True))
    by_scores = slope @ of_classes
    by_scores += own_slope * of_others
    # Straight-through: the derivative of tanh also replaces that of sign.
    by_scores *= 1.0 - values * values
    by_classes *= (1.0 - np.tanh(means) ** 2) / totals
    by_others *= (1.0 - np.tanh(others) ** 2) / others_total
    # The mean of the others contains all rows of the class but one.
    by_classes += np.add.reduceat(by_others, starts)
    by_scores += weights * (by_classes[y] - by_others)
    return -float(shares @ log_likelihood), by_scores


def _product(
    batch: SparseRows | NDArray[np.float32], projection: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Product of rows (m, k), as returned by `Columns.rows`, and a projection (k, r)."""
    if isinstance(batch, SparseRows):
        return sparse_scores(batch, projection)
    found: NDArray[np.float32] = batch @ projection
    return found


def _latent(means: NDArray[np.float32]) -> NDArray[np.float32]:
    """Latent weights from class mean scores (C, r)."""
    size = max(float(np.sqrt(np.mean(means**2))), 1e-12)
    latent: NDArray[np.float32] = np.clip(LATENT_SIZE * means / size, -1.0, 1.0)
    return latent.astype(np.float32)


def _add_by_class(
    sums: NDArray[np.float32],
    scores: NDArray[np.float32],
    y: NDArray[np.intp],
    sample_weight: NDArray[np.float64],
) -> None:
    """Add the weighted scores (n, r) of rows to the sums (C, r) of their classes."""
    order = np.argsort(y, kind="stable")
    present, starts = np.unique(y[order], return_index=True)
    weighted = scores[order] * sample_weight[order, None].astype(np.float32)
    sums[present] += np.add.reduceat(weighted, starts, axis=0)


def _class_means(
    scores: NDArray[np.float32], y: NDArray[np.intp], sample_weight: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The classes that occur, and the mean scores (k, r) of their rows."""
    classes, place = np.unique(y, return_inverse=True)
    sums = np.zeros((len(classes), scores.shape[1]), dtype=np.float32)
    _add_by_class(sums, scores, place, sample_weight)
    return classes, np.divide(sums, np.bincount(place, sample_weight)[:, None], dtype=np.float32)


# -------------------------------------------------------------------------------------------------
# Rows to learn from
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WideSample:
    """Rows (n, d) in memory, and the indices `rows` (m,) of those to train on."""

    X: Features
    y: NDArray[np.intp]
    sample_weight: NDArray[np.float64]
    rows: NDArray[np.intp]

    def drawn(self, mean_weight: float, random: np.random.Generator) -> WideSample:
        """Rows for one epoch; those of little weight are drawn in proportion to their weight.

        Weights are returned in units of `mean_weight`, and none is below `_MIN_WEIGHT`.
        """
        if (self.sample_weight == 1.0).all():
            return self
        weight = self.sample_weight / mean_weight
        drawn = _MIN_WEIGHT * random.random(len(self.rows)) < weight[self.rows]
        np.maximum(weight, _MIN_WEIGHT, out=weight)
        return replace(self, sample_weight=weight, rows=self.rows[drawn])


@dataclass(frozen=True)
class Reservoir:
    """A uniform sample of the rows learned from so far: those with the smallest random keys.

    Its arrays are never modified, so copies of a state share it.
    """

    X: Features
    y: NDArray[np.intp]
    sample_weight: NDArray[np.float64]
    keys: NDArray[np.float64]

    def __deepcopy__(self, memo: dict[int, Any]) -> Reservoir:
        return self

    def rows(self, chosen: NDArray[np.intp]) -> Reservoir:
        """Copies of some rows."""
        return Reservoir(
            self.X[chosen], self.y[chosen], self.sample_weight[chosen], self.keys[chosen]
        )

    def joined(self, other: Reservoir) -> Reservoir:
        """The rows of both."""
        return Reservoir(
            _stacked([self.X, other.X]),
            np.concatenate([self.y, other.y]),
            np.concatenate([self.sample_weight, other.sample_weight]),
            np.concatenate([self.keys, other.keys]),
        )

    def cut(self, max_bytes: int) -> Reservoir:
        """Copies of as many rows as fit, those with the smallest keys."""
        if isinstance(self.X, np.ndarray):
            n_bytes = np.full(len(self.y), self.X.shape[1] * self.X.itemsize)
        else:
            per_entry = self.X.data.itemsize + self.X.indices.itemsize
            n_bytes = np.diff(self.X.indptr).astype(np.int64) * per_entry
        n_bytes += 32  # y, weight, key, and the pointer to a sparse row
        order = np.argsort(self.keys)
        return self.rows(np.sort(order[np.cumsum(n_bytes[order]) <= max_bytes]))


class _Pool:
    """Training rows: all in memory, or a new sample in each epoch, a `share` of all rows."""

    def __init__(
        self,
        passes: Rows,
        y: NDArray[np.intp],
        mean_weight: float,
        share: float,
        random: np.random.Generator,
    ) -> None:
        self._passes, self._y, self._random = passes, y, random
        self._mean_weight, self._share = mean_weight, share
        self._kept: WideSample | None = None

    def batches(self) -> Iterator[tuple[Features, NDArray[np.intp], NDArray[np.float64]]]:
        """Batches of all rows, with their indices and weights."""
        begin = 0
        for X, _, weight in self._passes():
            rows = np.arange(begin, begin + X.shape[0])
            begin += X.shape[0]
            yield X, rows, np.ones(len(rows)) if weight is None else weight

    def samples(self, is_held_out: NDArray[np.bool_]) -> Iterator[WideSample]:
        """Rows of each epoch, without held-out rows."""
        while True:
            sample = self._kept or self._sample(is_held_out)
            if self._share == 1.0:
                self._kept = sample
            drawn = sample.drawn(self._mean_weight, self._random)
            yield drawn if len(drawn.rows) else sample
            del sample, drawn  # so that only one sample is in memory

    def rows(self, chosen: NDArray[np.bool_]) -> Features:
        """Rows that are True in `chosen` (n,)."""
        return _stacked([X[chosen[rows]] for X, rows, _ in self.batches()])

    def _sample(self, is_held_out: NDArray[np.bool_]) -> WideSample:
        # If classes have few rows, draw whole classes: a row needs others of its class.
        n_classes = int(self._y.max()) + 1
        by_class = self._random.random(n_classes) < self._share
        whole = len(self._y) < _MAX_ROWS_PER_CLASS * n_classes
        parts = []
        for X, rows, weight in self.batches():
            if self._share < 1.0:
                drawn = by_class[self._y[rows]]
                if not whole:
                    drawn = self._random.random(len(rows)) < self._share
                X, rows, weight = X[drawn], rows[drawn], weight[drawn]
            parts.append((X, rows, weight))
        blocks, numbers, weights = zip(*parts, strict=True)
        rows = np.concatenate(numbers)
        to_learn = np.flatnonzero(~is_held_out[rows])
        return WideSample(_stacked(blocks), self._y[rows], np.concatenate(weights), to_learn)


def _stacked(blocks: Sequence[Features]) -> Features:
    if len(blocks) == 1:
        return blocks[0]
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.concatenate(blocks)
    return scipy.sparse.vstack(blocks, format="csr")


def _held_out(y: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.intp]:
    """Rows to hold out: at most a fifth of each class, at least 1 of a class with three or more."""
    if len(y) < _MIN_ROWS_TO_HOLD_OUT:
        return np.empty(0, dtype=np.intp)
    order = random.permutation(len(y))
    by_class = order[np.argsort(y[order], kind="stable")]
    counts = np.bincount(y)
    rank = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    most = np.where(counts >= 3, np.maximum(counts // 5, 1), 0)
    allowed = by_class[rank < np.repeat(most, counts)]
    n = min(_MAX_HELD_OUT, int(_HELD_OUT_SHARE * len(y)), len(allowed))
    return random.choice(allowed, n, replace=False)


# -------------------------------------------------------------------------------------------------
# From rows to a model
# -------------------------------------------------------------------------------------------------


def fit_wide(
    settings: Settings, passes: Rows, n_features: int, classes: NDArray[Any] | None = None
) -> WideState:
    """Learn from wide rows.

    Parameters
    ----------
    settings : Settings
    passes : callable that yields batches of the rows, in the same order every time
    n_features : int
    classes : labels of classes that may occur in later batches, optional

    Returns
    -------
    WideState
    """
    if n_features > MAX_COLUMNS:
        raise ValueError(f"X must have at most {MAX_COLUMNS:,} features, found {n_features:,}")
    column_sums, labels, weights, n_bytes = ColumnSums(n_features), [], [], 0
    for X, batch_labels, weight in passes():
        labels.append(batch_labels)
        check_label_kinds(labels[0], batch_labels)
        weights.append(np.ones(len(batch_labels)) if weight is None else weight)
        column_sums.add(X, weights[-1])
        n_bytes += X.nbytes if isinstance(X, np.ndarray) else 12 * X.nnz
    all_labels, sample_weight = np.concatenate(labels), np.concatenate(weights)
    has_weight = sample_weight >= _MIN_WEIGHT * column_sums.mean_weight
    announced = all_labels if classes is None else np.concatenate([all_labels, classes])
    found = np.unique(announced)
    y = np.searchsorted(found, all_labels)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    random = np.random.default_rng([seed, 1])
    state = WideState(
        found,
        column_sums,
        settings.n_bits,
        seed,
        by_means=not settings.refine,
        max_bytes=settings.max_bytes // 16,
    )
    n_columns = len(state.columns.kept)
    settings.print_line(
        f"wide rows: {n_features} features, of which {n_columns} are kept; "
        f"{column_sums.counts.sum() / max(1, column_sums.n_rows):.0f} entries per row; trained on "
        "mini-batches"
    )
    share = min(1.0, settings.max_bytes // 4 / max(1, n_bytes))
    pool = _Pool(passes, y, float(sample_weight[has_weight].mean()), share, random)
    is_held_out = np.zeros(len(y), dtype=bool)
    if settings.refine:
        eligible = np.flatnonzero(has_weight)
        is_held_out[eligible[_held_out(y[eligible], random)]] = True
    first = next(pool.samples(is_held_out))
    some = first.rows[:: 1 + len(first.rows) // _ROWS_TO_START]
    state.start(first.X[some], first.y[some], first.sample_weight[some])
    epoch, n_training = 0, int(np.count_nonzero(~is_held_out))
    if settings.refine and n_training > 1:
        n_per_sample = min(n_training, len(first.rows))
        for epoch, n_epochs, loss in state.learn(pool.samples(is_held_out), n_per_sample):
            settings.print_line(f"epoch {epoch} of {n_epochs}: mean cross-entropy {loss:.3f}")
            progress = Epoch(epoch, n_epochs, math.nan, loss)
            if (settings.callback and settings.callback(progress)) or settings.out_of_time:
                break
    for X, rows, weight in pool.batches():
        state.add_to_sums(X, np.where(is_held_out[rows], -1, y[rows]), weight)
        state.remember(X, y[rows], weight)
    state.rescore = settings.default_rescore
    if np.count_nonzero(is_held_out) > 1:
        # Classes without rows are not in the model.
        place = (np.cumsum(state.class_weights > 0) - 1)[y[is_held_out]]
        numbers = np.flatnonzero(is_held_out)
        held_out = Sample(pool.rows(is_held_out), place, sample_weight[is_held_out], numbers)
        _judge(settings, state, held_out)
    state.facts |= {"taken": True, "epochs": epoch, "columns": n_columns}
    for X, rows, weight in pool.batches() if is_held_out.any() else ():
        state.add_to_sums(X, np.where(is_held_out[rows], y[rows], -1), weight)
    return state


def _judge(settings: Settings, state: WideState, held_out: Sample) -> None:
    """Choose the short list and the temperature on held-out rows."""
    judged = with_short_list(state.model(settings.precision), held_out, settings.rescore)
    model = judged.model
    state.rescore = model.rescore
    state.temperature = fitted_temperature(model, held_out.X, held_out.y, held_out.weights)
    state.facts = {"held_out_rows": len(held_out), "accuracy_after": judged.accuracy}
    settings.print_line(
        f"{judged.accuracy:.2%} of {len(held_out)} held-out rows; short list of {model.rescore}"
    )


def fitted_wide(settings: Settings, state: WideState) -> Fitted:
    """The model of a state, with the facts about its training."""
    history = np.empty(0, dtype=HISTORY_DTYPE)
    return Fitted(state.model(settings.precision), history, 0, None, state.facts)
