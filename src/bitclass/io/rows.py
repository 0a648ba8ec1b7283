"""Rows of files in batches: the way into the library for data of any size."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass.io.errors import DataFileError, more
from bitclass.io.labels import convert
from bitclass.io.source import Batch, Source, join_batches

__all__ = ["FileRows", "prefetch"]

_BATCH_BYTES = 64 << 20
_MAX_BATCH_ROWS = 65_536
_SAMPLE_PLACES = 64
_T = TypeVar("_T")
_END = object()


class FileRows:
    """Rows of one or several files; made by `open_rows`.

    No file stays open between passes, and several passes may run at the same time.

    Parameters
    ----------
    sources : sequence of Source
        The files, in order.
    label_dtype : dtype or None
        Type of the labels that the sources have.
    labels : (n_rows,) array, optional
        Labels that come from files of their own.
    label_sources : sequence of Source
        Those files.

    Attributes
    ----------
    n_rows, n_features : int
    feature_names : tuple of str, or None
        None if the input has no names.
    has_labels : bool
    dtype : dtype of the features
    is_sparse : bool
        Whether features come as CSR.
    first_index : int or None
        The index of the first feature, in SVMlight files.
    paths, label_paths : list of Path
        The files that are read, and files of labels apart from them.
    description : str
        What is read, what was guessed and what was left out; one line per kind of file.

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
        label_dtype: np.dtype[Any] | None,
        labels: NDArray[Any] | None = None,
        label_sources: Sequence[Source] = (),
    ) -> None:
        first = sources[0]
        self._sources, self._labels, self._label_dtype = list(sources), labels, label_dtype
        self.n_rows = sum(source.n_rows for source in sources)
        self.n_features = first.n_features
        self.feature_names = tuple(first.features) if first.has_names else None
        self.has_labels = labels is not None or label_dtype is not None
        self.dtype: np.dtype[Any] = np.result_type(*(source.dtype for source in sources))
        self.is_sparse, self.first_index = first.is_sparse, first.first_index
        self.paths = [source.path for source in sources]
        self.label_paths = [source.path for source in label_sources]
        described = [_description(files) for files in (sources, label_sources) if files]
        self.description = "\n".join(described)

    def __repr__(self) -> str:
        return f"<FileRows of {self.n_rows} x {self.n_features} {self.dtype}, {self.paths[0].name}>"

    def place_of(self, row: int) -> tuple[Path, int]:
        """The file that a row is in, and its number there.

        Parameters
        ----------
        row : int, counted over all files
        """
        for source in self._sources:
            if row < source.n_rows:
                break
            row -= source.n_rows
        return source.path, row

    @cached_property
    def rows_per_batch(self) -> int:
        """Rows per batch if not given: about 64 MB of features."""
        row_bytes = float(self.n_features * self.dtype.itemsize)
        if self.is_sparse or not self.n_features:  # by the size of the files
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
        n_places = min(_SAMPLE_PLACES, n_rows)
        length = n_rows // n_places
        starts = np.linspace(0, self.n_rows - length, n_places).astype(int).tolist()
        if n_rows >= self.n_rows:
            starts, length = [0], self.n_rows
        if all(source.seeks for source in self._sources):
            found = [part for start in starts for part in self._parts([start], length, length)]
        else:  # one pass over files that are read front to back
            found = list(self._parts(starts, length, self.rows_per_batch))
        joined = join_batches(found)
        return joined.X, joined.labels

    def _parts(self, starts: list[int], length: int, size: int) -> Generator[Batch, None, None]:
        """`length` rows from each start on, in one pass."""
        for piece in self._pieces(starts[0], size):
            for start in starts:
                low, high = (max(row - piece.first_row, 0) for row in (start, start + length))
                if low < min(high, len(piece)):
                    part = piece.rows(low, high)
                    if part.X is not None and len(part) < len(piece):
                        part = replace(part, X=part.X.copy())  # or it keeps the piece in memory
                    yield part
            if piece.first_row + len(piece) >= starts[-1] + length:
                break

    def _batches(self, start_row: int, size: int) -> Generator[Batch, None, None]:
        """Pieces of the files, cut and joined to end at multiples of `size`."""
        held: list[Batch] = []
        room = size - start_row % size
        for piece in self._pieces(start_row, size):
            start = 0
            while start < len(piece):
                part = piece.rows(start, start + room)
                held.append(part)
                start, room = start + len(part), room - len(part)
                if room == 0:
                    yield join_batches(held)
                    held, room = [], size
        if held:
            yield join_batches(held)

    def _pieces(self, start_row: int, size: int) -> Generator[Batch, None, None]:
        """Pieces of all files, checked, in one type and numbered over all files."""
        offset = 0
        for source in self._sources:
            row = max(0, start_row - offset)
            if row < source.n_rows:
                for piece in source.read(row, size):
                    yield self._checked(source, piece, row, offset)
                    row += len(piece)
                if row != source.n_rows:
                    raise DataFileError(
                        f"{source.path}: gave {row} rows where {source.n_rows} were counted; "
                        "it has changed or is damaged"
                    )
            offset += source.n_rows

    def _checked(self, source: Source, piece: Batch, row: int, offset: int) -> Batch:
        X, labels, first = piece.X, piece.labels, offset + row
        if X is not None:
            X = X.astype(self.dtype, copy=False)
            _check_finite(source.path, X, row, self.feature_names)
        if self._labels is not None:
            labels = self._labels[first : first + len(piece)]
        elif labels is not None and self._label_dtype is not None:
            labels = convert(source.path, labels, self._label_dtype, row)
        return Batch(X, labels, first, piece.columns)


def prefetch(items: Iterable[_T]) -> Generator[_T, None, None]:
    """Yield the same items, each produced in a thread while the one before is in use.

    Parameters
    ----------
    items : iterable
        Its exceptions are raised here, after the items before them. If this generator is closed
        early, `items` is closed too.

    Yields
    ------
    item

    Examples
    --------
    >>> list(prefetch(range(3)))
    [0, 1, 2]
    """
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="bitclass-prefetch") as pool:
        try:
            pending = pool.submit(next, source, _END)
            while (item := pending.result()) is not _END:
                pending = pool.submit(next, source, _END)
                yield item  # type: ignore[misc]
                del item  # or it stays in memory while the next but one is produced
        finally:
            pool.shutdown(cancel_futures=True)  # waits for the item that is being produced
            close = getattr(source, "close", None)
            if close is not None:
                close()


def _check_finite(
    path: Path, X: Any, first_row: int, feature_names: Sequence[str] | None = None
) -> None:
    """Refuse NaN and infinity in X (k, d), naming the first row and feature that has one."""
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


def _description(sources: Sequence[Source]) -> str:
    """What is read, what was guessed and what was left out, in one line."""
    first = sources[0]
    n_rows = sum(source.n_rows for source in sources)
    parts = [f"{first.format_name}, {n_rows} labels"]
    if first.n_features:
        kind = f"{'sparse ' if first.is_sparse else ''}{first.dtype}"
        parts = [f"{first.format_name}, {n_rows} x {first.n_features} {kind}"]
        ends = [repr(name) for name in (*first.features[:1], *first.features[1:][-1:]) if name]
        parts += [f"features {' to '.join(ends)}"] if ends else []
    if first.label_dtype is None:
        parts.append("no labels")
    elif first.label:
        parts.append(f"labels {first.label!r}")
    notes = f" ({'; '.join(first.notes)})" if first.notes else ""
    return f"{first.path}{more(sources)}: {', '.join(parts)}{notes}"
