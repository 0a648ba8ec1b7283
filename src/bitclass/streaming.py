"""Training on rows that come in batches from a file: memory does not grow with their number.

Codes of class means and the hinge loss take one pass. Where rows start with codes of their own,
the other losses keep these, packed, ceil(r / 8) + 16 bytes a row, and pass once more over the rows
whose code differs from their class's. Refinement passes over the rows again: once for those held
out, and once for each sample that memory holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bitclass.classifier import BinaryCodeClassifier
from bitclass.data import Batch, DataFileError, Reader, prefetched
from bitclass.drawing import Batch as RowBatch
from bitclass.rows import Features
from bitclass.training import Statistics
from bitclass.training.statistics_file import load_statistics, save_statistics
from bitclass.validation import weights_of_classes

__all__ = ["Checkpoint", "batch_rows_for", "fit_reader", "labels_of", "spread_sample"]

#: Called with the name of the pass and how many rows of it are done.
Progress = Callable[[str, int], None]

_BATCH_BYTES = 64 << 20
_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_SAMPLE_ROWS, _SAMPLE_PLACES = 8192, 8


class Checkpoint:
    """Statistics saved now and then, from which a killed run goes on.

    Parameters
    ----------
    folder : path
        Made where it does not exist.
    run : dict
        What the run is about: rows, parameters, batches. A checkpoint of another run is refused.
    seconds : float
        Least time between two saves.
    """

    def __init__(
        self,
        folder: Path,
        run: dict[str, Any],
        seconds: float = _SECONDS_BETWEEN_CHECKPOINTS,
    ) -> None:
        self.path = folder / "statistics.safetensors"
        self.run = run
        self.seconds = seconds
        self._last = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> Statistics | None:
        """What an earlier run left, or None where there is nothing."""
        if not self.path.exists():
            return None
        statistics, run = load_statistics(self.path)
        if run != self.run:
            differing = sorted(
                key for key in self.run.keys() | run.keys() if self.run.get(key) != run.get(key)
            )
            raise DataFileError(
                f"{self.path}: this checkpoint is of another run, which differs in "
                f"{', '.join(differing)}; remove it or give another folder"
            )
        return statistics

    def save_if_due(self, statistics: Statistics) -> None:
        """Save, unless that was done a short while ago."""
        if time.monotonic() - self._last >= self.seconds:
            self.save(statistics)

    def save(self, statistics: Statistics) -> None:
        """Save now."""
        save_statistics(self.path, statistics, self.run)
        self._last = time.monotonic()

    def remove(self) -> None:
        """Remove what was saved, when the model is safe elsewhere."""
        self.path.unlink(missing_ok=True)


def batch_rows_for(reader: Reader) -> int:
    """Rows of a batch: about 64 MB of features."""
    row_bytes = max(1, reader.n_features * np.dtype(reader.dtype).itemsize)
    return int(min(max(_BATCH_BYTES // row_bytes, 256), 65_536))


def spread_sample(reader: Reader) -> tuple[Features, NDArray[Any]]:
    """Some thousand rows from places all over the files, which may be sorted by class.

    Returns
    -------
    X : (m, d)
    labels : (m,)
    """
    if reader.n_rows == 0:
        raise DataFileError(f"{reader.description}: no rows")
    rows_a_place = -(-_SAMPLE_ROWS // _SAMPLE_PLACES)
    n_places = min(_SAMPLE_PLACES, -(-reader.n_rows // rows_a_place))
    starts = np.linspace(0, reader.n_rows, n_places, endpoint=False).astype(int)
    found = []
    for start in np.unique(starts // rows_a_place * rows_a_place):
        with closing(reader.batches(rows_a_place, start_row=int(start))) as batches:
            found.append(next(batches))
    parts = [batch.X for batch in found]
    X = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else scipy.sparse.vstack(parts)
    return X, np.concatenate([labels_of(batch) for batch in found])


def labels_of(batch: Batch) -> NDArray[Any]:
    """Labels of a batch that must have some."""
    if batch.labels is None:
        raise DataFileError(f"row {batch.first_row}: no labels to learn from")
    return batch.labels


def _weights_of(
    labels: NDArray[Any], classifier: BinaryCodeClassifier
) -> NDArray[np.float64] | None:
    """Weights (n,) of rows by their labels, None for ones."""
    if classifier.class_weight is None:
        return None
    classes, own = np.unique(labels, return_inverse=True)
    return weights_of_classes(classifier.class_weight, classes, own, np.ones(len(own)))[own]


def _leaves_rows_out(classifier: BinaryCodeClassifier) -> bool:
    weights = classifier.class_weight
    return isinstance(weights, dict) and 0 in weights.values()


def fit_reader(
    classifier: BinaryCodeClassifier,
    reader: Reader,
    *,
    batch_rows: int | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> BinaryCodeClassifier:
    """Learn from the rows of a file without holding them.

    Parameters
    ----------
    classifier : BinaryCodeClassifier
    reader : Reader with labels
    batch_rows : int, optional
        Rows read at a time; about 64 MB of features by default.
    checkpoint : Checkpoint, optional
    progress : called with the name of the pass and its rows done so far

    Returns
    -------
    BinaryCodeClassifier
        The given one, fitted.
    """
    batch_rows = batch_rows or batch_rows_for(reader)
    tell = progress or (lambda name, rows: None)
    if checkpoint is not None and _leaves_rows_out(classifier):
        raise ValueError(
            "class_weight must not hold 0 where there is a checkpoint, for rows that are left out "
            "are not counted: leave them out of the file"
        )
    statistics = checkpoint.load() if checkpoint is not None else None
    if statistics is not None:
        classifier.resume(statistics)
        tell("learning", statistics.n_rows)
    else:
        classifier.begin(*spread_sample(reader))
    done = 0 if statistics is None else statistics.n_rows
    for batch in prefetched(reader.batches(batch_rows, start_row=done)):
        classifier.partial_fit(batch.X, labels_of(batch))
        statistics = classifier.statistics_
        done = statistics.n_rows
        tell("learning", done)
        if checkpoint is not None:
            checkpoint.save_if_due(statistics)
    if statistics is None:
        raise DataFileError(f"{reader.description}: no rows")
    if checkpoint is not None:
        checkpoint.save(statistics)

    passes = 1

    def once_more() -> Iterator[RowBatch]:
        nonlocal passes
        passes += 1
        first_row = 0
        for batch in prefetched(reader.batches(batch_rows)):
            tell(f"pass {passes}", batch.first_row + batch.X.shape[0])
            X, labels = batch.X, labels_of(batch)
            weights = _weights_of(labels, classifier)
            if weights is not None and not weights.all():
                # Rows of weight 0 were not summed, and rows are counted without them.
                counts = weights > 0
                X, labels, weights = X[counts], labels[counts], weights[counts]
            yield first_row, X, labels, weights
            first_row += len(labels)

    return classifier.solve(once_more)
