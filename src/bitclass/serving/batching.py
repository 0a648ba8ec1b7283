"""Dynamic batching: waiting requests are predicted in one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.model import TopClasses
from bitclass.serving.models import ServedModel

__all__ = ["Batcher", "join_predictions", "max_rows_per_call"]

# Larger batches are not faster, and delay waiting requests.
MAX_BATCH_ROWS = 4096
# Scores in memory at once, when probabilities are computed.
MAX_SCORES = 1 << 18


def max_rows_per_call(served: ServedModel, top: int) -> int:
    """Number of rows that are predicted at once."""
    if not top:
        return MAX_BATCH_ROWS
    return min(MAX_BATCH_ROWS, max(1, MAX_SCORES // len(served.model.classes)))


def join_predictions(parts: Sequence[TopClasses]) -> TopClasses:
    """The prediction of all rows from those of parts of them."""
    if len(parts) == 1:
        return parts[0]
    columns: list[Any] = [
        None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True)
    ]
    return TopClasses(*columns)


@dataclass
class _Job:
    served: ServedModel
    X: Any
    top: int
    typicality: bool
    answer: asyncio.Future[TopClasses] = field(repr=False)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Only jobs of the same kind can be predicted in one call."""
        return (id(self.served), self.top, self.typicality, getattr(self.X, "dtype", None))


class Batcher:
    """Predict the rows of concurrent requests together, in a separate thread.

    There is no waiting for a batch to fill: each call takes all requests that arrived during the
    previous one.

    Parameters
    ----------
    on_batch : callable
        Called with the model, the number of requests, and the predictions of those that succeeded.
    """

    def __init__(self, on_batch: Callable[[ServedModel, int, list[TopClasses]], None]) -> None:
        self._on_batch = on_batch
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bitclass-predict")
        self._working: asyncio.Task[None] | None = None

    async def predict(
        self,
        served: ServedModel,
        X: NDArray[Any] | list[str],
        top: int = 0,
        typicality: bool = False,
    ) -> TopClasses:
        """Predict the `top` best classes, or only the label if 0, of rows (n, d) or n texts.

        Raises RowError for values that the model cannot encode.
        """
        job = _Job(served, X, top, typicality, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await job.answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                jobs = self._next_jobs()
                answers = await loop.run_in_executor(self._thread, _answers, jobs)
                for job, answer in zip(jobs, answers, strict=True):
                    if job.answer.done():  # the client has disconnected
                        continue
                    if isinstance(answer, Exception):
                        job.answer.set_exception(answer)
                    else:
                        job.answer.set_result(answer)
                found = [answer for answer in answers if not isinstance(answer, Exception)]
                self._on_batch(jobs[0].served, len(jobs), found)
        finally:
            self._working = None

    def _next_jobs(self) -> list[_Job]:
        """The first waiting job, and others that fit into the same call."""
        jobs = [self._waiting.popleft()]
        n_rows, most = len(jobs[0].X), max_rows_per_call(jobs[0].served, jobs[0].top)
        kept: list[_Job] = []
        while self._waiting:
            job = self._waiting.popleft()
            if job.kind == jobs[0].kind and n_rows + len(job.X) <= most:
                jobs.append(job)
                n_rows += len(job.X)
            else:
                kept.append(job)
        self._waiting.extend(kept)
        return jobs


def _answers(jobs: Sequence[_Job]) -> Sequence[TopClasses | Exception]:
    parts = [job.X for job in jobs]
    try:
        if len(jobs) == 1:
            return [_predict(jobs[0], parts[0])]
        if isinstance(parts[0], list):
            X: Any = [text for part in parts for text in part]
        else:
            X = np.concatenate(parts)
        prediction = _predict(jobs[0], X)
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        # An error in one job must not affect the others.
        return [_answers([job])[0] for job in jobs]
    ends = accumulate((len(part) for part in parts), initial=0)
    parts = [
        [None if values is None else values[i:j] for values in prediction]
        for i, j in pairwise(ends)
    ]
    return [TopClasses(*part) for part in parts]


def _predict(job: _Job, X: Any) -> TopClasses:
    """Predict the rows of one call, as a job asks."""
    model: Any = job.served.model
    if job.top or job.typicality:
        options = {"probabilities": job.top > 0, "typicality": job.typicality}
        return model.top_classes(X, max(1, job.top), **options)  # type: ignore[no-any-return]
    return TopClasses(model.predict(X, reject=0)[:, None], None)  # type: ignore[arg-type]
