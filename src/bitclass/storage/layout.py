"""Which arrays a file must have: names, types, and axes that must agree in length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.storage.strict_json import ModelFileError, shown

__all__ = ["DTYPES", "Expected", "Tensor", "check_layout", "tensor_of"]

#: NumPy's types by the names that safetensors gives them.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """Type and shape of an array in a file.

    Attributes
    ----------
    type : str, as safetensors names it: "F32", "U8", ...
    shape : tuple of int
    """

    type: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * DTYPES[self.type].itemsize


@dataclass(frozen=True)
class Expected:
    """What an array must be.

    Attributes
    ----------
    type : str
    axes : names of its axes; axes of one name have one length in all arrays
    required : bool, whether it must be there
    """

    type: str
    axes: tuple[str, ...]
    required: bool = True


def tensor_of(values: NDArray[Any]) -> Tensor:
    """What an array will be in a file."""
    return Tensor(_NAMES[values.dtype.newbyteorder("<")], values.shape)


def check_layout(tensors: Mapping[str, Tensor], layout: Mapping[str, Expected]) -> dict[str, int]:
    """Check names, types and shapes of all arrays.

    Parameters
    ----------
    tensors : what there is, by name
    layout : what must be, by name

    Returns
    -------
    dict
        Lengths of the axes by name.
    """
    for name in tensors:
        if name not in layout:
            raise ModelFileError(f"there is an unknown tensor {shown(name)}")
    lengths: dict[str, int] = {}
    for name, expected in layout.items():
        if name not in tensors:
            if expected.required:
                raise ModelFileError(f"tensor {name!r} is missing")
            continue
        tensor = tensors[name]
        if tensor.type != expected.type:
            raise ModelFileError(
                f"tensor {name!r} must be of type {expected.type}, found {tensor.type}"
            )
        if len(tensor.shape) != len(expected.axes):
            raise ModelFileError(
                f"tensor {name!r} must have {len(expected.axes)} axes, found shape {tensor.shape}"
            )
        for axis, length in zip(expected.axes, tensor.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise ModelFileError(
                    f"tensor {name!r} of shape {tensor.shape} does not fit the others: its axis of "
                    f"{axis} must be {lengths[axis]} long"
                )
    return lengths
