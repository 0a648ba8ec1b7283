"""What MATLAB files of both versions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArraySource
from bitclass.data.errors import DataFileError
from bitclass.data.sources import Converted

__all__ = ["CLASSES", "by_rows", "whole_numbers_if_possible"]

CLASSES: dict[str, np.dtype[Any]] = {
    "double": np.dtype("f8"), "single": np.dtype("f4"), "logical": np.dtype("?"),
    "int8": np.dtype("i1"), "int16": np.dtype("i2"), "int32": np.dtype("i4"),
    "int64": np.dtype("i8"), "uint8": np.dtype("u1"), "uint16": np.dtype("u2"),
    "uint32": np.dtype("u4"), "uint64": np.dtype("u8"),
}  # fmt: skip
_BLOCK_ROWS = 1 << 16


def whole_numbers_if_possible(labels: ArraySource) -> ArraySource:
    """Doubles, which in MATLAB nearly all numbers are, as integers where all of them are whole."""
    if labels.dtype.kind != "f":
        return labels
    with labels.cursor() as read:
        for start in range(0, labels.shape[0], _BLOCK_ROWS):
            block = read(start, min(start + _BLOCK_ROWS, labels.shape[0]))
            with np.errstate(invalid="ignore"):
                if not np.all((np.abs(block) < 1 << 53) & (np.floor(block) == block)):
                    return labels
    return Converted(labels, np.dtype(np.int64))


def by_rows(
    path: Path,
    name: str,
    values: NDArray[Any],
    rows: NDArray[Any],
    ends: NDArray[Any],
    shape: Sequence[int],
) -> Any:
    """A sparse variable, which MATLAB keeps by columns, as CSR.

    Its parts are checked, because SciPy would read outside of them.
    """
    from scipy.sparse import csc_array

    # A row that has no values takes no bytes in the file, but it does in memory.
    if shape[0] > (1 << 20) + 16 * path.stat().st_size:
        raise DataFileError(f"{path}: the sparse variable {name!r} claims {shape[0]} rows")
    ends = np.asarray(ends, dtype=np.int64)
    ordered = len(ends) == shape[1] + 1 and ends[0] == 0 and bool(np.all(np.diff(ends) >= 0))
    if not ordered or ends[-1] > min(len(rows), len(values)):
        raise DataFileError(f"{path}: the pointers of the sparse variable {name!r} are damaged")
    rows = np.asarray(rows[: ends[-1]], dtype=np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= shape[0]):
        raise DataFileError(f"{path}: the indices of the sparse variable {name!r} are damaged")
    return csc_array((values[: ends[-1]], rows, ends), shape=tuple(shape)).tocsr()
