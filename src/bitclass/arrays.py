"""Feature arrays of NumPy and other libraries, and operations on them.

A feature matrix X of shape (n, d) is a NumPy array of any real dtype, a SciPy CSR matrix, or an
array of torch or CuPy. It is processed in blocks, each a dense array of float32 (or float64 if
float32 would lose digits), so that X is never copied as a whole.

Code that works on arrays of any library takes its functions from ``namespace(X)``, which is NumPy
for NumPy arrays; this module adds the few that the array API standard lacks. No other library
is imported unless its arrays are passed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass._native import add_gram as add_gram_of_numpy
from bitclass._native import class_sums as class_sums_of_numpy

__all__ = [
    "Array",
    "Features",
    "RowError",
    "add_gram",
    "as_features",
    "check_array",
    "check_finite",
    "class_blocks",
    "class_sums",
    "compute_dtype",
    "dense_rows",
    "device",
    "hosted",
    "is_foreign",
    "like",
    "matmul",
    "matmul_operand",
    "memory_errors",
    "namespace",
    "put",
    "recorded",
    "row_blocks",
    "sample_rows",
    "signs",
    "take",
    "to_host",
    "top_k",
]

Array = Any  # NDArray, or an array of another library
# NDArray, scipy.sparse CSR or `_native.SparseRows`; prediction must not import SciPy.
Features = Any
_T = TypeVar("_T", bound=Any)

_LIBRARIES = frozenset({"torch", "cupy", "array_api_strict"})
# Columns of X'X per product: blocks below the diagonal are not computed.
_COLUMNS = 1024
# Calls before a CUDA graph is recorded, in which libraries load kernels and allocate memory.
_CALLS_BEFORE_RECORDING = 3

_BLOCK_BYTES, _DEVICE_BLOCK_BYTES = 8 << 20, 1 << 30
_CLASSES_PER_BLOCK = 1 << 14
_EXACT_IN_FLOAT32 = frozenset("?bBhHef")


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def is_foreign(X: Any) -> bool:
    """Whether X is foreign: an array of torch, CuPy or array_api_strict, on any device.

    Foreign arrays are processed on their device, all others by NumPy and the kernels.

    Examples
    --------
    >>> is_foreign([[1.0]])
    False
    """
    return type(X) is not np.ndarray and _library(X) in _LIBRARIES and hasattr(X, "shape")


def _compat() -> Any:
    try:
        return import_module("array_api_compat")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "arrays of libraries other than NumPy need array-api-compat: "
            "pip install 'bitclass[array-api]'"
        ) from None


def namespace(X: Any) -> Any:
    """The array API namespace of X."""
    return _compat().array_namespace(X) if is_foreign(X) else np


def device(X: Array) -> Any:
    """The device of an array, "cpu" for NumPy."""
    return _compat().device(X) if is_foreign(X) else "cpu"


def check_array(X: Any, name: str = "X", reference: Any = None) -> None:
    """Raise an error if X requires gradients, or is not on the device of `reference`."""
    if getattr(X, "requires_grad", False):
        raise ValueError(f"{name} must not require gradients: pass {name}.detach()")
    if not is_foreign(X) or not is_foreign(reference):
        return
    if namespace(X) is not namespace(reference) or device(X) != device(reference):
        raise ValueError(
            f"{name} must be an array of {_library(reference)} on {device(reference)}, as X is, or "
            f"a NumPy array; found {_library(X)} on {device(X)}"
        )


@contextmanager
def memory_errors() -> Iterator[None]:
    """Convert out-of-memory errors of a device to a MemoryError that names the argument."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise MemoryError(
            "X: the device is out of memory; pass fewer rows at a time, for training to "
            f"partial_fit or fit_batches ({str(error).splitlines()[0]})"
        ) from error


def to_host(X: Any) -> Any:
    """Convert a foreign array to NumPy; anything else is returned unchanged."""
    library = _library(X) if is_foreign(X) else None
    if library == "torch":
        X = X.detach().cpu()
        return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()
    return X.get() if library == "cupy" else X if library is None else np.asarray(X)


