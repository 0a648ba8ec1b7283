"""`open_rows`, which opens feature files of any format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bitclass.io.labels import common_dtype, label_dtype
from bitclass.io.rows import FileRows
from bitclass.io.source import DataFileError, Request, Source, listed, more, reading

__all__ = ["FORMATS", "format_of", "open_rows"]

PathLike = str | os.PathLike[str]

#: For each format, the class that reads it and its file extensions.
FORMATS = {
    "npy": ("arrays.NpySource", (".npy",)),
    "npz": ("arrays.NpzSource", (".npz",)),
    "parquet": ("tables.ParquetSource", (".parquet", ".pq")),
    "arrow": ("tables.ArrowSource", (".arrow", ".feather", ".ipc")),
    "csv": ("text_tables.CsvSource", (".csv", ".tsv", ".tab")),
    "jsonl": ("text_tables.JsonSource", (".jsonl", ".ndjson")),
    "svmlight": ("svmlight.SvmlightSource", (".svm", ".libsvm", ".svmlight")),
    "lines": ("lines.LinesSource", (".txt",)),
}
_TEXT_FORMATS = ("csv", "jsonl", "svmlight", "lines")


def open_rows(
    paths: PathLike | Sequence[PathLike],
    *,
    features: str | int | Sequence[str | int] | bool | None = None,
    labels: str | int | bool | None = None,
    labels_file: PathLike | Sequence[PathLike] | None = None,
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
    features : str, int, sequence of str or int, or False, optional
        The feature columns (or the array of an npz file), also by patterns such as ``f*``;
        ``!name`` or ``!pattern`` excludes columns. By default the only matrix, the only column of
        lists, or all columns except label, index and identifiers. With False, none are read.
    labels : str, int or False, optional
        The label column; by default the only one with a name typical of labels. With False, no
        labels are read, and such a column is skipped.
    labels_file : path or sequence of paths, optional
        Separate files that contain the labels; `labels` then refers to these files. A ``.txt``
        file has one label per line, and no header.
    sample_weight, text : str or int, optional
        Columns with the weights and texts of the rows; they are not features.
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
    for name, value in (("n_features", n_features), ("rows_per_batch", rows_per_batch)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be positive, found {value}")
    if labels is True:
        raise ValueError("labels must be a name, a position, None or False, found True")
    label = labels if labels is None or labels is False else str(labels)
    named: list[str | int] = []
    if features is not None:
        named = [features] if isinstance(features, str | int) else list(features)
        if features is True or not named:
            raise ValueError("features must name at least one array or column")
    given = {"sample_weight": sample_weight, "text": text}
    roles = {role: str(name) for role, name in given.items() if name is not None}
    wanted = [*roles.values(), *map(str, columns)]
    if features is False and labels is False and labels_file is None and not wanted:
        raise ValueError("nothing to read: features and labels are False, and columns is empty")
    request = Request(
        features=False if features is False else tuple(map(str, named)),
        labels=False if labels_file is not None else label,
        columns=tuple(wanted),
        n_features=n_features,
        header=header,
        feature_names=None if feature_names is None else tuple(map(str, feature_names)),
    )
    sources = _open_files(_files(paths, format), format, request)
    found = None
    label_sources: list[Source] = []
    if labels_file is not None:
        request = Request(features=False, labels=label or None, header=header)
        label_sources = _open_labels(_files(labels_file, None, "labels_file"), request, sources)
        label_rows = FileRows(label_sources, _label_dtype(label_sources, classes))
        found = np.concatenate([batch.labels for batch in label_rows.batches()])
    names = list(sources[0].columns)
    return FileRows(
        sources,
        _label_dtype(sources, classes),
        roles=dict(zip(roles, names, strict=False)),
        columns=names[len(roles) :],
        labels=found,
        label_sources=label_sources,
        rows_per_batch=rows_per_batch,
    )


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
    """Open files of one format; the first determines the label and the columns of all."""
    format = _common_format(paths, format)
    module, _, name = FORMATS[format][0].partition(".")
    try:  # the library that reads the format is imported only when it is needed
        opener = getattr(import_module(f"bitclass.io.{module}"), name)
    except ImportError as error:
        raise DataFileError(
            f"{paths[0]}: reading {format} requires pyarrow; "
            "install it with: pip install 'bitclass[parquet]'"
        ) from error
    first = opener(paths[0], request)
    others = replace(request, columns=tuple(first.columns))
    if format not in ("svmlight", "lines"):
        others = replace(others, labels=False if first.label is None else first.label)
    sources = [first, *(opener(path, others) for path in paths[1:])]
    if format == "svmlight":
        import_module("bitclass.io.svmlight").set_widths(sources, request)
    for source in sources:
        if format not in ("npy", "npz"):
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
    """Open label files, which must have as many rows as the features."""
    if format_of(paths[0]) == "svmlight":
        raise DataFileError(f"{paths[0]}: labels_file cannot be an SVMlight file")
    label_sources = _open_files(paths, None, request)
    n_rows = sum(source.n_rows for source in sources)
    n_labels = sum(source.n_rows for source in label_sources)
    if n_labels != n_rows:
        raise DataFileError(
            f"{paths[0]}{more(paths)}: contains {n_labels} labels, but there are {n_rows} rows in "
            f"{sources[0].path}{more(sources)}; CSV starts with column names unless --no-header "
            "(header=False), and .txt files have no header"
        )
    return label_sources


def _label_dtype(sources: Sequence[Source], classes: Any) -> np.dtype[Any] | None:
    """Type of all labels: that of the model's classes, or else a common type."""
    types = [source.label_dtype for source in sources if source.label_dtype is not None]
    if not types:
        return None
    return common_dtype(types) if classes is None else label_dtype(np.asarray(classes).dtype)
