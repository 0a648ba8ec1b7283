"""Rows from files: CSV, Parquet, Arrow, npy, npz, MATLAB, HDF5 and SVMlight in batches."""

from bitclass.io.errors import DataFileError
from bitclass.io.opening import open_rows
from bitclass.io.prefetch import prefetch
from bitclass.io.rows import Batch, FileRows, Rows

__all__ = ["Batch", "DataFileError", "FileRows", "Rows", "open_rows", "prefetch"]
