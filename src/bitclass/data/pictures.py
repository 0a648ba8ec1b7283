"""Sets of labelled pictures, opened one picture at a time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass.data.errors import DataFileError, listed
from bitclass.data.formats import format_of
from bitclass.data.labels import text_array
from bitclass.data.picture_paths import ENDINGS, is_picture_name, picture_paths
from bitclass.data.picture_sources import (
    MOST_FILE_BYTES,
    Files,
    Joined,
    PictureError,
    PictureSource,
    Selected,
    confined,
    printable,
)

__all__ = [
    "MOST_FILE_BYTES",
    "PictureError",
    "PictureSet",
    "PictureSource",
    "find_pictures",
    "joined",
    "open_folder",
    "open_pictures",
    "printable",
]


@dataclass(frozen=True)
class PictureSet:
    """Pictures with labels, opened one at a time.

    Attributes
    ----------
    names : n names, unique; for a folder the relative paths
    labels : (n,) class names, None where the pictures have none
    source : PictureSource

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.png", "dog/1.png", "dog/2.png"):
    ...     (folder / name).parent.mkdir(exist_ok=True)
    ...     _ = (folder / name).write_bytes(b"")
    >>> pictures = open_folder(folder)
    >>> len(pictures), pictures.select([2, 0]).names
    (3, ('dog/2.png', 'cat/1.png'))
    >>> pictures.labels
    array(['cat', 'dog', 'dog'], dtype='<U3')
    """

    names: Sequence[str]
    labels: NDArray[np.str_] | None
    source: PictureSource

    def __post_init__(self) -> None:
        if self.labels is not None and self.labels.shape != (len(self.names),):
            raise ValueError(
                f"labels must be of shape ({len(self.names)},), one a name, found "
                f"{self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.names)

    def select(self, rows: ArrayLike) -> Self:
        """Some of the pictures, in the given order.

        Parameters
        ----------
        rows : (m,) integers
        """
        chosen = np.asarray(rows, dtype=np.intp).reshape(-1)
        return type(self)(
            tuple(self.names[row] for row in chosen.tolist()),
            None if self.labels is None else self.labels[chosen],
            Selected(self.source, chosen),
        )


def open_pictures(
    path: str | os.PathLike[str], split: str | None = None, *, follow_links: bool = True
) -> PictureSet:
    """Open pictures of any format that is known: a data set, a folder, or one picture file.

    Parameters
    ----------
    path : folder or file
    split : {"train", "test", "all"}, optional
        Which part of a data set, "train" by default, "test" for the archive of validation pictures
        of ILSVRC 2012; other pictures have no parts.
    follow_links : bool
        See `open_folder`. In data sets, links among the pictures that lead out of their folder are
        never followed; a folder or archive of the set that is such a link is refused if this is
        False. So is, when it is read, a picture whose file has become one since.

    Returns
    -------
    PictureSet

    Raises
    ------
    DataFileError
        If there are no pictures, or some where no link may lead.
    """
    pictures = _opened(Path(path), split, follow_links)
    if follow_links:
        return pictures
    held = confined(pictures.source, len(pictures), Path(path))
    return PictureSet(pictures.names, pictures.labels, held)


def _opened(path: Path, split: str | None, follow_links: bool) -> PictureSet:
    if split is not None and path.exists():
        raise DataFileError(
            f"{path}: split={split!r}: pictures have no parts; name the folder of one part"
        )
    if path.is_file() and is_picture_name(path.name):
        return PictureSet((printable(str(path)),), None, Files(path.parent, (path.name,)))
    if path.is_file():
        raise DataFileError(f"{path}: is neither a picture nor a folder of pictures")
    return open_folder(path, follow_links=follow_links)


def find_pictures(paths: Sequence[Path], split: str | None = None) -> PictureSet | None:
    """The pictures at these paths, None where there are none but perhaps feature files.

    A folder is one of pictures if there is a picture in it or below, and no feature file directly
    in it; tables of text do not count, as they come with many sets of pictures.

    Parameters
    ----------
    paths : folders, data sets or picture files
    split : {"train", "test", "all"}, optional
        See `open_pictures`.

    Returns
    -------
    PictureSet or None
        Of several paths, their pictures one after another; with labels if all have some.

    Raises
    ------
    DataFileError
        If some of the paths are pictures and others are not.
    """
    has_pictures = [_has_pictures(path) for path in paths]
    if not any(has_pictures):
        return None
    if not all(has_pictures):
        pictures, other = paths[has_pictures.index(True)], paths[has_pictures.index(False)]
        raise DataFileError(f"{other}: there are no pictures in it, but in {pictures}")
    sets = [open_pictures(path, split) for path in paths]
    if len(sets) == 1:
        return sets[0]
    is_file = [path.is_file() and is_picture_name(path.name) for path in paths]
    prefixes = [
        "" if alone else f"{printable(str(path))}/"
        for alone, path in zip(is_file, paths, strict=True)
    ]
    return joined(sets, prefixes)


def _has_pictures(path: Path) -> bool:
    if path.is_file() and is_picture_name(path.name):
        return True
    if path.is_dir():
        formats = [format_of(file) for file in path.iterdir() if file.is_file()]
        if any(name is not None and name != "csv" for name in formats):
            return False
        return next(picture_paths(path), None) is not None
    return False


def joined(sets: Sequence[PictureSet], prefixes: Sequence[str]) -> PictureSet:
    """Pictures of several sets one after another; with labels if all have some.

    Parameters
    ----------
    sets : k sets
    prefixes : k texts that are put before the names of each
    """
    names = tuple(
        prefix + name
        for prefix, pictures in zip(prefixes, sets, strict=True)
        for name in pictures.names
    )
    known = [pictures.labels for pictures in sets if pictures.labels is not None]
    lengths = [len(pictures) for pictures in sets]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp)
    return PictureSet(
        names,
        np.concatenate(known) if len(known) == len(sets) else None,
        Joined(tuple(pictures.source for pictures in sets), starts),
    )


def open_folder(folder: str | os.PathLike[str], *, follow_links: bool = True) -> PictureSet:
    """Open a folder of class folders, or a folder of pictures without classes.

    The class of a picture is the folder below `folder` that it is in, however deep. Pictures are
    sorted by their path. Hidden files, and files that are not called like a picture, are left out.

    Parameters
    ----------
    folder : path
    follow_links : bool
        Whether links that lead out of the folder are followed; if not, a warning tells how many
        were left out.

    Returns
    -------
    PictureSet

    Raises
    ------
    DataFileError
        If this is no folder, if it has no pictures, or pictures both in class folders and beside
        them.
    """
    root = Path(folder)
    if not root.is_dir():
        found = "is a file, not a folder" if root.exists() else "there is no such file or folder"
        raise DataFileError(f"{root}: {found}")
    try:
        outside: list[str] = []
        paths = sorted(picture_paths(root, None if follow_links else outside))
    except PermissionError as error:
        raise DataFileError(f"{error.filename}: no permission to read it") from error
    if outside:
        warnings.warn(
            f"{root}: left out {len(outside)} links that lead out of it, such as "
            f"{printable(outside[0])!r}",
            stacklevel=2,
        )
    if not paths:
        raise DataFileError(
            f"{root}: there are no pictures in it; they are known by their ending: "
            f"{listed(ENDINGS)}"
        )
    classes = [path.partition("/")[0] if "/" in path else "" for path in paths]
    without = [path for path, name in zip(paths, classes, strict=True) if not name]
    if without and len(without) < len(paths):
        raise DataFileError(
            f"{root}: has pictures in class folders, {len(paths) - len(without)}, and beside them, "
            f"{len(without)}, such as {printable(without[0])!r}, of which the class is not known"
        )
    labels = None if without else text_array(root, list(map(printable, classes)), 0)
    return PictureSet(tuple(map(printable, paths)), labels, Files(root, tuple(paths)))
