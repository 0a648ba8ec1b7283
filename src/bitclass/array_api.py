"""Arrays of other libraries: torch tensors and CuPy arrays, by the Python array API standard.

Code that works on both takes its functions from ``namespace(X)``, which is NumPy for NumPy arrays.
Here are the few things that the standard lacks. No library is imported unless its arrays come in.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "add_by_class",
    "add_gram",
    "device",
    "hosted",
    "is_foreign",
    "like",
    "namespace",
    "take",
    "to_host",
    "top_k",
    "unique_inverse",
    "unique_labels",
]

Array = Any  # NDArray, or an array of another library
Found = TypeVar("Found", bound=Any)

_LIBRARIES = frozenset({"torch", "cupy", "array_api_strict"})
# Columns of X'X that are one product: what lies below the diagonal is not computed.
_COLUMNS = 1024
# Classes of one group, of which only the best is compared at first.
_GROUP = 64


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library than NumPy, to be computed with where it lies.

    Examples
    --------
    >>> is_foreign([[1.0]])
    False
    """
    return _library(X) in _LIBRARIES and hasattr(X, "shape")


def namespace(X: Any) -> Any:
    """The array API of the library that X belongs to."""
    return _compat().array_namespace(X) if is_foreign(X) else np


@cache
def _compat() -> ModuleType:
    for name in ("array_api_compat", "sklearn.externals.array_api_compat"):
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise ModuleNotFoundError(
        "arrays of other libraries than NumPy need array-api-compat: "
        "pip install 'bitclass[array-api]'"
    )


def device(X: Array) -> Any:
    """The device that an array lies on, "cpu" for NumPy."""
    return _compat().device(X) if is_foreign(X) else "cpu"


def to_host(X: Any) -> Any:
    """A NumPy array of the same values; anything that is no array of another library as it is."""
    if not is_foreign(X):
        return X
    library = _library(X)
    if library == "torch":
        X = X.detach().cpu()
        return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()
    return X.get() if library == "cupy" else np.asarray(X)


def like(values: NDArray[Any], reference: Array) -> Array:
    """Values of NumPy where `reference` lies; as they are where that is NumPy too."""
    if not is_foreign(reference):
        return values
    xp = namespace(reference)
    return xp.asarray(np.ascontiguousarray(values), device=device(reference))


def hosted(found: Found) -> Found:
    """A dataclass whose arrays are all NumPy's."""
    arrays = {field.name: to_host(getattr(found, field.name)) for field in fields(found)}
    return replace(found, **arrays)


def take(X: Array, rows: NDArray[np.intp]) -> Array:
    """Chosen rows of X, by index."""
    if not is_foreign(X):
        return X[rows]
    return namespace(X).take(X, like(rows, X), axis=0)


def unique_labels(labels: Array) -> NDArray[Any]:
    """Sorted labels (C,) in NumPy."""
    if is_foreign(labels):
        labels = to_host(namespace(labels).unique_values(labels))
    return np.unique(labels)


def unique_inverse(labels: Array) -> tuple[NDArray[Any], Array]:
    """Sorted labels (C,) in NumPy, and the index (n,) of each row's label where `labels` lie."""
    if not is_foreign(labels):
        return np.unique(labels, return_inverse=True)
    found = namespace(labels).unique_inverse(labels)
    return to_host(found.values), found.inverse_indices


def add_gram(Z: Array, total: Array) -> None:
    """Add Z'Z of rows (n, d) float32 to what is on and above the diagonal of `total` (d, d).

    With CUDA the rows are rounded to bfloat16, and their products summed in float32: they are the
    squares of nearby rows, so that the sum stays positive definite.
    """
    torch = sys.modules["torch"] if _library(Z) == "torch" and Z.is_cuda else None
    if torch is not None:
        Z = Z.to(torch.bfloat16)
    d = Z.shape[1]
    step = max(_COLUMNS, math.ceil(d / 8))
    for start in range(0, d, step):
        stop = min(start + step, d)
        left, right = Z[:, start:stop].T, Z[:, start:]
        part = left @ right if torch is None else torch.mm(left, right, out_dtype=torch.float32)
        total[start:stop, start:] += part


def add_by_class(Z: Array, own: Array, total: Array) -> None:
    """Add rows (n, d) to the rows of `total` (C, d) that `own` (n,) tells."""
    library = _library(Z)
    if library == "torch":
        total.index_add_(0, own, Z)
    elif library == "cupy":
        sys.modules["cupy"].add.at(total, own, Z)
    else:
        xp = namespace(Z)
        is_own = own[None, :] == xp.arange(total.shape[0], device=device(Z))[:, None]
        total += xp.astype(is_own, Z.dtype) @ Z


def top_k(scores: Array, k: int, largest: int) -> tuple[Array, Array]:
    """Indices and scores (n, k) of the best of C classes, of equals the first ones.

    The best k are in those k groups of neighbours whose best are the best: so nearly all scores are
    read only once.

    Parameters
    ----------
    scores : (n, C) of integers, in any type
    k : int in [1, C]
    largest : int, that no score exceeds in size
    """
    xp = namespace(scores)
    n, n_classes = scores.shape
    n_groups = n_classes // _GROUP
    if n_groups <= 2 * k:
        return _top_k(xp, scores, k, largest)
    grouped = xp.reshape(scores[:, : n_groups * _GROUP], (n, n_groups, _GROUP))
    groups = xp.sort(_top_k(xp, xp.max(grouped, axis=2), k, largest)[0], axis=1)
    candidates = xp.take_along_axis(grouped, groups[:, :, None], axis=1)
    # The last classes, which are less than a group, are always compared.
    rest = scores[:, n_groups * _GROUP :]
    candidates = xp.concat([xp.reshape(candidates, (n, k * _GROUP)), rest], axis=1)
    place, best = _top_k(xp, candidates, k, largest)
    group = xp.take_along_axis(groups, xp.minimum(place // _GROUP, place * 0 + k - 1), axis=1)
    of_rest = place - k * _GROUP + n_groups * _GROUP
    return xp.where(place < k * _GROUP, group * _GROUP + place % _GROUP, of_rest), best


def _top_k(xp: Any, scores: Array, k: int, largest: int) -> tuple[Array, Array]:
    """The best k of each row (n, m) by keys that no two share: score first, then place."""
    m = scores.shape[1]
    kind = xp.int32 if (largest + 1) * m < 2**31 else xp.int64
    keys = xp.astype(scores, kind) * m + xp.arange(m - 1, -1, -1, dtype=kind, device=device(scores))
    if _library(scores) == "torch":
        best = sys.modules["torch"].topk(keys, k, dim=1).values
    else:
        best = xp.sort(keys, axis=1, descending=True)[:, :k]
    best = xp.astype(best, xp.int64)
    return m - 1 - best % m, best // m
