"""Parts of a data set, and the small text files that come with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast, get_args

from bitclass.data.errors import DataFileError

__all__ = ["Split", "check_split", "file_content", "read_lines", "text_lines"]

#: The pictures to learn from, those to test on, or both. Where the classes of the test pictures
#: were never published, as of ILSVRC, "test" is the validation pictures.
Split = Literal["train", "test", "all"]

_MOST_TEXT_BYTES = 64 << 20


def check_split(path: Path, split: str | None) -> Split:
    """A part as it is asked for, "train" by default; one that no data set has is refused."""
    if split is None:
        return "train"
    if split not in get_args(Split):
        raise DataFileError(f"{path}: split={split!r} is not known; it is train, test or all")
    return cast(Split, split)


def file_content(path: Path, most_bytes: int) -> bytes:
    """All of a small file; a larger one is refused."""
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise DataFileError(f"{path}: has more than {most_bytes >> 20} MB")
    return content


def read_lines(path: Path) -> list[str]:
    """Lines of a small text file, without blanks around them and without empty ones."""
    return text_lines(path, file_content(path, _MOST_TEXT_BYTES))


def text_lines(path: Path, content: bytes) -> list[str]:
    """Lines of a text, without blanks around them and without empty ones."""
    if len(content) > _MOST_TEXT_BYTES:
        raise DataFileError(f"{path}: has more than {_MOST_TEXT_BYTES >> 20} MB of text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path}: is not UTF-8 text") from error
    return [line.strip() for line in text.splitlines() if line.strip()]
