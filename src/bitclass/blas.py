"""Holding the BLAS behind NumPy and SciPy to a number of threads while training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from bitclass._native import effective_threads, thread_limit

__all__ = ["training_threads"]

# The limit of the BLAS is one of the whole process: of trainings that run at once, only one may set
# it, or the last to end would restore what it had found, the limit of another, for good.
_blas = threading.Lock()


@contextmanager
def training_threads(n_jobs: int | None) -> Iterator[None]:
    """Hold our kernels, and the BLAS, to `n_jobs` threads; None changes nothing.

    Where another thread is training under a limit already, the BLAS keeps that one.
    """
    if n_jobs is None:
        yield
        return
    with thread_limit(n_jobs):
        if not _blas.acquire(blocking=False):
            yield
            return
        try:
            with threadpool_limits(effective_threads(n_jobs), user_api="blas"):
                yield
        finally:
            _blas.release()
