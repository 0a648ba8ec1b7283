"""Files of arrays: NumPy's npy and npz, MATLAB, HDF5."""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass.io.columns import choose_arrays
from bitclass.io.errors import DataFileError, reading, require
from bitclass.io.labels import TEXT, as_text, check_label_dtype
from bitclass.io.source import Piece, Request, Source, spans

__all__ = ["ArraySource", "Hdf5File", "NpyFile", "NpzFile", "matlab_file"]

#: Rows from a start to a stop.
ReadRows = Callable[[int, int], Any]

_CSR_PARTS = frozenset(("data", "indices", "indptr"))
# A chunk that several batches share is decompressed once if it fits in here.
_HDF5_CACHE_BYTES = 64 << 20


class ArrayFile(ABC):
    """Named arrays of one file.

    Attributes
    ----------
    shapes, dtypes : dict
        Shape and type of each array by name.
    sparse : set of str
        Names of sparse matrices.
    loaded : dict
        Arrays and CSR matrices that their library can only load as a whole.
    """

    format_name: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.sparse: set[str] = set()
        self.loaded: dict[str, Any] = {}

    def _add(self, name: str, array: Any) -> None:
        """Keep an array or sparse matrix in memory."""
        if sp.issparse(array):
            array = _checked_csr(array)
            self.sparse.add(name)
        self.loaded[name] = array
        self.shapes[name], self.dtypes[name] = array.shape, array.dtype

    @contextmanager
    def open(self, name: str) -> Iterator[ReadRows]:
        """Give a function that reads rows of an array."""
        if name in self.loaded:
            yield lambda start, stop: self.loaded[name][start:stop]
        else:
            with self._open(name) as read:
                yield read

    @abstractmethod
    def _open(self, name: str) -> AbstractContextManager[ReadRows]:
        """The same for an array that is not loaded."""

    @abstractmethod
    def labels(self, name: str) -> NDArray[Any]:
        """A whole array of labels; text as str, bytes or objects."""


class ArraySource(Source):
    """Features and labels of an array file. Labels are kept in memory."""

    def __init__(self, open_file: Callable[[Path], ArrayFile], path: Path, request: Request):
        self.path = path
        with reading(path, getattr(open_file, "format_name", "MATLAB")):
            file = self._file = open_file(path)
        self.format_name = file.format_name
        with reading(path, file.format_name):
            numeric = {
                name for name, dtype in file.dtypes.items()
                if dtype.kind in "biuf" and dtype.char != "g"
            }  # fmt: skip
            choice = choose_arrays(path, file.shapes, numeric, request)
            if choice.features:
                self._check_features(choice.features[0], numeric)
            if choice.label is not None:
                self._load_labels(choice.label, bool(choice.features))
        self.features, self.labels = tuple(choice.features), choice.label
        self.details = "; ".join(choice.notes)

    def _check_features(self, name: str, numeric: set[str]) -> None:
        file = self._file
        shape, dtype = file.shapes[name], file.dtypes[name]
        what = f"{self.path}: array {name!r}" if name else f"{self.path}: the array"
        if dtype.kind == "O":
            raise DataFileError(f"{what} holds Python objects or cells, which are not read")
        if name not in numeric:
            raise DataFileError(
                f"{what} is of type {dtype}; features are floats, integers or booleans"
            )
        if len(shape) != 2 or 0 in shape:
            raise DataFileError(f"{what} has shape {shape}; features are (rows, features)")
        self.n_rows, self.n_features = shape
        self.dtype = dtype.newbyteorder("=")
        self.is_sparse = name in file.sparse

    def _load_labels(self, name: str, beside_features: bool) -> None:
        path = self.path
        shape = self._file.shapes[name]
        if len(shape) > 2 or (
            len(shape) == 2 and 1 not in shape and self._file.dtypes[name] != "O"
        ):
            raise DataFileError(f"{path}: labels {name!r} have shape {shape}; expected one per row")
        labels = self._file.labels(name)
        check_label_dtype(path, name, labels.dtype)
        if labels.ndim != 1:
            labels = labels.reshape(-1)
        if labels.dtype.kind in "SO":
            labels = as_text(path, labels)
        if beside_features and len(labels) != self.n_rows:
            raise DataFileError(
                f"{path}: holds {len(labels)} labels {name!r}, but there are {self.n_rows} rows"
            )
        if not len(labels):
            raise DataFileError(f"{path}: has no rows")
        self.n_rows = len(labels)
        self._labels = labels.astype(labels.dtype.newbyteorder("="), copy=False)
        self.label_dtype = TEXT if labels.dtype.kind == "U" else self._labels.dtype

    def read(self, start_row: int, first_rows: int, n_rows: int) -> Iterator[Piece]:
        """Rows from `start_row` on, in pieces of `first_rows` and then `n_rows` rows."""
        with reading(self.path, self.format_name), ExitStack() as stack:
            read = stack.enter_context(self._file.open(self.features[0])) if self.features else None
            for start, stop in spans(start_row, self.n_rows, first_rows, n_rows):
                X = None
                if read is not None:
                    X = read(start, stop)
                    if X.shape != (stop - start, self.n_features):
                        raise DataFileError(f"{self.path}: is cut short or has changed")
                    X = X.astype(self.dtype, copy=False)
                yield X, None if self.labels is None else self._labels[start:stop]


