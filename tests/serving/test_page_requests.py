"""What the page loads: files, facts and classes; nothing for other sites, and nothing else."""

import json

import numpy as np
import pytest

from bitclass.codes import hamming, unpack
from bitclass.serving.page import N_LISTED, listed_classes, look

from . import services
from .services import ask, ask_json

API = "/api/models/drawn"
WHOLE = services.encoded(services.drawn(1, 1))
HUGE = WHOLE[:16] + (60_000).to_bytes(4, "big") * 2 + WHOLE[24:]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css"),
     ("/openapi.json", "application/json"), ("/api/models", "application/json")],
)  # fmt: skip
def test_responses_have_a_policy_and_are_not_cached(server, path, kind):
    status, headers, content = ask(server, "GET", path)
    assert (status, headers.get_content_type()) == (200, kind)
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(content) == int(headers["Content-Length"])
    assert headers["Cache-Control"] == "no-store"  # another run would show something else


def test_every_documented_address_exists_and_the_reverse(server):
    described = json.loads(ask(server, "GET", "/openapi.json")[2])["paths"]
    routes = {route.path: route.methods for route in server.app._routes}
    for path, operations in described.items():
        assert {method.upper() for method in operations} <= routes[path]
    files = {"/", "/page.css", "/page.js", "/icon.svg", "/openapi.json"}
    assert {path for path in routes if not path.startswith("/api")} == {*described} | files


def test_facts_and_classes(server):
    drawn, rows, texts = ask_json(server, "GET", "/api/models")[1]["models"]
    assert [drawn[key] for key in ("name", "input", "bits")] == ["drawn", "images", 96]
    assert (rows["input"], texts["input"]) == ("rows", "texts")
    assert drawn["reject"] == 0
    assert ask(server, "HEAD", "/")[::2] == (200, b"")
    found = ask_json(server, "GET", f"{API}/classes?search=BARS")[1]
    assert [each["label"] for each in found["classes"]] == ["<b>bars"]


@pytest.mark.parametrize("n_classes", [1, 2, 120])
def test_nearest_classes_are_those_of_brute_force(n_classes):
    model = services.random_model(range(n_classes), n_bits=20)
    found = listed_classes(model, start=3)["classes"]
    assert [each["class"] for each in found] == list(range(n_classes))[3 : 3 + N_LISTED]
    distances = hamming(model.weights[:, None], model.weights).astype(float)
    np.fill_diagonal(distances, np.inf)
    for each in found:
        assert each["distance"] == distances[each["class"]].min()


def test_an_input_is_shown_with_its_code_and_classes(served):
    X = served.extractor.rows([WHOLE])
    model = served.model
    answer = look(model, X)
    signs = unpack(model.encode(X), model.n_bits)[0]
    assert answer["bits"] == "".join("1" if sign > 0 else "0" for sign in signs)
    labels, distances, shares = model.top_classes(X, 3, probabilities=True)[:3]
    for i, each in enumerate(answer["classes"]):
        expected = (labels[0, i], distances[0, i], shares[0, i])
        assert (each["label"], each["distance"], each["probability"]) == expected
        other = [a != b for a, b in zip(each["bits"], answer["bits"], strict=True)]
        assert sum(other) == each["distance"]


@pytest.mark.parametrize(
    ("format", "kind", "side"),
    [("JPEG", "image/jpeg", 48), ("BMP", "application/octet-stream", 48), ("GIF", "image/gif", 48),
     ("TIFF", "image/tiff", 1200), ("WEBP", "image/webp", 48)],
)  # fmt: skip
def test_images_of_any_format_are_accepted(server, format, kind, side):
    content = services.encoded(services.drawn(2, 7, side), format)
    status, answer = ask_json(server, "POST", f"{API}/look", content, Content_Type=kind)
    assert (status, answer["classes"][0]["label"]) == (200, services.CLASSES[2])


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd", "/static/../app.py",
     f"{API}/classes?start=-1", f"{API}/classes?start=1&start=2", f"{API}/pairs", "/?x=1",
     "/api/models/absent/classes", "/page.js/", "/app.py", "/index.html", "/page.js%00", "*"],
)  # fmt: skip
def test_nothing_else_is_served(server, path):
    status, headers, _ = ask(server, "GET", path)
    assert status in (400, 404)
    assert "Content-Security-Policy" in headers


@pytest.mark.parametrize(
    ("name", "status"),
    [("evil.example:{}", 421), ("", 421), ("127.0.0.1.evil.example:{}", 421), ("[::1", 421),
     ("0:{}", 421), ("127.0.0.1:{}@evil.example", 421), ("127.0.0.1:x", 421), ("[1:2", 421),
     ("localhost:{}", 200), ("LOCALHOST:{}", 200), ("[::1]:{}", 200), ("192.168.1.7:{}", 200),
     ("models.example", 200)],
)  # fmt: skip
def test_only_addresses_and_known_host_names_are_accepted(server, name, status):
    assert ask(server, "GET", "/api/models", Host=name.format(server.port))[0] == status


def test_a_request_needs_exactly_one_host(server):
    own = f"Host: 127.0.0.1:{server.port}\r\n"
    for headers in ("", own + own, own + "Host: evil.example\r\n"):
        request = f"GET / HTTP/1.1\r\n{headers}\r\n".encode()
        assert services.Connection(server.port).answer(request, keep=False)[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_requests_from_other_sites_are_rejected(server, origin):
    for name, status in ((origin, 403), (server.url.rstrip("/"), 200)):
        headers = {"Origin": name, "Content_Type": "image/png"}
        assert ask(server, "POST", f"{API}/look", WHOLE, **headers)[0] == status


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [(b"", "image/png", 422), (b"\x89PNG\r\n", "image/png", 422), (WHOLE[:500], "image/png", 422),
     (HUGE, "image/png", 422), (b"<svg xmlns='x'/>", "image/svg+xml", 422),
     (b"hello", "text/plain", 415), (b"{}", "", 415), (b"x" * 10_000_001, "image/png", 413)],
)  # fmt: skip
def test_invalid_images_are_rejected(server, content, kind, status):
    for _ in range(2):  # a connection that breaks does so at times
        found, answer = ask_json(server, "POST", f"{API}/look", content, Content_Type=kind)
        assert found == status
        assert answer["error"]


def test_a_half_closed_connection_is_answered(server):
    connection = services.Connection(server.port)
    head = f"POST {API}/look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
    head += f"Content-Length: {len(WHOLE)}\r\n\r\n"
    assert connection.answer(head.encode() + WHOLE, send_end=True)[0] == 200
