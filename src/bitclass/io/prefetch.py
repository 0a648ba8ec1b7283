"""Read the next batch in a thread while the current one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["prefetch"]

_T = TypeVar("_T")
_END = object()


def prefetch(items: Iterable[_T]) -> Generator[_T, None, None]:
    """Yield the same items, each produced in a thread while the one before is in use.

    Parameters
    ----------
    items : iterable
        Its exceptions are raised here, after the items before them. If this generator is closed
        early, `items` is closed too.

    Yields
    ------
    item

    Examples
    --------
    >>> list(prefetch(range(3)))
    [0, 1, 2]
    """
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="bitclass-prefetch") as pool:
        try:
            pending = pool.submit(next, source, _END)
            while (item := pending.result()) is not _END:
                pending = pool.submit(next, source, _END)
                yield item  # type: ignore[misc]
                del item  # or it stays in memory while the next but one is produced
        finally:
            pool.shutdown(cancel_futures=True)  # waits for the item that is being produced
            close = getattr(source, "close", None)
            if close is not None:
                close()
