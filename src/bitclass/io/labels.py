"""The type of the labels, inferred from all files or from the classes of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.source import DataFileError

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


def label_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which labels stored as `dtype` are read: text, booleans, int64 or uint64.

    Floats are read as integers, which `convert` requires them to be.

    Examples
    --------
    >>> label_dtype(np.dtype(np.float32)), label_dtype(np.dtype("S3"))
    (dtype('int64'), dtype('<U'))
    """
    if dtype.kind in "SUO":
        return TEXT
    return dtype if dtype == np.uint64 or dtype.kind == "b" else INTEGER


def common_dtype(types: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Common type of the labels of several files: text if any of them is text."""
    if TEXT in types:
        return TEXT
    return types[0] if len(set(types)) == 1 else INTEGER


def convert(path: Path, labels: NDArray[Any], dtype: np.dtype[Any], first_row: int) -> NDArray[Any]:
    """Convert labels (k,) to `dtype`; errors count rows from `first_row`."""
    is_text, is_float = labels.dtype.kind == "U", labels.dtype.kind == "f"
    if is_text or is_float:
        missing = np.char.strip(labels) == "" if is_text else ~np.isfinite(labels)
        if missing.any():
            raise DataFileError(f"{path}: row {first_row + int(np.argmax(missing))} has no label")
    if is_float:
        # Doubles from 2**53 on may be integers that were rounded, which would merge classes.
        wrong = (np.floor(labels) != labels) | (np.abs(labels) >= 1 << 53)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataFileError(
                f"{path}: row {first_row + row} has the label {labels[row]}; labels must be text, "
                "booleans or integers; write numbers from 2**53 on as int64 or text"
            )
        labels = labels.astype(INTEGER)
    if dtype.kind == "U":
        return labels if is_text else labels.astype(np.str_)
    if is_text:
        values, inverse = np.unique(labels, return_inverse=True)
        parsed = [_parse(value, dtype) for value in values.tolist()]
        wrong = np.array([value is None for value in parsed])[inverse]
        converted = np.array([value or 0 for value in parsed], dtype=dtype)[inverse]
    else:
        converted = labels.astype(dtype, copy=False)
        wrong = converted != labels
    if wrong.any():
        row = int(np.argmax(wrong))
        expected = "True and False" if dtype.kind == "b" else f"of type {dtype}"
        raise DataFileError(
            f"{path}: row {first_row + row} has the label {str(labels[row])!r:.60}, but the other "
            f"labels or the model's classes are {expected}"
        )
    return converted


def _parse(text: str, dtype: np.dtype[Any]) -> Any:
    """Parse a label as an integer or boolean; None if it is something else."""
    text = text.strip()
    if dtype.kind == "b":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if not _INTEGER.fullmatch(text):
        return None
    try:
        return dtype.type(int(text))
    except OverflowError:
        return None