def like(values: Array, reference: Array) -> Array:
    """Copy a NumPy array to the library and device of `reference`.

    It is returned unchanged if `reference` is a NumPy array, too, or if `values` is already foreign
    or not numeric.
    """
    if not is_foreign(reference) or is_foreign(values) or values.dtype.kind not in "biuf":
        return values
    return namespace(reference).asarray(np.ascontiguousarray(values), device=device(reference))


def hosted(record: _T) -> _T:
    """Copy a dataclass with every foreign array in it, at any depth, replaced by a NumPy array."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    arrays = {
        name: hosted(value) if is_dataclass(value) else to_host(value)
        for name, value in values.items()
    }
    return replace(record, **arrays)


def take(X: Array, rows: Array) -> Array:
    """Rows of X, by index."""
    return namespace(X).take(X, like(rows, X), axis=0) if is_foreign(X) else X[rows]


def put(values: Array, index: tuple[Array, ...], new: Array) -> None:
    """``values[index] = new`` in place, with arrays of unique indices."""
    if not is_foreign(values):
        values[index] = new
    elif _library(values) == "array_api_strict":  # the standard has no such assignment
        changed = np.array(values)
        changed[tuple(map(to_host, index))] = to_host(new)
        values[...] = like(changed, values)
    else:
        values[tuple(like(part, values) for part in index)] = new


def top_k(scores: Array, k: int) -> tuple[Array, Array]:
    """The k largest values of each row (n, k), in descending order, and their indices."""
    if _library(scores) == "torch":
        return sys.modules["torch"].topk(scores, k, dim=1)
    order = namespace(scores).argsort(scores, axis=1, descending=True)[:, :k]
    return namespace(scores).take_along_axis(scores, order, axis=1), order


def signs(values: Array, dtype: Any = None) -> Array:
    """Signs of values as -1 or +1, with sign(0) = +1; by default in the dtype of `values`.

    For int8 in NumPy see `bitclass.codes.sign`.
    """
    result = namespace(values).astype(values >= 0, values.dtype if dtype is None else dtype)
    result *= 2
    result -= 1
    return result


def matmul_operand(Z: Array) -> Array:
    """Convert to the type that `matmul` takes: bfloat16 for torch on CUDA, else float32."""
    if getattr(Z, "is_cuda", False):
        return Z.bfloat16()
    return namespace(Z).astype(Z, namespace(Z).float32, copy=False)


def matmul(A: Array, B: Array) -> Array:
    """Matrix product of two float32 or two bfloat16 arrays, accumulated in float32."""
    if str(A.dtype) == "torch.bfloat16":
        torch = sys.modules["torch"]
        return torch.mm(A, B, out_dtype=torch.float32)
    return A @ B


def recorded(function: Callable[..., Array]) -> Callable[..., Array]:
    """Record a function as a CUDA graph and replay it, if its first argument is on CUDA.

    The function takes numbers and arrays of the same shapes at every call, and returns an array; it
    may modify other arrays only in place. The graph is recorded after a few calls; replaying it
    avoids the overhead of launching a hundred small kernels. On other devices the function is just
    called.
    """
    graph, inputs, output, n_calls = None, [], None, 0

    def wrapper(first: Array, *others: Any) -> Array:
        nonlocal graph, inputs, output, n_calls
        n_calls, torch = n_calls + 1, sys.modules.get("torch")
        if n_calls <= _CALLS_BEFORE_RECORDING or torch is None or not getattr(first, "is_cuda", 0):
            return function(first, *others)
        arguments = first, *others
        if graph is None:
            inputs = [torch.asarray(value, device=first.device, copy=True) for value in arguments]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                output = function(*inputs)
        for recorded_input, value in zip(inputs, arguments, strict=True):
            if isinstance(value, torch.Tensor):
                recorded_input.copy_(value)
            else:
                recorded_input.fill_(value)
        graph.replay()
        return output.clone()

    return wrapper


def add_gram(blocks: Iterable[Array], gram: Array) -> None:
    """Add ``Z' Z`` over blocks of rows (n, d) to `gram` (d, d) float64.

    Rows, not products, are rounded, so the sum remains positive semi-definite.
    """
    if not is_foreign(gram):
        add_gram_of_numpy(blocks, gram)
        return
    xp, d = namespace(gram), gram.shape[0]
    total = xp.zeros_like(gram)
    for block in blocks:
        Z = matmul_operand(block)
        for start in range(0, d, _COLUMNS):
            stop = min(start + _COLUMNS, d)
            total[start:stop, start:] += matmul(Z[:, start:stop].T, Z[:, start:])
    gram += xp.triu(total) + xp.triu(total, k=1).T


def class_sums(Z: Array, y: Array, sample_weight: NDArray[np.float64] | None, total: Array) -> None:
    """Add each row i of Z (n, d), times its weight, to row `y[i]` of `total` (C, d)."""
    if not is_foreign(Z):
        class_sums_of_numpy(Z, y, sample_weight, total)
        return
    xp, y = namespace(Z), like(y, Z)
    Z = xp.astype(Z, total.dtype, copy=False)
    if sample_weight is not None:
        Z = Z * xp.astype(like(sample_weight[:, None], Z), Z.dtype)
    if _library(Z) == "torch":
        total.index_add_(0, y, Z)
    elif _library(Z) == "cupy":
        sys.modules["cupy"].add.at(total, y, Z)
    else:
        one_hot = y[None, :] == xp.arange(total.shape[0], device=device(Z))[:, None]
        total += xp.astype(one_hot, Z.dtype) @ Z


def as_features(X: Any, n_features: int, feature_names: tuple[str, ...] | None = None) -> Features:
    """Convert any array-like to a NumPy array of a real type, or to CSR.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix or data frame of shape (n, d)
        Columns of a data frame are selected by name if `feature_names` is given.
    n_features : int, number of features d
    feature_names : (d,) names of the features, or None
    """
    if feature_names is not None and hasattr(X, "columns"):
        missing = [name for name in feature_names if name not in X.columns]
        if missing:
            raise ValueError(
                f"X must have a column {missing[0]!r}, which the model was fitted with"
            )
        X = X[list(feature_names)]
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


class RowError(ValueError):
    """A row contains a number that cannot be encoded: NaN, infinity, or one that is too large."""


def check_finite(block: NDArray[Any], first_row: int) -> None:
    """Raise a RowError that names the first NaN or infinity in a block of dense rows, if any.

    Parameters
    ----------
    block : (m, d)
    first_row : int, number of the first row, for the message
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is cheaper than testing every value, which is done only if the sum is not finite.
        if block.dtype.kind != "f" or np.isfinite(block.sum(dtype=np.float64)):
            return
    wrong = np.argwhere(~np.isfinite(block))
    if len(wrong):
        row, column = wrong[0]
        found = block[row, column]
        value = "NaN" if np.isnan(found) else f"infinity ({found})"
        raise RowError(f"X must be finite: row {first_row + row}, feature {column} is {value}")


