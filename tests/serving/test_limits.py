"""What one client can take from the others: memory, time, connections."""

import base64
import json
import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest

from bitclass.serving import ServedModel, app, batching
from bitclass.storage import save

from . import services

HOST = b"Host: 127.0.0.1\r\n"
N_SLOW = 100


def post(body, path="/predict", announced=None):
    length = len(body) if announced is None else announced
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n".encode()
        + body
    )


@contextmanager
def connected(service, request, receive_bytes=None):
    """A connection over which a request, or a part of one, has been sent."""
    with socket.socket() as connection:
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(services.PATIENCE)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(request)
        yield connection


def health(service):
    """Seconds until the health endpoint has answered."""
    start = time.monotonic()
    assert services.ask(service, "GET", "/v2/health/live")[0] == 200
    return time.monotonic() - start


@pytest.fixture
def many():
    """A model whose complete answers are long."""
    return ServedModel("m", services.random_model([f"a long label {i}" for i in range(2000)]))


def long_answer(n_rows=25):
    body = json.dumps({"rows": services.rows(n_rows).tolist()}).encode()
    return post(body, "/predict?top=2000")


def test_rows_times_best_classes_are_limited(many):
    rows = services.rows(6).tolist()
    with services.in_thread(many, best_classes=10_000) as service:
        tensor = {"name": "rows", "datatype": "FP64", "shape": [6, 12], "data": rows}
        for path, body in [
            ("/predict?top=2000", {"rows": rows}),
            ("/v2/models/m/infer", {"inputs": [tensor], "parameters": {"top": 2000}}),
        ]:
            status, answer = services.ask_json(service, "POST", path, body)
            assert status == 413
            assert "at most 10000, found 6 x 2000" in answer["error"]
        assert services.ask(service, "POST", "/predict?top=2000", {"rows": rows[:5]})[0] == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"rows": [[' + b"0," * 1000 + b"0]]}", "with 500 values"),
        (b'{"rows": [' + b"[]," * 100_001 + b"[]]}", "values in 100000 lists"),
        (b'{"rows": [["' + b"x" * 1_000_000 + b'"' + b',""' * 400 + b"]]}", "must have 12 values"),
    ],
)
def test_json_that_would_take_much_memory_is_refused(many, body, words):
    limit = 10**6 if b"[]" in body else 500
    with services.in_thread(many, json_values=limit) as service:
        status, answer = services.ask_json(service, "POST", "/predict", body)
    assert status in (400, 413)
    assert words in answer["error"]


SLOW = {
    "silent": b"",
    "headers": b"POST /predict HTTP/1.1\r\nHost: 127",
    "body": post(b"{", announced=9),
    "body of a health check": b"GET /v2/health/live HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 9\r\n\r\n",
    "answer": long_answer(),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SLOW)
def test_slow_clients_lose_their_connection_and_disturb_nobody(many, kind):
    limits = {"head_seconds": 1.0, "body_seconds": 1.0, "send_seconds": 1.0, "connections": 50,
              "held_bytes": 50_000_000}  # fmt: skip
    with services.in_thread(many, **limits) as service, ExitStack() as stack:
        held = [
            stack.enter_context(connected(service, SLOW[kind], 2048 if kind == "answer" else None))
            for _ in range(N_SLOW)
        ]
        for _ in range(5):
            assert health(service) < 1.0
        found = service.app._connections
        # Some are told that there is too much to send, and read that.
        may_stay = (lambda each: not each._in_progress) if kind == "answer" else (lambda _: False)
        services.wait_until(lambda: not found.held_bytes and all(map(may_stay, found.open)))
        rows = {"rows": services.rows(1).tolist()}
        assert services.ask(service, "POST", "/predict", rows)[0] == 200
        if kind == "body":  # the others were told that there are too many, or not even that
            statuses = {connection.recv(65536)[9:12] for connection in held}
            assert {b"408"} <= statuses <= {b"408", b"503", b""}


def test_a_byte_now_and_then_does_not_keep_a_connection(many):
    """After 408 the connection is closed, whatever the client sends."""

    def is_closed():
        try:
            connection.sendall(b" ")
        except ConnectionError:
            return True
        return False

    with (
        services.in_thread(many, body_seconds=0.5) as service,
        connected(service, post(b"{", announced=10**5)) as connection,
    ):
        services.wait_until(is_closed)


