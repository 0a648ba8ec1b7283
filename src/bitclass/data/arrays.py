"""Arrays in files, read by rows: the one interface under NumPy, MATLAB and HDF5 files.

A file of named arrays lists its names and gives a source for each; which of them are the features
and which the labels is decided here, the same for all formats.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError, reading
from bitclass.data.labels import as_labels, check_label_dtype
from bitclass.data.limits import check_width
from bitclass.data.names import choose_arrays
from bitclass.data.rowfile import Piece, Request, RowFile, described, spans

__all__ = ["ArrayFile", "ArrayRows", "ArraySource", "CsrSource", "ReadRows", "Vector"]

# Rows from a start to a stop. Calls of one cursor go forward: no row is asked for twice.
ReadRows = Callable[[int, int], Any]


class ArraySource(ABC):
    """An array in a file.

    Attributes
    ----------
    shape : of the array as a user of the file sees it
    dtype : of the array
    is_sparse : whether rows come as CSR
    buffer_bytes : memory that reading may need beside the rows
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_sparse: bool = False
    buffer_bytes: int = 0

    @abstractmethod
    def cursor(self) -> AbstractContextManager[ReadRows]:
        """Open the array for one pass over its rows."""


class CsrSource(ArraySource):
    """A CSR matrix kept as three arrays.

    Parameters
    ----------
    path : the file, for errors
    values, indices : (nnz,)
    pointers : (n + 1,)
    shape : (n, d)
    """

    is_sparse = True

    def __init__(
        self,
        path: Path,
        values: ArraySource,
        indices: ArraySource,
        pointers: ArraySource,
        shape: tuple[int, int],
    ) -> None:
        for part, name, kinds in (
            (values, "data", "biuf"),
            (indices, "indices", "iu"),
            (pointers, "indptr", "iu"),
        ):
            if len(part.shape) != 1 or part.dtype.kind not in kinds or part.dtype.char == "g":
                raise DataFileError(
                    f"{path}: {name!r} of the sparse matrix is of shape {part.shape} and type "
                    f"{part.dtype}"
                )
        if pointers.shape[0] != shape[0] + 1 or values.shape != indices.shape:
            raise DataFileError(
                f"{path}: the parts of the sparse matrix do not fit: {shape[0]} rows but "
                f"{pointers.shape[0]} pointers, {values.shape[0]} values but {indices.shape[0]} "
                "indices"
            )
        self.path = path
        self.values, self.indices, self.pointers = values, indices, pointers
        self.shape = shape
        # SciPy does not compute in half precision.
        self.dtype = np.dtype(np.float32) if values.dtype == np.float16 else values.dtype

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the matrix for one pass over its rows."""
        from scipy.sparse import csr_array

        with (
            self.values.cursor() as read_values,
            self.indices.cursor() as read_indices,
            self.pointers.cursor() as read_pointers,
        ):
            last: tuple[int, int] | None = None

            def read(start: int, stop: int) -> Any:
                nonlocal last
                if last is not None and last[0] == start:
                    ends = np.append(np.int64(last[1]), read_pointers(start + 1, stop + 1))
                else:
                    ends = read_pointers(start, stop + 1)
                ends = ends.astype(np.int64)
                self._check_pointers(ends, start)
                first, end = int(ends[0]), int(ends[-1])
                last = (stop, end)
                if first == end:
                    return csr_array((stop - start, self.shape[1]), dtype=self.dtype)
                indices = read_indices(first, end)
                self._check_indices(indices, ends - first, start)
                values = read_values(first, end).astype(self.dtype, copy=False)
                return csr_array(
                    (values, indices.astype(np.int64), ends - first),
                    shape=(stop - start, self.shape[1]),
                )

            yield read

    def _check_pointers(self, ends: NDArray[np.int64], first_row: int) -> None:
        wrong = np.flatnonzero((ends[1:] < ends[:-1]) | (ends[1:] > self.values.shape[0]))
        if ends[0] < 0 or len(wrong):
            row = first_row + (int(wrong[0]) if len(wrong) else 0)
            raise DataFileError(
                f"{self.path}: the pointers of the sparse matrix are not in order at row {row}"
            )

    def _check_indices(
        self, indices: NDArray[Any], ends: NDArray[np.int64], first_row: int
    ) -> None:
        wrong = np.flatnonzero((indices < 0) | (indices >= self.shape[1]))
        if len(wrong):
            row = first_row + int(np.searchsorted(ends, wrong[0], side="right")) - 1
            raise DataFileError(
                f"{self.path}: row {row} of this file has feature {indices[wrong[0]]}, but there "
                f"are {self.shape[1]} features"
            )


class Vector(ArraySource):
    """Labels in one row or one column, as one long column."""

    def __init__(self, labels: ArraySource) -> None:
        self._labels = labels
        self._along_row = len(labels.shape) == 2 and labels.shape[0] == 1
        self.shape = (labels.shape[1],) if self._along_row else labels.shape
        self.dtype = labels.dtype

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the labels for one pass; a single row is read as a whole."""
        with self._labels.cursor() as read:
            if self._along_row:
                row = read(0, 1).reshape(-1)
                yield lambda start, stop: row[start:stop]
            else:
                yield read


