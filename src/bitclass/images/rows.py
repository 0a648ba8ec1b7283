"""Rows of image features, extracted once."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads, thread_limit
from bitclass.images.decoding import ImageError, decode
from bitclass.images.folders import list_images
from bitclass.images.network import ImageNetwork
from bitclass.io import Batch, Rows

PathLike = str | os.PathLike[str]

# Images that are decoded together, and then go through the network together.
_IMAGES_AT_ONCE = 128
_ROWS_PER_BATCH = 8192


class ImageWarning(UserWarning):
    """An image was skipped because it cannot be read."""


class ImageRows(Rows):
    """Rows of image features, created by `open_images`.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32
        Features of the images that could be read.
    names : sequence of n_rows str
        Unique names of these images: their paths, relative to the folder if there is only one.
    labels : ndarray of shape (n_rows,) or None
        Names of their classes.
    paths : sequence of paths
        Files and folders that were opened.
    extractor : ImageNetwork
    skipped : sequence of str
        Names of the images that could not be read.
    """

    is_sparse = False
    dtype = np.dtype(np.float32)

    def __init__(
        self,
        X: NDArray[np.float32],
        names: Sequence[str],
        labels: NDArray[np.str_] | None,
        paths: Sequence[Path],
        extractor: ImageNetwork,
        skipped: Sequence[str] = (),
    ) -> None:
        self.X, self.names, self.labels, self.skipped = X, names, labels, skipped
        self.n_rows, self.n_features = X.shape
        self.has_labels, self.paths = labels is not None, list(paths)
        where = ", ".join(map(str, self.paths[:3])) + (", ..." if len(self.paths) > 3 else "")
        note = f", {len(skipped):,} skipped" if skipped else ""
        self.description = (
            f"{where}: {self.n_rows:,} images{note}, {self.n_features} features by {extractor.name}"
        )

    def batches(self) -> Generator[Batch, None, None]:
        """Yield all rows in order, in batches."""
        for start in range(0, self.n_rows, _ROWS_PER_BATCH):
            part = slice(start, start + _ROWS_PER_BATCH)
            labels = None if self.labels is None else self.labels[part]
            yield Batch(np.asarray(self.X[part]), labels, start)


def open_images(
    paths: PathLike | Sequence[PathLike],
    extractor: ImageNetwork,
    *,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImageRows:
    """Extract the features of images in folders, and of single image files.

    Each direct subfolder of a folder is a class, which contains all images at any depth below it;
    images without subfolders have no classes. Images are sorted by path. Hidden files and files
    without an image suffix are ignored. Links are followed.

    Images that cannot be read are skipped, with an `ImageWarning` that names them. The features
    are kept in a temporary file, so that they may be larger than memory.

    Parameters
    ----------
    paths : path or sequence of paths
    extractor : ImageNetwork
    n_jobs : int, optional
        Number of threads; all cores by default.
    progress : callable, optional
        Called from time to time with the number of images processed so far, and of all images.

    Returns
    -------
    ImageRows
        With labels if every image is in a class folder.

    Raises
    ------
    ImageError
        If a path does not exist, a folder has no images or only some of them in class folders, or
        none of the images can be read.

    Examples
    --------
    >>> import os
    >>> from PIL import Image
    >>> from bitclass.images import extractor_named
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("one.png", "two.png", "three.png"):
    ...         Image.effect_noise((32, 32), 50).save(os.path.join(folder, name))
    ...     rows = open_images(folder, extractor_named("cnn:32"))
    >>> rows.X.shape
    (3, 1280)
    """
    names, files, labels = list_images(paths)
    read: list[int] = []
    skipped: list[str] = []
    n_threads = effective_threads(n_jobs)
    with (
        tempfile.TemporaryFile(prefix="bitclass-") as file,
        thread_limit(n_jobs),
        ThreadPoolExecutor(n_threads) as pool,
    ):
        for start in range(0, len(files), _IMAGES_AT_ONCE):
            numbers = range(start, min(start + _IMAGES_AT_ONCE, len(files)))
            # All threads decode, then all extract, which is faster than doing both at once.
            with warnings.catch_warnings():
                # Pillow warns of damage that it repairs, and of sizes that `decode` rejects.
                warnings.simplefilter("ignore")
                loaded = list(
                    pool.map(lambda row: _prepared(files[row], names[row], extractor), numbers)
                )
            for row, found in zip(numbers, loaded, strict=True):
                if isinstance(found, ImageError):
                    skipped.append(names[row])
                    warnings.warn(f"skipped {found}", ImageWarning, stacklevel=2)
                else:
                    read.append(row)
            pixels = [found for found in loaded if not isinstance(found, ImageError)]
            file.write(extractor.extract(pixels).tobytes())
            if progress is not None:
                progress(numbers.stop, len(files))
        if not read:
            raise ImageError(
                f"none of the {len(files):,} images can be read, starting with {names[0]}"
            )
        file.flush()
        # The mapping keeps the content of the file after it is closed and removed.
        X = np.memmap(file, np.float32, mode="r", shape=(len(read), extractor.n_features))
    return ImageRows(
        X,
        [names[row] for row in read],
        None if labels is None else labels[read],
        [Path(paths)] if isinstance(paths, str | os.PathLike) else list(map(Path, paths)),
        extractor,
        skipped,
    )


def _prepared(file: str, name: str, extractor: ImageNetwork) -> NDArray[np.uint8] | ImageError:
    """The prepared pixels of an image, or the error if it cannot be read."""
    try:
        return extractor.prepare(decode(Path(file).read_bytes(), name, side=extractor.size))
    except ImageError as error:
        return error
    except OSError as error:
        return ImageError(f"{name}: {error.strerror or error}")