def test_health_is_answered_when_all_connections_are_taken(many):
    with services.in_thread(many, connections=4) as service, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connected(service, post(b"{", announced=9)))
        services.wait_until(lambda: len(service.app._connections.open) == 4)
        services.wait_until(
            lambda: all(each._in_progress for each in service.app._connections.open)
        )
        assert services.ask(service, "GET", "/v2/health/ready")[0] == 200
        status, headers, content = services.ask(service, "GET", "/")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert json.loads(content)["error"] == "too many connections"


def test_bodies_and_answers_in_memory_are_limited(many):
    with services.in_thread(many, held_bytes=200_000, wait_seconds=0.1) as service:
        with connected(service, post(b" " * 150_000, announced=220_000)) as connection:
            services.wait_until(lambda: service.app._connections.held_bytes == 150_000)
            status, answer = services.ask_json(service, "POST", "/predict", b" " * 60_000)
            assert (status, answer["error"]) == (503, "too many large requests at once")
            # The first request may exceed the limit; small ones are answered nevertheless.
            connection.sendall(b" " * 60_000)
            services.wait_until(lambda: service.app._connections.held_bytes == 210_000)
            assert health(service) < 1.0
            small = {"rows": services.rows(1).tolist()}
            assert services.ask(service, "POST", "/predict", small)[0] == 200
        services.wait_until(lambda: service.app._connections.held_bytes == 0)
        rows = services.rows(5).tolist()
        assert services.ask(service, "POST", "/predict?top=2000", {"rows": rows})[0] == 413
        assert services.ask(service, "POST", "/predict?top=200", {"rows": rows})[0] == 200
        services.wait_until(lambda: service.app._connections.held_bytes == 0)


def test_predictions_that_wait_to_be_written_are_limited(many, monkeypatch):
    """Of 20 clients at once, they took several times the memory of bodies and answers."""
    predicted, written, answer = [], threading.Event(), app.plain_answer
    top_classes = many.model.top_classes

    def predict(*arguments, **options):
        predicted.extend(arguments[0])
        return top_classes(*arguments, **options)

    def write(*arguments):
        assert written.wait(services.PATIENCE)
        return answer(*arguments)

    monkeypatch.setattr(many.model, "top_classes", predict)
    monkeypatch.setattr(app, "plain_answer", write)
    limits = {"held_bytes": 16_000_000, "wait_seconds": services.PATIENCE}
    with services.in_thread(many, **limits) as service, ExitStack() as stack:
        held = [stack.enter_context(connected(service, long_answer())) for _ in range(20)]
        found = service.app._connections
        services.wait_until(lambda: found.n_waiting == 18 and len(predicted) >= 2 * 25)
        assert len(predicted) == 2 * 25
        written.set()
        assert [connection.recv(12)[9:] for connection in held] == [b"200"] * 20


def test_long_labels_leave_fewer_best_classes_per_request():
    labels = [f"{i} " + 3000 * "x" for i in range(100)]
    served = ServedModel("m", services.random_model(np.array(labels)))
    rows = services.rows(60).tolist()
    with services.in_thread(served) as service:
        status, answer = services.ask_json(service, "POST", "/predict?top=100", {"rows": rows})
        assert (status, "found 60 x 100" in answer["error"]) == (413, True)
        assert services.ask(service, "POST", "/predict?top=100", {"rows": rows[:10]})[0] == 200


def test_whoever_does_not_read_an_answer_makes_room_for_those_who_wait(many):
    limits = {"held_bytes": 20_000_000, "wait_seconds": 6.0}
    with services.in_thread(many, **limits) as service, ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(connected(service, long_answer(), 2048))
        services.wait_until(lambda: service.app._connections.unread_bytes > 10_000_000)
        body = long_answer().partition(b"\r\n\r\n")[2]
        assert services.ask(service, "POST", "/predict?top=2000", body)[0] == 200


