"""SIGTERM and SIGINT under load: every accepted request is answered."""

import json
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest
import services

N_CLIENTS = 16
# Clients of a busy machine may need longer to send the next request over their connection than
# the service waits for it.
PATIENT = """
from bitclass.serving import server
server.STOP_SECONDS = 3.0
from bitclass.cli import main
main()
"""


def serving(*arguments):
    return services.serving(*arguments, command=(sys.executable, "-c", PATIENT))


def request_of(body, path="/predict/numbers?top=3"):
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 3)]
)
def test_a_stop_under_load_loses_no_accepted_request(paths, loaded, number, workers):
    X = services.rows(200, dtype=np.float64)
    expected = loaded["numbers"].predict(X).tolist()
    request = request_of(json.dumps({"rows": X.tolist()}).encode())
    answered, lost = [], []
    ready = threading.Semaphore(0)
    signalled = threading.Event()

    with serving(*paths.values(), "--workers", workers) as service:

        def load():
            connection = services.Connection(service.port)
            first = True
            while first or connection.stream is not None:  # until the server says it was the last
                try:
                    status, content = connection.answer(request, True)
                    good = status == 200 and json.loads(content)["labels"] == expected
                    (answered if good else lost).append((signalled.is_set(), status))
                except (OSError, ValueError, IndexError) as error:
                    lost.append(error)
                    connection.close()
                if first:
                    ready.release()
                    first = False

        # One client has sent half of its request when the signal arrives.
        slow = socket.create_connection(("127.0.0.1", service.port), services.PATIENCE)
        slow.sendall(request[:1000])
        threads = [threading.Thread(target=load) for _ in range(N_CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert ready.acquire(timeout=services.PATIENCE)
        signalled.set()
        service.process.send_signal(number)
        for thread in threads:
            thread.join()
        slow.sendall(request[1000:])
        with slow.makefile("rb") as stream:
            late = stream.read()
        assert service.process.wait(services.PATIENCE) == 0
        assert service.logged() == ""
    assert lost == []
    assert len(answered) >= 2 * N_CLIENTS
    assert sum(after for after, _ in answered) >= N_CLIENTS
    assert late.startswith(b"HTTP/1.1 200"), late
    assert json.loads(late.partition(b"\r\n\r\n")[2])["labels"] == expected
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", service.port), 5).close()


def test_a_service_that_stops_is_not_ready_and_ends_its_connections(paths):
    with serving(paths["words"]) as service:
        connection = services.Connection(service.port)
        ready = b"GET /v2/health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        assert connection.answer(ready, True)[0] == 200
        service.process.terminate()
        statuses = []
        deadline = time.monotonic() + services.PATIENCE
        while connection.stream is not None and time.monotonic() < deadline:
            statuses.append(connection.answer(ready, True)[0])
        assert statuses[-1] == 503
        assert set(statuses[:-1]) <= {200}
        assert service.process.wait(services.PATIENCE) == 0
