"""Reading ahead in a thread, so that reading and computing go on at the same time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

__all__ = ["prefetched"]

_T = TypeVar("_T")


class _Shelf:
    """Where the reading thread puts items and the user takes them, at most `depth` at a time."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.items: deque[object] = deque()
        self.error: BaseException | None = None
        self.finished = False
        self.stopped = False
        self.changed = threading.Condition()

    def put(self, item: object) -> bool:
        """Wait for room and put; False where nobody wants more."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or len(self.items) < self.depth)
            if not self.stopped:
                self.items.append(item)
                self.changed.notify_all()
            return not self.stopped

    def finish(self, error: BaseException | None) -> None:
        """Say that nothing more comes, and why."""
        with self.changed:
            self.error, self.finished = error, True
            self.changed.notify_all()

    def stop(self) -> None:
        """Say that nobody wants more."""
        with self.changed:
            self.stopped = True
            self.items.clear()
            self.changed.notify_all()


def _fill(shelf: _Shelf, source: Iterator[object]) -> None:
    error: BaseException | None = None
    try:
        for item in source:
            if not shelf.put(item):
                break
            del item  # or it would stay in memory while the next one is read
    except BaseException as raised:
        error = raised
    try:
        close = getattr(source, "close", None)
        if close is not None:
            close()
    finally:
        shelf.finish(error)


def prefetched(items: Iterable[_T], depth: int = 2) -> Generator[_T, None, None]:
    """The same items, made in a thread while those before are worked on.

    Parameters
    ----------
    items : iterable
        Taken from one thread only. What it raises is raised here, after the items before it.
    depth : int
        How many items may wait. One more is in the making and one in use.

    Yields
    ------
    item
        In the same order. Closing the generator early, or dropping it, stops the thread and closes
        `items`.

    Examples
    --------
    >>> list(prefetched(range(3)))
    [0, 1, 2]
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, found {depth}")
    return _taken(_Shelf(depth), iter(items))


def _taken(shelf: _Shelf, source: Iterator[_T]) -> Generator[_T, None, None]:
    thread = threading.Thread(
        target=_fill, args=(shelf, source), name="bitclass-prefetch", daemon=True
    )
    thread.start()
    try:
        while True:
            with shelf.changed:
                shelf.changed.wait_for(lambda: shelf.items or shelf.finished)
                if not shelf.items:
                    break
                item = shelf.items.popleft()
                shelf.changed.notify_all()
            yield item  # type: ignore[misc]
            del item
        if shelf.error is not None:
            raise shelf.error
    finally:
        shelf.stop()
        thread.join()
