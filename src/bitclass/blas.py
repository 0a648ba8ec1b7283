"""Limits on the threads of the BLAS libraries behind NumPy and SciPy.

BLAS threads wait for work by spinning. Over many products, beside any other busy process, that
makes training many times slower than a single thread. So training gives BLAS one thread and spreads
whole blocks of rows over threads of its own; only prediction in float32 leaves the threads to BLAS.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from bitclass._native import effective_threads, thread_limit

__all__ = ["blas_limit", "prediction_threads", "training_threads"]

# The number of BLAS threads belongs to the whole process. Limits may be nested, or overlap in
# several threads, so all in force are kept here, with what each library had before the first.
_lock = threading.Lock()
_limits: list[int] = []
_before: list[int] = []


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; finding them takes milliseconds."""
    import scipy.linalg  # noqa: F401  which loads a library of its own

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def blas_limit(n_threads: int) -> Iterator[None]:
    """Limit BLAS to `n_threads` threads; it never uses more than before.

    Parameters
    ----------
    n_threads : int >= 1
    """
    with _lock:
        if not _limits:
            _before[:] = [library.get_num_threads() for library in _libraries()]
        _limits.append(n_threads)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _limits.remove(n_threads)
            _apply()


def _apply() -> None:
    """Give each library the smallest limit in force, or without any what it had before."""
    for library, before in zip(_libraries(), _before, strict=True):
        wanted = min([before, *_limits])
        if library.get_num_threads() != wanted:
            # threadpoolctl 3.8 lets the first thread alone set OpenBLAS, and ignores all others
            # unless that one is forgotten; here the lock keeps threads apart.
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)
            library.set_num_threads(wanted)


@contextmanager
def training_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit the kernels and pools of training to `n_jobs` threads, each with one thread of BLAS.

    Parameters
    ----------
    n_jobs : int or None
        See :func:`bitclass._native.effective_threads`.
    """
    with thread_limit(n_jobs), blas_limit(1):
        yield


@contextmanager
def prediction_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit the kernels and BLAS to `n_jobs` threads: for large products in float32.

    Parameters
    ----------
    n_jobs : int or None
        See :func:`bitclass._native.effective_threads`.
    """
    with thread_limit(n_jobs), blas_limit(effective_threads(n_jobs)):
        yield
