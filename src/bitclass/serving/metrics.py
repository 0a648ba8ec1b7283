"""Prometheus metrics of the service, summed over its processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["Metrics"]

# Times of creation would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
_SHARES = (0.01, 0.02, 0.04, 0.1, 0.2, 0.5, 1.0)


class Metrics:
    """Metrics of the service since it started.

    Parameters
    ----------
    models : sequence of str
        Names of the models.

    Examples
    --------
    >>> metrics = Metrics(["digits"])
    >>> metrics.request("infer", 200, seconds=0.002)
    >>> b'bitclass_requests_total{endpoint="infer",status="200"} 1' in metrics.text()
    True
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._registry = own = CollectorRegistry()
        by_model: dict[str, Any] = {"labelnames": ["model"], "registry": own}
        requests = Counter(
            "bitclass_requests", "Requests answered.", ["endpoint", "status"], registry=own
        )
        seconds = Histogram(
            "bitclass_request_seconds", "Time to answer a request.", ["endpoint"],
            buckets=_SECONDS, registry=own,
        )  # fmt: skip
        # To find a series by its labels takes longer than to count.
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)
        self._batched = Counter(
            "bitclass_predict_requests", "Requests answered by predict calls.", **by_model
        )
        self._rows = Histogram(
            "bitclass_predict_rows", "Rows per predict call.", buckets=_ROWS, **by_model
        )
        self.rejected = Counter(
            "bitclass_rejected_rows", "Rows rejected as of no known class.", **by_model
        )
        self.typicality = Histogram(
            "bitclass_typicality", "Typicality of rows, where requests ask for it.",
            buckets=_SHARES, **by_model,
        )  # fmt: skip
        self.reloads = Counter(
            "bitclass_reloads", "Changed model files.", ["model", "result"], registry=own
        )
        for model in models:
            for metric in (self._batched, self._rows, self.rejected):
                metric.labels(model)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that was answered or aborted."""
        self._requests(endpoint, status).inc()
        self._seconds(endpoint).observe(seconds)

    def batch(self, model: str, n_requests: int, n_rows: int) -> None:
        """Count a predict call."""
        self._batched.labels(model).inc(n_requests)
        self._rows.labels(model).observe(n_rows)

    def text(self) -> bytes:
        """The metrics of all processes in Prometheus text format."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # set by the parent of several processes
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
