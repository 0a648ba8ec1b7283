"""Feature matrices: NumPy arrays of any real dtype, or SciPy CSR.

They are processed in blocks, each a dense array of float32 (or float64 if float32 would lose
digits), so that a matrix is never copied as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# NDArray, scipy.sparse CSR or `_native.SparseRows`; prediction must not import SciPy.
Features = Any

_BLOCK_BYTES = 4 << 20
_CLASSES_PER_BLOCK = 1 << 12
_EXACT_IN_FLOAT32 = frozenset("?bBhHef")
# The number of the CPU among the devices of DLPack.
_DLPACK_CPU = 1


def signs(values: NDArray[Any]) -> NDArray[np.float32]:
    """Signs in {-1, +1} as float32; that of 0 is +1."""
    # Adding 0 turns -0.0 into 0.0.
    return np.copysign(np.float32(1), np.asarray(values + 0.0, dtype=np.float32))


def as_features(X: Any, n_features: int, feature_names: tuple[str, ...] | None = None) -> Features:
    """Convert any array-like (n, d) to a NumPy array of a real type, or to CSR.

    Columns of a data frame are selected by name if `feature_names` are given.
    """
    X = frame_columns(X, feature_names)
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    elif not isinstance(X, np.ndarray) and not hasattr(X, "indptr"):
        X = np.asarray(X)
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X must contain numbers: {error}") from None
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must contain real numbers, found values of type {X.dtype}")
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X must have shape (n, {n_features}), found {X.shape}")
    return X


def are_texts(X: Any) -> bool:
    """Whether these are texts rather than rows of numbers."""
    if isinstance(X, (str, bytes)):
        return True
    if getattr(X, "ndim", 1) != 1:
        return False
    first = next(iter(X), "") if hasattr(X, "__len__") else None
    return isinstance(first, (str, bytes))


def check_no_texts(X: Any) -> None:
    """Raise an error if these are texts, where rows are expected."""
    if are_texts(X) and len(X):
        raise ValueError(
            "X must have rows of numbers, found texts: use TextClassifier, which takes them, and "
            "TextClassifier.load for a file that it has saved"
        )


def frame_columns(X: Any, feature_names: Iterable[str] | None = None) -> Any:
    """Columns of a data frame by name, or all; anything else is returned unchanged.

    A column that is missing, or does not contain finite numbers, is a ValueError that names it.
    """
    if not hasattr(X, "columns"):
        return X
    is_arrow = type(X).__module__.partition(".")[0] == "pyarrow"  # whose columns are arrays
    names = list(X.schema.names if is_arrow else X.columns)
    if feature_names is not None:
        wanted = list(feature_names)
        missing = [name for name in wanted if name not in names]
        if missing:
            raise ValueError(
                f"X must have a column {missing[0]!r}, which the model was fitted with"
            )
        X = X.select(wanted) if is_arrow else X[wanted]
        names = wanted
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.asarray(X).sum(dtype=np.float64)):
                return X
    except (TypeError, ValueError):
        pass
    for name in names if len(set(names)) == len(names) else ():
        values = np.asarray(X[name], dtype=object)
        for row, value in enumerate(values.tolist()):
            if not _is_finite_number(value):
                raise ValueError(
                    f"X must contain finite numbers: column {name!r} has {value!r} in row {row}"
                )
    return X


def _is_finite_number(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False


def is_on_gpu(array: Any) -> bool:
    """Whether this is an array on another device than the CPU."""
    if type(array) is np.ndarray or not hasattr(array, "__dlpack_device__"):
        return False
    return bool(array.__dlpack_device__()[0] != _DLPACK_CPU)


def on_host(array: Any, name: str) -> Any:
    """An array of another library in NumPy, without a copy if it is in memory of the CPU.

    All that are no arrays, such as lists, data frames and sparse matrices, are returned unchanged.
    `name` is that of the argument, for messages.
    """
    is_array = hasattr(array, "__dlpack__") and hasattr(array, "ndim")
    if not is_array or isinstance(array, np.ndarray):
        return array
    if getattr(array, "requires_grad", False):
        raise ValueError(f"{name} must not require gradients: pass {name}.detach()")
    try:
        if is_on_gpu(array) or str(array.dtype).endswith("bfloat16"):
            return _copied_by_torch(array)
        # Of a tensor with a bit that negates it, DLPack exports the wrong numbers.
        return np.asarray(array) if hasattr(array, "__array__") else np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ValueError(f"{name} must be a dense array of real numbers: {error}") from None


def _copied_by_torch(array: Any) -> NDArray[Any]:
    """Copy an array of any library and device to NumPy; bfloat16 becomes float32."""
    import torch
    from torch.utils.dlpack import from_dlpack

    tensor = array if isinstance(array, torch.Tensor) else from_dlpack(array)
    tensor = tensor.cpu().resolve_neg()
    values: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return values


class RowError(ValueError):
    """A row contains a number that cannot be encoded: NaN, infinity, or one that is too large."""


def check_finite(block: Features, first_row: int) -> None:
    """Raise a RowError that names the first NaN or infinity in a block of rows, if any."""
    if (wrong := first_not_finite(block)) is not None:
        row, column, found = wrong
        value = "NaN" if np.isnan(found) else f"infinity ({found})"
        raise RowError(f"X must be finite: row {first_row + row}, feature {column} is {value}")


def first_not_finite(X: Features) -> tuple[int, int, Any] | None:
    """Row, column and value of the first NaN or infinity in dense or CSR rows (n, d), if any."""
    values = X if isinstance(X, np.ndarray) else X.data
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is cheaper than testing every value, which is done only if the sum is not finite.
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return None
    wrong = np.argwhere(~np.isfinite(values))
    if not len(wrong):
        return None
    place = tuple(wrong[0].tolist())
    if isinstance(X, np.ndarray):
        return *place, values[place]
    row = int(np.searchsorted(X.indptr, place[0], side="right")) - 1
    return row, int(X.indices[place]), values[place]


def compute_dtype(X: Features) -> np.dtype[Any]:
    """The float type to compute in: float32 if it represents every value of X exactly, or float64.

    Examples
    --------
    >>> compute_dtype(np.zeros((2, 2), dtype=np.uint8)).name
    'float32'
    """
    return np.dtype(np.float32 if X.dtype.char in _EXACT_IN_FLOAT32 else np.float64)


def dense_rows(X: Features, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
    """Selected rows of X as a dense float array; a view if possible."""
    chosen = X[rows]
    dense = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    block: NDArray[Any] = dense.astype(compute_dtype(X), copy=False)
    return block


def row_slices(X: Features, block_bytes: int = _BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices of rows, in order, that are dense blocks of about so many bytes."""
    n_rows, n_features = X.shape
    row_bytes = compute_dtype(X).itemsize * max(1, n_features)
    rows_per_block = min(max(block_bytes // row_bytes, 256), 8192)
    for start in range(0, n_rows, rows_per_block):
        yield slice(start, min(start + rows_per_block, n_rows))


def row_blocks(X: Features) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, dense float block) over all rows of X, in order."""
    for rows in row_slices(X):
        yield rows, dense_rows(X, rows)


def class_blocks(n_classes: int) -> Iterator[slice]:
    """Yield slices of classes, to keep temporaries small when there are many classes."""
    for start in range(0, n_classes, _CLASSES_PER_BLOCK):
        yield slice(start, min(start + _CLASSES_PER_BLOCK, n_classes))


def sample_rows(n_rows: int, max_rows: int) -> NDArray[np.intp]:
    """Indices of all rows or, if there are more than `max_rows`, of a fixed random sample.

    Examples
    --------
    >>> sample_rows(4, 10)
    array([0, 1, 2, 3])
    >>> len(sample_rows(1000, 10))
    10
    """
    if n_rows <= max_rows:
        return np.arange(n_rows, dtype=np.intp)
    return np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))
