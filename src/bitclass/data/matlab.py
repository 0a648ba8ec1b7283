"""MATLAB files: version 5 (also called 6 and 7), and version 7.3, which is HDF5."""

from __future__ import annotations

from pathlib import Path

from bitclass.data.arrays import ArrayRows
from bitclass.data.errors import DataFileError, check_extra, reading
from bitclass.data.isolation import IsolatedRows
from bitclass.data.matlab5 import Matlab5File
from bitclass.data.matlab_elements import BYTE_ORDERS
from bitclass.data.rowfile import Request, RowFile

__all__ = ["open_matlab"]

_HDF5 = b"\x89HDF\r\n\x1a\n"


def open_matlab(path: Path, request: Request) -> RowFile:
    """Open a MATLAB file."""
    with reading(path, "MATLAB"):
        with path.open("rb") as stream:
            start = stream.read(520)
        if _HDF5 in (start[:8], start[512:]):
            check_extra("h5py", "hdf5", path, "MATLAB version 7.3")
            return IsolatedRows(("matlab73", "open_here"), path, request)
        if start[124:128] not in BYTE_ORDERS:
            raise DataFileError(
                f"{path}: is not a MATLAB file of version 5 or 7.3; "
                "save it in MATLAB with -v7 or -v7.3"
            )
        with reading(path, Matlab5File.format_name):
            return ArrayRows(Matlab5File(path, BYTE_ORDERS[start[124:128]]), request)
