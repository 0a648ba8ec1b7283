"""Side-by-side timing on a noisy machine: peers and ours in turn, medians, ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

import bitclass
from machine import machine

__all__ = ["Row", "compare", "machine", "measure", "threads_of_all"]


@dataclass(frozen=True)
class Row:
    """One comparison: how many times faster ours is than the peer, in one run."""

    what: str
    peer: str
    threads: int
    peer_seconds: float
    our_seconds: float
    ratio: float
    floor: float | None
    aim: float | None


def measure(work: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each piece of work, all done once a round, in turn.

    Work of less than a millisecond is repeated within a round. A pause before each lets the threads
    of the one before go to sleep: those of OpenBLAS spin on for a while after a call.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    repeats = {}
    for name, one in work.items():
        start = time.perf_counter()
        one()
        repeats[name] = max(1, int(2e-3 / max(1e-7, time.perf_counter() - start)))
    for _ in range(rounds):
        for name, one in work.items():
            time.sleep(0.1)
            start = time.perf_counter()
            for _ in range(repeats[name]):
                one()
            seconds[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def compare(
    what: str,
    peer: str,
    peer_work: Callable[[], Any],
    our_work: Callable[[], Any],
    threads: int,
    rounds: int,
    floor: float | None = None,
    aim: float | None = None,
) -> Row:
    """Time a peer and ours in turn."""
    medians = measure({"peer": peer_work, "ours": our_work}, rounds)
    ratio = medians["peer"] / medians["ours"]
    return Row(what, peer, threads, medians["peer"], medians["ours"], ratio, floor, aim)


@contextmanager
def threads_of_all(n_threads: int) -> Iterator[None]:
    """Hold BLAS, OpenMP and our own pool to one number of threads."""
    before = bitclass.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            yield
    finally:
        bitclass.set_num_threads(before)
