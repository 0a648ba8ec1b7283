"""What keeps the tasks of a run from going on, as only the scheduler knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distributed import Status

__all__ = ["Obstacles", "obstacles"]


@dataclass(frozen=True)
class Obstacles:
    """What a run waits for.

    Attributes
    ----------
    stranded : whether a task waits for a home that is gone, though workers run. Dask gives it to
        another worker when its home dies, but not when no other worker runs at that moment: then
        it waits for its home for ever.
    paused : addresses of workers that are to do something and, for want of memory, do nothing
    """

    stranded: bool
    paused: tuple[str, ...]


def obstacles(token: str, dask_scheduler: Any) -> Obstacles:
    """What is in the way of the tasks whose keys have this token; called on the scheduler."""
    workers = dask_scheduler.workers
    stranded = bool(dask_scheduler.running) and any(
        _is_homeless(task, workers) and _is_needed(task, token)
        for task in dask_scheduler.unrunnable
    )
    paused = tuple(
        address
        for address, worker in workers.items()
        if worker.status is Status.paused
        and not worker.metrics.get("task_counts", {}).get("executing")
        and any(_is_needed(task, token) for task in worker.processing)
    )
    return Obstacles(stranded, paused)


def _is_homeless(task: Any, workers: Any) -> bool:
    homes = task.worker_restrictions
    return bool(homes) and not any(home in workers for home in homes)


def _is_needed(task: Any, token: str) -> bool:
    """Whether it is a task of the run, or one that loads a partition for it."""
    waiting, seen = [task], {task}
    while waiting:
        one = waiting.pop()
        if token in str(one.key):
            return True
        new = one.dependents - seen
        seen |= new
        waiting.extend(new)
    return False
