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

from bitclass.model import PackedModel

__all__ = ["Batcher", "Prediction"]

# Larger batches are not faster, and delay waiting requests.
MAX_BATCH_ROWS = 4096


#: Labels (n, k), best first, and, if requested, distances and probabilities.
Prediction = tuple[NDArray[Any], ...]


@dataclass
class _Job:
    X: Any
    top: int
    answer: asyncio.Future[Prediction] = field(repr=False)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Only jobs of the same kind can be predicted in one call."""
        return (self.top, getattr(self.X, "dtype", None))


class Batcher:
    """Predict the rows of concurrent requests together, in a separate thread.

    There is no waiting for a batch to fill: each call takes all requests that arrived during the
    previous one.

    Parameters
    ----------
    model : PackedModel
    on_batch : callable
        Called with the number of requests and the number of rows of each batch.
    """

    def __init__(self, model: PackedModel, on_batch: Callable[[int, int], None]) -> None:
        self._model, self._on_batch = model, on_batch
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bitclass-predict")
        self._working: asyncio.Task[None] | None = None

    async def predict(self, X: NDArray[Any] | list[str], top: int = 0) -> Prediction:
        """Predict the `top` best classes, or only the label if 0, of rows (n, d) or n texts.

        Raises RowError for values that the model cannot encode.
        """
        job = _Job(X, top, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await job.answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                jobs = self._next_jobs()
                answers = await loop.run_in_executor(self._thread, self._answers, jobs)
                for job, answer in zip(jobs, answers, strict=True):
                    if job.answer.done():  # the client has disconnected
                        continue
                    if isinstance(answer, tuple):
                        job.answer.set_result(answer)
                    else:
                        job.answer.set_exception(answer)
                self._on_batch(len(jobs), sum(len(job.X) for job in jobs))
        finally:
            self._working = None

    def _next_jobs(self) -> list[_Job]:
        """The first waiting job, and others that fit into the same call."""
        jobs = [self._waiting.popleft()]
        n_rows = len(jobs[0].X)
        kept: list[_Job] = []
        while self._waiting:
            job = self._waiting.popleft()
            if job.kind == jobs[0].kind and n_rows + len(job.X) <= MAX_BATCH_ROWS:
                jobs.append(job)
                n_rows += len(job.X)
            else:
                kept.append(job)
        self._waiting.extend(kept)
        return jobs

    def _answers(self, jobs: Sequence[_Job]) -> Sequence[Prediction | Exception]:
        parts = [job.X for job in jobs]
        try:
            if len(jobs) == 1:
                return [self._predict(parts[0], jobs[0].top)]
            if isinstance(parts[0], list):
                X: Any = [text for part in parts for text in part]
            else:
                X = np.concatenate(parts)
            prediction = self._predict(X, jobs[0].top)
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            # An error in one job must not affect the others.
            return [self._answers([job])[0] for job in jobs]
        ends = accumulate((len(part) for part in parts), initial=0)
        return [tuple(values[i:j] for values in prediction) for i, j in pairwise(ends)]

    def _predict(self, X: Any, top: int) -> Prediction:
        if top:
            found = self._model.top_classes(X, top, probabilities=True)
            return tuple(part for part in found if part is not None)
        return (self._model.predict(X)[:, None],)
