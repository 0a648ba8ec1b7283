"""`open_rows`, which opens feature files of any format, and their rows in batches."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import how_to_install
from bitclass.arrays import first_not_finite
from bitclass.io.columns import Request
from bitclass.io.labels import common_dtype, convert, label_dtype
from bitclass.io.source import (
    Batch,
    DataFileError,
    Source,
    join_batches,
    listed,
)

PathLike = str | os.PathLike[str]

#: For each format, the class that reads it and its file extensions.
FORMATS = {
    "npy": ("arrays.NpySource", (".npy",)),
    "npz": ("arrays.NpzSource", (".npz",)),
    "parquet": ("tables.ParquetSource", (".parquet", ".pq")),
    "arrow": ("tables.ArrowSource", (".arrow", ".feather", ".ipc")),
    "csv": ("tables.CsvSource", (".csv", ".tsv", ".tab")),
    "jsonl": ("tables.JsonSource", (".jsonl", ".ndjson")),
    "svmlight": ("svmlight.SvmlightSource", (".svm", ".libsvm", ".svmlight")),
    "lines": ("lines.LinesSource", (".txt",)),
}
_TEXT_FORMATS = ("csv", "jsonl", "svmlight", "lines")
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
                yield batch.pair

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
        labels: NDArray[Any] | None = None,
        labels_file: Source | None = None,
        rows_per_batch: int | None = None,
    ) -> None:
        first = sources[0]
        self._sources, self._labels, self._label_dtype = list(sources), labels, label_dtype
        self._roles = dict(roles or {})
        self._columns = first.columns[len(self._roles) :]
        self.n_rows = sum(source.n_rows for source in sources)
        self.n_features = first.n_features
        self.feature_names = tuple(first.features) if first.has_names else None
        self.has_labels = labels is not None or label_dtype is not None
        self.dtype = np.result_type(*(source.dtype for source in sources))
        self.is_sparse = first.is_sparse
        others = [] if labels_file is None else [labels_file]
        self.paths = [source.path for source in (*sources, *others)]
        described = [_description(files) for files in (sources, others) if files]
        if "text" in self._roles:
            described[0] += f", texts {self._roles['text']!r}"
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
        path, X, labels, first = source.path, piece.X, piece.labels, offset + row
        if X is not None:
            X = X.astype(self.dtype, copy=False)
            if (wrong := first_not_finite(X)) is not None:
                place, column, value = wrong
                name = repr(self.feature_names[column]) if self.feature_names else column
                raise DataFileError(
                    f"{path}: row {row + place} has {value} in feature {name}; features must be "
                    "finite"
                )
        if self._labels is not None:
            labels = self._labels[first : first + len(piece)]
        elif labels is not None and self._label_dtype is not None:
            labels = convert(path, labels, self._label_dtype, row)
        found = {role: piece.columns[name] for role, name in self._roles.items()}
        weight: Any = found.get("sample_weight")
        texts: Any = found.get("text")
        if weight is not None:
            weight = _weights(path, weight, row, self._roles["sample_weight"])
        if texts is not None:
            texts = _texts(path, texts, row, self._roles["text"])
        columns = {name: piece.columns[name] for name in self._columns}
        return Batch(X, labels, first, columns, weight, texts)


def prefetch(source: Generator[_T, None, None]) -> Generator[_T, None, None]:
    """Yield the same items, each produced in a thread while the previous one is in use.

    Exceptions are raised after the preceding items. If this generator is closed early, `source` is
    closed too.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="bitclass-prefetch") as pool:
        try:
            pending = pool.submit(next, source, _END)
            while (item := pending.result()) is not _END:
                pending = pool.submit(next, source, _END)
                yield item  # type: ignore[misc]
                del item  # otherwise it stays in memory while the item after next is produced
        finally:
            pool.shutdown(cancel_futures=True)  # waits for the item that is being produced
            source.close()


def _weights(path: Path, values: NDArray[Any], first_row: int, name: str) -> NDArray[np.float64]:
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


def _texts(path: Path, values: NDArray[Any], first_row: int, name: str) -> list[str | bytes]:
    """Check texts: missing ones are an error, empty ones are not."""
    texts: list[str | bytes] = values.tolist()
    for i, text in enumerate(texts):
        if not isinstance(text, (str, bytes)):
            found = "no text" if text is None else f"{text!r:.60}"
            raise DataFileError(
                f"{path}: column {name!r} must contain texts, found {found} in row {first_row + i}"
            )
    return texts


def _description(sources: Sequence[Source]) -> str:
    """Describe in one line what is read, what was guessed and what was skipped."""
    first = sources[0]
    n_rows = sum(source.n_rows for source in sources)
    parts = [f"{first.format_name}, {n_rows} rows"]
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
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"{first.path}{more}: {', '.join(parts)}{notes}"


