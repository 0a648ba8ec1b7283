"""Feature files in, batches of rows out."""

from bitclass.data.errors import DataFileError
from bitclass.data.prefetch import prefetched
from bitclass.data.reader import Batch, Reader, open_rows

__all__ = ["Batch", "DataFileError", "Reader", "open_rows", "prefetched"]
