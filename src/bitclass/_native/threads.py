"""How many threads the compiled kernels use.

In order of precedence:

1. the `n_threads` or `n_jobs` argument of the call, where it is not None;
2. :func:`thread_limit`, a setting of the calling thread for a while;
3. :func:`set_num_threads`, a setting of the process;
4. the environment variable ``BITCLASS_NUM_THREADS``;
5. the number of CPUs this process may run on.

The number is a limit for the threads of this library's own pool; results do not depend on it. The
float32 products are NumPy's, whose BLAS has threads of its own: limit these with
``threadpoolctl.threadpool_limits`` or ``OPENBLAS_NUM_THREADS`` and their like. `threadpoolctl` does
not know this library's pool.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["available_cpus", "effective_threads", "set_num_threads", "thread_limit"]

ENVIRONMENT_VARIABLE = "BITCLASS_NUM_THREADS"

_setting: int | None = None
_limit: ContextVar[int | None] = ContextVar("bitclass_thread_limit", default=None)


def available_cpus() -> int:
    """Count the CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(n_threads: int | None) -> int | None:
    """Set how many threads the compiled kernels of this process use.

    Parameters
    ----------
    n_threads : int >= 1 or None
        None goes back to ``BITCLASS_NUM_THREADS`` or, without it, all CPUs.

    Returns
    -------
    int or None
        The setting before.

    Examples
    --------
    >>> previous = set_num_threads(1)
    >>> effective_threads(None)
    1
    >>> set_num_threads(previous)
    1
    """
    global _setting
    previous = _setting
    if n_threads is not None:
        n_threads = operator.index(n_threads)
        if n_threads < 1:
            raise ValueError(f"n_threads: expected at least 1, found {n_threads}")
    _setting = n_threads
    return previous


@contextmanager
def thread_limit(n_jobs: int | None) -> Iterator[None]:
    """Hold the kernels that this thread calls to a number of threads, for a while.

    Parameters
    ----------
    n_jobs : int or None
        As in :func:`effective_threads`; None changes nothing.

    Examples
    --------
    >>> with thread_limit(3):
    ...     effective_threads(None)
    3
    """
    if n_jobs is None:
        yield
        return
    token = _limit.set(effective_threads(n_jobs))
    try:
        yield
    finally:
        _limit.reset(token)


def effective_threads(n_jobs: int | None, *, name: str = "n_jobs") -> int:
    """Resolve the number of threads for an `n_jobs` as scikit-learn understands it.

    Parameters
    ----------
    n_jobs : int or None
        A positive number is taken as it is; -1 means all CPUs, -2 all but one, and so on; None
        leaves it to :func:`thread_limit`, :func:`set_num_threads`, the environment and the
        machine, in this order.
    name : str
        What the caller calls the argument, for errors.

    Examples
    --------
    >>> effective_threads(3)
    3
    """
    if n_jobs is None:
        limit = _limit.get()
        if limit is not None:
            return limit
        if _setting is not None:
            return _setting
        return _from_environment() or available_cpus()
    try:
        n_jobs = operator.index(n_jobs)
    except TypeError:
        found = type(n_jobs).__name__
        raise TypeError(f"{name}: expected an integer or None, found {found}") from None
    if n_jobs == 0:
        raise ValueError(f"{name}: 0 has no meaning; expected a positive or a negative integer")
    return n_jobs if n_jobs > 0 else max(1, available_cpus() + 1 + n_jobs)


def _from_environment() -> int | None:
    """Value of ``BITCLASS_NUM_THREADS``, or None where it is unset or empty."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{ENVIRONMENT_VARIABLE}: expected a positive integer, found {text!r}")
    return int(text)
