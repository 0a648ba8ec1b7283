"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum!r}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """What the service has done since it started; used from the event loop alone.

    Label values are names of endpoints and models, which need no escaping.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.request("infer", 200, 0.002)
    >>> metrics.batch("digits", n_requests=3, n_rows=12)
    >>> 'bitclass_requests_total{endpoint="infer",status="200"} 1' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self.in_progress = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, _Histogram] = defaultdict(lambda: _Histogram(_SECONDS))
        self._batched: Counter[str] = Counter()
        self._rows: dict[str, _Histogram] = defaultdict(lambda: _Histogram(_ROWS))

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count an answered request.

        Parameters
        ----------
        endpoint : str
        status : int
        seconds : float
            From the end of its headers to the end of the answer.
        """
        self._requests[endpoint, status] += 1
        self._seconds[endpoint].add(seconds)

    def batch(self, model: str, n_requests: int, n_rows: int) -> None:
        """Count a predict call that answered requests together.

        Parameters
        ----------
        model : str
        n_requests, n_rows : int
        """
        self._batched[model] += n_requests
        self._rows[model].add(n_rows)

    def text(self) -> str:
        """All metrics, as a scraper reads them."""
        lines = _head("bitclass_requests_total", "counter", "Requests answered.")
        for (endpoint, status), count in sorted(self._requests.items()):
            labels = f'endpoint="{endpoint}",status="{status}"'
            lines.append(f"bitclass_requests_total{{{labels}}} {count}")
        lines += _head("bitclass_requests_in_progress", "gauge", "Requests not answered yet.")
        lines.append(f"bitclass_requests_in_progress {self.in_progress}")
        lines += _head("bitclass_request_seconds", "histogram", "Time to answer a request.")
        for endpoint, histogram in sorted(self._seconds.items()):
            lines += histogram.lines("bitclass_request_seconds", f'endpoint="{endpoint}"')
        lines += _head(
            "bitclass_predict_requests_total", "counter", "Requests answered by predict calls."
        )
        for model, count in sorted(self._batched.items()):
            lines.append(f'bitclass_predict_requests_total{{model="{model}"}} {count}')
        lines += _head("bitclass_predict_rows", "histogram", "Rows per predict call.")
        for model, histogram in sorted(self._rows.items()):
            lines += histogram.lines("bitclass_predict_rows", f'model="{model}"')
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
