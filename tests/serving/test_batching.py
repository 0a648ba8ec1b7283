"""Concurrent requests are predicted together, each with its own answer or error."""

import asyncio
import threading

import numpy as np
import pytest

from bitclass.serving import ServedModel
from bitclass.serving.batching import MAX_BATCH_ROWS, Batcher

from . import services


class HeldModel:
    """A model whose first call waits, so that other jobs accumulate."""

    def __init__(self, model):
        self.model, self.calls, self.go_on = model, [], threading.Event()
        self.classes, self.text = model.classes, None

    def predict(self, X, reject):
        self.calls.append(len(X))
        assert self.go_on.wait(services.PATIENCE)
        return self.model.predict(X, reject=reject)

    def top_classes(self, X, k, **options):
        self.calls.append((len(X), k))
        return self.model.top_classes(X, k, **options)


def gathered(jobs):
    """Answers or errors of jobs that arrive during the first call, and the calls made."""
    model = HeldModel(services.random_model(range(30)))
    batches = []

    async def run():
        def count(served, n_requests, found):
            batches.append((served.name, n_requests, sum(len(each.labels) for each in found)))

        batcher = Batcher(count)
        served = ServedModel("m", model)
        tasks = [asyncio.create_task(batcher.predict(served, services.rows(1, 99)))]
        while not model.calls:
            await asyncio.sleep(0)
        tasks += [asyncio.create_task(batcher.predict(served, X, top)) for X, top in jobs]
        await asyncio.sleep(0)  # each of them waits now
        model.go_on.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())[1:]
    return answers, model.calls[1:], model.model, batches


def test_waiting_jobs_are_predicted_in_one_call():
    parts = [services.rows(n, n) for n in (1, 5, 2, 8)]
    answers, calls, model, batches = gathered([(X, 0) for X in parts])
    assert calls == [16]
    assert batches == [("m", 1, 1), ("m", 4, 16)]
    for X, answer in zip(parts, answers, strict=True):
        np.testing.assert_array_equal(answer.labels, model.predict(X)[:, None])


def test_only_equal_kinds_of_jobs_share_a_call():
    jobs = [(services.rows(3, 1), 0), (services.rows(3, 2), 4), (services.rows(3, 3), 0),
            (services.rows(3, 4), 4), (services.rows(3, 5, np.float64), 0)]  # fmt: skip
    answers, calls, model, _ = gathered(jobs)
    assert calls == [6, (6, 4), 3]
    for (X, top), answer in zip(jobs, answers, strict=True):
        expected = model.top_classes(X, max(1, top), probabilities=True)
        assert (answer.distances is None) == (top == 0)
        for found, right in zip(answer, expected, strict=False):
            if found is not None:
                np.testing.assert_array_equal(found, right)


def test_a_bad_row_fails_its_own_request_only():
    parts = [services.rows(2, n) for n in range(4)]
    parts[2][1, 3] = np.inf
    answers, _, model, _ = gathered([(X, 0) for X in parts])
    assert isinstance(answers[2], ValueError)
    assert "row 1, feature 3" in str(answers[2])
    for i in (0, 1, 3):
        np.testing.assert_array_equal(answers[i][0][:, 0], model.predict(parts[i]))


def test_batches_are_limited():
    parts = [services.rows(MAX_BATCH_ROWS // 2, n) for n in range(3)]
    _, calls, _, _ = gathered([(X, 0) for X in parts])
    assert calls == [MAX_BATCH_ROWS, MAX_BATCH_ROWS // 2]


def test_a_disconnected_client_does_not_stop_the_others():
    model = services.random_model(range(30))
    served = ServedModel("m", model)

    async def run():
        batcher = Batcher(lambda *counts: None)
        gone = asyncio.create_task(batcher.predict(served, services.rows(1)))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await batcher.predict(served, services.rows(2))

    np.testing.assert_array_equal(asyncio.run(run())[0][:, 0], model.predict(services.rows(2)))
