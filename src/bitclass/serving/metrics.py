"""Prometheus metrics of the service, summed over its processes."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from bitclass.model import TopClasses
from bitclass.serving.models import ServedModel
from bitclass.serving.page import label_value

# Times of creation would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
_SHARES = (0.01, 0.02, 0.04, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
# Predicted classes are counted in this many groups: a series per class could be a million.
_MAX_GROUPS = 50
# Rows per request whose confidence and typicality are observed, each in a microsecond.
_MAX_OBSERVED = 100


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
        self._registry = CollectorRegistry()

        def series(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            """A function that finds a series by its labels, which takes longer than to count."""
            name = f"bitclass_{name}"
            return cache(kind(name, text, labels, registry=self._registry, **options).labels)

        self._requests = series(Counter, "requests", "Requests answered.", "endpoint", "status")
        self._seconds = series(
            Histogram, "request_seconds", "Time to answer a request.", "endpoint", buckets=_SECONDS
        )
        self._batched = series(
            Counter, "predict_requests", "Requests answered by predict calls.", "model"
        )
        self._rows = series(
            Histogram, "predict_rows", "Rows per predict call.", "model", buckets=_ROWS
        )
        text = f"Rows by class; if there are more than {_MAX_GROUPS}, by the first of a group."
        self._predicted = series(Counter, "predicted_rows", text, "model", "label")
        text = "Probability of the best class, where requests ask for it."
        self._confidence = series(Histogram, "confidence", text, "model", buckets=_SHARES)
        text = "Typicality of rows, where requests ask for it."
        self._typicality = series(Histogram, "typicality", text, "model", buckets=_SHARES)
        text = "Rows rejected as of no known class."
        self.rejected = series(Counter, "rejected_rows", text, "model")
        self.reloads = series(Counter, "reloads", "Changed model files.", "model", "result")
        for model in models:
            for find in (self._batched, self._rows, self.rejected):
                find(model)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that was answered or aborted."""
        self._requests(endpoint, status).inc()
        self._seconds(endpoint).observe(seconds)

    def batch(self, served: ServedModel, n_requests: int, found: list[TopClasses]) -> None:
        """Count a predict call: its requests, and what was found for those that succeeded."""
        name, classes = served.name, served.model.classes
        self._batched(name).inc(n_requests)
        if not found:
            return
        labels = np.concatenate([each.labels[:, 0] for each in found])
        self._rows(name).observe(len(labels))
        n_per_group = -(-len(classes) // _MAX_GROUPS)
        # The classes of a foreign file need not be sorted.
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        for group, n_rows in collections.Counter((places // n_per_group).tolist()).items():
            first = str(label_value(classes[group * n_per_group]))[:100]
            self._predicted(name, first).inc(n_rows)
        for each in found:
            if each.probabilities is not None:
                for share in each.probabilities[:_MAX_OBSERVED, 0].tolist():
                    self._confidence(name).observe(share)
            if each.typicality is not None:
                for share in each.typicality[:_MAX_OBSERVED].tolist():
                    self._typicality(name).observe(share)

    def text(self) -> bytes:
        """The metrics of all processes in Prometheus text format."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # set by the parent of several processes
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
