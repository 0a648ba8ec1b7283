"""Rows of image features, extracted once."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads, thread_limit
from bitclass.images.decoding import ImageError, decode
from bitclass.images.folders import ImageSet
from bitclass.images.network import ImageNetwork
from bitclass.io import Batch, Rows

__all__ = ["ImageRows", "ImageWarning", "image_rows"]

# Images that are decoded together, and then go through the network together.
_IMAGES_AT_ONCE = 128
_ROWS_PER_BATCH = 8192


class ImageWarning(UserWarning):
    """An image was skipped because it cannot be read."""


class ImageRows(Rows):
    """Rows of image features, created by `image_rows`.

    Parameters
    ----------
    images : ImageSet
        The images that could be read, one per row.
    X : ndarray of shape (n_rows, n_features), float32
        Their features.
    extractor : ImageNetwork
    skipped : tuple of str
        Names of the images that could not be read.

    Attributes
    ----------
    labels : ndarray of shape (n_rows,) or None
    names : sequence of str
        Image name of each row.
    """

    is_sparse = False
    dtype = np.dtype(np.float32)

    def __init__(
        self,
        images: ImageSet,
        X: NDArray[np.float32],
        extractor: ImageNetwork,
        skipped: tuple[str, ...] = (),
    ) -> None:
        self.images, self.X, self.extractor, self.skipped = images, X, extractor, skipped
        self.names, self.labels = images.names, images.labels
        self.n_rows, self.n_features = X.shape
        self.has_labels = images.labels is not None
        self.paths = list(images.paths)
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


def image_rows(
    images: ImageSet,
    extractor: ImageNetwork,
    *,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ImageRows:
    """Extract the features of images.

    Images that cannot be read are skipped, with an `ImageWarning` that names them. The features
    are kept in a temporary file, so that they may be larger than memory.

    Parameters
    ----------
    images : ImageSet
    extractor : ImageNetwork
    n_jobs : int, optional
        Number of threads; all cores by default.
    progress : callable, optional
        Called from time to time with the number of images processed so far.

    Returns
    -------
    ImageRows

    Raises
    ------
    ImageError
        If none of the images can be read.

    Examples
    --------
    >>> import os
    >>> from PIL import Image
    >>> from bitclass.images import extractor_named, open_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("one.png", "two.png", "three.png"):
    ...         Image.effect_noise((32, 32), 50).save(os.path.join(folder, name))
    ...     rows = image_rows(open_images(folder), extractor_named("cnn,size=32"))
    >>> rows.X.shape
    (3, 1280)
    """
    if not len(images):
        raise ImageError("there are no images to extract features from")
    read: list[int] = []
    skipped: list[str] = []
    n_threads = effective_threads(n_jobs)
    with (
        tempfile.TemporaryFile(prefix="bitclass-") as file,
        thread_limit(n_jobs),
        ThreadPoolExecutor(n_threads) as pool,
    ):
        for start in range(0, len(images), _IMAGES_AT_ONCE):
            numbers = range(start, min(start + _IMAGES_AT_ONCE, len(images)))
            # All threads decode, then all extract, which is faster than doing both at once.
            with warnings.catch_warnings():
                # Pillow warns of damage that it repairs, and of sizes that `decode` rejects.
                warnings.simplefilter("ignore")
                loaded = list(pool.map(lambda row: _prepared(images, row, extractor), numbers))
            for row, found in zip(numbers, loaded, strict=True):
                if isinstance(found, ImageError):
                    skipped.append(images.names[row])
                    warnings.warn(f"skipped {found}", ImageWarning, stacklevel=2)
                else:
                    read.append(row)
            pixels = [found for found in loaded if not isinstance(found, ImageError)]
            file.write(extractor.extract(pixels).tobytes())
            if progress is not None:
                progress(numbers.stop)
        if not read:
            raise ImageError(
                f"none of the {len(images):,} images can be read, starting with {images.names[0]}"
            )
        file.flush()
        # The mapping keeps the content of the file after it is closed and removed.
        X = np.memmap(file, np.float32, mode="r", shape=(len(read), extractor.n_features))
    return ImageRows(images.select(read), X, extractor, tuple(skipped))


def _prepared(
    images: ImageSet, row: int, extractor: ImageNetwork
) -> NDArray[np.uint8] | ImageError:
    """The prepared pixels of an image, or the error if it cannot be read."""
    try:
        content = images.read(row)
        return extractor.prepare(decode(content, images.names[row], side=extractor.size))
    except ImageError as error:
        return error
    except OSError as error:
        return ImageError(f"{images.names[row]}: {error.strerror or error}")
    except MemoryError:
        return ImageError(f"{images.names[row]}: not enough memory to read the image")
