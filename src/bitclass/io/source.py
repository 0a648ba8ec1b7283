"""One file of rows: what every format provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.labels import LabelRange

__all__ = ["Piece", "Request", "Source", "spans"]

#: Features (k, d), None if only labels are read, and labels (k,), None if there are none.
Piece = tuple[Any, NDArray[Any] | None]


@dataclass(frozen=True)
class Request:
    """What the caller of `open_rows` asked for, the same for all files.

    Attributes
    ----------
    features : tuple of str, or None
        Names, places or patterns of the features; None to look for them.
    labels : str, False or None
        Name or place of the labels, None to look for them, False for no labels.
    n_features : int or None
    first_index : int or None
        First index of SVMlight files.
    header : bool or None
        Whether text files start with column names; None to find out.
    feature_names : tuple of str, or None
        Names of the features of a model.
    first_features : tuple of str, or None
        Columns that were the features of the first file, and must be those of this one.
    only_labels : bool
        Whether the file holds labels and no features.
    """

    features: tuple[str, ...] | None = None
    labels: str | bool | None = None
    n_features: int | None = None
    first_index: int | None = None
    header: bool | None = None
    feature_names: tuple[str, ...] | None = None
    first_features: tuple[str, ...] | None = None
    only_labels: bool = False


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
    feature_names : tuple of str, or None
    features, labels : what a further file must have: names of columns or arrays
    label_dtype : dtype or None
        Type of the labels; None if there are none or if they are text whose type is to be decided.
    label_range : LabelRange or None
        Summary of labels that are text and may be integers.
    seeks : bool
        Whether reading from a row in the middle is cheap.
    details : str
        What is read, for the description.
    """

    format_name: str
    path: Path
    n_rows: int
    n_features: int = 0
    dtype: np.dtype[Any] = np.dtype(np.float64)
    is_sparse: bool = False
    feature_names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    labels: str | None = None
    label_dtype: np.dtype[Any] | None = None
    label_range: LabelRange | None = None
    seeks: bool = True
    details: str = ""

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.label_dtype is not None or self.label_range is not None

    @abstractmethod
    def read(self, start_row: int, first_rows: int, n_rows: int) -> Iterator[Piece]:
        """Rows from `start_row` on, in pieces.

        A source that can chooses pieces of `first_rows` and then `n_rows` rows, which need no
        joining; others yield pieces of any size.
        """


def spans(start: int, stop: int, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut a range into spans of `size`, the first of them of `first`.

    Examples
    --------
    >>> list(spans(3, 10, 1, 4))
    [(3, 4), (4, 8), (8, 10)]
    """
    while start < stop:
        end = min(stop, start + first)
        yield start, end
        start, first = end, size
