"""One file of rows: what every format provides, and what is asked of it."""

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
    X : (k, d) array or CSR, or None
        Features, perhaps not writeable; None if none were asked for.
    labels : (k,) array of booleans, numbers or str, or None
    first_row : int
        Number of the first row, counted from 0 over all files.
    columns : mapping of str to (k,) array
        The further columns that were asked for.
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
        """Some of the rows, counted from 0."""
        return Batch(
            None if self.X is None else self.X[start:stop],
            None if self.labels is None else self.labels[start:stop],
            self.first_row + start,
            {name: values[start:stop] for name, values in self.columns.items()},
        )


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Several batches as one."""
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
    """What the caller of `open_rows` asked for, the same for all files."""

    # Names, positions or patterns; empty to look for them, False for none.
    features: tuple[str, ...] | Literal[False] = ()
    labels: str | Literal[False] | None = None
    columns: tuple[str, ...] = ()  # further columns to read
    feature_names: tuple[str, ...] | None = None  # of a model
    n_features: int | None = None
    first_index: int | None = None  # of SVMlight files
    part: Literal["train", "test"] = "train"  # of arrays X_train and X_test
    header: bool | None = None  # whether text files start with column names; None to find out

    @property
    def only_labels(self) -> bool:
        """Whether the file holds labels and no features."""
        return self.features is False and not self.columns


class Source(ABC):
    """One file, opened only while rows are read.

    Attributes
    ----------
    path : Path
    format_name : str
    n_rows, n_features : int
    dtype : dtype of the features
    is_sparse : bool
        Whether the features come as CSR.
    features : sequence of str
        The columns, or the array, of the features.
    has_names : bool
        Whether `features` are names of the features, so that they can be matched by name.
    label : str or None
        The column or array of the labels.
    label_dtype : dtype or None
        Type of the labels.
    first_index : int or None
        The index of the first feature, in SVMlight files.
    seeks : bool
        Whether reading from a row in the middle is cheap.
    notes : list of str
        What was guessed or left out.
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
        """Rows from `start_row` on, in order, in pieces of any size.

        `rows_per_piece` is what fits the caller best. Rows are counted within this file.
        """
