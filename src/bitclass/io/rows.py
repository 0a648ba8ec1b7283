"""Rows of files in batches: the way into the library for data of any size."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass.io.errors import DataFileError
from bitclass.io.labels import convert
from bitclass.io.prefetch import prefetch
from bitclass.io.source import Piece, Source

__all__ = ["Batch", "FileRows", "Rows", "check_finite"]

_BATCH_BYTES = 64 << 20
_MAX_BATCH_ROWS = 65_536
_SAMPLE_PLACES = 64


@dataclass(frozen=True)
class Batch:
    """Consecutive rows.

    Attributes
    ----------
    X : (k, d) array or CSR
        Features, perhaps not writeable.
    labels : (k,) array of booleans, numbers or str, or None
    first_row : int
        Number of the first row, counted from 0 over all files.
    """

    X: Any
    labels: NDArray[Any] | None
    first_row: int


class Rows(Protocol):
    """Rows that can be read in batches any number of times, from files or from images.

    Attributes
    ----------
    n_rows, n_features : int
    feature_names : tuple of str, or None
        None if the input has no names.
    has_labels : bool
    dtype : dtype of the features
    is_sparse : bool
        Whether features come as CSR.
    paths : sequence of Path
        The files that are read.
    label_paths : sequence of Path
        Files of labels apart from the features.
    description : str
        What is read, what was guessed and what was left out; one line per kind of file.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...  # noqa: D102
    @property
    def has_labels(self) -> bool: ...  # noqa: D102
    @property
    def dtype(self) -> np.dtype[Any]: ...  # noqa: D102
    @property
    def is_sparse(self) -> bool: ...  # noqa: D102
    @property
    def paths(self) -> Sequence[Path]: ...  # noqa: D102
    @property
    def label_paths(self) -> Sequence[Path]: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102

    def batches(self, start_row: int = 0, rows_per_batch: int | None = None) -> Iterator[Batch]:
        """Batches from a row on; they end at multiples of `rows_per_batch`."""
        ...

    def sample(self, n_rows: int = 8192) -> tuple[Any, NDArray[Any] | None]:
        """Features and labels of rows spread over all files, the same rows every time."""
        ...