def open_rows(
    paths: PathLike | Sequence[PathLike],
    *,
    features: str | int | Sequence[str | int] = (),
    labels: str | int | Literal[False] | None = None,
    labels_file: PathLike | None = None,
    sample_weight: str | int | None = None,
    text: str | int | None = None,
    columns: Sequence[str] = (),
    format: str | None = None,
    header: bool = True,
    feature_names: Sequence[str] | None = None,
    n_features: int | None = None,
    classes: Any = None,
    rows_per_batch: int | None = None,
) -> FileRows:
    """Open feature files for reading in batches.

    Text files are scanned once, to count the rows and to infer the type of the labels; in other
    files only headers and labels are read. Labels from a `labels_file` are kept in memory.

    Columns may be given by name or by position, and the arrays of npz files by name.

    Parameters
    ----------
    paths : path or sequence of paths
        Files of one format, read as one sequence of rows, or folders of such files.
    features : str, int, or sequence of str or int
        The feature columns (or the array of an npz file), also by patterns such as ``f*``;
        ``!name`` or ``!pattern`` excludes columns. By default the only matrix, the only column of
        lists, or all columns except label, index and identifiers.
    labels : str, int or False, optional
        The label column; by default the only one with a name typical of labels. With False, no
        labels are read, and such a column is skipped.
    labels_file : path, optional
        A separate file that contains the labels; `labels` then refers to it. A ``.txt`` file has
        one label per line, and no header.
    text : str or int, optional
        The column of texts, which are read instead of features. Of a file of lines, it is "line".
    sample_weight : str or int, optional
        The column of weights, which is not a feature.
    columns : sequence of str
        Further columns to read, such as identifiers; they are not features.
    format : {"npy", "npz", "parquet", "arrow", "csv", "jsonl", "svmlight", "lines"}, optional
        File format; inferred from the extension by default. "lines" has one text per line.
    header : bool, default=True
        Whether CSV files start with column names.
    feature_names : sequence of str, optional
        Feature names of a model. Columns are selected by these names, in this order, and others
        are ignored. Input without names is matched by position.
    n_features : int, optional
        Required number of features. In SVMlight files, the width of the matrix.
    classes : array-like of shape (n_classes,), optional
        Classes of a model, which determine the type of the labels.
    rows_per_batch : int, optional
        About 64 MB of features by default.

    Returns
    -------
    FileRows

    Raises
    ------
    DataFileError
        If a file cannot be read; the message is a single line that names the file.

    Examples
    --------
    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "train.npz")
    >>> np.savez(path, X=np.eye(5, 3), y=np.array(["a", "b", "a", "b", "c"]))
    >>> rows = open_rows(path, rows_per_batch=3)
    >>> rows.n_rows, rows.n_features, rows.has_labels
    (5, 3, True)
    >>> [(batch.first_row, batch.X.shape, batch.labels.tolist()) for batch in rows.batches()]
    [(0, (3, 3), ['a', 'b', 'a']), (3, (2, 3), ['b', 'c'])]
    """
    if rows_per_batch is not None and rows_per_batch < 1:
        raise ValueError(f"rows_per_batch must be positive, found {rows_per_batch}")
    named = _strings([features] if isinstance(features, str | int) else features)
    if text is not None and named:
        raise ValueError("texts are read instead of features: give text= or features=, not both")
    label = labels if labels is None or labels is False else str(labels)
    given = {"sample_weight": sample_weight, "text": text}
    roles = {role: str(name) for role, name in given.items() if name is not None}
    request = Request(
        features=named if text is None else False,
        labels=False if labels_file is not None else label,
        columns=(*roles.values(), *map(str, columns)),
        n_features=n_features,
        header=header,
        feature_names=None if feature_names is None else _strings(feature_names),
    )
    sources = _open_files(_files(paths, format), format, request)
    label_source = found = None
    if labels_file is not None:
        request = Request(features=False, labels=label or None, header=header)
        (label_source,) = _open_files([Path(labels_file)], None, request)
        label_rows = FileRows([label_source], _label_dtype([label_source], classes))
        n_rows = sum(source.n_rows for source in sources)
        if label_rows.n_rows != n_rows:
            raise DataFileError(
                f"{labels_file}: contains {label_rows.n_rows} labels, but there are {n_rows} rows "
                f"in {sources[0].path}, or in all files; CSV starts with column names unless "
                "--no-header (header=False), and .txt files have no header"
            )
        found = label_rows.load().labels
    names = dict(zip(roles, sources[0].columns, strict=False))
    if text is not None and names["text"] == sources[0].label:
        raise DataFileError(f"column {sources[0].label!r} cannot be both text and label")
    return FileRows(
        sources,
        _label_dtype(sources, classes),
        roles=names,
        labels=found,
        labels_file=label_source,
        rows_per_batch=rows_per_batch,
    )