def compute_dtype(X: Features) -> np.dtype[Any]:
    """The float type to compute in: float32 if it represents every value of X exactly, or float64.

    Examples
    --------
    >>> compute_dtype(np.zeros((2, 2), dtype=np.uint8)).name
    'float32'
    """
    char = to_host(X[:0, ...]).dtype.char if is_foreign(X) else X.dtype.char
    return np.dtype(np.float32 if char in _EXACT_IN_FLOAT32 else np.float64)


def dense_rows(X: Features, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
    """Selected rows of X as a dense float array; a view if possible."""
    if is_foreign(X):
        xp, chosen = namespace(X), X[rows, :] if isinstance(rows, slice) else take(X, rows)
        return xp.astype(chosen, getattr(xp, compute_dtype(X).name), copy=False)
    chosen = X[rows]
    dense = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    block: NDArray[Any] = dense.astype(compute_dtype(X), copy=False)
    return block


def row_blocks(X: Features) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, dense float block) over all rows of X, in order."""
    n_rows, n_features = X.shape
    row_bytes = compute_dtype(X).itemsize * max(1, n_features)
    rows_per_block = min(max(_BLOCK_BYTES // row_bytes, 256), 8192)
    if is_foreign(X):
        rows_per_block = max(_DEVICE_BLOCK_BYTES // row_bytes, 1)
    for start in range(0, n_rows, rows_per_block):
        rows = slice(start, min(start + rows_per_block, n_rows))
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