class ArrayFile(ABC):
    """A file of named arrays.

    Attributes
    ----------
    path : the file
    format_name : for errors
    """

    path: Path
    format_name: str

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the arrays."""

    @abstractmethod
    def source(self, name: str) -> ArraySource:
        """One of the arrays; an error says why it cannot be read."""

    def label_source(self, name: str) -> ArraySource:
        """One of the arrays, as labels: some formats keep text in ways of their own."""
        return self.source(name)


class ArrayRows(RowFile):
    """Rows of a features array and of a labels array in the same file.

    Parameters
    ----------
    file : ArrayFile
    request : Request
    """

    def __init__(self, file: ArrayFile, request: Request) -> None:
        self.path = file.path
        self._format_name = file.format_name
        with reading(self.path, self._format_name):
            self.choice = choose_arrays(file, request)
            self._features = self._labels = None
            if self.choice.features:
                self._features = file.source(str(self.choice.features[0]))
            if self.choice.labels is not None:
                self._labels = Vector(file.label_source(str(self.choice.labels)))
            self._set_shape(request)

    def _set_shape(self, request: Request) -> None:
        self.n_features, self.dtype = 0, np.dtype(np.float64)
        counts: dict[str, int] = {}
        if self._features is not None:
            name = self.choice.features[0]
            check_features(self.path, name, self._features.shape, self._features.dtype)
            counts["features"], self.n_features = self._features.shape
            self.dtype = self._features.dtype.newbyteorder("=")
            self.is_sparse = self._features.is_sparse
            self.buffer_bytes = self._features.buffer_bytes
            if self.is_sparse:
                check_width(self.path, self.n_features, request.n_features)
        self.text_labels = None
        if self._labels is not None:
            label = self.choice.labels
            check_label_dtype(self.path, label, self._labels.dtype)
            counts["labels"] = label_count(self.path, label, self._labels.shape)
            self.text_labels = self._labels.dtype.kind in "SUO"
        if len(set(counts.values())) > 1:
            rows, labels = counts.values()
            raise DataFileError(
                f"{self.path}: features {self.choice.features[0]!r} has {rows} rows but labels "
                f"{self.choice.labels!r} has {labels} labels"
            )
        self.n_rows = next(iter(counts.values()))
        shape = (self.n_rows, self.n_features)
        what = described(self.choice, shape, self.dtype, self.is_sparse)
        self.description = f"{self._format_name}: {what}"

    def pieces(self, start_row: int, piece_rows: int, offset: int) -> Iterator[Piece]:
        """Rows from `start_row` on, cut at multiples of `piece_rows` counted from `offset`."""
        with reading(self.path, self._format_name), ExitStack() as stack:
            read_features = read_labels = None
            if self._features is not None:
                read_features = stack.enter_context(self._features.cursor())
            if self._labels is not None:
                read_labels = stack.enter_context(self._labels.cursor())
            for start, stop in spans(start_row, self.n_rows, piece_rows, offset):
                X = labels = None
                if read_features is not None:
                    X = read_features(start, stop)
                if read_labels is not None:
                    labels = as_labels(self.path, read_labels(start, stop), start)
                yield Piece(X, labels)


def check_features(path: Path, name: object, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Refuse arrays that cannot be features, before they are read."""
    if len(shape) != 2:
        raise DataFileError(
            f"{path}: features {name!r} has shape {tuple(shape)}; features are (rows, features)"
        )
    if dtype.kind not in "biuf" or dtype.char == "g":
        raise DataFileError(
            f"{path}: features {name!r} is of type {dtype}; "
            "features are float16, float32, float64, integers or booleans"
        )
    if 0 in shape:
        raise DataFileError(
            f"{path}: is empty: features {name!r} has {shape[0]} rows and {shape[1]} features"
        )


def label_count(path: Path, name: object, shape: Sequence[int]) -> int:
    """How many labels an array holds."""
    if len(shape) not in (1, 2) or math.prod(shape[1:]) > 1:
        raise DataFileError(
            f"{path}: labels {name!r} has shape {tuple(shape)}; there is one label a row"
        )
    if 0 in shape:
        raise DataFileError(f"{path}: is empty: there are no labels in {name!r}")
    return shape[0]
