"""Counters and histograms in Prometheus text format."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONTENT_TYPE", "ENDPOINTS", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Names of the handlers of requests; "none" for unknown URLs.
ENDPOINTS = (
    "infer", "predict", "live", "ready", "server_metadata", "model_metadata", "model_ready",
    "show_metrics", "page", "list_models", "classes", "pairs", "look", "list_images",
    "small_image", "look_at", "none",
)  # fmt: skip

_STATUSES = 600
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)


class Metrics:
    """Metrics of the service since it started.

    The counts are in memory shared by forked processes. Each worker writes only its own, from its
    event loop, and any worker can report the totals.

    Parameters
    ----------
    models : sequence of str
        Model names, which need no escaping.
    n_workers : int, default=1

    Examples
    --------
    >>> metrics = Metrics(["digits"])
    >>> metrics.begin()
    >>> metrics.end("infer", 200, 0.002)
    >>> metrics.batch("digits", n_requests=3, n_rows=12)
    >>> 'bitclass_requests_total{endpoint="infer",status="200"} 1' in metrics.text()
    True
    """

    def __init__(self, models: Sequence[str], n_workers: int = 1) -> None:
        self._models = list(models)
        n_endpoints, n_models = len(ENDPOINTS), len(models)
        # A histogram has the counts of its buckets, an overflow count, and the sum.
        each = np.dtype(
            [
                ("in_progress", np.float64),
                ("requests", np.float64, (n_endpoints, _STATUSES)),
                ("seconds", np.float64, (n_endpoints, len(_SECONDS) + 2)),
                ("batched", np.float64, (n_models,)),
                ("rows", np.float64, (n_models, len(_ROWS) + 2)),
            ]
        )
        memory = mmap.mmap(-1, n_workers * each.itemsize)
        self._all = np.frombuffer(memory, dtype=each)
        self.use(0)

    def use(self, worker: int) -> None:
        """Write to the counts of this worker, numbered from 0."""
        counts = self._all[worker : worker + 1]
        self._in_progress = counts["in_progress"]
        self._in_progress[0] = 0  # left by a worker that has died
        self._requests, self._seconds = counts["requests"][0], counts["seconds"][0]
        self._batched, self._rows = counts["batched"][0], counts["rows"][0]

    def begin(self) -> None:
        """Count the start of a request."""
        self._in_progress[0] += 1

    def end(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request as answered or aborted, `seconds` after its headers were received."""
        i = ENDPOINTS.index(endpoint)
        self._in_progress[0] -= 1
        self._requests[i, status] += 1
        _add(self._seconds[i], _SECONDS, seconds)

    def batch(self, model: str, n_requests: int, n_rows: int) -> None:
        """Count a predict call that answered `n_requests` requests."""
        j = self._models.index(model)
        self._batched[j] += n_requests
        _add(self._rows[j], _ROWS, n_rows)

    def text(self) -> str:
        """Metrics of all workers in Prometheus text format."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        total: dict[str, Any] = {
            name: self._all[name].sum(axis=0) for name in self._all.dtype.names or ()
        }
        name = "bitclass_requests_total"
        yield from _head(name, "counter", "Requests answered.")
        for i, status in np.argwhere(total["requests"]).tolist():
            labels = f'endpoint="{ENDPOINTS[i]}",status="{status}"'
            yield f"{name}{{{labels}}} {total['requests'][i, status]:.0f}"
        name = "bitclass_requests_in_progress"
        yield from _head(name, "gauge", "Requests not answered yet.")
        yield f"{name} {total['in_progress']:.0f}"
        name = "bitclass_request_seconds"
        yield from _head(name, "histogram", "Time to answer a request.")
        for endpoint, counts in zip(ENDPOINTS, total["seconds"], strict=True):
            if counts.any():
                yield from _histogram(name, f'endpoint="{endpoint}"', _SECONDS, counts)
        name = "bitclass_predict_requests_total"
        yield from _head(name, "counter", "Requests answered by predict calls.")
        for model, count in zip(self._models, total["batched"], strict=True):
            yield f'{name}{{model="{model}"}} {count:.0f}'
        name = "bitclass_predict_rows"
        yield from _head(name, "histogram", "Rows per predict call.")
        for model, counts in zip(self._models, total["rows"], strict=True):
            yield from _histogram(name, f'model="{model}"', _ROWS, counts)


def _add(histogram: NDArray[np.float64], bounds: Sequence[float], value: float) -> None:
    histogram[bisect_left(bounds, value)] += 1
    histogram[-1] += value


def _histogram(
    name: str, labels: str, bounds: Sequence[float], counts: NDArray[np.float64]
) -> Iterator[str]:
    *buckets, total = counts.tolist()
    cumulative = 0.0
    for bound, count in zip((*bounds, "+Inf"), buckets, strict=True):
        cumulative += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {cumulative:.0f}'
    yield f"{name}_sum{{{labels}}} {total!r}"
    yield f"{name}_count{{{labels}}} {cumulative:.0f}"


def _head(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