class FileRows:
    """Rows of one or several files; made by `open_rows`.

    No file stays open between passes, and several passes may run at the same time. The attributes
    are those of `Rows`.

    Examples
    --------
    >>> import tempfile, os
    >>> from bitclass.io import open_rows
    >>> path = os.path.join(tempfile.mkdtemp(), "X.npy")
    >>> np.save(path, np.zeros((5, 3), dtype=np.float32))
    >>> [batch.first_row for batch in open_rows(path).batches(2, rows_per_batch=2)]
    [2, 4]
    """

    def __init__(
        self,
        sources: Sequence[Source],
        label_sources: Sequence[Source],
        label_dtype: np.dtype[Any] | None,
    ) -> None:
        first = sources[0]
        self._sources, self._label_sources = list(sources), list(label_sources)
        self._label_dtype = label_dtype
        self.n_rows = sum(source.n_rows for source in sources)
        self.n_features = first.n_features
        self.feature_names = first.feature_names
        self.has_labels = label_dtype is not None
        self.dtype: np.dtype[Any] = np.result_type(*(source.dtype for source in sources))
        self.is_sparse = first.is_sparse
        self.paths = [source.path for source in sources]
        self.label_paths = [source.path for source in label_sources]
        self.description = _description(sources)
        if label_sources:
            self.description += "\n" + _description(label_sources)

    def __repr__(self) -> str:
        return f"<FileRows of {self.n_rows} x {self.n_features} {self.dtype}, {self.paths[0].name}>"

    @cached_property
    def rows_per_batch(self) -> int:
        """Rows per batch if not given: about 64 MB of features."""
        row_bytes = float(self.n_features * self.dtype.itemsize)
        if self.is_sparse:  # by the size of the files, which may be compressed
            row_bytes = 2 * sum(path.stat().st_size for path in self.paths) / self.n_rows
        return int(min(max(_BATCH_BYTES // row_bytes, 1), _MAX_BATCH_ROWS))

    def batches(
        self, start_row: int = 0, rows_per_batch: int | None = None
    ) -> Generator[Batch, None, None]:
        """Rows in order; the next batch is read while the current one is used.

        Parameters
        ----------
        start_row : int
            The row to start with.
        rows_per_batch : int, optional
            About 64 MB of features by default. Batches end at multiples of it wherever they start,
            so that an interrupted run resumes with the same batches.

        Yields
        ------
        Batch
        """
        size = self.rows_per_batch if rows_per_batch is None else rows_per_batch
        if size < 1:
            raise ValueError(f"rows_per_batch must be positive, found {size}")
        if not 0 <= start_row <= self.n_rows:
            raise ValueError(f"start_row must be 0 to {self.n_rows}, found {start_row}")
        return prefetch(self._batches(start_row, size))

    def sample(self, n_rows: int = 8192) -> tuple[Any, NDArray[Any] | None]:
        """Rows spread over all files, which may be sorted by class.

        Parameters
        ----------
        n_rows : int
            At most this many; all rows, in order, if there are no more.

        Returns
        -------
        X : (m, d) array or CSR
        labels : (m,) array, or None
        """
        if n_rows >= self.n_rows:
            return self._rows(0, self.n_rows)
        n_places = min(_SAMPLE_PLACES, n_rows)
        length = n_rows // n_places
        starts = np.linspace(0, self.n_rows - length, n_places).astype(int).tolist()
        if all(source.seeks for source in [*self._sources, *self._label_sources]):
            found = [self._rows(start, length) for start in starts]
        else:
            found = list(self._picked(starts, length))
        return _joined(found)

    def _rows(self, start: int, length: int) -> Piece:
        pieces = []
        with closing(self._batches(start, length)) as batches:
            while length > 0:
                batch = next(batches)
                X = batch.X[:length]
                pieces.append((X, None if batch.labels is None else batch.labels[:length]))
                length -= X.shape[0]
        return _joined(pieces)

    def _picked(self, starts: Sequence[int], length: int) -> Iterator[Piece]:
        """The same rows as by `_rows`, in one pass over files that are read front to back."""
        with closing(self.batches()) as batches:
            for batch in batches:
                stop = batch.first_row + batch.X.shape[0]
                for start in starts:
                    low, high = max(start, batch.first_row), min(start + length, stop)
                    if low < high:
                        rows = slice(low - batch.first_row, high - batch.first_row)
                        labels = batch.labels
                        yield batch.X[rows], None if labels is None else labels[rows]

    def _batches(self, start_row: int, size: int) -> Generator[Batch, None, None]:
        row = start_row
        with closing(self._aligned(self._sources, start_row, size)) as pieces:
            if not self._label_sources:
                for X, labels in pieces:
                    yield Batch(X, labels, row)
                    row += X.shape[0]
                return
            with closing(self._aligned(self._label_sources, start_row, size)) as beside:
                for (X, _), (_, labels) in zip(pieces, beside, strict=True):
                    yield Batch(X, labels, row)
                    row += X.shape[0]

    def _aligned(
        self, sources: Sequence[Source], start_row: int, size: int
    ) -> Generator[Piece, None, None]:
        """Pieces cut and joined to end at multiples of `size`."""
        held: list[Piece] = []
        room = size - start_row % size
        with closing(self._pieces(sources, start_row, size)) as pieces:
            for X, labels in pieces:
                n_rows = _length((X, labels))
                start = 0
                while start < n_rows:
                    stop = min(n_rows, start + room)
                    held.append(
                        (
                            None if X is None else X[start:stop],
                            None if labels is None else labels[start:stop],
                        )
                    )
                    room -= stop - start
                    start = stop
                    if room == 0:
                        yield _joined(held)
                        held, room = [], size
        if held:
            yield _joined(held)

    def _pieces(
        self, sources: Sequence[Source], start_row: int, size: int
    ) -> Generator[Piece, None, None]:
        """Pieces of all files, checked and in one type."""
        offset = 0
        for source in sources:
            row = max(0, start_row - offset)
            if row < source.n_rows:
                first = size - (offset + row) % size
                for X, labels in source.read(row, first, size):
                    if X is not None:
                        X = X.astype(self.dtype, copy=False)
                        check_finite(source.path, X, row, self.feature_names)
                    if labels is not None and self._label_dtype is not None:
                        labels = convert(source.path, labels, self._label_dtype, row)
                    yield X, labels
                    row += _length((X, labels))
                if row != source.n_rows:
                    raise DataFileError(
                        f"{source.path}: gave {row} rows where {source.n_rows} were counted; "
                        "it has changed or is damaged"
                    )
            offset += source.n_rows


def _length(piece: Piece) -> int:
    X, labels = piece
    if X is not None:
        return int(X.shape[0])
    return 0 if labels is None else len(labels)


def _joined(pieces: Sequence[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    X, labels = pieces[0]
    if isinstance(X, np.ndarray):
        X = np.concatenate([piece[0] for piece in pieces])
    elif X is not None:
        from scipy.sparse import vstack

        X = vstack([piece[0] for piece in pieces], format="csr")
    if labels is not None:
        labels = np.concatenate([piece[1] for piece in pieces if piece[1] is not None])
    return X, labels


def _description(sources: Sequence[Source]) -> str:
    first = sources[0]
    parts = [f"{first.path}"]
    if len(sources) > 1:
        parts[0] += f" and {len(sources) - 1} more"
    n_rows = sum(source.n_rows for source in sources)
    if first.n_features:
        kind = f"{'sparse ' if first.is_sparse else ''}{first.dtype}"
        parts.append(f"{first.format_name}, {n_rows} x {first.n_features} {kind}")
        names = first.features or ()
        if len(names) > 1:
            parts.append(f"features {names[0]!r} to {names[-1]!r}")
        elif names and names[0]:
            parts.append(f"features {names[0]!r}")
    else:
        parts.append(f"{first.format_name}, {n_rows} labels")
    parts.append(f"labels {first.labels!r}" if first.labels else "no labels")
    if first.labels == "":
        parts.pop()
    return ": ".join([parts[0], ", ".join(parts[1:])]) + (
        f" ({first.details})" if first.details else ""
    )


def check_finite(
    path: Path, X: Any, first_row: int, feature_names: Sequence[str] | None = None
) -> None:
    """Refuse NaN and infinity, naming the first row and feature that has one.

    Parameters
    ----------
    path : Path
        For the message.
    X : (k, d) array or CSR
    first_row : int
        Number of the first row in the file.
    feature_names : sequence of str, optional
    """
    values = X if isinstance(X, np.ndarray) else X.data
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is cheaper than a test of every value, which only follows where the sum fails.
        if np.isfinite(values.sum(dtype=np.float32 if values.itemsize == 2 else None)):
            return
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return
    if isinstance(X, np.ndarray):
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        value = X[row, column]
    else:
        at = int(np.argmax(wrong))
        row, column = int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
        value = values[at]
    name = repr(feature_names[column]) if feature_names else str(column)
    raise DataFileError(
        f"{path}: row {first_row + row} has {value} in feature {name}; features must be finite"
    )
