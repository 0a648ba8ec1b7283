"""Text files, plain or compressed, as byte streams."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import IO, Any

from bitclass.io.errors import require

__all__ = ["COMPRESSED", "open_stream"]

#: Extensions that may follow those of a text format.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def open_stream(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed according to its extension.

    Parameters
    ----------
    path : Path

    Returns
    -------
    stream : binary file object
    """
    suffix = path.suffix.lower()
    if suffix == ".zst":
        zstd: IO[bytes] = require("pyarrow", "parquet", path, "zstd").input_stream(str(path))
        return zstd
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    stream: IO[bytes] = openers.get(suffix, open)(path, "rb")
    return stream
