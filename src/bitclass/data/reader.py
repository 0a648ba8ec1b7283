"""Rows of feature files, batch by batch: the way into the library for data of any size."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.formats import expand, open_files
from bitclass.data.rowfile import Piece, Request, RowFile
from bitclass.rows import Features

__all__ = ["Batch", "Reader", "open_rows"]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Batch:
    """Consecutive rows.

    Attributes
    ----------
    X : (k, d) array of the reader's dtype, or SciPy CSR; perhaps not writeable
    labels : (k,) array of booleans, numbers or text, None where there are no labels
    first_row : number of the first row, counted from 0 over all files
    """

    X: Features
    labels: NDArray[Any] | None
    first_row: int


def open_rows(
    paths: PathLike | Sequence[PathLike],
    *,
    features: str | int | Sequence[str | int] | None = None,
    labels: str | int | bool | None = None,
    labels_file: PathLike | Sequence[PathLike] | None = None,
    format: str | None = None,
    n_features: int | None = None,
    first_index: int | None = None,
    header: bool | None = None,
    check_finite: bool = True,
) -> Reader:
    """Open feature files for reading by batches; nothing but headers is read yet.

    Text files are an exception: they are gone through once, to count their rows.

    Parameters
    ----------
    paths : path or paths
        Files of one format, read as one long sequence of rows. A folder stands for the files in it.
    features : name or names, optional
        The array (npz, MATLAB, HDF5) or the columns (Parquet, Arrow, CSV) of the features; columns
        also by place or by a pattern such as ``f*``. Looked for where not given.
    labels : name or place, optional
        The array or column of the labels. Looked for where not given; False for no labels.
    labels_file : path or paths, optional
        Where the labels are, if not beside the features; `labels` is then a name in there.
    format : str, optional
        'npy', 'npz', 'parquet', 'arrow', 'svmlight', 'matlab', 'hdf5' or 'csv', where the ending
        of the files does not tell.
    n_features : int, optional
        How many features a row must have. In SVMlight files, how long the rows are, whatever the
        highest index.
    first_index : 0 or 1, optional
        Where the indices of SVMlight files begin; 0 if a 0 is among them, else 1.
    header : bool, optional
        Whether CSV files begin with the names of the columns; found out where not given.
    check_finite : bool
        Whether batches are looked through for NaN and infinity.

    Returns
    -------
    Reader

    Raises
    ------
    DataFileError
        One line that names the file and what is wrong with it.

    Examples
    --------
    >>> import tempfile, os
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "train.npz")
    >>> np.savez(path, X=np.eye(5, 3), y=np.array(["a", "b", "a", "b", "c"]))
    >>> rows = open_rows(path)
    >>> rows.n_rows, rows.n_features, rows.has_labels
    (5, 3, True)
    >>> [(batch.first_row, batch.X.shape, batch.labels.tolist()) for batch in rows.batches(2)]
    [(0, (2, 3), ['a', 'b']), (2, (2, 3), ['a', 'b']), (4, (1, 3), ['c'])]
    """
    if first_index not in (None, 0, 1):
        raise ValueError(f"first_index must be 0 or 1, found {first_index!r}")
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features must be positive, found {n_features}")
    if labels is True:
        raise ValueError("labels must be a name, a place, None or False, found True")
    request = Request(
        features=_names(features),
        labels=False if labels_file is not None else labels,
        n_features=n_features,
        first_index=first_index,
        header=header,
    )
    files = open_files(expand(_paths(paths, "paths"), format, False), format, request)
    label_files: list[RowFile] = []
    if labels_file is not None:
        request = Request(labels=labels, header=header, only_labels=True)
        found = expand(_paths(labels_file, "labels_file"), None, True)
        label_files = open_files(found, None, request)
    _check_widths(files, n_features)
    _check_labels(files, label_files)
    return Reader(files, label_files, check_finite)


def _paths(paths: PathLike | Sequence[PathLike], name: str) -> list[Path]:
    found = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not found:
        raise ValueError(f"{name} must name at least one file")
    return [Path(path) for path in found]


def _names(features: str | int | Sequence[str | int] | None) -> tuple[str | int, ...] | None:
    if features is None:
        return None
    names = (features,) if isinstance(features, str | int) else tuple(features)
    if not names:
        raise ValueError("features must name at least one array or column")
    return names


def _check_widths(files: Sequence[RowFile], n_features: int | None) -> None:
    for file in files:
        if n_features is not None and file.n_features != n_features:
            raise DataFileError(
                f"{file.path}: has {file.n_features} features a row, expected {n_features}"
            )
        if file.n_features != files[0].n_features:
            raise DataFileError(
                f"{file.path}: has {file.n_features} features a row, but {files[0].path} has "
                f"{files[0].n_features}"
            )
        if file.is_sparse != files[0].is_sparse:
            raise DataFileError(
                f"{file.path}: is {'sparse' if file.is_sparse else 'dense'}, but {files[0].path} "
                "is not"
            )


def _check_labels(files: Sequence[RowFile], label_files: Sequence[RowFile]) -> None:
    n_rows = sum(file.n_rows for file in files)
    n_labels = sum(file.n_rows for file in label_files)
    if label_files and n_rows != n_labels:
        others = f" and {len(label_files) - 1} more" if len(label_files) > 1 else ""
        raise DataFileError(
            f"{label_files[0].path}{others}: holds {n_labels} labels, but there are {n_rows} rows "
            f"in {files[0].path}{f' and {len(files) - 1} more' if len(files) > 1 else ''}"
        )
    labelled = label_files or files
    for file in labelled:
        if file.text_labels != labelled[0].text_labels:
            kinds = {None: "missing", True: "text", False: "numbers"}
            raise DataFileError(
                f"{file.path}: labels are {kinds[file.text_labels]}, but in {labelled[0].path} "
                f"they are {kinds[labelled[0].text_labels]}"
            )


class Reader:
    """Rows of one or several files; made by `open_rows`.

    No file stays open between passes, and any number of passes may go on at the same time.

    Attributes
    ----------
    n_rows : int, over all files
    n_features : int
    dtype : of the features in every batch
    is_sparse : whether features come as CSR
    has_labels : bool
    paths : the feature files, in order
    label_paths : the files of labels apart from the features, in order
    description : what is read from where, one line a file, for people

    Examples
    --------
    >>> import tempfile, os
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "X.npy")
    >>> np.save(path, np.zeros((5, 3), dtype=np.float32))
    >>> [batch.first_row for batch in open_rows(path).batches(2, start_row=2)]
    [2, 4]
    """

    def __init__(
        self, files: Sequence[RowFile], label_files: Sequence[RowFile], check_finite: bool
    ) -> None:
        self._files, self._label_files = list(files), list(label_files)
        self._check_finite = check_finite
        self.n_rows = sum(file.n_rows for file in files)
        self.n_features = files[0].n_features
        self.dtype: np.dtype[Any] = np.result_type(*(file.dtype for file in files))
        self.is_sparse = files[0].is_sparse
        self.has_labels = bool(label_files) or files[0].text_labels is not None
        self.paths = [file.path for file in files]
        self.label_paths = [file.path for file in label_files]
        self.description = "\n".join(
            f"{file.path}: {file.description}" for file in [*files, *label_files]
        )

    def __repr__(self) -> str:
        return f"<Reader of {self.n_rows} x {self.n_features} {self.dtype}, {self.paths[0].name}>"

    def batches(self, batch_rows: int, start_row: int = 0) -> Generator[Batch, None, None]:
        """Rows in order, batch by batch.

        Parameters
        ----------
        batch_rows : int
            Rows of every batch but the last.
        start_row : int
            The row to begin with. Batches end at multiples of `batch_rows` wherever they begin, so
            that a run that was stopped between two batches goes on with the same batches.

        Yields
        ------
        Batch
        """
        if batch_rows < 1:
            raise ValueError(f"batch_rows must be positive, found {batch_rows}")
        if not 0 <= start_row <= self.n_rows:
            raise ValueError(f"start_row must be 0 to {self.n_rows}, found {start_row}")
        return self._batches(batch_rows, start_row)

    def _batches(self, batch_rows: int, start_row: int) -> Generator[Batch, None, None]:
        row = start_row
        with closing(self._joined(self._files, batch_rows, start_row)) as features:
            if not self._label_files:
                for piece in features:
                    yield Batch(piece.X, piece.labels, row)
                    row += len(piece)
                return
            with closing(self._joined(self._label_files, batch_rows, start_row)) as labels:
                for piece, beside in zip(features, labels, strict=True):
                    yield Batch(piece.X, beside.labels, row)
                    row += len(piece)

    def _joined(
        self, files: Sequence[RowFile], batch_rows: int, start_row: int
    ) -> Generator[Piece, None, None]:
        """Pieces cut and joined, so that they end at multiples of `batch_rows`."""
        held: list[Piece] = []
        room = batch_rows - start_row % batch_rows
        with closing(self._pieces(files, batch_rows, start_row)) as pieces:
            for piece in pieces:
                at = 0
                while at < len(piece):
                    part = piece.rows(at, at + room)
                    held.append(part)
                    at += len(part)
                    room -= len(part)
                    if room == 0:
                        yield _one(held)
                        held, room = [], batch_rows
        if held:
            yield _one(held)

    def _pieces(
        self, files: Sequence[RowFile], piece_rows: int, start_row: int
    ) -> Generator[Piece, None, None]:
        """Pieces of all files, checked, and in one type."""
        offset = 0
        for file in files:
            start = max(0, start_row - offset)
            if start < file.n_rows:
                row = start
                for piece in file.pieces(start, piece_rows, offset):
                    yield self._checked(piece, file, offset + row)
                    row += len(piece)
                if row != file.n_rows:
                    raise DataFileError(
                        f"{file.path}: gave {row} rows where {file.n_rows} were counted; "
                        "it is damaged or has changed"
                    )
            offset += file.n_rows

    def _checked(self, piece: Piece, file: RowFile, first_row: int) -> Piece:
        if piece.X is None:
            return piece
        X = piece.X.astype(self.dtype, copy=False)
        if self._check_finite:
            check_all_finite(file.path, X, first_row)
        return Piece(X, piece.labels)


def _one(pieces: Sequence[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    X = labels = None
    if isinstance(pieces[0].X, np.ndarray):
        X = np.concatenate([piece.X for piece in pieces])
    elif pieces[0].X is not None:
        from scipy.sparse import vstack

        X = vstack([piece.X for piece in pieces], format="csr")
    if pieces[0].labels is not None:
        labels = np.concatenate([piece.labels for piece in pieces if piece.labels is not None])
    return Piece(X, labels)


def check_all_finite(path: Path, X: Features, first_row: int) -> None:
    """Refuse NaN and infinity, naming the first row that has one.

    Parameters
    ----------
    path : the file, for errors
    X : (k, d) array or CSR
    first_row : number of the first row, counted over all files
    """
    values = X if isinstance(X, np.ndarray) else X.data
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is cheaper than a test of every value; only where it fails is each looked at.
        if np.isfinite(values.sum(dtype=np.float32 if values.itemsize == 2 else None)):
            return
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return
    if isinstance(X, np.ndarray):
        row, column = (int(place[0]) for place in np.nonzero(wrong))
    else:
        at = int(np.flatnonzero(wrong)[0])
        row, column = int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
    value = values[row, column] if isinstance(X, np.ndarray) else values[at]
    raise DataFileError(
        f"{path}: row {first_row + row} (counted from 0 over all files) has {value} in feature "
        f"{column}; features must be finite"
    )
