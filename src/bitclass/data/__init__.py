"""Image datasets; feature files are read by `bitclass.io`."""

from bitclass.io.errors import DataFileError

__all__ = ["DataFileError"]