def _strings(names: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, names))


def _known() -> str:
    return ", ".join(f"{name} ({' '.join(suffixes)})" for name, (_, suffixes) in FORMATS.items())


def format_of(path: Path) -> str | None:
    """Infer the format from the file extension; None if it is unknown.

    Examples
    --------
    >>> format_of(Path("train.csv.gz")), format_of(Path("cat.png"))
    ('csv', None)
    """
    name = path.name.lower()
    for format, (_, extensions) in FORMATS.items():
        plain = name.removesuffix(".gz") if format in _TEXT_FORMATS else name
        if plain.endswith(extensions):
            return format
    return None


def _files(paths: PathLike | Sequence[PathLike], format: str | None) -> list[Path]:
    """The files, with each folder replaced by its files of a known format, sorted by name."""
    roots = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not roots:
        raise ValueError("paths must name at least one file")
    files: list[Path] = []
    for path in map(Path, roots):
        found = [path]
        if path.is_dir():
            found = sorted(
                file
                for file in path.iterdir()
                if file.is_file()
                and not file.name.startswith((".", "_"))
                and (format or format_of(file)) not in (None, "lines")
            )
            if not found:
                raise DataFileError(
                    f"{path}: no file in this folder has a known extension: {_known()}"
                )
        files += found
    return files


def _open_files(paths: Sequence[Path], format: str | None, request: Request) -> list[Source]:
    """Open files of one format; the first determines the label and the columns of all."""
    for path in paths:
        if not path.exists():
            raise DataFileError(f"{path}: no such file or folder")
        if not path.is_file():  # opening a pipe would wait for its writer
            raise DataFileError(f"{path}: is not a file")
        if path.stat().st_size == 0:
            raise DataFileError(f"{path}: is empty")
    format = _common_format(paths, format)
    module, _, name = FORMATS[format][0].partition(".")
    try:  # the library that reads the format is imported only when it is needed
        opener = getattr(import_module(f"bitclass.io.{module}"), name)
    except ImportError as error:
        raise DataFileError(
            f"{paths[0]}: reading {format} requires pyarrow; {how_to_install('parquet')}"
        ) from error
    first = opener(paths[0], request)
    others = replace(request, columns=tuple(first.columns), labels=first.label or False)
    sources = [first, *(opener(path, others) for path in paths[1:])]
    if format == "svmlight":
        import_module("bitclass.io.svmlight").set_widths(sources, request)
    for source in sources:
        _check_same_features(source, first, request)
        source.features = first.features
    return sources


def _common_format(paths: Sequence[Path], format: str | None) -> str:
    formats = [format or format_of(path) for path in paths]
    for path, found in zip(paths, formats, strict=True):
        if found not in FORMATS:
            what = "unknown extension; rename it, or set" if format is None else "unknown"
            raise DataFileError(f"{path}: {what} format={format!r}; formats are: {_known()}")
        if found != formats[0]:
            raise DataFileError(f"{path}: is {found}, but {paths[0]} is {formats[0]}")
    return str(formats[0])


def _check_same_features(source: Source, first: Source, request: Request) -> None:
    """Check that a file has the features of the first file, and as many as the model."""
    missing = [name for name in first.features if name not in source.features]
    unexpected = [name for name in source.features if name not in first.features]
    if first.has_names and (missing or unexpected):
        raise DataFileError(
            f"{source.path}: {listed(missing or unexpected)} is a feature in only one of this file "
            f"and {first.path}; name the features of all with --features (features=)"
        )
    expected, who = first.n_features, f"but {first.path} has"
    if request.features is not False and request.n_features is not None:
        expected, who = request.n_features, "expected"
    elif request.features is not False and request.feature_names is not None:
        expected, who = len(request.feature_names), "the model has"
    if source.n_features != expected or source.is_sparse != first.is_sparse:
        kind = "sparse" if source.is_sparse else "dense"
        raise DataFileError(
            f"{source.path}: has {source.n_features} features per row ({kind}), {who} {expected}"
        )


def _label_dtype(sources: Sequence[Source], classes: Any) -> np.dtype[Any] | None:
    """Type of all labels: that of the model's classes, or else a common type."""
    types = [source.label_dtype for source in sources if source.label_dtype is not None]
    if not types:
        return None
    return common_dtype(types) if classes is None else label_dtype(np.asarray(classes).dtype)
