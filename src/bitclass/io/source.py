"""The interface of all file formats: a `Source` is opened for a `Request` and yields `Batch`es."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batch", "Request", "Source", "join_batches"]


@dataclass(frozen=True)
class Batch:
    """Consecutive rows.

    Attributes
    ----------
    X : ndarray or CSR array of shape (n_rows, n_features), or None
        Features, possibly read-only; None if not requested.
    labels : ndarray of shape (n_rows,), or None
        Booleans, numbers or strings.
    first_row : int
        Number of the first row, counted from 0 over all files.
    columns : mapping of str to ndarray of shape (n_rows,)
        The additional columns that were requested.
    """

    X: Any
    labels: NDArray[Any] | None
    first_row: int
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        if self.X is not None:
            return int(self.X.shape[0])
        return len(self.labels if self.labels is not None else next(iter(self.columns.values())))

    def rows(self, start: int, stop: int | None = None) -> Batch:
        """Slice the rows, counted from 0."""
        return Batch(
            None if self.X is None else self.X[start:stop],
            None if self.labels is None else self.labels[start:stop],
            self.first_row + start,
            {name: values[start:stop] for name, values in self.columns.items()},
        )


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    first = batches[0]
    if len(batches) == 1:
        return first
    X = None
    if isinstance(first.X, np.ndarray):
        X = np.concatenate([batch.X for batch in batches])
    elif first.X is not None:
        from scipy.sparse import vstack

        X = vstack([batch.X for batch in batches], format="csr")
    found = [batch.labels for batch in batches if batch.labels is not None]
    columns = {
        name: np.concatenate([batch.columns[name] for batch in batches]) for name in first.columns
    }
    return Batch(X, np.concatenate(found) if found else None, first.first_row, columns)


@dataclass(frozen=True)
class Request:
    """The arguments of `open_rows`, the same for all files."""

    # Names, positions or patterns; empty to detect them, False for none.
    features: tuple[str, ...] | Literal[False] = ()
    labels: str | Literal[False] | None = None
    columns: tuple[str, ...] = ()  # additional columns to read
    feature_names: tuple[str, ...] | None = None  # of a model
    n_features: int | None = None
    first_index: int | None = None  # of SVMlight files
    part: Literal["train", "test"] = "train"  # of arrays X_train and X_test
    header: bool | None = None  # whether text files start with column names; None to detect it

    @property
    def only_labels(self) -> bool:
        """Whether the file holds labels and no features."""
        return self.features is False and not self.columns


class Source(ABC):
    """A file that is open only while rows are read.

    Attributes
    ----------
    path : Path
    format_name : str
    n_rows, n_features : int
    dtype : dtype
        Type of the features.
    is_sparse : bool
        Whether the features are CSR arrays.
    features : sequence of str
        The feature columns, or the feature array.
    has_names : bool
        Whether `features` are feature names, so that they can be matched by name.
    label : str or None
        The label column or array.
    label_dtype : dtype or None
        Type of the labels.
    first_index : int or None
        Index of the first feature in SVMlight files.
    seeks : bool
        Whether reading from a row in the middle is cheap.
    notes : list of str
        What was guessed or skipped.
    """

    format_name: str
    seeks = True
    is_sparse = False
    has_names = False
    n_rows = 0
    n_features = 0
    dtype: np.dtype[Any] = np.dtype(np.float64)
    features: Sequence[str] = ()
    label: str | None = None
    label_dtype: np.dtype[Any] | None = None
    first_index: int | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []

    @abstractmethod
    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Yield rows from `start_row` on, in order, in pieces of any size.

        `rows_per_piece` is the preferred size. Rows are counted within this file.
        """
