"""Rows from files: NumPy, Parquet, Arrow, CSV, JSON lines and SVMlight."""

from bitclass.io.rows import FileRows, Rows, format_of, open_rows
from bitclass.io.source import Batch, DataFileError, open_text

__all__ = [
    "Batch",
    "DataFileError",
    "FileRows",
    "Rows",
    "format_of",
    "open_rows",
    "open_text",
]