class NpyFile(ArrayFile):
    """One array without a name, memory-mapped."""

    format_name = "NumPy npy"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            array = self._array()
        except ValueError as error:
            if "Python objects" in str(error) or "allow_pickle" in str(error):
                raise DataFileError(
                    f"{path}: holds Python objects or is no npy file; pickles are not read"
                ) from error
            raise
        self.shapes[""], self.dtypes[""] = array.shape, array.dtype

    def _array(self) -> NDArray[Any]:
        array: NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise DataFileError(f"{self.path}: is no npy file, but an archive")
        return array

    @contextmanager
    def _open(self, name: str) -> Iterator[ReadRows]:
        # Each piece is mapped anew, so that pages of earlier pieces are released.
        yield lambda start, stop: np.ascontiguousarray(self._array()[start:stop])

    def labels(self, name: str) -> NDArray[Any]:
        """The array."""
        return self._array()


class NpzFile(ArrayFile):
    """Members of a zip file, read from front to back; what SciPy's save_npz wrote is loaded."""

    format_name = "NumPy npz"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._fortran: set[str] = set()
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            for member in members:
                name = member.removesuffix(".npy")
                with archive.open(member) as stream:
                    self.shapes[name], fortran, self.dtypes[name] = _npy_header(path, name, stream)
                if fortran and len(self.shapes[name]) > 1:
                    self._fortran.add(name)
        if not members:
            raise DataFileError(f"{path}: holds no arrays")
        if _CSR_PARTS | {"format", "shape"} <= set(self.shapes):
            self.shapes, self.dtypes = {}, {}
            self._add("matrix", sp.load_npz(path))

    @contextmanager
    def _open(self, name: str) -> Iterator[ReadRows]:
        if name in self._fortran:
            array = self.labels(name)
            yield lambda start, stop: array[start:stop]
            return
        dtype, n_columns = self.dtypes[name], self.shapes[name][1]
        row_bytes = dtype.itemsize * n_columns
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as stream:
            _npy_header(self.path, name, stream)
            offset = stream.tell()

            def read(start: int, stop: int) -> NDArray[Any]:
                stream.seek(offset + start * row_bytes)
                content = stream.read((stop - start) * row_bytes)
                return np.frombuffer(content, dtype).reshape(-1, n_columns)

            yield read

    def labels(self, name: str) -> NDArray[Any]:
        """The array."""
        with np.load(self.path, allow_pickle=False) as arrays:
            array: NDArray[Any] = arrays[name]
            return array


