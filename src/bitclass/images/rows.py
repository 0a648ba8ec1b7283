"""Rows of image features, extracted once and cached on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bitclass._native import effective_threads, thread_limit
from bitclass.images.extractors import Extractor
from bitclass.images.image_set import ImageError, ImageSet, ImageWarning
from bitclass.images.preparation import decode
from bitclass.io import Batch, FileRows
from bitclass.io.errors import more
from bitclass.io.source import Source

__all__ = ["ImageRows", "image_rows", "remove_cache"]

_BATCH_BYTES = 64 << 20
# An interrupted run loses the features of at most this many images.
_MAX_BATCH_IMAGES = 128


class _Extracted(Source):
    """Rows of a feature array, for the images that could be read."""

    format_name = "images"
    dtype = np.dtype(np.float32)

    def __init__(self, features: NDArray[np.float32], rows: NDArray[np.intp]) -> None:
        super().__init__(Path("images"))
        self._features, self._rows = features, rows
        self.n_rows, self.n_features = len(rows), features.shape[1]

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the rows, in pieces of `rows_per_piece`."""
        for start in range(0, self.n_rows, rows_per_piece):
            rows = self._rows[start : start + rows_per_piece]
            yield Batch(np.asarray(self._features[rows]), None, start)


class ImageRows(FileRows):
    """Rows of image features, with the interface of `FileRows`; created by `image_rows`.

    Attributes
    ----------
    images : ImageSet
        The images that could be read, one per row.
    names : sequence of str
        Image name of each row.
    extractor : Extractor
    skipped : tuple of str
        Names of the images that could not be read.
    n_cached : int
        Number of images whose features were already in the cache.
    """

    def __init__(
        self,
        images: ImageSet,
        extractor: Extractor,
        features: NDArray[np.float32],
        read: NDArray[np.bool_],
        n_cached: int,
        folder: object = None,
    ) -> None:
        rows = np.flatnonzero(read)
        self.images, self.extractor, self.n_cached = images.select(rows), extractor, n_cached
        self.names = self.images.names
        self.skipped = tuple(images.names[row] for row in np.flatnonzero(~read).tolist())
        self._folder = folder  # keeps a temporary folder until this object is deleted
        super().__init__([_Extracted(features, rows)], None, labels=self.images.labels)
        self.paths = list(images.paths)
        where = f"{self.paths[0]}{more(self.paths)}" if self.paths else "images"
        skipped = f", {len(self.skipped):,} skipped" if self.skipped else ""
        self.description = (
            f"{where}: {self.n_rows:,} images{skipped}, {self.n_features} features by "
            f"{extractor.name}"
        )

    def sample(self) -> tuple[Any, NDArray[Any] | None]:
        """All features and labels."""
        batch = self.load()
        return batch.X, batch.labels


