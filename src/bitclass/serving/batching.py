"""Dynamic batching: waiting requests are predicted in one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect

from bitclass.arrays import RowError
from bitclass.model import TopClasses
from bitclass.serving.models import ServedModel

# Larger batches are not faster, and delay waiting requests.
MAX_BATCH_ROWS = 4096
# Scores in memory at once, when probabilities are computed.
MAX_SCORES = 1 << 18


@dataclass(eq=False)
class _Job:
    """Rows to predict; jobs that agree in all but rows and answer can share a call."""

    X: Any
    answer: asyncio.Future[TopClasses]
    served: ServedModel
    top: int
    typicality: bool
    max_rows: int  # of a call

    def shares_call(self, other: _Job) -> bool:
        types = getattr(self.X, "dtype", None), getattr(other.X, "dtype", None)
        return (
            self.served is other.served
            and (self.top, self.typicality) == (other.top, other.typicality)
            and types[0] == types[1]
        )


class Batcher:
    """Predict the rows of concurrent requests together, in a separate thread.

    There is no waiting for a batch to fill: each call takes all requests that arrived during the
    previous one. Large requests are predicted in parts, between which others get their turn.

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
        is_gone: Callable[[], bool] = lambda: False,
    ) -> TopClasses:
        """Predict the `top` best classes, or only the label if 0, of rows (n, d) or n texts.

        `is_gone` says whether the client has left, and is called between parts. Raises RowError for
        values that the model cannot encode.
        """
        max_rows = MAX_BATCH_ROWS
        if top:
            max_rows = min(max_rows, max(1, MAX_SCORES // len(served.model.classes)))
        parts: list[TopClasses] = []
        for start in range(0, len(X), max_rows):
            if start and is_gone():
                raise ClientDisconnect
            answer: asyncio.Future[TopClasses] = asyncio.get_running_loop().create_future()
            part = X[start : start + max_rows]
            self._waiting.append(_Job(part, answer, served, top, typicality, max_rows))
            if self._working is None:
                self._working = asyncio.create_task(self._work())
            try:
                parts.append(await answer)
            except RowError as error:
                raise RowError(f"{error} after row {start - 1}" if start else error) from None
        if len(parts) == 1:
            return parts[0]
        columns: list[Any] = [
            None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True)
        ]
        return TopClasses(*columns)

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
        first = self._waiting.popleft()
        jobs, n_rows = [first], len(first.X)
        for _ in range(len(self._waiting)):
            job = self._waiting.popleft()
            if n_rows + len(job.X) <= first.max_rows and job.shares_call(first):
                jobs.append(job)
                n_rows += len(job.X)
            else:
                self._waiting.append(job)
        return jobs


def _answers(jobs: Sequence[_Job]) -> Sequence[TopClasses | Exception]:
    """Predictions of jobs that share a call, or their errors."""
    parts, first = [job.X for job in jobs], jobs[0]
    model: Any = first.served.model
    try:
        X = parts[0]
        if len(jobs) > 1:
            is_text = isinstance(X, list)
            X = [text for part in parts for text in part] if is_text else np.concatenate(parts)
        if first.top or first.typicality:
            options = {"probabilities": first.top > 0, "typicality": first.typicality}
            prediction = model.top_classes(X, max(1, first.top), **options)
        else:
            prediction = TopClasses(model.predict(X, reject=0)[:, None], None)  # type: ignore[arg-type]
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        # An error in one job must not affect the others.
        return [_answers([job])[0] for job in jobs]
    if len(jobs) == 1:
        return [prediction]
    split: list[list[Any]] = [
        [None if values is None else values[i:j] for values in prediction]
        for i, j in pairwise(accumulate(map(len, parts), initial=0))
    ]
    return [TopClasses(*columns) for columns in split]