def test_nobody_waits_for_a_search_among_the_names_of_classes(many, monkeypatch):
    found = threading.Event()

    def search(*arguments):
        assert found.wait(services.PATIENCE)
        return {}

    monkeypatch.setattr(app, "listed_classes", search)
    request = b"GET /api/models/m/classes HTTP/1.1\r\n" + HOST + b"\r\n"
    with services.in_thread(many) as service, connected(service, request):
        waiting = threading.Timer(10.0, found.set)
        waiting.start()
        rows = services.rows(2000).tolist()
        assert services.ask(service, "POST", "/predict", {"rows": rows})[0] == 200
        assert not found.is_set()
        found.set()
        waiting.cancel()


def test_large_bodies_wait_for_each_other(many):
    """Together they exceed the limit, and each arrives in parts."""
    request, statuses = post(b'{"rows": [[' + b" " * 150_000 + b"0" + 11 * b",0" + b"]]}"), []

    def send():
        with connected(service, request[:100_000]) as connection:
            arrived.wait()
            connection.sendall(request[100_000:])
            statuses.append(connection.recv(65536)[9:12])

    arrived = threading.Barrier(20)
    with services.in_thread(many, held_bytes=200_000, wait_seconds=services.PATIENCE) as service:
        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [b"200"] * 20
        services.wait_until(lambda: service.app._connections.held_bytes == 0)


def test_clients_that_leave_while_they_wait_leave_nothing_behind(many, caplog):
    caplog.set_level("ERROR", "uvicorn.error")
    with services.in_thread(many, held_bytes=200_000, wait_seconds=services.PATIENCE) as service:
        found = service.app._connections
        with connected(service, post(b" " * 150_000, announced=160_000)):
            services.wait_until(lambda: found.held_bytes == 150_000)
            with connected(service, post(b" " * 100_000, announced=110_000)):
                services.wait_until(lambda: len(found.with_body) == 2)
            services.wait_until(lambda: len(found.with_body) == 1)
        services.wait_until(lambda: not found.open and found.held_bytes == 0)
    assert caplog.records == []


def test_the_rest_of_a_request_is_not_predicted_for_a_client_that_has_left(many, monkeypatch):
    monkeypatch.setattr(batching, "MAX_SCORES", 1)  # one row per call
    n_calls = []
    with services.in_thread(many) as service:
        monkeypatch.setattr(service.app._batcher, "_on_batch", lambda *_: n_calls.append(1))
        body = json.dumps({"rows": services.rows(5000).tolist()}).encode()
        with connected(service, post(body, "/predict?top=2")):
            services.wait_until(lambda: n_calls)
        services.wait_until(lambda: not service.app._connections.open)
        services.wait_until(lambda: service.app._batcher._working is None)
    assert len(n_calls) < 5000


@pytest.mark.parametrize(
    ("header", "status"),
    [(b"A: " + b"b" * 65_000, 200), (b"A: " + b"b" * 70_000, 431), (b"A: " + b"b" * 300_000, 400),
     (b"A: b\r\n" * 20_000 + b"A: b", 431)],
)  # fmt: skip
def test_headers_of_a_request_are_limited(service, header, status):
    request = b"GET / HTTP/1.1\r\n" + HOST + header + b"\r\n\r\n"
    for parts in ([request], [request[i : i + 10_000] for i in range(0, len(request), 10_000)]):
        with connected(service, b"") as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                found = int(connection.recv(65536).split()[1])
            except ConnectionError:  # closed while the rest was sent
                found = 400
        assert found in (status, 400 if status != 200 else 200)


def test_requests_sent_without_reading_answers_are_limited(many):
    request = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
    with services.in_thread(many) as service, connected(service, b"") as connection:
        with pytest.raises(ConnectionError):
            connection.sendall(request * 1_000_000)
        assert health(service) < 1.0


def images_of(*images):
    return {"images": [base64.b64encode(image).decode() for image in images]}


def test_pixels_are_limited_per_image_and_per_request(served):
    large = services.encoded(np.zeros((1000, 1000, 3), np.uint8))
    with services.in_thread(served, image_pixels=10**6, request_pixels=2 * 10**6) as service:
        assert services.ask(service, "POST", "/predict", images_of(large, large))[0] == 200
        for images, words in [
            ([services.encoded(np.zeros((1001, 1000, 3), np.uint8))], "1000 x 1001 pixels"),
            ([large] * 3, "3000000 pixels, the limit is 2000000"),
        ]:
            status, answer = services.ask_json(service, "POST", "/predict", images_of(*images))
            assert status == 422
            assert words in answer["error"]


