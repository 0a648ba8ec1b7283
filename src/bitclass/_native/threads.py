"""How many threads the compiled kernels and BLAS use.

Kernels, in order of precedence:

1. :func:`thread_limit`, a setting of the calling thread for a while, by which the estimator
   applies its `n_jobs`;
2. :func:`set_num_threads`, a setting of the process;
3. the environment variable ``BITCLASS_NUM_THREADS``;
4. the number of CPUs this process may use.

None of them exceeds the last: more threads than CPUs only wait for each other. Results do not
depend on the number of threads.

BLAS threads wait for work by spinning. Over many products, beside any other busy process, that
makes training many times slower than a single thread. So training gives BLAS one thread and spreads
whole blocks of rows over threads of its own; only prediction in float32 leaves the threads to BLAS.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = [
    "available_cpus",
    "blas_limit",
    "effective_threads",
    "prediction_threads",
    "set_num_threads",
    "thread_limit",
    "training_threads",
]

ENVIRONMENT_VARIABLE = "BITCLASS_NUM_THREADS"
MAX_THREADS = 2**31 - 1

_setting: int | None = None
_kernel_limit: ContextVar[int | None] = ContextVar("bitclass_thread_limit", default=None)


def available_cpus() -> int:
    """Count the CPUs this process may use, by its affinity and by the CPU quota of its cgroup."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cpus = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cpus, _cgroup_quota()))


@cache
def _cgroup_quota() -> int:
    """CPUs that the cgroups of this process allow, rounded up; `MAX_THREADS` without a quota."""
    return cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def cgroup_quota(membership: Path, root: Path) -> int:
    """CPUs allowed by the cgroups, version 1 or 2, that the file `membership` lists."""
    quota = MAX_THREADS
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return quota
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = root
        elif "cpu" in controllers.split(","):
            top = root / controllers
            if not top.is_dir():
                top = root / "cpu"
        else:
            continue
        # A parent's quota holds for its children. In a container the path may be the host's, of
        # which only the root can be seen.
        relative = PurePosixPath(path.lstrip("/"))
        for folder in (relative, *relative.parents):
            quota = min(quota, _quota_of(top / folder))
    return quota


def _quota_of(folder: Path) -> int:
    try:
        if (folder / "cpu.max").exists():
            allowed, period = (folder / "cpu.max").read_text().split()
        else:
            allowed = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        microseconds, of_microseconds = int(allowed), int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return MAX_THREADS
    if microseconds <= 0 or of_microseconds <= 0:  # -1: no quota
        return MAX_THREADS
    return -(-microseconds // of_microseconds)


def set_num_threads(n_threads: int | None) -> int | None:
    """Set how many threads the compiled kernels of this process use.

    Parameters
    ----------
    n_threads : int >= 1 or None
        None returns to ``BITCLASS_NUM_THREADS`` or, without it, all CPUs.

    Returns
    -------
    int or None
        The previous setting.

    Examples
    --------
    >>> previous = set_num_threads(1)
    >>> effective_threads()
    1
    >>> set_num_threads(previous)
    1
    """
    global _setting
    previous = _setting
    if n_threads is not None:
        n_threads = _thread_count(n_threads, "n_threads")
        if n_threads < 1:
            raise ValueError(f"n_threads: expected at least 1, found {n_threads}")
    _setting = n_threads
    return previous


@contextmanager
def thread_limit(n_jobs: int | None) -> Iterator[None]:
    """Limit the kernels that this thread calls to a number of threads, for a while.

    Parameters
    ----------
    n_jobs : int or None
        As in :func:`effective_threads`; None changes nothing.

    Examples
    --------
    >>> with thread_limit(1):
    ...     effective_threads()
    1
    """
    if n_jobs is None:
        yield
        return
    token = _kernel_limit.set(effective_threads(n_jobs))
    try:
        yield
    finally:
        _kernel_limit.reset(token)


def effective_threads(n_jobs: int | None = None) -> int:
    """Resolve the number of threads for an `n_jobs` as scikit-learn understands it.

    Parameters
    ----------
    n_jobs : int, optional
        A positive number is that many threads; -1 means all CPUs, -2 all but one, and so on; None
        leaves it to :func:`thread_limit`, :func:`set_num_threads`, the environment and the
        machine, in this order. Never more than :func:`available_cpus`.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If `n_jobs` is 0, not an integer or beyond 32 bits.

    Examples
    --------
    >>> effective_threads(1)
    1
    """
    cpus = available_cpus()
    if n_jobs is None:
        limit = _kernel_limit.get()
        if limit is None:
            limit = _setting
        if limit is None:
            limit = _from_environment()
        return cpus if limit is None else min(limit, cpus)
    n_jobs = _thread_count(n_jobs, "n_jobs")
    if n_jobs == 0:
        raise ValueError("n_jobs: 0 has no meaning; expected a positive or a negative integer")
    return min(n_jobs, cpus) if n_jobs > 0 else max(1, cpus + 1 + n_jobs)


def _thread_count(value: Any, name: str) -> int:
    """`value` as an int, or a ValueError that names it."""
    try:
        if type(value).__name__ in ("bool", "bool_"):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: expected an integer or None, found {value!r}") from None
    if abs(count) > MAX_THREADS:
        raise ValueError(f"{name}: expected an integer of 32 bits or None, found {value!r}")
    return count


def _from_environment() -> int | None:
    """Value of ``BITCLASS_NUM_THREADS``, or None if it is unset or empty."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{ENVIRONMENT_VARIABLE}: expected a positive integer, found {text!r}")
    return int(text)


# The number of BLAS threads belongs to the whole process. Limits may be nested, or overlap in
# several threads, so all in force are kept here, with what each library had before the first.
_lock = threading.Lock()
_blas_limits: list[int] = []
_blas_before: list[int] = []


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; finding them takes milliseconds."""
    import scipy.linalg  # noqa: F401  which loads a library of its own
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def blas_limit(n_threads: int) -> Iterator[None]:
    """Limit BLAS to `n_threads` threads; it never uses more than before.

    Parameters
    ----------
    n_threads : int >= 1
    """
    with _lock:
        if not _blas_limits:
            _blas_before[:] = [library.get_num_threads() for library in _libraries()]
        _blas_limits.append(n_threads)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _blas_limits.remove(n_threads)
            _apply()


def _apply() -> None:
    """Give each library the smallest limit in force, or without any what it had before."""
    for library, before in zip(_libraries(), _blas_before, strict=True):
        wanted = min([before, *_blas_limits])
        if library.get_num_threads() != wanted:
            # threadpoolctl 3.8 lets the first thread alone set OpenBLAS, and ignores all others
            # unless that one is forgotten; here the lock keeps threads apart.
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)
            library.set_num_threads(wanted)


@contextmanager
def prediction_threads(n_jobs: int | None, n_blas: int | None = None) -> Iterator[None]:
    """Limit the kernels to `n_jobs` threads, and BLAS to as many: for large products in float32.

    Parameters
    ----------
    n_jobs : int or None
        See :func:`effective_threads`.
    n_blas : int >= 1, optional
        Another limit for BLAS.
    """
    with thread_limit(n_jobs), blas_limit(n_blas or effective_threads(n_jobs)):
        yield


def training_threads(n_jobs: int | None) -> AbstractContextManager[None]:
    """Limit the kernels and pools of training to `n_jobs` threads, each with one thread of BLAS."""
    return prediction_threads(n_jobs, n_blas=1)
