"""Requests damaged at random: none gets an internal error, and the service is still up.

`benchmarks/attack.py requests` sends 10,000 of them.
"""

import json
import random
import socket
from collections import Counter
from contextlib import suppress

from . import services


def valid_requests():
    """Requests of every kind."""
    rows = services.rows(2).tolist()
    tensor = {"name": "rows", "datatype": "FP32", "shape": [2, 12]}
    binary = services.rows(2).tobytes()
    head = json.dumps(
        {"inputs": [tensor | {"parameters": {"binary_data_size": len(binary)}}]}
    ).encode()
    bodies = [
        ("/predict?top=3", json.dumps({"rows": rows}).encode(), ""),
        ("/predict/words", json.dumps({"rows": rows}).encode(), ""),
        ("/v2/models/words/infer", json.dumps({"inputs": [tensor | {"data": rows}]}).encode(), ""),
        (
            "/v2/models/words/infer",
            head + binary,
            f"Inference-Header-Content-Length: {len(head)}\r\n",
        ),
    ]
    host = "Host: 127.0.0.1\r\n"
    found = [
        f"POST {path} HTTP/1.1\r\n{host}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body
        for path, body, more in bodies
    ]
    found += [
        f"GET {path} HTTP/1.1\r\n{host}\r\n".encode()
        for path in (
            "/",
            "/metrics",
            "/v2/models/words",
            "/api/models/words/classes?search=a&start=0",
        )
    ]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b'{"rows":', b"[]}", b""))
    found.append(
        f"POST /predict HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks
    )
    return found


def damaged(rng, content):
    """A copy with a few bytes changed, inserted, removed or repeated."""
    spoiled = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at, way = rng.randrange(len(spoiled)), rng.randrange(6)
        if way == 0:
            spoiled[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            spoiled[at:at] = rng.randbytes(rng.choice([1, 3, 1000]))
        elif way == 2:
            del spoiled[at : at + rng.choice([1, 2, 30])]
        elif way == 3:
            spoiled[at:at] = rng.choice(
                [b"\r\n", b"\0", b"-1", b"1e999", b"NaN", b"[", b'"', b"9" * 40]
            )
        elif way == 4:
            spoiled[at:at] = spoiled[at : at + 200]
        else:
            spoiled = spoiled[: max(1, at)]
        if not spoiled:
            return b"\n"
    return bytes(spoiled)


def send_damaged(service, n, seed):
    """Send damaged requests; returns how often each status was answered."""
    requests, rng, statuses = valid_requests(), random.Random(seed), Counter()
    for i in range(n):
        request = damaged(rng, rng.choice(requests))
        with socket.create_connection(("127.0.0.1", service.port), services.PATIENCE) as connection:
            answer = b""
            with suppress(ConnectionError):
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)  # an incomplete request does not wait
                while part := connection.recv(1 << 16):
                    answer += part
        status = answer[9:12].decode() or "closed"
        statuses[status] += 1
        if status.startswith("5"):
            print(f"request {i}: {request[:300]!r}: {answer[:300]!r}")
    return statuses


def test_damaged_requests_get_no_internal_error_and_the_service_stays_up(service, loaded):
    statuses = send_damaged(service, 1000, seed=0)
    assert (
        {"400", "404", "421"}
        <= {*statuses}
        <= {"200", "400", "404", "405", "413", "415", "421", "closed"}
    )
    X = services.rows(3)
    status, answer = services.ask_json(service, "POST", "/predict", {"rows": X.tolist()})
    assert (status, answer["labels"]) == (200, loaded["words"].predict(X).tolist())
    assert service.process.poll() is None
