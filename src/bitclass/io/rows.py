"""Reading rows of files in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass.io.errors import DataFileError, more
from bitclass.io.labels import convert
from bitclass.io.source import Batch, Source, join_batches

__all__ = ["FileRows", "Rows", "prefetch"]

_BATCH_BYTES = 64 << 20
_MAX_BATCH_ROWS = 65_536
_MAX_BATCH_TEXTS = 8192
_T = TypeVar("_T")
_END = object()


class Rows(ABC):
    """Rows that are read in batches, as often as needed.

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
    paths : list of Path
        All files that are read: features, then separate labels.
    description : str
        What is read, what was found by name and what was skipped; one line per kind of file.
    """

    n_rows: int
    n_features: int
    feature_names: tuple[str, ...] | None = None
    has_labels: bool
    dtype: np.dtype[Any]
    is_sparse: bool
    paths: list[Path]
    description: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.n_rows} x {self.n_features} {self.dtype}>"

    @abstractmethod
    def batches(self) -> Generator[Batch, None, None]:
        """Yield all rows in order; each call starts a new pass.

        Yields
        ------
        Batch
        """

    def pairs(self) -> Generator[tuple[Any, ...], None, None]:
        """Yield the batches as `BinaryCodeClassifier.fit_batches` takes them.

        Yields
        ------
        X : ndarray or CSR array of shape (n, n_features), or n texts
        y : ndarray of shape (n,)
        sample_weight : ndarray of shape (n,)
            If there are weights.

        Examples
        --------
        >>> import tempfile, os
        >>> from bitclass.io import open_rows
        >>> path = os.path.join(tempfile.mkdtemp(), "train.npz")
        >>> np.savez(path, X=np.eye(4, 3), y=np.array(["a", "b", "a", "b"]))
        >>> for X, y in open_rows(path).pairs():
        ...     print(X.shape, y)
        (4, 3) ['a' 'b' 'a' 'b']
        """
        with closing(self.batches()) as batches:
            for batch in batches:
                pair = (batch.X if batch.texts is None else batch.texts, batch.labels)
                yield pair if batch.sample_weight is None else (*pair, batch.sample_weight)

    def load(self) -> Batch:
        """Read all rows into memory, as one batch."""
        with closing(self.batches()) as batches:
            return join_batches(list(batches))


class FileRows(Rows):
    """Rows of one or several files; created by `open_rows`.

    No file stays open between passes, and several passes may run concurrently.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        label_dtype: np.dtype[Any] | None,
        *,
        roles: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        labels: NDArray[Any] | None = None,
        label_sources: Sequence[Source] = (),
        rows_per_batch: int | None = None,
    ) -> None:
        first = sources[0]
        self._sources, self._labels, self._label_dtype = list(sources), labels, label_dtype
        self._roles, self._columns = dict(roles or {}), list(columns)
        self.n_rows = sum(source.n_rows for source in sources)
        self.n_features = first.n_features
        self.feature_names = tuple(first.features) if first.has_names else None
        self.has_labels = labels is not None or label_dtype is not None
        self.dtype = np.result_type(*(source.dtype for source in sources))
        self.is_sparse = first.is_sparse
        self.paths = [source.path for source in (*sources, *label_sources)]
        described = [_description(files) for files in (sources, label_sources) if files]
        self.description = "\n".join(described)
        self._rows_per_batch = rows_per_batch or self._default_rows_per_batch()

    def _default_rows_per_batch(self) -> int:
        """About 64 MB of features or texts."""
        row_bytes = float(self.n_features * self.dtype.itemsize)
        if self.is_sparse or not self.n_features:  # estimate from the file sizes
            n_bytes = sum(source.path.stat().st_size for source in self._sources)
            row_bytes = max(1.0, 2 * n_bytes / self.n_rows)
        limit = _MAX_BATCH_TEXTS if "text" in self._roles else _MAX_BATCH_ROWS
        return int(min(max(_BATCH_BYTES // row_bytes, 1), limit))

    def batches(self) -> Generator[Batch, None, None]:
        """Yield all rows in order; the next batch is read while the current one is used.

        The batches are the same for all formats and however the rows are divided into files.

        Yields
        ------
        Batch
        """
        return prefetch(self._batches())

    def _batches(self) -> Generator[Batch, None, None]:
        """Split and join the pieces of the files into batches of equal size."""
        parts: list[Batch] = []
        n_missing = self._rows_per_batch
        with closing(self._pieces()) as pieces:
            for piece in pieces:
                start = 0
                while start < len(piece):
                    part = piece.slice(start, start + n_missing)
                    parts.append(part)
                    start, n_missing = start + len(part), n_missing - len(part)
                    if n_missing == 0:
                        yield join_batches(parts)
                        parts, n_missing = [], self._rows_per_batch
        if parts:
            yield join_batches(parts)

    def _pieces(self) -> Generator[Batch, None, None]:
        """Yield the pieces of all files, checked, in one type, with rows counted over all files."""
        offset = 0
        for source in self._sources:
            row = 0
            pieces: Any = source.read(self._rows_per_batch)
            with closing(pieces):
                for piece in pieces:
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
        found = {role: piece.columns[name] for role, name in self._roles.items()}
        weight, texts = found.get("sample_weight"), found.get("text")
        if weight is not None:
            weight = _numbers(source.path, weight, row, self._roles["sample_weight"])
        return Batch(
            X,
            labels,
            first,
            {name: piece.columns[name] for name in self._columns},
            weight,
            found.get("groups"),
            None if texts is None else _texts(source.path, texts, row, self._roles["text"]),
        )


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


def _numbers(path: Path, values: NDArray[Any], first_row: int, name: str) -> NDArray[np.float64]:
    """Convert sample weights, which are text in CSV files, to numbers."""
    try:
        converted = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataFileError(f"{path}: column {name!r} must contain weights: {error}") from error
    wrong = ~(np.isfinite(converted) & (converted >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataFileError(
            f"{path}: row {first_row + row} has the weight {converted[row]} in column {name!r}; "
            "weights must be finite numbers, 0 or more"
        )
    return converted


def _texts(path: Path, values: NDArray[Any], first_row: int, name: str) -> Sequence[str | bytes]:
    """Check texts: missing ones are an error, empty ones are not."""
    texts: list[str | bytes] = values.tolist()
    for i, text in enumerate(texts):
        if not isinstance(text, (str, bytes)):
            found = "no text" if text is None else f"{text!r:.60}"
            raise DataFileError(
                f"{path}: column {name!r} must contain texts, found {found} in row {first_row + i}"
            )
    return texts


def _check_finite(path: Path, X: Any, first_row: int, feature_names: Sequence[str] | None) -> None:
    """Raise an error that names the first row and feature of X (k, d) with NaN or infinity."""
    values = X if isinstance(X, np.ndarray) else X.data
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return
    if isinstance(X, np.ndarray):
        row, column = (int(place[0]) for place in np.nonzero(wrong))
    else:
        i = int(np.argmax(wrong))
        row, column = int(np.searchsorted(X.indptr, i, side="right")) - 1, int(X.indices[i])
    name = repr(feature_names[column]) if feature_names else str(column)
    raise DataFileError(
        f"{path}: row {first_row + row} has {values[wrong][0]} in feature {name}; features must be "
        "finite"
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
