"""Rows from files: CSV, JSON lines, Parquet, Arrow, npy, npz, MATLAB, HDF5, SVMlight."""

from bitclass.io.errors import DataFileError
from bitclass.io.opening import open_rows
from bitclass.io.rows import FileRows, prefetch
from bitclass.io.source import Batch

__all__ = ["Batch", "DataFileError", "FileRows", "open_rows", "prefetch"]
