"""How much a file may claim before it must have the bytes to show for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bitclass.data.errors import DataFileError

__all__ = ["MAX_EXPANSION", "MAX_FEATURES", "MAX_LABEL_CHARACTERS", "MAX_RECORD_BYTES", "Library"]

# In sparse and in text files one number makes the rows any length.
MAX_FEATURES = 1 << 20
# Labels become arrays of fixed width, so one endless label would cost its length in every row.
MAX_LABEL_CHARACTERS = 256
# One line of a text file, or one record of a CSV file.
MAX_RECORD_BYTES = 1 << 25
# Deflate cannot do better than this; a file that claims more is lying.
MAX_EXPANSION = 1032


@dataclass(frozen=True)
class Library:
    """A library that damaged files can make take any amount of memory, so that it has a limit.

    Attributes
    ----------
    module : what to import before there is a limit
    room_bytes : for its work, beyond the rows and what the file justifies
    """

    module: str
    room_bytes: int


def check_width(path: Path, n_features: int, stated: int | None) -> None:
    """Refuse an absurd number of features, unless the user stated it."""
    if n_features > MAX_FEATURES and n_features != stated:
        raise DataFileError(
            f"{path}: claims {n_features} features, more than {MAX_FEATURES}; "
            f"if that is right, say n_features={n_features}"
        )


def check_expansion(path: Path, what: str, n_bytes: int, stored: int) -> None:
    """Refuse what claims more bytes than its compressed form can hold."""
    if n_bytes > MAX_EXPANSION * stored:
        raise DataFileError(
            f"{path}: {what} claims {n_bytes} bytes, more than its {stored} stored bytes can hold; "
            "the file is damaged"
        )
