"""Several processes that serve the same models as one service."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import services

from bitclass import PackedModel
from bitclass.hash_function import HashFunction
from bitclass.serving import ServedModel, Service
from bitclass.serving.metrics import ENDPOINTS
from bitclass.storage import save

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def workers_of(service):
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    return [int(word) for word in children.read_text().split()]


def wait_until(true):
    deadline = time.monotonic() + services.PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionError:
        return True
    return False


@pytest.fixture
def service(paths):
    with services.serving(*paths.values(), "--workers", 3) as running:
        yield running


def status_of_prediction(service):
    return services.ask(service, "POST", "/predict", {"rows": services.rows(1).tolist()})[0]


def test_all_workers_answer_and_count_together(service, loaded):
    expected = loaded["words"].predict(services.rows(2)).tolist()
    # Connections that stay open, so that every worker gets some.
    held = [http.client.HTTPConnection("127.0.0.1", service.port) for _ in range(30)]
    for connection in held:
        connection.connect()
    for connection in held:
        status, _, content = services.ask(
            service, "POST", "/predict/words", {"rows": services.rows(2).tolist()}, connection
        )
        assert (status, json.loads(content)["labels"]) == (200, expected)
    for connection in held:
        connection.close()

    def metrics():
        text = services.ask(service, "GET", "/metrics")[2].decode()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")

    counts = {
        'bitclass_requests_total{endpoint="predict",status="200"}': "30",
        'bitclass_predict_rows_sum{model="words"}': "60.0",
        "bitclass_requests_in_progress": "1",  # the request for the metrics themselves
    }
    # A worker counts a request when it has answered it, and its client may be faster.
    wait_until(lambda: counts.items() <= metrics().items())


def test_a_worker_that_dies_is_replaced(service):
    before = workers_of(service)
    assert len(before) == 3
    os.kill(before[1], signal.SIGKILL)
    wait_until(lambda: len(set(workers_of(service)) - set(before)) == 1)
    wait_until(lambda: "worker 1 exited (-9) and is replaced" in service.logged())
    assert {status_of_prediction(service) for _ in range(20)} == {200}
    service.process.terminate()
    assert service.process.wait(services.PATIENCE) == 0


def test_workers_end_with_a_parent_that_was_killed(service):
    workers = workers_of(service)
    service.process.kill()
    wait_until(lambda: not any(map(is_running, workers)))
    # A process is a zombie as soon as its first thread is, while others still hold the listener.
    wait_until(lambda: is_refused(service.port))


def test_a_worker_that_cannot_start_ends_the_service_with_its_error(tmp_path):
    """The extractor of a model is opened in the worker, and may be missing there."""
    model = services.random_model(["a", "b"])
    model.summary["extractor"] = {"name": "absent"}
    save(tmp_path / "m.safetensors", model)
    done = subprocess.run(
        [services.COMMAND, "serve", tmp_path / "m.safetensors", "--workers", "2", "--port", "0"],
        capture_output=True, text=True, timeout=services.PATIENCE,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "extractor" in done.stderr


def test_every_route_is_counted_under_its_name(loaded):
    app = Service([ServedModel("words", loaded["words"])])
    assert {route.endpoint.__name__[1:] for route in app._app.routes} | {"none"} == set(ENDPOINTS)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_share_the_model(tmp_path):
    """Ten processes take far less memory than ten models."""
    n_classes, n_bits = 400_000, 512
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 256, (n_classes, n_bits // 8), dtype=np.uint8)
    function = HashFunction(
        rng.standard_normal((services.N_FEATURES, n_bits)).astype(np.float32), np.zeros(n_bits)
    )
    path = tmp_path / "large.safetensors"
    save(path, PackedModel(np.arange(n_classes), weights, function))

    def private(process):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        pages = [line for line in lines if line.startswith("Private_")]
        return sum(int(line.split()[1]) for line in pages) * 1024

    with services.serving(path, "--workers", 4) as service:
        assert {status_of_prediction(service) for _ in range(40)} == {200}
        assert max(map(private, workers_of(service))) < weights.nbytes
