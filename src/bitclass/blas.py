"""Holding the BLAS behind NumPy and SciPy to a number of threads while training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from bitclass._native import effective_threads, thread_limit

__all__ = ["training_threads"]

# The limit is one of the process. Where several threads train at once, the first sets it and the
# last one lifts it; each on its own would restore what another had set, for good.
_lock = threading.Lock()
_users = 0
_limits: threadpool_limits | None = None


@contextmanager
def training_threads(n_jobs: int | None) -> Iterator[None]:
    """Hold our kernels, and the BLAS, to `n_jobs` threads; None changes nothing."""
    if n_jobs is None:
        yield
        return
    global _users, _limits
    with _lock:
        if _users == 0:
            _limits = threadpool_limits(effective_threads(n_jobs))
        _users += 1
    try:
        with thread_limit(n_jobs):
            yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
