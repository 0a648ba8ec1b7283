"""Parts of a data set, and sets put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.pictures import PictureSet, PictureSource

__all__ = ["Split", "check_split", "joined", "read_lines", "text_lines"]

#: The pictures to learn from, those to test on, or both. Where the classes of the test pictures
#: were never published, as of ILSVRC, "test" is the validation pictures.
Split = Literal["train", "test", "all"]

_MOST_TEXT_BYTES = 64 << 20


def check_split(path: Path, split: str) -> None:
    """Refuse a part that no data set has."""
    if split not in get_args(Split):
        raise DataFileError(f"{path}: split={split!r} is not known; it is train, test or all")


@dataclass(frozen=True)
class _Joined:
    """The pictures of several sources, one after the other."""

    sources: tuple[PictureSource, ...]
    starts: NDArray[np.intp]

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        """Content of one picture."""
        which = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.sources[which].read(row - int(self.starts[which]))


def joined(parts: Sequence[tuple[str, PictureSet]]) -> PictureSet:
    """Put labelled sets together; each name gets that of its part in front."""
    sets = [pictures for _, pictures in parts]
    names = [f"{part}/{name}" for part, pictures in parts for name in pictures.names]
    labels = [pictures.labels for pictures in sets if pictures.labels is not None]
    starts = np.cumsum([0, *map(len, sets)])[:-1].astype(np.intp)
    return PictureSet(
        tuple(names),
        np.concatenate(labels),
        _Joined(tuple(pictures.source for pictures in sets), starts),
    )


def read_lines(path: Path) -> list[str]:
    """Lines of a small text file, without blanks around them and without empty ones."""
    with path.open("rb") as file:
        content = file.read(_MOST_TEXT_BYTES + 1)
    return text_lines(path, content)


def text_lines(path: Path, content: bytes) -> list[str]:
    """Lines of a text, without blanks around them and without empty ones."""
    if len(content) > _MOST_TEXT_BYTES:
        raise DataFileError(f"{path}: has more than {_MOST_TEXT_BYTES >> 20} MB of text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path}: is not UTF-8 text") from error
    return [line.strip() for line in text.splitlines() if line.strip()]
