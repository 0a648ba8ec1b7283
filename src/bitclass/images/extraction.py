"""Features of a set of pictures: opened and decoded in processes of their own, in batches."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads
from bitclass.data.pictures import PictureError, PictureSet, printable
from bitclass.images.decoder import Decoder
from bitclass.images.extractors import Extractor
from bitclass.images.preparing import Preparation

__all__ = ["PictureWarning", "extract_features"]

_BATCH_PICTURES = 256
# Pictures that are opened ahead of the extractor, for each process, unless they are large.
_AHEAD = 64
# Prepared pictures that wait, for the extractor and within it: no more than so many bytes of each.
_WAITING_BYTES = 256 << 20


class PictureWarning(UserWarning):
    """A picture was left out, because it cannot be read."""


class _Opener:
    """Opens pictures of a set, in so many processes; a thread waits for each."""

    def __init__(self, pictures: PictureSet, preparation: Preparation, n_jobs: int) -> None:
        self._pictures, self._preparation = pictures, preparation
        self._reading = threading.Lock()  # a source may have one file open for all pictures
        self._decoder = Decoder(n_jobs)

    def open(self, row: int) -> NDArray[np.uint8]:
        """Prepared pixels of a picture.

        Raises
        ------
        PictureError
        """
        name = printable(self._pictures.names[row])
        try:
            with self._reading:
                content = self._pictures.source.read(row)
        except OSError as error:
            raise PictureError(f"{name}: {error.strerror or error}") from error
        return self._decoder.prepared(content, name, self._preparation)

    def close(self) -> None:
        """End the processes, once no thread needs one."""
        self._decoder.close()


def extract_features(
    pictures: PictureSet,
    extractor: Extractor,
    *,
    start_row: int = 0,
    batch_pictures: int = _BATCH_PICTURES,
    n_jobs: int | None = None,
) -> Generator[tuple[NDArray[np.intp], NDArray[np.float32]], None, None]:
    """Features of pictures, batch by batch, as they come.

    A picture that cannot be read is left out, with a `PictureWarning` that names it.

    Parameters
    ----------
    pictures : PictureSet
    extractor : Extractor
    start_row : int
        The picture to begin with.
    batch_pictures : int
        Pictures of a batch. Batches end at multiples of it wherever they begin, so that a run that
        was stopped between two goes on with the same batches.
    n_jobs : int, optional
        Processes that decode; as many as CPUs by default.

    Yields
    ------
    rows : (m,) numbers of the pictures of this batch that could be read, ascending
    features : (m, d) float32

    Examples
    --------
    >>> import numpy as np
    >>> from bitclass.data.pictures import PictureSet
    >>> from bitclass.images.gist import Gist
    >>> class Noise:
    ...     def read(self, row):
    ...         return np.random.default_rng(row).integers(0, 256, (32, 32), dtype=np.uint8)
    >>> pictures = PictureSet(["one", "two", "three"], None, Noise())
    >>> [(rows.tolist(), features.shape) for rows, features in
    ...  extract_features(pictures, Gist(), batch_pictures=2)]
    [([0, 1], (2, 512)), ([2], (1, 512))]
    """
    if batch_pictures < 1:
        raise ValueError(f"batch_pictures must be positive, found {batch_pictures}")
    if not 0 <= start_row <= len(pictures):
        raise ValueError(f"start_row must be 0 to {len(pictures)}, found {start_row}")
    jobs = effective_threads(n_jobs)
    with _opened(pictures, extractor.preparation, start_row, jobs) as coming:
        for start, stop in _spans(start_row, len(pictures), batch_pictures):
            rows: list[int] = []
            prepared: list[NDArray[np.uint8]] = []
            n_bytes = 0
            parts = [np.empty((0, extractor.n_features), dtype=np.float32)]
            for row in range(start, stop):
                try:
                    prepared.append(next(coming).result())
                    n_bytes += prepared[-1].nbytes
                    rows.append(row)
                except PictureError as error:
                    warnings.warn(f"left out: {error}", PictureWarning, stacklevel=2)
                if n_bytes >= _WAITING_BYTES or (prepared and row == stop - 1):
                    parts.append(extractor.extract(prepared))
                    prepared, n_bytes = [], 0
            yield np.array(rows, dtype=np.intp), np.concatenate(parts)


def _n_ahead(preparation: Preparation, n_jobs: int) -> int:
    """How many pictures are opened ahead: fewer of large ones, but one for each process."""
    room = _WAITING_BYTES // (3 * preparation.largest**2)
    return max(n_jobs, min(_AHEAD * n_jobs, room))


def _spans(start: int, end: int, length: int) -> Iterator[tuple[int, int]]:
    while start < end:
        stop = min(end, start - start % length + length)
        yield start, stop
        start = stop


@contextmanager
def _opened(
    pictures: PictureSet, preparation: Preparation, start_row: int, n_jobs: int
) -> Iterator[Iterator[Future[NDArray[np.uint8]]]]:
    """Pictures in order, opened ahead."""
    opener = _Opener(pictures, preparation, n_jobs)
    pool = ThreadPoolExecutor(n_jobs, thread_name_prefix="bitclass-pictures")
    n_ahead = _n_ahead(preparation, n_jobs)

    def coming() -> Iterator[Future[Any]]:
        ahead: deque[Future[Any]] = deque()
        for row in range(start_row, len(pictures)):
            ahead.append(pool.submit(opener.open, row))
            if len(ahead) >= n_ahead:
                yield ahead.popleft()
        yield from ahead

    try:
        yield coming()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        opener.close()
