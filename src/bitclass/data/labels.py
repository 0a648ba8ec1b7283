"""Labels of any type, brought to arrays of numbers or text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.limits import MAX_LABEL_CHARACTERS

__all__ = ["LabelParser", "as_labels", "check_label_dtype", "label_kind", "widest"]

# From narrow to wide: a column is of the widest kind that one of its labels needs.
_KINDS = ("integer", "number", "text")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def check_label_dtype(path: Path, name: object, dtype: np.dtype[Any]) -> None:
    """Refuse arrays that cannot be labels, before they are read."""
    if dtype.kind in "SU":
        width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        if not 0 < width <= MAX_LABEL_CHARACTERS:
            raise DataFileError(
                f"{path}: labels {name!r} are texts of {width} characters; "
                f"1 to {MAX_LABEL_CHARACTERS} are read"
            )
    elif dtype.kind not in "biufO" or dtype.char == "g":
        raise DataFileError(
            f"{path}: labels {name!r} are of type {dtype}; "
            "labels are integers, floats, booleans or text"
        )


def as_labels(path: Path, values: NDArray[Any], first_row: int) -> NDArray[Any]:
    """Labels as a (k,) array of booleans, numbers or text.

    Parameters
    ----------
    path : the file, for errors
    values : (k,) of any type; bytes and objects must be UTF-8 text
    first_row : number of the first row in the file, for errors
    """
    labels = values.reshape(-1)
    if labels.dtype.kind in "SO":
        labels = _decoded(path, labels.tolist(), first_row)
    elif labels.dtype.kind == "f":
        missing = np.flatnonzero(~np.isfinite(labels))
        if len(missing):
            raise _no_label(path, first_row + int(missing[0]), labels[missing[0]])
        if labels.dtype.itemsize == 2:  # NumPy's sorting and searching are slow in half precision
            labels = labels.astype(np.float32)
    if labels.dtype.kind == "U":
        empty = np.flatnonzero(labels == "")
        if len(empty):
            raise _no_label(path, first_row + int(empty[0]), "")
    return labels.astype(labels.dtype.newbyteorder("="), copy=False)


def _decoded(path: Path, values: Iterable[object], first_row: int) -> NDArray[Any]:
    texts = []
    for row, value in enumerate(values, first_row):
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError as error:
                raise DataFileError(
                    f"{path}: the label of row {row} of this file is not UTF-8 text"
                ) from error
        if not isinstance(value, str):
            raise _no_label(path, row, value)
        texts.append(value)
    return text_array(path, texts, first_row)


def text_array(path: Path, texts: Sequence[str], first_row: int) -> NDArray[Any]:
    """Texts as an array, none of them longer than a label may be."""
    longest = max(map(len, texts), default=0)
    if longest > MAX_LABEL_CHARACTERS:
        row = next(row for row, text in enumerate(texts) if len(text) == longest)
        raise DataFileError(
            f"{path}: the label of row {first_row + row} of this file has {longest} characters; "
            f"at most {MAX_LABEL_CHARACTERS} are read"
        )
    return np.array(texts, dtype=f"U{max(1, longest)}")


def _no_label(path: Path, row: int, found: object) -> DataFileError:
    return DataFileError(f"{path}: row {row} of this file has no label, found {str(found)!r:.80}")


def label_kind(labels: Iterable[str]) -> str:
    """The narrowest kind that holds all these labels of a text file.

    Examples
    --------
    >>> label_kind(["1", "-2"]), label_kind(["1", "2.5"]), label_kind(["1", "cat"])
    ('integer', 'number', 'text')
    """
    kind = 0
    for label in labels:
        if kind == 0 and not _INTEGER.fullmatch(label):
            kind = 1
        if kind == 1 and not _NUMBER.fullmatch(label):
            return _KINDS[2]
    return _KINDS[kind]


def widest(kinds: Iterable[str]) -> str:
    """The narrowest kind that holds the labels of all these kinds."""
    return max(kinds, key=_KINDS.index, default=_KINDS[0])


class LabelParser:
    """Labels of a text file, all of one kind.

    Parameters
    ----------
    path : the file, for errors
    kind : 'integer', 'number' or 'text'
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind

    def __call__(self, labels: Sequence[str], first_row: int) -> NDArray[Any]:
        """Labels (k,) as an array; `first_row` is for errors."""
        try:
            empty = labels.index("")
        except ValueError:
            pass
        else:
            raise _no_label(self.path, first_row + empty, "")
        if self.kind == "integer":
            return np.fromiter(map(int, labels), dtype=np.int64, count=len(labels))
        if self.kind == "number":
            numbers = np.fromiter(map(float, labels), dtype=np.float64, count=len(labels))
            return as_labels(self.path, numbers, first_row)
        return text_array(self.path, labels, first_row)
