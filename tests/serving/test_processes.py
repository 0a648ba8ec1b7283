"""The service as processes: stopping, workers, and model files that change."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from bitclass.storage import load, save

from . import services

N_CLIENTS = 8


def request_of(X, path="/predict/numbers?top=3"):
    body = json.dumps({"rows": X.tolist()}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def with_limits(**limits):
    """The command, with limits that it has no options for."""
    code = f"""
from bitclass.serving import limits
import dataclasses
limits.Limits.__init__.__defaults__ = dataclasses.astuple(limits.Limits(**{limits!r}))
from bitclass.cli import main
main()
"""
    return (sys.executable, "-c", code)


def children(service):
    found = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    return [int(word) for word in found.read_text().split()]


def workers(service):
    """The children that are copies of the process, and no other programs."""
    command = Path(f"/proc/{service.process.pid}/cmdline").read_bytes()
    return [
        each
        for each in children(service)
        if is_running(each) and Path(f"/proc/{each}/cmdline").read_bytes() == command
    ]


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def answer(service, path="/predict", n_rows=2):
    rows = services.rows(n_rows).tolist()
    return services.ask_json(service, "POST", path, {"rows": rows})


@pytest.mark.parametrize(
    ("number", "n_workers"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)]
)
def test_a_stop_under_load_answers_the_requests_that_have_begun(paths, loaded, number, n_workers):
    X = services.rows(200, dtype=np.float64)
    expected = loaded["numbers"].predict(X).tolist()
    request, wrong = request_of(X), []
    ready, stopping = threading.Semaphore(0), threading.Event()

    with services.serving(*paths.values(), "--workers", n_workers) as service:

        def load_service():
            connection = services.Connection(service.port)
            while not stopping.is_set() or connection.stream is not None:
                try:
                    status, content = connection.answer(request, True)
                except (OSError, IndexError):  # closed between two requests, or before
                    connection.close()
                    if not stopping.is_set():
                        wrong.append("lost")
                else:
                    if status != 200 or json.loads(content)["labels"] != expected:
                        wrong.append((status, content))
                ready.release()

        # One client has sent half of its request when the signal arrives.
        slow = socket.create_connection(("127.0.0.1", service.port), services.PATIENCE)
        slow.sendall(request[:1000])
        threads = [threading.Thread(target=load_service) for _ in range(N_CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(5 * N_CLIENTS):
            assert ready.acquire(timeout=services.PATIENCE)
        stopping.set()
        service.process.send_signal(number)
        for thread in threads:
            thread.join()
        with pytest.raises(ConnectionError):  # nobody is told that the service is ready
            services.ask(service, "GET", "/v2/health/ready")
        slow.sendall(request[1000:])
        with slow.makefile("rb") as stream:
            late = stream.read()
        assert service.process.wait(services.PATIENCE) == 0
        assert service.logged() == ""
    assert wrong == []
    assert late.startswith(b"HTTP/1.1 200"), late
    assert json.loads(late.partition(b"\r\n\r\n")[2])["labels"] == expected


@pytest.mark.parametrize(
    "part", [b"POST /predict HTTP/1.1\r\nHost: 127", request_of(services.rows(9))[:-5]]
)
def test_a_client_that_waits_does_not_prevent_the_stop(paths, part):
    with (
        services.serving(paths["words"], command=with_limits(stop_seconds=1)) as service,
        socket.create_connection(("127.0.0.1", service.port)) as connection,
    ):
        connection.sendall(part)
        assert answer(service)[0] == 200
        service.process.terminate()
        assert service.process.wait(services.PATIENCE) == 0


def test_workers_answer_and_count_together(paths, loaded):
    expected = loaded["words"].predict(services.rows(2)).tolist()
    with services.serving(*paths.values(), "--workers", 2) as service:
        # Connections that stay open, so that both workers get some.
        held = [http.client.HTTPConnection("127.0.0.1", service.port) for _ in range(30)]
        for connection in held:
            connection.connect()
        rows = {"rows": services.rows(2).tolist()}
        for connection in held:
            _, _, content = services.ask(service, "POST", "/predict", rows, connection)
            assert json.loads(content)["labels"] == expected
            connection.close()

        def metrics():
            text = services.ask(service, "GET", "/metrics")[2].decode()
            return dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")

        counts = {
            'bitclass_requests_total{endpoint="predict",status="200"}': "30.0",
            'bitclass_predict_rows_sum{model="words"}': "60.0",
        }
        # A worker counts a request when it has answered it, and its client may be faster.
        services.wait_until(lambda: counts.items() <= metrics().items())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_are_replaced_and_end_with_their_parent(paths):
    with services.serving(paths["words"], "--workers", 2) as service:
        services.wait_until(lambda: answer(service)[0] == 200)
        before = workers(service)
        assert len(before) == 2
        os.kill(before[1], signal.SIGKILL)
        services.wait_until(lambda: len({*workers(service)} - {*before}) == 1)
        services.wait_until(lambda: len(workers(service)) == 2)
        assert {answer(service)[0] for _ in range(10)} == {200}
        left = children(service)
        service.process.kill()
        services.wait_until(lambda: not any(map(is_running, left)))


ADOPTING = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # adopts orphans, as the first process of a container does
from bitclass.cli import main
subprocess.run(["sh", "-c", "sleep 1 & sleep 1.5 &"])
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans by prctl")
def test_an_adopted_process_that_ends_does_not_end_the_service(paths):
    command = (sys.executable, "-c", ADOPTING)
    with services.serving(paths["words"], "--workers", 2, command=command) as service:
        orphans = [each for each in children(service) if each not in workers(service)]
        services.wait_until(lambda: answer(service)[0] == 200)
        services.wait_until(lambda: not any(is_running(each) for each in orphans[:2]))
        assert {answer(service)[0] for _ in range(10)} == {200}
        assert service.process.poll() is None


def model_of(k):
    """A model whose labels say which one it is."""
    return services.random_model([f"{k}-{i}" for i in range(20)], seed=k)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_changed_file_takes_over_between_requests(tmp_path, n_workers):
    path, X = tmp_path / "m=1.safetensors", services.rows(3, dtype=np.float64)
    expected = [model_of(k).predict(X).tolist() for k in range(12)]
    save(path, model_of(0))
    command = with_limits(reload_seconds=0.02)
    wrong, done, seen = [], threading.Event(), set()
    arguments = (f"m={path}", "--workers", n_workers)
    with services.serving(*arguments, command=command) as service:

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", service.port)
            while not done.is_set():
                body = {"rows": X.tolist()}
                status, _, content = services.ask(service, "POST", "/predict/m", body, connection)
                labels = json.loads(content).get("labels")
                if status != 200 or labels not in expected:
                    wrong.append((status, content))
                else:
                    seen.add(labels[0].partition("-")[0])

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for k in range(1, 12):
            save(path, model_of(k))
            services.wait_until(lambda k=k: str(k) in seen)
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert set(service.logged().splitlines()) == {"m: the changed file is loaded"}


def test_a_new_worker_serves_the_file_as_it_is_now(tmp_path):
    """The models that its parent has loaded may be old."""
    path, X = tmp_path / "m.safetensors", services.rows(2, dtype=np.float64)
    save(path, model_of(1))
    command = with_limits(reload_seconds=30.0)
    with services.serving(path, "--workers", 2, command=command) as service:
        assert answer(service)[1]["labels"] == model_of(1).predict(X).tolist()
        save(path, model_of(2))
        before = workers(service)
        for each in before:
            os.kill(each, signal.SIGKILL)
        services.wait_until(lambda: len({*workers(service)} - {*before}) == 2)
        for _ in range(10):
            assert answer(service)[1]["labels"] == model_of(2).predict(X).tolist()
        service.process.terminate()
        assert service.process.wait(services.PATIENCE) == 0


def test_a_broken_file_is_refused_and_the_old_model_stays(tmp_path):
    path, X = tmp_path / "m.safetensors", services.rows(3, dtype=np.float64)
    save(path, model_of(1))
    whole = path.read_bytes()
    with services.serving(path, command=with_limits(reload_seconds=0.02)) as service:
        path.write_bytes(whole[: len(whole) // 2])  # in place, as `cp` does
        services.wait_until(lambda: "m: the changed file is refused: " in service.logged())
        assert answer(service, n_rows=3)[1]["labels"] == model_of(1).predict(X).tolist()
        path.unlink()
        assert answer(service, n_rows=3)[0] == 200
        save(path, model_of(2))
        expected = load(path).predict(services.rows(3)).tolist()
        services.wait_until(lambda: answer(service, n_rows=3)[1]["labels"] == expected)
        metrics = services.ask(service, "GET", "/metrics")[2].decode()
    assert 'bitclass_reloads_total{model="m",result="refused"} ' in metrics
    assert 'bitclass_reloads_total{model="m",result="loaded"} 1.0' in metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "model2vec", "model": "attacker/evil"}, "attacker/evil"),
        (
            {"kind": "onnx", "file": "/etc/hostname", "sha256": "0" * 64},
            "file 'hostname', which is not beside",
        ),
    ],
)
def test_a_model_file_does_not_choose_what_is_read_or_downloaded(tmp_path, entry, words):
    model = services.random_model(["a", "b"])
    model.summary["extractor"] = entry
    save(tmp_path / "m.safetensors", model)
    done = subprocess.run(
        [services.COMMAND, "serve", tmp_path / "m.safetensors", "--workers", "2", "--port", "0"],
        capture_output=True, text=True, timeout=services.PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert words in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_file_beside_the_model_is_used(tmp_path, n_workers):
    served = services.image_model()
    shutil.copy(served.extractor.file, tmp_path / "net.onnx")
    served.model.summary["extractor"] = served.extractor.specification() | {
        "file": "/absent/net.onnx"
    }
    save(tmp_path / "m.safetensors", served.model)
    with services.serving(tmp_path / "m.safetensors", "--workers", n_workers) as service:
        image = services.encoded(services.drawn(1, 3))
        _, found = services.ask_json(service, "POST", "/predict", image, Content_Type="image/png")
    assert found["labels"] == [services.CLASSES[1]]
