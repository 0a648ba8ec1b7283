"""Arrays out of a file that torch saved, without torch.

Such a file is a row of pickles and then the numbers. It is read with an unpickler that makes arrays
and dictionaries of them, and refuses everything else.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError

__all__ = ["read_weights"]

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_STORAGES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


@dataclass(frozen=True)
class _Tensor:
    """Where an array lies: in which storage, from which number on, in which steps."""

    key: str
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def rebuild(
        cls,
        storage: tuple[str, np.dtype[Any]],
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *unused: Any,
    ) -> _Tensor:
        """What torch calls to make a tensor."""
        lengths = (offset, *shape, *strides)
        if len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in lengths):
            raise pickle.UnpicklingError(f"a tensor has shape {shape} and strides {strides}")
        return cls(storage[0], storage[1], offset, shape, strides)

    def take(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The array, out of its storage."""
        steps = ((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        n_numbers = math.prod(self.shape)
        if not 0 < n_numbers <= len(numbers) or self.offset + sum(steps) >= len(numbers):
            raise pickle.UnpicklingError(f"a tensor of shape {self.shape} is not in its storage")
        strides = [step * numbers.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, strides)
        return view.copy()


class _Unpickler(pickle.Unpickler):
    """Makes dictionaries of tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """What a name in the file stands for."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor.rebuild
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in it")

    def persistent_load(self, reference: Any) -> Any:
        """A storage: its key and the type of its numbers."""
        kind, dtype, key = reference[:3]
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError("a reference to something that is no storage")
        return str(key), dtype


def read_weights(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """Arrays by name, of a dictionary that torch saved in its format of before 2020.

    Parameters
    ----------
    content : of the file
    name : of the file, for errors

    Returns
    -------
    dict of arrays

    Raises
    ------
    DataFileError
        If there is anything in it but a dictionary of arrays of floats and integers.
    """
    try:
        return _read(io.BytesIO(content))
    except Exception as error:  # an unpickler raises nearly anything on damaged files
        raise DataFileError(f"{name}: cannot be read as weights of torch ({error})") from error


def _read(stream: io.BytesIO) -> dict[str, NDArray[Any]]:
    magic, protocol, _system = (_Unpickler(stream).load() for _ in range(3))
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise pickle.UnpicklingError("it does not begin as such a file does")
    tensors = _Unpickler(stream).load()
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, _Tensor) for name, tensor in tensors.items()
    ):
        raise pickle.UnpicklingError("it holds something else than a dictionary of tensors")
    dtypes = {tensor.key: tensor.dtype for tensor in tensors.values()}
    storages = {}
    for key in _Unpickler(stream).load():
        n_numbers = int.from_bytes(stream.read(8), "little")
        raw = stream.read(n_numbers * dtypes[key].itemsize)
        storages[key] = np.frombuffer(raw, dtypes[key], n_numbers)
    return {name: tensor.take(storages[tensor.key]) for name, tensor in tensors.items()}
