"""What several steps of training share: classes in blocks, and signs of any library's arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bitclass.arrays import Array, namespace

__all__ = ["class_blocks", "signs"]

_CLASSES_PER_BLOCK = 1 << 14


def class_blocks(n_classes: int) -> Iterator[slice]:
    """Classes in blocks, so that what is computed of all of them is never held at once."""
    for start in range(0, n_classes, _CLASSES_PER_BLOCK):
        yield slice(start, min(start + _CLASSES_PER_BLOCK, n_classes))


def signs(values: Array, dtype: Any = None) -> Array:
    """Signs of values as -1 or +1, where they lie, with sign(0) = +1; by default of their dtype.

    For NumPy arrays and int8 see `bitclass.codes.sign`.
    """
    found = namespace(values).astype(values >= 0, values.dtype if dtype is None else dtype)
    found *= 2
    found -= 1
    return found
