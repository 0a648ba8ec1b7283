"""Class labels in files: integers, whole floats and booleans as arrays, text as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.storage.container import Expected, ModelFileError, parse_json, shown

# Types of numbers by their NumPy names, and the safetensors types that store them.
_NUMBERS = {
    "bool": "U8",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
}
# Text of fixed width, and text in arrays of objects.
_TEXT = ("str", "object")

# Fixed-width text takes the space of the longest label for each label. If it takes more than this,
# and more than this many times the size in the file, it is an error: otherwise a small file could
# claim any amount of memory.
_WIDE_LABEL_BYTES = 16 << 20
_WIDE_LABEL_FACTOR = 64


def label_kind(labels: NDArray[Any]) -> str:
    """Type of labels (C,) in a file: the NumPy name of their type, "str" or "object".

    They must be integers, text, booleans, or floats that are whole numbers.
    """
    expected = "expected integers, text, booleans, or floats that are whole numbers"
    if labels.ndim != 1:
        raise ValueError(f"labels: {expected} in one dimension, found shape {labels.shape}")
    kind = {"U": "str", "O": "object"}.get(labels.dtype.kind, labels.dtype.name)
    if kind == "object":
        for label in labels:
            if type(label) is not str:
                raise ValueError(
                    f"labels: {expected}, found {label!r:.60} of type {type(label).__name__} in an "
                    "array of objects; convert them with y.astype(str) or y.astype(int)"
                )
    elif kind not in _NUMBERS and kind not in _TEXT:
        raise ValueError(
            f"labels: {expected}, found {labels.dtype}; convert them to text, such as y.astype(str)"
        )
    elif labels.dtype.kind == "f":
        is_whole = np.isfinite(labels) & (labels == np.trunc(labels))
        if not is_whole.all():
            raise ValueError(
                f"labels: {expected}, found {labels[~is_whole][0]}; if these are classes, convert "
                "them to text with y.astype(str)"
            )
    return kind


def label_tensor(kind: str) -> Expected:
    """The array that stores labels of this kind."""
    if kind in _TEXT:
        return Expected("U8", ("label bytes",))
    if kind not in _NUMBERS:
        raise ModelFileError(f"labels of type {shown(kind)} are not supported")
    return Expected(_NUMBERS[kind], ("classes",), high=1 if kind == "bool" else np.inf)


def encode_labels(labels: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Type of distinct labels (C,), and the array to store: numbers, or JSON in UTF-8."""
    kind = label_kind(labels)
    if kind == "bool":
        array = labels.astype(np.uint8)
    elif kind in _NUMBERS:
        array = labels.astype(labels.dtype.newbyteorder("<"))
    else:
        text = json.dumps(labels.tolist(), ensure_ascii=False, separators=(",", ":"))
        try:
            array = np.frombuffer(text.encode(), dtype=np.uint8)
        except UnicodeEncodeError as error:
            raise ValueError(
                f"labels: cannot be saved, since they are not Unicode: {error}"
            ) from None
    try:
        decode_labels(kind, array, len(labels))
    except ModelFileError as error:
        raise ValueError(f"labels: cannot be saved: {error}") from None
    return kind, array


def decode_labels(kind: str, array: NDArray[Any], n_labels: int) -> NDArray[Any]:
    """Labels (n_labels,) from the stored array; they must be distinct."""
    if kind in _NUMBERS:
        labels = array.astype(np.dtype(kind), copy=False)
        if labels.dtype.kind == "f" and (labels != np.trunc(labels)).any():
            raise ModelFileError("labels that are floats must be whole numbers")
        # Ascending in all models of the estimators, which is faster to see than distinct.
        ascending = bool(np.all(labels[:-1] < labels[1:]))
        n_distinct = len(labels) if ascending else len(np.unique(labels))
    else:
        values = _text(array, n_labels)
        n_distinct = len(set(values))
        if kind == "str":
            _check_width(values, array.size)
        labels = np.array(values, dtype=str if kind == "str" else object)
        if labels.tolist() != values:  # NumPy strips trailing zeros of text
            raise ModelFileError("labels of type 'str' must not end in null characters")
    if n_distinct != n_labels:
        raise ModelFileError(f"labels must be distinct, found {n_distinct} among {n_labels}")
    return labels


def _text(array: NDArray[np.uint8], n_labels: int) -> list[str]:
    values = parse_json(array.tobytes(), "the list of labels")
    if not isinstance(values, list) or len(values) != n_labels:
        found = f"{len(values)}" if isinstance(values, list) else shown(values)
        raise ModelFileError(
            f"labels must be a list of {n_labels}, as many as weights, found {found}"
        )
    for value in values:
        if type(value) is not str:
            raise ModelFileError(f"labels must be text, found {shown(value)}")
    return values


def _check_width(values: list[str], n_bytes: int) -> None:
    width = max(map(len, values), default=0)
    n_wide = 4 * len(values) * width
    if n_wide > max(_WIDE_LABEL_BYTES, _WIDE_LABEL_FACTOR * n_bytes):
        raise ModelFileError(
            f"{len(values)} labels of up to {width} characters would take {n_wide} bytes, but "
            f"their text has {n_bytes}; use objects (y.astype(object)) instead"
        )
