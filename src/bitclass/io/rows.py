"""Reading rows of files in batches."""

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
    """Rows of one or several files; created by `open_rows`.

    No file stays open between passes, and several passes may run concurrently.

    Parameters
    ----------
    sources : sequence of Source
        The files, in order.
    label_dtype : dtype or None
        Type of the labels in the sources, if any.
    labels : ndarray of shape (n_rows,), optional
        Labels read from separate files.
    label_sources : sequence of Source
        The separate label files.

    Attributes
    ----------
    n_rows, n_features : int
    feature_names : tuple of str, or None
        None if the input has no names.
    has_labels : bool
    dtype : dtype
        Type of the features.
    is_sparse : bool
        Whether features are CSR arrays.
    first_index : int or None
        Index of the first feature in SVMlight files.
    paths, label_paths : list of Path
        Feature files and separate label files.
    description : str
        What is read, what was guessed and what was skipped; one line per kind of file.

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
        """Find the file that contains a row.

        Parameters
        ----------
        row : int
            Row number, counted over all files.

        Returns
        -------
        path : Path
        row : int
            Row number in that file.
        """
        for source in self._sources:
            if row < source.n_rows:
                break
            row -= source.n_rows
        return source.path, row

    @cached_property
    def rows_per_batch(self) -> int:
        """Default number of rows per batch: about 64 MB of features."""
        row_bytes = float(self.n_features * self.dtype.itemsize)
        if self.is_sparse or not self.n_features:  # estimate from the file sizes
            row_bytes = 2 * sum(path.stat().st_size for path in self.paths) / self.n_rows
        return int(min(max(_BATCH_BYTES // row_bytes, 1), _MAX_BATCH_ROWS))

    def batches(
        self, start_row: int = 0, rows_per_batch: int | None = None
    ) -> Generator[Batch, None, None]:
        """Yield the rows in order; the next batch is read while the current one is used.

        Parameters
        ----------
        start_row : int, default=0
            The row to start from.
        rows_per_batch : int, optional
            About 64 MB of features by default. Batches end at multiples of it whatever the
            `start_row`, so that an interrupted run resumes with the same batches.

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
        """Sample rows spread over all files, since these may be sorted by class.

        Parameters
        ----------
        n_rows : int, default=8192
            Maximum number of rows; if there are no more, all rows are returned, in order.

        Returns
        -------
        X : ndarray or CSR array of shape (n_sampled, n_features)
        labels : ndarray of shape (n_sampled,), or None
        """
        n_places = min(_SAMPLE_PLACES, n_rows)
        length = n_rows // n_places
        starts = np.linspace(0, self.n_rows - length, n_places).astype(int).tolist()
        if n_rows >= self.n_rows:
            starts, length = [0], self.n_rows
        if all(source.seeks for source in self._sources):
            found = [part for start in starts for part in self._parts([start], length, length)]
        else:  # one pass over files that are read sequentially
            found = list(self._parts(starts, length, self.rows_per_batch))
        joined = join_batches(found)
        return joined.X, joined.labels

    def _parts(self, starts: list[int], length: int, size: int) -> Generator[Batch, None, None]:
        """Yield `length` rows from each start, in one pass."""
        for piece in self._pieces(starts[0], size):
            for start in starts:
                low, high = (max(row - piece.first_row, 0) for row in (start, start + length))
                if low < min(high, len(piece)):
                    part = piece.rows(low, high)
                    if part.X is not None and len(part) < len(piece):
                        part = replace(part, X=part.X.copy())  # lets the piece be freed
                    yield part
            if piece.first_row + len(piece) >= starts[-1] + length:
                break

    def _batches(self, start_row: int, size: int) -> Generator[Batch, None, None]:
        """Split and join the pieces of the files into batches that end at multiples of `size`."""
        parts: list[Batch] = []
        n_missing = size - start_row % size
        for piece in self._pieces(start_row, size):
            start = 0
            while start < len(piece):
                part = piece.rows(start, start + n_missing)
                parts.append(part)
                start, n_missing = start + len(part), n_missing - len(part)
                if n_missing == 0:
                    yield join_batches(parts)
                    parts, n_missing = [], size
        if parts:
            yield join_batches(parts)

    def _pieces(self, start_row: int, size: int) -> Generator[Batch, None, None]:
        """Yield the pieces of all files, checked, in one type, with rows counted over all files."""
        offset = 0
        for source in self._sources:
            row = max(0, start_row - offset)
            if row < source.n_rows:
                for piece in source.read(row, size):
                    yield self._checked(source, piece, row, offset)
                    row += len(piece)
                if row != source.n_rows:
                    raise DataFileError(
                        f"{source.path}: has {row} rows, but {source.n_rows} were counted before; "
                        "the file has changed or is damaged"
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
    """Yield the same items, each produced in a thread while the previous one is in use.

    Parameters
    ----------
    items : iterable
        Exceptions it raises are raised here, after the preceding items. If this generator is closed
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
                del item  # otherwise it stays in memory while the item after next is produced
        finally:
            pool.shutdown(cancel_futures=True)  # waits for the item that is being produced
            close = getattr(source, "close", None)
            if close is not None:
                close()


def _check_finite(
    path: Path, X: Any, first_row: int, feature_names: Sequence[str] | None = None
) -> None:
    """Raise an error that names the first row and feature of X (k, d) with NaN or infinity."""
    values = X if isinstance(X, np.ndarray) else X.data
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum is cheaper than testing every value, which is needed only if it is not finite.
        if np.isfinite(values.sum(dtype=np.float32 if values.itemsize == 2 else None)):
            return
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return
    if isinstance(X, np.ndarray):
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        value = X[row, column]
    else:
        i = int(np.argmax(wrong))
        row, column = int(np.searchsorted(X.indptr, i, side="right")) - 1, int(X.indices[i])
        value = values[i]
    name = repr(feature_names[column]) if feature_names else str(column)
    raise DataFileError(
        f"{path}: row {first_row + row} has {value} in feature {name}; features must be finite"
    )


def _description(sources: Sequence[Source]) -> str:
    """Describe in one line what is read, what was guessed and what was skipped."""
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
