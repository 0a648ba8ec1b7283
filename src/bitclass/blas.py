"""Limits on the threads of the BLAS libraries behind NumPy and SciPy.

BLAS threads wait for work by spinning. Over many small products, beside any other busy process,
that makes training many times slower than a single thread. So small products run with
:func:`single_threaded_blas`; only large ones (Gram matrices, the ridge system) use more threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from bitclass._native import effective_threads, thread_limit

__all__ = ["blas_limit", "single_threaded_blas", "training_threads"]

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
            # threadpoolctl lets only the thread that set a limit first change it. Limits of several
            # threads are reconciled here, and the last to end restores what was before.
            getattr(library, "_real_set_num_threads", library.set_num_threads)(wanted)


def single_threaded_blas() -> Any:
    """Limit BLAS to one thread: for many small products."""
    return blas_limit(1)


@contextmanager
def training_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit the kernels and BLAS to `n_jobs` threads, or to the CPUs this process may use.

    Parameters
    ----------
    n_jobs : int or None
        See :func:`bitclass._native.effective_threads`.
    """
    with thread_limit(n_jobs), blas_limit(effective_threads(n_jobs)):
        yield
