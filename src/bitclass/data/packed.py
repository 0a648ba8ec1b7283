"""Files that may be compressed as a whole."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast

__all__ = ["open_unpacked"]


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for its bytes, unpacked if it is compressed with gzip."""
    stream = path.open("rb")
    is_packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if not is_packed:
        return stream
    stream.close()
    return cast(IO[bytes], gzip.open(path, "rb"))
