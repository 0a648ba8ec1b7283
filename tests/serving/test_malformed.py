"""Ten thousand malformed requests: each is answered with 4xx, and the service is still up."""

import copy
import json
import random
import threading

from . import services

N_REQUESTS = 10_000
N_CONNECTIONS = 4

ROWS = {"name": "rows", "datatype": "FP32", "shape": [2, 12], "data": [0.5] * 24}
TEXTS = {"name": "texts", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "b"]}
VALID = {
    model: {
        "id": "1",
        "inputs": [tensor],
        "outputs": [{"name": "label", "parameters": {"binary_data": False}}],
        "parameters": {"top": 2},
    }
    for model, tensor in (("words", ROWS), ("intents", TEXTS))
}
# Values that are invalid anywhere in a valid request.
WRONG = [None, True, -1, 0.25, 10**40, "", "x", "\u0000", [], [[]], [None], {}, {"a": 1}, [["a"]]]
PLACES = [
    ("inputs",), ("inputs", 0), ("inputs", 0, "name"), ("inputs", 0, "datatype"),
    ("inputs", 0, "shape"), ("inputs", 0, "shape", 0), ("inputs", 0, "shape", 1),
    ("inputs", 0, "data"), ("outputs", 0, "name"),
]  # fmt: skip


def malformed_body(rng, valid):
    """An invalid body for `/infer`, and additional headers."""
    way = rng.randrange(6)
    whole = json.dumps(valid).encode()
    if way == 0:  # cut short
        return whole[: rng.randrange(len(whole))], {}
    if way == 1:  # random bytes
        return b"\xff" + rng.randbytes(rng.randrange(200)), {}
    if way == 2:  # a boundary in the wrong place
        length = rng.choice([rng.randrange(len(whole)), len(whole) + rng.randrange(1, 10**6)])
        return whole, {"Inference-Header-Content-Length": str(length)}
    if way == 3:  # no number at all
        text = rng.choice(["x", "-1", "1e3", "0x10", "9" * 400, "+5", "1 2", "\xb2"])
        return whole, {"Inference-Header-Content-Length": text}
    if way == 4:  # bytes that nobody has announced
        tail = rng.randbytes(rng.randrange(1, 300))
        return whole + tail, {"Inference-Header-Content-Length": str(len(whole))}
    request = copy.deepcopy(valid)
    *parents, last = rng.choice(PLACES)
    target = request
    for key in parents:
        target = target[key]
    target[last] = rng.choice(WRONG)
    return json.dumps(request).encode(), {}


def malformed_request(rng):
    """A complete request, and whether the connection can be used afterwards."""
    host = "Host: 127.0.0.1\r\n"
    way = rng.randrange(20)
    if way == 0:  # no HTTP
        garbage = rng.choice([b"\x16\x03\x01", b"GET\r\n\r\n", b"\0" * 9, b"G E T / HTTP/1.1\r\n",
                              b"POST /predict HTTP/9.9\r\n\r\n", b"<xml/>\r\n\r\n"])  # fmt: skip
        return garbage + rng.randbytes(20) + b"\r\n\r\n", False
    if way == 1:  # lengths that contradict each other, or are none
        lines = rng.choice(["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                            "Content-Length: -5\r\n", "Content-Length: five\r\n",
                            "Content-Length: 5\r\nContent-Length: 6\r\n",
                            "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"])  # fmt: skip
        return f"POST /predict HTTP/1.1\r\n{host}{lines}\r\nabcde".encode(), False
    if way == 2:  # addresses that do not exist
        path = rng.choice(["/x", "/v2/", "/v3", "/../etc/passwd", "/v2/models/%00", "/predict/%ff",
                           "/v2/models/absent", "/v2/models//infer", "/%2e%2e/",
                           "/api/models/x/y"])  # fmt: skip
        path += rng.choice(["", "z", "?a=%ff", "/" * rng.randrange(1, 50)])
        return f"GET {path} HTTP/1.1\r\n{host}\r\n".encode(), True
    if way == 3:  # another site
        name = rng.choice(["evil.example", "127.0.0.1.evil.example", "", "[", "a@127.0.0.1", ":::"])
        return f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode(), True
    model = rng.choice(list(VALID))
    body, headers = malformed_body(rng, VALID[model])
    path = f"/v2/models/{model}/infer"
    if way == 4:
        path = f"/predict?top={rng.choice(['x', '-1', '0', '41', '1e9', '%00', '9' * 999])}"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\n{host}{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body, True


def test_malformed_requests_get_4xx_and_the_service_stays_up(service, loaded):
    wrong = []

    def send(seed):
        rng, connection = random.Random(seed), services.Connection(service.port)
        for _ in range(N_REQUESTS // N_CONNECTIONS):
            request, keep = malformed_request(rng)
            try:
                status, content = connection.answer(request, keep)
                # What is not HTTP is refused by uvicorn, in plain text.
                known = content.startswith(b"Invalid HTTP") or "error" in json.loads(content)
                if not 400 <= status < 500 or not known:
                    wrong.append((request, status, content))
            except Exception as error:
                wrong.append((request, error))
                connection.close()
        connection.close()

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(N_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    X = services.rows(3)
    status, answer = services.ask_json(service, "POST", "/predict", {"rows": X.tolist()})
    assert (status, answer["labels"]) == (200, loaded["words"].predict(X).tolist())
    assert service.process.poll() is None
