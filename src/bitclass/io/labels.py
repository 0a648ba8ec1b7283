"""The type of labels: decided over all files, or by the classes of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.errors import DataFileError

__all__ = ["LabelRange", "as_text", "check_label_dtype", "class_dtype", "common_dtype", "convert"]

TEXT = np.dtype(np.str_)
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,19}")
_INT64, _UINT64 = np.iinfo(np.int64), np.iinfo(np.uint64)


class LabelRange:
    """Whether labels of text files are integers, and which.

    They are if every label is written as Python would write that integer, spaces around it aside,
    and one type of 64 bits holds all of them; `007`, `+7` and `7.0` are text.

    Examples
    --------
    >>> labels = LabelRange()
    >>> labels.add(["1", "-2"])
    >>> labels.dtype
    dtype('int64')
    >>> labels.add(["03"])
    >>> labels.dtype
    dtype('<U')
    """

    def __init__(self) -> None:
        self.are_integers = True
        self.low, self.high = 0, 0

    def add(self, labels: Iterable[str]) -> None:
        """Take more labels into account."""
        for label in labels:
            if not _CANONICAL.fullmatch(label.strip()):
                self.are_integers = False
                break
            self.low, self.high = min(self.low, int(label)), max(self.high, int(label))

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64, uint64 or text."""
        if self.are_integers and self.low >= _INT64.min and self.high <= _INT64.max:
            return np.dtype(np.int64)
        if self.are_integers and self.low >= 0 and self.high <= _UINT64.max:
            return np.dtype(np.uint64)
        return TEXT


def check_label_dtype(path: Path, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse arrays that cannot be labels."""
    if dtype.kind not in "biufSUO" or dtype.char in "gG":
        raise DataFileError(
            f"{path}: labels {name!r} are of type {dtype}; "
            "labels are integers, floats, booleans or text"
        )


def as_text(path: Path, values: NDArray[Any]) -> NDArray[Any]:
    """Bytes and objects (n,) as an array of str; UTF-8 is assumed."""
    texts = []
    for row, value in enumerate(values.tolist()):
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise DataFileError(f"{path}: the label of row {row} is not UTF-8 text") from error
        if not isinstance(text, str):
            kind = type(text).__name__
            raise DataFileError(f"{path}: the label of row {row} is {kind}, not text")
        texts.append(text)
    return np.array(texts, dtype=np.str_)


def class_dtype(classes: Any) -> np.dtype[Any]:
    """The type that labels of a model with these classes have."""
    dtype = np.asarray(classes).dtype
    if dtype.kind in "iu":
        return np.dtype(np.uint64 if dtype == np.uint64 else np.int64)
    return TEXT if dtype.kind in "SUO" else dtype


def common_dtype(types: Sequence[np.dtype[Any] | LabelRange]) -> np.dtype[Any] | None:
    """One type for the labels of several files; None if some are text and others are not."""
    ranges = [found for found in types if isinstance(found, LabelRange)]
    if ranges:  # text files: all of them, since files are of one format
        merged = LabelRange()
        merged.are_integers = all(found.are_integers for found in ranges)
        merged.low = min(found.low for found in ranges)
        merged.high = max(found.high for found in ranges)
        return merged.dtype
    found = {kind for kind in types if isinstance(kind, np.dtype)}
    if any(dtype.kind == "U" for dtype in found):
        return TEXT if all(dtype.kind == "U" for dtype in found) else None
    common = np.result_type(*found)
    # NumPy's common type of int64 and uint64 is a float, which would merge large labels.
    if common.kind == "f" and all(dtype.kind in "iu" for dtype in found):
        return np.dtype(np.int64)
    return np.dtype(np.float32) if common == np.float16 else common


def convert(path: Path, labels: NDArray[Any], dtype: np.dtype[Any], first_row: int) -> NDArray[Any]:
    """Labels (k,), str or numbers, in the type that was decided on; `first_row` is for errors."""
    is_text = labels.dtype.kind == "U"
    if is_text or labels.dtype.kind == "f":
        missing = np.char.strip(labels) == "" if is_text else ~np.isfinite(labels)
        if missing.any():
            raise DataFileError(f"{path}: row {first_row + int(np.argmax(missing))} has no label")
    if dtype.kind == "U":
        return labels if is_text else _written(labels)
    if labels.dtype == dtype:
        return labels
    values, inverse = np.unique(labels, return_inverse=True)
    converted = np.zeros(len(values), dtype=dtype)
    for place, value in enumerate(values.tolist()):
        try:
            converted[place] = _parsed(value, dtype)
        except (ValueError, KeyError, OverflowError):
            row = int(np.argmax(inverse == place))
            kinds = {"i": "integers", "u": "integers", "f": "numbers", "b": "True and False"}
            raise DataFileError(
                f"{path}: row {first_row + row} has the label {str(value)!r:.60}, but the other "
                f"labels or the model's classes are {kinds.get(dtype.kind, f'of type {dtype}')}"
            ) from None
    return np.asarray(converted[inverse])


def _parsed(value: str | float, dtype: np.dtype[Any]) -> Any:
    """A label in another type; an error if it has no equal there."""
    if isinstance(value, str):
        if dtype.kind in "iu" and not _CANONICAL.fullmatch(value.strip()):
            raise ValueError
        if dtype.kind == "b":
            return {"true": True, "false": False}[value.strip().lower()]
        return int(value) if dtype.kind in "iu" else float(value)
    # float32 holds fewer digits than the same number read as float64 from another file.
    if not (dtype.kind == "f" and isinstance(value, float)) and dtype.type(value) != value:
        raise ValueError
    return value


def _written(numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers as text, each whole one without a decimal point."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.str_)
    values, inverse = np.unique(numbers, return_inverse=True)
    texts = [
        str(int(value)) if value.is_integer() else text
        for value, text in zip(values.tolist(), values.astype(np.str_).tolist(), strict=True)
    ]
    return np.array(texts, dtype=np.str_)[inverse]
