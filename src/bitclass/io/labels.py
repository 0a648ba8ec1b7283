"""The type of the labels, inferred from all files or from the classes of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.errors import DataFileError

__all__ = [
    "INTEGER",
    "TEXT",
    "class_dtype",
    "common_dtype",
    "convert",
    "infer_dtype",
    "whole_numbers",
]

TEXT, INTEGER = np.dtype(np.str_), np.dtype(np.int64)
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,19}")


def infer_dtype(labels: Iterable[str]) -> np.dtype[Any]:
    """Infer the type of labels in a text file: int64 if all are integer literals, else text.

    Spaces around an integer are ignored; `007`, `+7` and `7.0` are text.

    Examples
    --------
    >>> infer_dtype(["1", "-2 "]), infer_dtype(["1", "03"])
    (dtype('int64'), dtype('<U'))
    """
    return INTEGER if all(_parse(label, INTEGER) is not None for label in labels) else TEXT


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Convert floats to integers if all of them are whole numbers.

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


def class_dtype(classes: Any) -> np.dtype[Any]:
    """Type of labels for a model with these classes."""
    dtype = np.asarray(classes).dtype
    if dtype.kind in "iu":
        return np.dtype(np.uint64 if dtype == np.uint64 else np.int64)
    return TEXT if dtype.kind in "SUO" else dtype


def common_dtype(types: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Common type of the labels of several files: text if any of them is text."""
    if any(dtype.kind == "U" for dtype in types):
        return TEXT
    common = np.result_type(*types)
    # NumPy's common type of int64 and uint64 is a float, which would merge large labels.
    if common.kind == "f" and all(dtype.kind in "iu" for dtype in types):
        return INTEGER
    return np.dtype(np.float32) if common == np.float16 else common


def convert(path: Path, labels: NDArray[Any], dtype: np.dtype[Any], first_row: int) -> NDArray[Any]:
    """Convert labels (k,), text or numbers, to `dtype`; errors count rows from `first_row`."""
    is_text = labels.dtype.kind == "U"
    if is_text or labels.dtype.kind == "f":
        missing = np.char.strip(labels) == "" if is_text else ~np.isfinite(labels)
        if missing.any():
            raise DataFileError(f"{path}: row {first_row + int(np.argmax(missing))} has no label")
    if labels.dtype == dtype or (is_text and dtype.kind == "U"):
        return labels
    if not is_text and dtype.kind != "U" and np.can_cast(labels.dtype, dtype):
        return labels.astype(dtype)
    values, inverse = np.unique(labels, return_inverse=True)
    texts = values.astype(np.str_).tolist()
    if labels.dtype.kind == "f":  # whole numbers without a decimal point
        whole = np.floor(values) == values
        texts = [
            str(int(value)) if is_whole else text
            for value, text, is_whole in zip(values, texts, whole, strict=True)
        ]
    if dtype.kind == "U":
        return np.array(texts)[inverse]
    with np.errstate(over="ignore"):
        parsed = [_parse(text, dtype) for text in texts]
    wrong = np.array([value is None for value in parsed])[inverse]
    converted = np.array([value or 0 for value in parsed], dtype=dtype)[inverse]
    if labels.dtype.kind in "iu":  # float32 cannot represent all integers
        wrong |= converted != labels
    if wrong.any():
        row = int(np.argmax(wrong))
        kinds = {"i": "integers", "u": "integers", "f": "numbers", "b": "True and False"}
        raise DataFileError(
            f"{path}: row {first_row + row} has the label {str(labels[row])!r:.60}, but the other "
            f"labels or the model's classes are {kinds.get(dtype.kind, f'of type {dtype}')}"
        )
    return converted


def _parse(text: str, dtype: np.dtype[Any]) -> Any:
    """Parse a label as a number or boolean; None if it has another type."""
    text = text.strip()
    if dtype.kind == "b":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if dtype.kind in "iu" and not _INTEGER.fullmatch(text):
        return None
    try:
        return dtype.type(int(text) if dtype.kind in "iu" else float(text))
    except (ValueError, OverflowError):
        return None
