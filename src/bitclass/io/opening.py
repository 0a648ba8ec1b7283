"""`open_rows`, which opens feature files of any format."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bitclass.io.errors import DataFileError, listed, more, reading
from bitclass.io.labels import class_dtype, common_dtype
from bitclass.io.rows import FileRows
from bitclass.io.source import Request, Source

__all__ = ["FORMATS", "format_of", "open_rows"]

PathLike = str | os.PathLike[str]

#: For each format, the class that reads it and its file extensions.
FORMATS = {
    "npy": ("arrays.NpySource", (".npy",)),
    "npz": ("arrays.NpzSource", (".npz",)),
    "parquet": ("tables.ParquetSource", (".parquet", ".pq")),
    "arrow": ("tables.ArrowSource", (".arrow", ".feather", ".ipc")),
    "svmlight": ("svmlight.SvmlightSource", (".svm", ".libsvm", ".svmlight")),
    "matlab": ("matlab.open_matlab", (".mat",)),
    "hdf5": ("arrays.Hdf5Source", (".h5", ".hdf5", ".hdf")),
    "csv": ("text_tables.CsvSource", (".csv", ".tsv", ".tab")),
    "jsonl": ("text_tables.JsonSource", (".jsonl", ".ndjson")),
    "lines": ("text_tables.LinesSource", (".txt",)),
}
_COMPRESSED = (".gz", ".bz2", ".xz")
_TEXT_FORMATS = ("svmlight", "csv", "jsonl", "lines")


def open_rows(
    paths: PathLike | Sequence[PathLike],
    *,
    features: str | int | Sequence[str | int] | bool | None = None,
    labels: str | int | bool | None = None,
    labels_file: PathLike | Sequence[PathLike] | None = None,
    columns: Sequence[str] = (),
    format: str | None = None,
    n_features: int | None = None,
    first_index: int | None = None,
    header: bool | None = None,
    feature_names: Sequence[str] | None = None,
    classes: Any = None,
    part: Literal["train", "test"] = "train",
) -> FileRows:
    """Open feature files for reading in batches.

    Text files are scanned once, to count the rows and to infer the type of the labels; in other
    files only headers and labels are read. Labels from a `labels_file` are kept in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Files of one format, read as one sequence of rows, or folders of such files.
    features : str, int, sequence of str or int, or False, optional
        The feature array (npz, MATLAB, HDF5) or columns (CSV, JSON lines, Parquet, Arrow). Columns
        may be given by name, position or pattern such as ``f*``; ``!name`` or ``!pattern`` excludes
        columns. By default the only matrix, the only column of lists, or all columns except label,
        index and identifiers. With False, only `columns` are read.
    labels : str, int or False, optional
        The label array or column; by default the only one with a name typical of labels. With
        False, no labels are read, and such a column is skipped.
    labels_file : path or sequence of paths, optional
        Separate files that contain the labels; `labels` then refers to these files.
    columns : sequence of str
        Additional columns of a table to read, such as identifiers or text, not used as features.
    format : {"npy", "npz", "parquet", "arrow", "svmlight", "matlab", "hdf5", "csv", "jsonl", \
            "lines"}, optional
        File format; inferred from the extension by default. "lines" has one label per line.
    n_features : int, optional
        Required number of features. In SVMlight files, the width of the matrix.
    first_index : {0, 1}, optional
        Index of the first feature in SVMlight files; by default 0 if index 0 occurs, else 1.
    header : bool, optional
        Whether CSV files (and text files of labels) start with column names; detected by default.
    feature_names : sequence of str, optional
        Feature names of a model. Columns are selected by these names, in this order, and others
        are ignored. Input without names is matched by position.
    classes : array-like of shape (n_classes,), optional
        Classes of a model, which determine the type of the labels.
    part : {"train", "test"}, default="train"
        Which of the arrays ``X_train`` and ``X_test`` to read if a file has both and `features`
        names neither.

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
    >>> rows = open_rows(path)
    >>> rows.n_rows, rows.n_features, rows.has_labels
    (5, 3, True)
    >>> [(batch.first_row, batch.X.shape, batch.labels.tolist())
    ...  for batch in rows.batches(rows_per_batch=3)]
    [(0, (3, 3), ['a', 'b', 'a']), (3, (2, 3), ['b', 'c'])]
    """
    if first_index not in (None, 0, 1):
        raise ValueError(f"first_index must be 0 or 1, found {first_index!r}")
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features must be positive, found {n_features}")
    if labels is True:
        raise ValueError("labels must be a name, a position, None or False, found True")
    label = labels if labels is None or labels is False else str(labels)
    named: list[str | int] = []
    if features is not None:
        named = [features] if isinstance(features, str | int) else list(features)
        if features is True or not named:
            raise ValueError("features must name at least one array or column")
    if features is False and labels is False and labels_file is None and not columns:
        raise ValueError("nothing to read: features and labels are False, and columns is empty")
    request = Request(
        features=False if features is False else tuple(map(str, named)),
        labels=False if labels_file is not None else label,
        columns=tuple(map(str, columns)),
        n_features=n_features,
        first_index=first_index,
        part=part,
        header=header,
        feature_names=None if feature_names is None else tuple(map(str, feature_names)),
    )
    sources = _open_files(_files(paths, format), format, request)
    if labels_file is None:
        return FileRows(sources, _label_dtype(sources, classes))
    request = Request(features=False, labels=label or None, header=header)
    label_sources = _open_labels(_files(labels_file, None, "labels_file"), request, sources)
    label_rows = FileRows(label_sources, _label_dtype(label_sources, classes))
    _, found = label_rows.sample(label_rows.n_rows)
    return FileRows(sources, None, found, label_sources)


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
    plain = name.removesuffix(Path(name).suffix) if name.endswith(_COMPRESSED) else name
    for format, (_, extensions) in FORMATS.items():
        if (plain if format in _TEXT_FORMATS else name).endswith(extensions):
            return format
    return None


def _files(
    paths: PathLike | Sequence[PathLike], format: str | None, name: str = "paths"
) -> list[Path]:
    """The files, with each folder replaced by its files of a known format, sorted by name."""
    roots = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not roots:
        raise ValueError(f"{name} must name at least one file")
    files: list[Path] = []
    for path in map(Path, roots):
        with reading(path, "a file"):
            if not path.exists():
                raise DataFileError(f"{path}: no such file or folder")
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
            for file in found:
                if not file.is_file():  # opening a pipe would wait for its writer
                    raise DataFileError(f"{file}: is not a file")
                if file.stat().st_size == 0:
                    raise DataFileError(f"{file}: is empty")
            files += found
    return files


def _common_format(paths: Sequence[Path], format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise DataFileError(f"{paths[0]}: unknown format={format!r}; formats are: {_known()}")
    formats = [format or format_of(path) for path in paths]
    for path, found in zip(paths, formats, strict=True):
        if found is None:
            raise DataFileError(f"{path}: unknown extension; set format= to one of: {_known()}")
        if found != formats[0]:
            raise DataFileError(f"{path}: is {found}, but {paths[0]} is {formats[0]}")
    return str(formats[0])


def _open_files(paths: Sequence[Path], format: str | None, request: Request) -> list[Source]:
    """Open files of one format; the first determines the label and the features of all."""
    format = _common_format(paths, format)
    module, _, name = FORMATS[format][0].partition(".")
    # Import the library that reads the format only when it is needed.
    opener: Callable[[Path, Request], Source] = getattr(
        import_module(f"bitclass.io.{module}"), name
    )
    first = opener(paths[0], request)
    others = request
    if format != "svmlight":
        others = replace(others, labels=False if first.label is None else first.label)
    if format == "csv" and first.features:
        others = replace(others, header=first.has_names)
    sources = [first, *(opener(path, others) for path in paths[1:])]
    if format == "svmlight":
        from bitclass.io.svmlight import set_widths

        set_widths(sources, request)
    for source in sources:
        if format not in ("npy", "npz", "hdf5", "matlab"):
            _check_columns(source, first)
            source.features = first.features
        _check_width(source, first, request)
    return sources


def _check_columns(source: Source, first: Source) -> None:
    present, expected = set(source.features), set(first.features)
    missing = [name for name in first.features if name not in present]
    unexpected = [name for name in source.features if name not in expected]
    if missing:
        raise DataFileError(
            f"{source.path}: has no column {listed(missing)}, which the first file has; "
            f"the columns are: {listed(source.features)}"
        )
    if unexpected:
        raise DataFileError(
            f"{source.path}: has a column {listed(unexpected)}, which the first file does not "
            "have; if it is not a feature, name the features with --features"
        )


def _check_width(source: Source, first: Source, request: Request) -> None:
    expected, who = first.n_features, f"but {first.path} has"
    if request.features is not False and request.n_features is not None:
        expected, who = request.n_features, "expected"
    elif request.features is not False and request.feature_names is not None:
        expected, who = len(request.feature_names), "the model has"
    if source.n_features != expected:
        raise DataFileError(
            f"{source.path}: has {source.n_features} features per row, {who} {expected}"
        )
    if source.is_sparse != first.is_sparse:
        raise DataFileError(f"{source.path} and {first.path}: one is sparse and the other is dense")


def _open_labels(
    paths: Sequence[Path], request: Request, sources: Sequence[Source]
) -> list[Source]:
    """Open label files; whether they have a header follows from the number of rows."""
    n_rows = sum(source.n_rows for source in sources)
    format = format_of(paths[0])
    if format == "svmlight":
        raise DataFileError(f"{paths[0]}: labels_file cannot be an SVMlight file")
    note = ""
    if request.header is None and format in ("csv", "lines"):
        plain = replace(request, labels="0", header=False)
        n_records = sum(source.n_rows for source in _open_files(paths, None, plain))
        if n_records in (n_rows, n_rows + len(paths)):
            header = n_records > n_rows
            request = replace(request, header=header)
            note = f"{'a' if header else 'no'} header, by the number of rows"
    label_sources = _open_files(paths, None, request)
    n_labels = sum(source.n_rows for source in label_sources)
    if n_labels != n_rows:
        raise DataFileError(
            f"{paths[0]}{more(paths)}: contains {n_labels} labels, but there are {n_rows} rows in "
            f"{sources[0].path}{more(sources)}"
        )
    if note:
        label_sources[0].notes = [note]
    return label_sources


def _label_dtype(sources: Sequence[Source], classes: Any) -> np.dtype[Any] | None:
    """Type of all labels: that of the model's classes, or else a common type."""
    types = [source.label_dtype for source in sources if source.label_dtype is not None]
    if not types:
        return None
    return common_dtype(types) if classes is None else class_dtype(classes)