def _npy_header(path: Path, name: str, stream: Any) -> tuple[Any, bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(stream)
    else:
        header = np.lib.format.read_array_header_2_0(stream)
    if header[2].hasobject:
        raise DataFileError(f"{path}: {name!r} holds Python objects; pickles are not read")
    if min(header[0], default=1) < 0:
        raise DataFileError(f"{path}: {name!r} has the shape {header[0]}")
    return header


def _checked_csr(matrix: Any) -> Any:
    """A sparse matrix as CSR; its indices are checked, because SciPy's kernels do not."""
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    rows = sp.csr_array(matrix)
    rows.check_format(full_check=True)
    return rows


def matlab_file(path: Path) -> ArrayFile:
    """Open a MATLAB file of any version."""
    if scipy.io.matlab.matfile_version(str(path))[0] == 2:
        return Matlab73File(path)
    return Matlab5File(path)


class Matlab5File(ArrayFile):
    """A MATLAB file up to version 7.2: SciPy loads whole variables, which are at most 2 GB."""

    format_name = "MATLAB"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for name, value in scipy.io.loadmat(str(path)).items():
            if not name.startswith("__") and hasattr(value, "dtype"):
                self._add(name, value)
        if not self.loaded:
            raise DataFileError(f"{path}: holds no variables")

    def _open(self, name: str) -> AbstractContextManager[ReadRows]:
        raise KeyError(name)

    def labels(self, name: str) -> NDArray[Any]:
        """Numbers, a char matrix or a cell array of text."""
        if name in self.sparse:
            raise DataFileError(f"{self.path}: labels {name!r} are a sparse matrix")
        labels = self.loaded[name].reshape(-1)
        if labels.dtype.kind == "O":
            return _objects(str(cell.item()) if cell.size == 1 else cell for cell in labels)
        return np.char.rstrip(labels) if labels.dtype.kind == "U" else whole_numbers(labels)


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    """An array (n,) of objects, also where they are arrays themselves."""
    return np.array([*values, None], dtype=object)[:-1]


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Doubles, which nearly all numbers of MATLAB are, as integers if all of them are whole.

    Examples
    --------
    >>> whole_numbers(np.array([1.0, 2.0]))
    array([1, 2])
    """
    if labels.dtype.kind != "f" or not np.isfinite(labels).all():
        return labels
    if np.any(np.abs(labels) > 1 << 53) or np.any(np.floor(labels) != labels):
        return labels
    return labels.astype(np.int64)


class Hdf5File(ArrayFile):
    """Datasets of an HDF5 file by their path; a group of data, indices and indptr is CSR."""

    format_name = "HDF5"
    _transposed = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._h5py.File(path, "r") as file:
            file.visititems(self._visit)
        if not self.shapes:
            raise DataFileError(f"{path}: holds no datasets")

    @property
    def _h5py(self) -> Any:
        # Not an attribute, so that rows can be pickled.
        return require("h5py", "hdf5", self.path, self.format_name)

    def _visit(self, name: str, item: Any) -> None:
        if isinstance(item, self._h5py.Dataset):
            if name.rpartition("/")[0] not in self.sparse and item.shape is not None:
                self.shapes[name] = item.shape[::-1] if self._transposed else item.shape
                self.dtypes[name] = item.dtype
        elif set(item) >= _CSR_PARTS:
            shape = item.attrs.get("shape", item.attrs.get("h5sparse_shape"))
            shape = item["shape"][()] if shape is None and "shape" in item else shape
            if shape is None or "csc" in str(item.attrs.get("encoding-type", "csr")):
                return
            self.sparse.add(name)
            self.shapes[name] = (int(shape[0]), int(shape[1]))
            self.dtypes[name] = item["data"].dtype

    def _file(self) -> Any:
        return self._h5py.File(self.path, "r", rdcc_nbytes=_HDF5_CACHE_BYTES, rdcc_nslots=10_007)

    @contextmanager
    def _open(self, name: str) -> Iterator[ReadRows]:
        with self._file() as file:
            item = file[name]
            if name in self.sparse:
                yield self._csr_reader(item, self.shapes[name][1])
            elif self._transposed:
                yield lambda start, stop: np.ascontiguousarray(item[..., start:stop].T)
            else:
                yield lambda start, stop: item[start:stop]

    @staticmethod
    def _csr_reader(group: Any, n_columns: int) -> ReadRows:
        ends = group["indptr"][()].astype(np.int64)

        def read(start: int, stop: int) -> Any:
            first, last = int(ends[start]), int(ends[stop])
            parts = (group["data"][first:last], group["indices"][first:last])
            shape = (stop - start, n_columns)
            return _checked_csr(sp.csr_array((*parts, ends[start : stop + 1] - first), shape=shape))

        return read

    def labels(self, name: str) -> NDArray[Any]:
        """The dataset, text as objects or bytes."""
        if name in self.sparse:
            raise DataFileError(f"{self.path}: labels {name!r} are a sparse matrix")
        with self._file() as file:
            labels: NDArray[Any] = file[name][()]
            return labels


class Matlab73File(Hdf5File):
    """A MATLAB file of version 7.3: HDF5 with the axes in reverse."""

    format_name = "MATLAB 7.3"
    _transposed = True

    def _visit(self, name: str, item: Any) -> None:
        if name.startswith("#") or name.rpartition("/")[0] in self.sparse:
            return  # belongs to MATLAB itself
        kind = _matlab_class(item)
        if "MATLAB_sparse" in item.attrs and {"data", "ir", "jc"} <= set(item):
            ends = item["jc"][()].astype(np.int64)
            shape = (int(item.attrs["MATLAB_sparse"]), len(ends) - 1)
            parts = (item["data"][()], item["ir"][()].astype(np.int64), ends)
            self._add(name, sp.csc_array(parts, shape=shape))
        elif "MATLAB_empty" not in item.attrs:
            super()._visit(name, item)
        if name in self.dtypes and kind in ("char", "cell"):
            self.dtypes[name] = np.dtype({"char": "U1", "cell": "O"}[kind])

    def labels(self, name: str) -> NDArray[Any]:
        """Numbers, a char matrix or a cell array of text."""
        with self._file() as file:
            item = file[name]
            if _matlab_class(item) == "char":
                return np.array([_text(row) for row in item[()].T])
            if _matlab_class(item) == "cell":
                return _objects(_cell_text(file[cell]) for cell in item[()].reshape(-1))
        return whole_numbers(super().labels(name).reshape(-1))


def _matlab_class(item: Any) -> str:
    kind = item.attrs.get("MATLAB_class", b"")
    return kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)


def _text(characters: NDArray[Any]) -> str:
    return characters.astype("<u2").tobytes().decode("utf-16-le", "replace").rstrip(" ")


def _cell_text(cell: Any) -> Any:
    if "MATLAB_empty" in cell.attrs:
        return ""
    return _text(cell[()].T.reshape(-1)) if _matlab_class(cell) == "char" else cell[()]
