"""Number of threads of the compiled kernels and of BLAS.

For the kernels it is determined by, in order of precedence:

1. :func:`thread_limit`, a context manager for the calling thread, with which the estimator applies
   its `n_jobs`;
2. :func:`set_num_threads`, a setting of the process;
3. the environment variable ``BITCLASS_NUM_THREADS``;
4. ``OMP_NUM_THREADS``, by which joblib, loky and Dask share the CPUs among their worker processes;
5. the number of CPUs this process may use, which is always an upper limit.

Results do not depend on the number of threads.

BLAS threads wait for work by spinning. If other processes are busy, that makes many small products
much slower than on a single thread. Training therefore limits BLAS to one thread and distributes
whole blocks of rows over its own threads; prediction does not use it.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

ENVIRONMENT_VARIABLE = "BITCLASS_NUM_THREADS"
MAX_THREADS = 2**31 - 1
_MEMBERSHIP, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

_setting: int | None = None
_kernel_limit: ContextVar[int | None] = ContextVar("bitclass_thread_limit", default=None)


def available_cpus() -> int:
    """Count the CPUs this process may use, by its affinity and by the CPU quota of its cgroup."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cpus = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cpus, cgroup_quota(_MEMBERSHIP, _CGROUPS)))


@cache
def cgroup_quota(membership: Path, root: Path) -> int:
    """Number of CPUs, rounded up, allowed by the cgroups (v1 or v2) listed in `membership`.

    `MAX_THREADS` without a quota.
    """
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
        # The quota of a parent applies to its children. In a container the path may be that of the
        # host, of which only the root is visible.
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
        quota_us, period_us = int(allowed), int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return MAX_THREADS
    if quota_us <= 0 or period_us <= 0:  # -1: no quota
        return MAX_THREADS
    return -(-quota_us // period_us)


def set_num_threads(n_threads: int | None) -> int | None:
    """Set the number of threads of the compiled kernels in this process.

    Parameters
    ----------
    n_threads : int >= 1 or None
        None restores the default: ``BITCLASS_NUM_THREADS`` or, if unset, all CPUs.

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
    """Context manager that limits the threads of kernels called by this thread.

    `n_jobs` is that of :func:`effective_threads`; None changes nothing.

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

    -1 means all CPUs, -2 all but one, and so on, or of the CPUs that ``OMP_NUM_THREADS`` leaves.
    None uses :func:`thread_limit`, :func:`set_num_threads`, the environment or all CPUs, in this
    order of precedence. At most :func:`available_cpus`; a ValueError if `n_jobs` is 0, not an
    integer or beyond 32 bits.

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
        return min(cpus, _of_openmp() if limit is None else limit)
    n_jobs = _thread_count(n_jobs, "n_jobs")
    if n_jobs == 0:
        raise ValueError("n_jobs: expected a positive or negative integer or None, found 0")
    return min(n_jobs, cpus) if n_jobs > 0 else max(1, min(cpus, _of_openmp()) + 1 + n_jobs)


def _thread_count(value: Any, name: str) -> int:
    """Convert `value` to int, or raise a ValueError with the name of the argument."""
    try:
        if type(value).__name__ in ("bool", "bool_"):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: expected an integer or None, found {value!r}") from None
    if abs(count) > MAX_THREADS:
        raise ValueError(f"{name}: expected a 32-bit integer or None, found {value!r}")
    return count


def _from_environment() -> int | None:
    """Value of ``BITCLASS_NUM_THREADS``, or None if it is unset or empty."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{ENVIRONMENT_VARIABLE}: expected a positive integer, found {text!r}")
    return int(text)


def _of_openmp() -> int:
    """Value of ``OMP_NUM_THREADS``, or of its first level; `MAX_THREADS` if there is none."""
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(text)) if text.isascii() and text.isdigit() else MAX_THREADS


# The number of BLAS threads is global to the process. Several threads may train at the same time:
# limits are counted, and the numbers of threads before the first of them are kept.
_lock = threading.Lock()
_n_limits = 0
_blas_before: list[int] = []


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; finding them takes milliseconds."""
    import scipy.linalg  # noqa: F401  loads SciPy's copy of BLAS
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def training_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit the kernels and pools of training to `n_jobs` threads, and BLAS to one thread each."""
    global _n_limits
    with _lock:
        if _n_limits == 0:
            _blas_before[:] = [library.get_num_threads() for library in _libraries()]
            _set_blas_threads([1] * len(_blas_before))
        _n_limits += 1
    try:
        with thread_limit(n_jobs):
            yield
    finally:
        with _lock:
            _n_limits -= 1
            if _n_limits == 0:
                _set_blas_threads(_blas_before)


def _set_blas_threads(numbers: list[int]) -> None:
    for library, n_threads in zip(_libraries(), numbers, strict=True):
        # threadpoolctl 3.8 lets only the first thread that called it control OpenBLAS, unless that
        # is cleared; here the lock makes it safe.
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
        library.set_num_threads(n_threads)
