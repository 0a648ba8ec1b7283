"""The contract of all file formats: a `Source` is opened for a `Request` and yields `Batch`es.

Any error in a file is a `DataFileError`, a single line that names the file.
"""

from __future__ import annotations

import gzip
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

_MAX_NAMES = 20
_MAX_CHARACTERS = 300
_PEEKED = 4096
_COUNTED = " (rows are counted from 0)"


@dataclass(frozen=True)
class Batch:
    """Consecutive rows.

    Attributes
    ----------
    X : ndarray or CSR array of shape (n_rows, n_features), or None
        Features, possibly read-only; None if not requested.
    labels : ndarray of shape (n_rows,), or None
        Booleans, integers or strings.
    first_row : int
        Number of the first row, counted from 0 over all files.
    columns : mapping of str to ndarray of shape (n_rows,)
        The further columns that were requested.
    sample_weight : ndarray of shape (n_rows,), or None
    texts : sequence of n_rows str or bytes, or None
    """

    X: Any
    labels: NDArray[Any] | None
    first_row: int
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    sample_weight: NDArray[np.float64] | None = None
    texts: Sequence[str | bytes] | None = None

    @property
    def pair(self) -> tuple[Any, ...]:
        """Texts or features, labels and, if there are any, weights, as `fit_batches` takes them."""
        weights = () if self.sample_weight is None else (self.sample_weight,)
        return self.X if self.texts is None else self.texts, self.labels, *weights

    def __len__(self) -> int:
        if self.X is not None:
            return int(self.X.shape[0])
        for values in (self.labels, self.texts, *self.columns.values()):
            if values is not None:
                return len(values)
        return 0

    def slice(self, start: int, stop: int | None = None) -> Batch:
        """Slice the rows, counted from 0 in this batch."""

        def part(values: Any) -> Any:
            return None if values is None else values[start:stop]

        columns = {name: part(values) for name, values in self.columns.items()}
        others = map(part, (self.sample_weight, self.texts))
        return Batch(part(self.X), part(self.labels), self.first_row + start, columns, *others)


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    first = batches[0]
    if len(batches) == 1:
        return first

    def joined(parts: Sequence[Any]) -> Any:
        if parts[0] is None:
            return None
        if isinstance(parts[0], np.ndarray):
            return np.concatenate(parts)
        if isinstance(parts[0], list):
            return [value for part in parts for value in part]
        from scipy.sparse import vstack

        return vstack(parts, format="csr")

    def all_of(name: str) -> Any:
        return joined([getattr(batch, name) for batch in batches])

    return Batch(
        all_of("X"),
        all_of("labels"),
        first.first_row,
        {name: joined([batch.columns[name] for batch in batches]) for name in first.columns},
        *map(all_of, ("sample_weight", "texts")),
    )


class Source(ABC):
    """A file that is open only while rows are read; its constructor takes a path and a request."""

    format_name: str
    path: Path
    n_rows = 0
    n_features = 0
    is_sparse = False  # whether the features are CSR arrays
    dtype: np.dtype[Any] = np.dtype(np.float64)  # of the features
    has_names = False  # whether `features` are feature names, to be matched by name
    label_dtype: np.dtype[Any] | None = None
    # Set by `choose_columns`: names of columns or arrays, and what was found by name or skipped.
    features: Sequence[str] = ()
    label: str | None = None
    columns: Sequence[str] = ()
    notes: Sequence[str] = ()

    @abstractmethod
    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the rows in order, in pieces of any size.

        `rows_per_piece` is the preferred size. Rows are counted within this file.
        """


class DataFileError(ValueError):
    """Error in a data file; the message is a single line that names the file.

    Examples
    --------
    >>> from bitclass.io import open_rows
    >>> open_rows("absent.npy")
    Traceback (most recent call last):
    bitclass.io.source.DataFileError: absent.npy: no such file or folder
    """

    def __init__(self, message: str) -> None:
        if re.search(r"\brow \d", message) and _COUNTED not in message:
            message += _COUNTED  # lines of a file and rows of a spreadsheet are counted otherwise
        super().__init__(message)


@contextmanager
def reading(path: Path, format_name: str) -> Iterator[None]:
    """Convert any exception in the block to a `DataFileError` that names the file.

    The libraries that read the formats raise many types on a damaged file, including KeyError and
    AttributeError, so all are caught.
    """
    try:
        yield
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path}: no such file or folder") from error
    except PermissionError as error:
        raise DataFileError(f"{path}: no permission to read the file") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if len(reason) > _MAX_CHARACTERS:
            reason = reason[:_MAX_CHARACTERS] + "..."
        if format_name in ("CSV", "JSON lines") and re.search("utf-?8", reason, re.IGNORECASE):
            # Spreadsheets write the code page of their system.
            reason += "; convert it to UTF-8, for example with iconv -f CP1252 -t UTF-8"
        raise DataFileError(f"{path}: cannot be read as {format_name}: {reason}") from error


def listed(names: Iterable[object]) -> str:
    """List names in a message, shortened if there are many.

    Examples
    --------
    >>> listed(["X", "y"])
    "'X', 'y'"
    """
    words = [repr(name) for name in names]
    if len(words) > _MAX_NAMES:
        words = [*words[: _MAX_NAMES - 1], f"... ({len(words)} in all)"]
    return ", ".join(words) or "none"


def open_text(path: Path) -> IO[bytes]:
    """Open a text file for reading bytes, decompressed if its content is gzip.

    One that starts with bytes that no text contains is a DataFileError.

    Examples
    --------
    >>> import os, tempfile
    >>> path = Path(tempfile.mkdtemp(), "rows")
    >>> _ = path.write_bytes(gzip.compress(b"x,label"))
    >>> with open_text(path) as stream:
    ...     stream.read()
    b'x,label'
    """
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    open_file: Any = gzip.open if is_gzip else open
    stream = open_file(path, "rb")
    try:
        with reading(path, "gzip"):
            start = stream.peek(_PEEKED)[:_PEEKED]
        if b"\0" in start:
            raise DataFileError(
                f"{path}: is not UTF-8 text, but UTF-16 or not text at all; convert it, for "
                "example with iconv -f UTF-16 -t UTF-8; of compressed files, those of gzip are read"
            )
    except DataFileError:
        stream.close()
        raise
    return cast("IO[bytes]", stream)