def image_rows(
    images: ImageSet,
    extractor: Extractor,
    *,
    cache: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ImageRows:
    """Extract the features of images.

    Images that cannot be read are skipped, with an `ImageWarning` that names them.

    Parameters
    ----------
    images : ImageSet
    extractor : Extractor
    cache : path, optional
        Folder in which features are cached, created if it does not exist, so that an interrupted
        run can resume. Features are identified by the extractor and by the names, paths, sizes and
        modification times of the images, so that one folder can be used by any number of runs; it
        can be deleted at any time. By default a temporary folder that is removed with the result.
    n_jobs : int, optional
        Number of threads; all cores by default.
    progress : callable, optional
        Called after each batch with the number of images processed so far.

    Returns
    -------
    ImageRows

    Raises
    ------
    ImageError
        If none of the images can be read.

    Examples
    --------
    >>> from PIL import Image
    >>> from bitclass.images import EfficientNetLite0, open_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("one.png", "two.png", "three.png"):
    ...         Image.effect_noise((32, 32), 50).save(os.path.join(folder, name))
    ...     rows = image_rows(open_images(folder), EfficientNetLite0(size=32))
    >>> [(batch.first_row, batch.X.shape) for batch in rows.batches()]
    [(0, (3, 1280))]
    """
    if not len(images):
        raise ImageError("there are no images to extract features from")
    temporary = None
    if cache is None:
        temporary = tempfile.TemporaryDirectory(prefix="bitclass-", ignore_cleanup_errors=True)
        folder = Path(temporary.name)
    else:
        folder = Path(cache) / _fingerprint(images, extractor)
    # The last column is 1 for images whose features are complete.
    array = _open_array(folder / "features.npy", (len(images), extractor.n_features + 1))
    n_cached = int(np.sum(array[:, -1] == 1))
    # Images that were skipped before are tried again, with a new warning.
    pending = np.flatnonzero(array[:, -1] != 1).tolist()
    with thread_limit(n_jobs), ThreadPoolExecutor(effective_threads(n_jobs)) as pool:
        step = min(_BATCH_BYTES // (3 * extractor.size**2), _MAX_BATCH_IMAGES)
        step = max(effective_threads(n_jobs), step)
        for start in range(0, len(pending), step):
            rows = pending[start : start + step]
            # All threads decode, then all extract, which is faster than doing both at once.
            with warnings.catch_warnings():
                # Pillow warns of damage that it repairs, and of sizes that `decode` rejects.
                warnings.simplefilter("ignore")
                loaded = list(pool.map(lambda row: _load(images, row, extractor), rows))
            read: dict[int, NDArray[np.uint8]] = {}
            for row, pixels in zip(rows, loaded, strict=True):
                if isinstance(pixels, ImageError):
                    warnings.warn(f"skipped {pixels}", ImageWarning, stacklevel=2)
                else:
                    read[row] = pixels
            array[list(read), :-1] = extractor.extract(list(read.values()))
            array.flush()  # before they are marked as complete
            array[list(read), -1] = 1
            array.flush()
            if progress is not None:
                progress(n_cached + start + len(rows))
    done = array[:, -1] == 1
    if not done.any():
        raise ImageError(
            f"none of the {len(images):,} images can be read, starting with {images.names[0]}"
        )
    return ImageRows(images, extractor, array[:, :-1], done, n_cached, temporary)


def remove_cache(folder: Path) -> None:
    """Remove the features that `image_rows` cached in a folder, but no other files."""
    for part in folder.glob("[0-9a-f]" * 32):
        with contextlib.suppress(OSError):  # it contains other files
            for path in part.glob("features.*"):
                path.unlink()
            part.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _load(images: ImageSet, row: int, extractor: Extractor) -> NDArray[np.uint8] | ImageError:
    """The prepared pixels of an image, or the error if it cannot be read."""
    try:
        return extractor.prepare(decode(images.read(row), images.names[row]))
    except ImageError as error:
        return error
    except OSError as error:
        return ImageError(f"{images.names[row]}: {error.strerror or error}")
    except MemoryError:
        return ImageError(f"{images.names[row]}: not enough memory to read the image")


def _fingerprint(images: ImageSet, extractor: Extractor) -> str:
    """Name of the cache folder for the features of these images.

    Inodes distinguish files with the same path, size and time, as after replacing one by a link.
    """
    digest = hashlib.sha256(json.dumps(extractor.specification(), sort_keys=True).encode())
    for name, file in zip(images.names, images.files, strict=True):
        stamp = os.fsencode(os.path.abspath(file))
        try:
            found = os.stat(file)
            stamp += f"\0{found.st_ino}\0{found.st_size}\0{found.st_mtime_ns}".encode()
        except OSError:
            stamp += b"\0absent"
        digest.update(name.encode("utf-8", "surrogatepass") + b"\0" + stamp + b"\n")
    return digest.hexdigest()[:32]


def _open_array(path: Path, shape: tuple[int, int]) -> np.memmap[Any, Any]:
    """Open the float32 array of an earlier run, or atomically create one of zeros."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Read-only, because opening a truncated file for writing would extend it with zeros.
        found = open_memmap(path, mode="r")
        is_valid = (found.dtype.str, found.shape) == ("<f4", shape)
    except (OSError, ValueError):  # absent or damaged
        is_valid = False
    if not is_valid:
        fresh = path.with_suffix(f".{os.getpid()}")
        try:
            open_memmap(fresh, mode="w+", dtype="<f4", shape=shape)
            if hasattr(os, "posix_fallocate"):
                # On a full disk this raises an error; writing to the map would crash the process.
                with fresh.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, fresh.stat().st_size)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    return open_memmap(path, mode="r+")
