"""One file of rows, whatever its format: what a reader needs to know of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.rows import Features

__all__ = ["Choice", "Piece", "Request", "RowFile", "spans"]


@dataclass(frozen=True)
class Request:
    """What the user asked for, the same for all files of a reader.

    Attributes
    ----------
    features : names of the features, or None to look for them
    labels : name or index of the labels, None to look for them, False for no labels
    n_features : the number of features, where the user knows it
    first_index : whether SVMlight indices count from 0 or 1, where the user knows it
    header : whether a CSV file has one, where the user knows it
    only_labels : whether the file has labels alone, apart from the features
    """

    features: tuple[str | int, ...] | None = None
    labels: str | int | bool | None = None
    n_features: int | None = None
    first_index: int | None = None
    header: bool | None = None
    only_labels: bool = False


@dataclass(frozen=True)
class Choice:
    """The names that a request came down to in one file.

    Attributes
    ----------
    features : the arrays or columns of the features, () where only labels are read
    labels : the array or column of the labels, None where there are none
    """

    features: tuple[str | int, ...]
    labels: str | int | None


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file.

    Attributes
    ----------
    X : (k, d) array or CSR, None where only labels are read
    labels : (k,), None where there are none
    """

    X: Features | None
    labels: NDArray[Any] | None

    def __len__(self) -> int:
        if self.X is not None:
            return int(self.X.shape[0])
        return 0 if self.labels is None else len(self.labels)

    def rows(self, start: int, stop: int) -> Piece:
        """Some of the rows; all of them without a copy."""
        if start <= 0 and stop >= len(self):
            return self
        return Piece(
            None if self.X is None else self.X[start:stop],
            None if self.labels is None else self.labels[start:stop],
        )


class RowFile(ABC):
    """One file of rows. Opened only while rows are read, so there is nothing to close.

    Attributes
    ----------
    path : the file
    n_rows : int
    n_features : int, 0 where only labels are read
    dtype : type of the features
    is_sparse : whether the features come as CSR
    choice : which arrays or columns are read
    text_labels : whether the labels are text, None where there are none
    description : the format and what is read, for people
    buffer_bytes : memory that reading may need beside the rows
    """

    path: Path
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    is_sparse: bool = False
    choice: Choice
    text_labels: bool | None
    description: str
    buffer_bytes: int = 0

    @abstractmethod
    def pieces(self, start_row: int, piece_rows: int, offset: int) -> Iterator[Piece]:
        """Rows from `start_row` on, in order, in pieces of at most `piece_rows` rows.

        `offset` is the number of rows before this file. A file that can be read at any place cuts
        its pieces at multiples of `piece_rows` counted from there, so that they need no joining.
        """


def spans(
    start_row: int, n_rows: int, piece_rows: int, offset: int = 0
) -> Iterator[tuple[int, int]]:
    """Cut the rows from `start_row` to `n_rows` at multiples of `piece_rows` less `offset`.

    Examples
    --------
    >>> list(spans(0, 10, 4))
    [(0, 4), (4, 8), (8, 10)]
    >>> list(spans(0, 10, 4, offset=3))
    [(0, 1), (1, 5), (5, 9), (9, 10)]
    """
    start = start_row
    while start < n_rows:
        stop = min(n_rows, start + piece_rows - (offset + start) % piece_rows)
        yield start, stop
        start = stop


def described(choice: Choice, shape: Sequence[int], dtype: np.dtype[Any], sparse: bool) -> str:
    """What is read of a file, for people.

    Examples
    --------
    >>> described(Choice(("X",), "y"), (100, 8), np.dtype("f4"), sparse=False)
    "features 'X' (100 x 8, float32), labels 'y'"
    """
    parts = []
    if choice.features:
        kind = f"{shape[0]} x {shape[1]}, {'sparse ' if sparse else ''}{dtype}"
        first, last = choice.features[0], choice.features[-1]
        if len(choice.features) == 1:
            parts.append(f"features {first!r} ({kind})")
        else:
            parts.append(f"features {first!r} to {last!r} ({kind})")
    if choice.labels is None:
        parts.append("no labels")
    else:
        parts.append(f"labels {choice.labels!r}")
    return ", ".join(parts)
