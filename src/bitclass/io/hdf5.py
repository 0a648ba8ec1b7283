"""HDF5 files by h5py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.arrays import Array, ArraySource, ReadRows
from bitclass.io.errors import require

__all__ = ["Hdf5Source"]

# A chunk that several batches share is decompressed once if it fits in here.
_CACHE_BYTES = 64 << 20


class Hdf5Source(ArraySource):
    """Datasets by their path."""

    format_name = "HDF5"
    _transposed = False

    def _file(self) -> Any:
        h5py = require("h5py", "hdf5", self.path, self.format_name)
        return h5py.File(self.path, "r", rdcc_nbytes=_CACHE_BYTES, rdcc_nslots=10_007)

    def _find_arrays(self) -> Mapping[str, Array]:
        arrays: dict[str, Array] = {}

        def visit(name: str, item: Any) -> None:
            if getattr(item, "shape", None) is not None and self._is_data(name, item):
                shape = item.shape[::-1] if self._transposed else item.shape
                arrays[name] = Array(shape, self._dtype(item))

        with self._file() as file:
            file.visititems(visit)
        return arrays

    def _is_data(self, name: str, item: Any) -> bool:
        return True

    def _dtype(self, item: Any) -> np.dtype[Any]:
        dtype: np.dtype[Any] = item.dtype
        return dtype

    @contextmanager
    def _open(self, name: str) -> Iterator[ReadRows]:
        with self._file() as file:
            item = file[name]
            if self._transposed:
                yield lambda start, stop: np.ascontiguousarray(item[..., start:stop].T)
            else:
                yield lambda start, stop: item[start:stop]

    def _load_labels(self, name: str) -> NDArray[Any]:
        with self._file() as file:
            labels: NDArray[Any] = file[name][()]
            return labels