def test_a_large_photograph_is_decoded_at_a_part_of_its_size(server, served):
    from PIL import Image

    from bitclass.images import decode

    content = services.encoded(services.drawn(1, 3, 2000), "JPEG", quality=90)
    assert decode(content, "photo", side=48).size == (250, 250)
    assert decode(content, "photo").size == Image.open(services.io.BytesIO(content)).size
    _, answer = services.ask_json(server, "POST", "/predict/drawn", images_of(content))
    assert answer["labels"] == [services.CLASSES[1]]


class Rejecting:
    """A model with typicality, which is the first feature of a row."""

    typicality_table = (0.0, 1.0)

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def top_classes(self, X, k, *, typicality=False, **options):
        found = self._model.top_classes(X, k, **options)
        values = np.asarray(X)[:, 0].astype(np.float64) if typicality else None
        return found._replace(typicality=values)


def test_rows_of_no_known_class_are_rejected_on_request():
    model = Rejecting(services.random_model(["a", "b", "c"]))
    X = services.rows(3)
    X[:, 0] = (0.01, 0.5, 0.03)
    expected, rows = model.predict(X).tolist(), {"rows": X.astype(float).tolist()}
    with services.in_thread(ServedModel("m", model)) as service:
        _, answer = services.ask_json(service, "POST", "/predict", rows)
        assert answer == {"model": "m", "labels": expected}
        _, answer = services.ask_json(service, "POST", "/predict?reject=0.04&top=1", rows)
        assert answer["labels"] == [None, expected[1], None]
        assert answer["typicality"] == X[:, 0].astype(float).tolist()
        tensor = {"name": "rows", "datatype": "FP64", "shape": [3, 12], "data": rows["rows"]}
        body = {"inputs": [tensor], "parameters": {"reject": 0.02}}
        _, answer = services.ask_json(service, "POST", "/v2/models/m/infer", body)
        found = {each["name"]: each["data"] for each in answer["outputs"]}
        assert (found["label"], found["rejected"]) == (expected, [True, False, False])
        metrics = services.ask(service, "GET", "/metrics")[2].decode()
    assert 'bitclass_rejected_rows_total{model="m"} 3.0' in metrics
    assert 'bitclass_typicality_count{model="m"} 6.0' in metrics
    assert 'bitclass_confidence_count{model="m"} 3.0' in metrics


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_near_that_of_an_idle_service(tmp_path):
    """Eight clients ask for as much as they may, at the same time."""
    path = tmp_path / "m.safetensors"
    save(path, services.random_model(np.arange(100_000)))
    one_row = b"[" + b",".join([b"0.5"] * 12) + b"]"
    bombs = [
        post(b'{"rows":[' + b",".join([one_row] * 500) + b"]}", "/predict?top=10"),
        post(b'{"rows":[' + one_row + b"]}", "/predict?top=50000"),
        post(b'{"rows":[' + b"0.1," * 249_000 + b"0]}"),
        post(b'{"rows":[' + b"{}," * 99_000 + b"0]}"),
        post(b'{"rows":["' + b"x" * 3_900_000 + b'\\ud83d\\ude00"]}'),
        post(b" " * 9_999_999),
        b"GET /api/models/m/classes?search=9 HTTP/1.1\r\n" + HOST + b"\r\n",
    ]
    with services.serving(path) as service:
        services.ask(service, "POST", "/predict?top=5", {"rows": services.rows(1).tolist()})
        idle, _ = services.memory(service.process.pid)

        def send(bomb):
            for _ in range(3):
                # Some are refused while they are sent.
                with suppress(ConnectionError), connected(service, bomb) as connection:
                    assert connection.recv(65536).startswith(b"HTTP/1.1 ")

        threads = [threading.Thread(target=send, args=(bomb,)) for bomb in bombs]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert health(service) < 1.0
        _, peak = services.memory(service.process.pid)
    assert peak < 2 * idle, SimpleNamespace(idle=idle, peak=peak)
