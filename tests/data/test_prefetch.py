"""Reading ahead: the same items, errors where they belong, and no thread left behind."""

import gc
import threading
import time

import pytest

from bitclass.data import prefetched


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name == "bitclass-prefetch"]


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_items_come_in_order(depth):
    assert list(prefetched(range(50), depth)) == list(range(50))
    assert not reading_threads()


def test_an_error_comes_after_the_items_before_it():
    def failing():
        yield 1
        yield 2
        raise OSError("disk on fire")

    items = prefetched(failing())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(OSError, match="disk on fire"):
        next(items)
    assert not reading_threads()


@pytest.mark.parametrize("how", ["close", "drop"])
def test_leaving_early_stops_the_thread_and_closes_the_source(how):
    closed = []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(threading.current_thread().name)

    items = prefetched(endless())
    next(items)
    if how == "close":
        items.close()
    else:
        del items
        gc.collect()
    assert closed == ["bitclass-prefetch"]
    assert not reading_threads()


def test_no_more_than_depth_items_wait():
    made = []

    def counted():
        for i in range(20):
            made.append(i)
            yield i

    items = prefetched(counted(), depth=2)
    next(items)
    time.sleep(0.1)
    assert len(made) == 4  # one in use, two waiting, one in the making
    items.close()


def test_reading_and_computing_overlap():
    def slow():
        for i in range(10):
            time.sleep(0.02)
            yield i

    start = time.perf_counter()
    for _ in prefetched(slow()):
        time.sleep(0.02)
    assert time.perf_counter() - start < 0.35  # one after the other takes 0.4


def test_nothing_is_read_before_the_first_item_is_asked_for():
    prefetched(pytest.fail("read") for _ in range(1))
    assert not reading_threads()


def test_depth_must_be_positive():
    with pytest.raises(ValueError, match="depth must be at least 1"):
        prefetched([], 0)
