"""Class labels in files: numbers as arrays, text and objects as JSON."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.storage.container import Expected, ModelFileError, parse_json, shown

__all__ = ["decode_labels", "encode_labels", "label_tensor"]

_TIME_UNITS = "Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as"
# Type strings of NumPy: byte order, kind, bytes (characters for text), unit of time.
_NUMBER = re.compile(r"\|b1|\|[iu]1|[<>][iuf][248]")
_TIME = re.compile(rf"[<>][mM]8\[([1-9][0-9]{{0,8}})?({_TIME_UNITS})\]")
_TEXT = re.compile(r"([<>]U|\|S)([1-9][0-9]{0,8})")
_OBJECTS = "|O"

_SUPPORTED = (
    "bool, integers and floats of up to 64 bits, datetime64, timedelta64, text, bytes, and objects "
    "that are str, int, float or bool"
)
_OBJECT_TYPES = (str, int, float, bool)

# Fixed-width text takes the space of the longest label for each label. If it takes more than this,
# and more than this many times the size in the file, it is an error: otherwise a small file could
# claim any amount of memory.
_WIDE_LABEL_BYTES = 16 << 20
_WIDE_LABEL_FACTOR = 64


def label_tensor(dtype: str) -> Expected:
    """The array that stores labels of a NumPy type string such as "<i8", "<U5" or "|O"."""
    if _NUMBER.fullmatch(dtype):
        type_ = "BOOL" if dtype == "|b1" else f"{dtype[1].upper()}{8 * int(dtype[2])}"
        return Expected(type_, ("classes",), finite=False)
    if _TIME.fullmatch(dtype):
        return Expected("I64", ("classes",))
    if _TEXT.fullmatch(dtype) or dtype == _OBJECTS:
        return Expected("U8", ("label bytes",))
    raise ModelFileError(f"labels of type {shown(dtype)} are not supported")


def encode_labels(labels: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Type of distinct labels (C,), and the array to store: numbers, or JSON in UTF-8.

    NumPy scalars in an array of objects are stored as Python scalars.
    """
    dtype = labels.dtype.str
    try:
        if labels.ndim != 1:
            raise ModelFileError(f"labels must have one axis, found shape {labels.shape}")
        if label_tensor(dtype).axes == ("classes",):
            array = labels.astype(labels.dtype.newbyteorder("<"))
            if labels.dtype.kind in "mM":
                array = array.view("<i8")
        else:
            array = np.frombuffer(_as_json(labels), dtype=np.uint8)
        back = decode_labels(dtype, array, len(labels))
    except ModelFileError as error:
        raise ValueError(
            f"labels of type {labels.dtype} cannot be saved: {error} (supported: {_SUPPORTED})"
        ) from None
    if back.dtype != labels.dtype or not np.array_equal(back, labels):
        raise ValueError(f"labels of type {labels.dtype} cannot be saved without changing them")
    return dtype, array


def decode_labels(dtype: str, array: NDArray[Any], n_labels: int) -> NDArray[Any]:
    """Labels (n_labels,) from the stored array; they must be distinct."""
    if label_tensor(dtype).axes == ("classes",):
        labels = _numbers(dtype, array)
        # True for all models, and a hundred times faster than counting distinct labels.
        ascending = bool(np.all(labels[:-1] < labels[1:]))
        n_distinct = len(labels) if ascending else len(np.unique(labels))
    else:
        values = _values(array, n_labels)
        n_distinct = _count_distinct(values)
        if dtype == _OBJECTS:
            labels = np.empty(n_labels, dtype=object)
            labels[:] = values
        else:
            labels = _text(dtype, values, array.size)
    if n_distinct != n_labels:
        raise ModelFileError(f"labels must be distinct, found {n_distinct} among {n_labels}")
    return labels


def _numbers(dtype: str, array: NDArray[Any]) -> NDArray[Any]:
    exact = np.dtype(dtype)
    labels = array.view(exact.newbyteorder("<")) if exact.kind in "mM" else array
    if (labels != labels).any():
        raise ModelFileError("labels must not be NaN or NaT")
    return labels.astype(exact, copy=False)


def _values(array: NDArray[np.uint8], n_labels: int) -> list[Any]:
    """The scalars in a JSON array."""
    values = parse_json(array.tobytes(), "the list of labels")
    if not isinstance(values, list) or len(values) != n_labels:
        found = f"{len(values)}" if isinstance(values, list) else shown(values)
        raise ModelFileError(
            f"labels must be a list of {n_labels}, as many as weights, found {found}"
        )
    for value in values:
        if type(value) not in _OBJECT_TYPES:
            raise ModelFileError(f"labels must be text or numbers, found {shown(value)}")
    return values


def _count_distinct(values: list[Any]) -> int:
    """Count distinct values by sorting, since a file may contain numbers with equal hashes."""
    count = 0
    for is_text in (True, False):
        ordered = sorted(value for value in values if (type(value) is str) == is_text)
        count += sum(a != b for a, b in pairwise(ordered)) + bool(ordered)
    return count


def _text(dtype: str, values: list[Any], n_bytes: int) -> NDArray[Any]:
    """Convert values to fixed-width text."""
    matched = _TEXT.fullmatch(dtype)
    assert matched is not None
    width = int(matched[2])
    n_wide = len(values) * width * (4 if "U" in matched[1] else 1)
    if n_wide > max(_WIDE_LABEL_BYTES, _WIDE_LABEL_FACTOR * n_bytes):
        raise ModelFileError(
            f"{len(values)} labels of {width} characters each would take {n_wide} bytes, but their "
            f"text has {n_bytes}; use objects (labels.astype(object)) instead"
        )
    if not all(type(value) is str for value in values):
        raise ModelFileError(f"labels of type {dtype} must all be text")
    if "S" in dtype:
        try:
            values = [value.encode("latin-1") for value in values]
        except UnicodeEncodeError:
            raise ModelFileError("labels of bytes must have characters up to 255") from None
    labels = np.array(values, dtype=np.dtype(dtype))
    # NumPy truncates text that is too long, and strips trailing zeros.
    if labels.tolist() != values:
        raise ModelFileError(f"labels do not fit their type {dtype}")
    return labels


def _as_json(labels: NDArray[Any]) -> bytes:
    values = [value.item() if isinstance(value, np.generic) else value for value in labels.tolist()]
    if labels.dtype.kind == "S":
        values = [value.decode("latin-1") for value in values]
    for value in values:
        if type(value) not in _OBJECT_TYPES or (type(value) is float and not math.isfinite(value)):
            raise ModelFileError(f"found {value!r} of type {type(value).__name__}")
    try:
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode
        return json.dumps(values, separators=(",", ":")).encode()
    except ValueError as error:  # an integer with too many digits
        raise ModelFileError(str(error)) from None
