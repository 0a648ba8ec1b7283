"""HDF5 files by h5py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bitclass.io.arrays import ArraySource
from bitclass.io.errors import require

__all__ = ["Hdf5Source"]

# A chunk that several batches share is decompressed once if it fits in here.
_CACHE_BYTES = 64 << 20


class Hdf5Source(ArraySource):
    """Datasets by their path."""

    format_name = "HDF5"

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, Any]]:
        h5py = require("h5py", "hdf5", self.path, self.format_name)
        arrays: dict[str, Any] = {}

        def visit(name: str, item: Any) -> None:
            if getattr(item, "shape", None) is not None and self._is_data(name, item):
                arrays[name] = self._array(item)

        with h5py.File(self.path, "r", rdcc_nbytes=_CACHE_BYTES, rdcc_nslots=10_007) as file:
            file.visititems(visit)
            yield arrays

    def _is_data(self, name: str, item: Any) -> bool:
        return True

    def _array(self, item: Any) -> Any:
        return item
