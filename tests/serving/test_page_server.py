"""What the page loads: files, facts, images by number, and 4xx for everything else."""

import explore_images
import pytest
import services
from services import ask, ask_json

from bitclass.serving import Service, is_loopback

API = "/api/models/drawn"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css"),
     ("/api/models", "application/json"), (f"{API}/images/3", "application/json"),
     (f"{API}/images/3.jpg", "image/jpeg")],
)  # fmt: skip
def test_responses_have_a_policy_and_are_not_cached(server, path, kind):
    status, headers, content = ask(server, "GET", path)
    assert (status, headers.get_content_type()) == (200, kind)
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert len(content) == int(headers["Content-Length"])
    assert headers["Cache-Control"] == "no-store"  # another run would show something else


def test_facts_and_images_by_number(server):
    drawn, rows, _ = ask_json(server, "GET", "/api/models")[1]["models"]
    assert [drawn[key] for key in ("name", "input", "images", "bits")] == [
        "drawn", "images", 48, 96,
    ]  # fmt: skip
    assert (rows["name"], rows["input"], rows["images"]) == ("rows", "rows", 0)
    assert ask(server, "GET", f"{API}/images/3.jpg")[2][:2] == b"\xff\xd8"
    assert ask(server, "HEAD", "/")[::2] == (200, b"")
    assert ask_json(server, "GET", f"{API}/images/3")[1]["row"] == 3
    listed = ask_json(server, "GET", f"{API}/images?start=20&label=stripes")[1]
    assert (listed["total"], listed["images"]) == (12, [])
    found = ask_json(server, "GET", f"{API}/classes?search=RINGS")[1]
    assert [each["label"] for each in found["classes"]] == ["rings & dots"]
    assert ask_json(server, "GET", f"{API}/pairs")[1]["by"] in ("images", "distance")


@pytest.mark.parametrize(
    ("format", "kind", "side"),
    [("JPEG", "image/jpeg", 48), ("BMP", "application/octet-stream", 48), ("GIF", "image/gif", 48),
     ("TIFF", "image/tiff", 1200), ("WEBP", "image/webp", 48)],
)  # fmt: skip
def test_images_of_any_format_are_accepted(server, format, kind, side):
    content = explore_images.encoded(explore_images.drawn(2, 7, side), format)
    assert len(content) > 4_000_000 or side == 48
    status, answer = ask_json(server, "POST", f"{API}/look", content, Content_Type=kind)
    assert (status, answer["classes"][0]["label"]) == (200, explore_images.CLASSES[2])


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd", "/static/../app.py",
     f"{API}/images/../../secret.png", f"{API}/images/..%2fsecret.jpg", f"{API}/images/48.jpg",
     f"{API}/images/-1.jpg", f"{API}/images/" + "9" * 5000, f"{API}/images/",
     f"{API}/images?start=-1", "/api/models/absent/classes", "/api/models/rows/images/0",
     "/page.js/", "/app.py", "/index.html", "/page.js%00", "*"],
)  # fmt: skip
def test_nothing_else_is_served(server, path):
    status, headers, _ = ask(server, "GET", path)
    assert status in (400, 404)
    assert "Content-Security-Policy" in headers


@pytest.mark.parametrize(
    ("name", "status"),
    [("evil.example:{}", 421), ("", 421), ("127.0.0.1.evil.example:{}", 421), ("[::1", 421),
     ("0:{}", 421), ("192.168.1.7:{}", 421), ("127.0.0.1:{}@evil.example", 421),
     ("127.0.0.1:x", 421), ("localhost:{}", 200), ("LOCALHOST:{}", 200), ("[::1]:{}", 200),
     ("127.0.0.2:{}", 200)],
)  # fmt: skip
def test_only_host_names_of_this_machine_are_accepted(server, name, status):
    assert ask(server, "GET", "/api/models", Host=name.format(server.port))[0] == status


def test_a_request_needs_exactly_one_host(server):
    own = f"Host: 127.0.0.1:{server.port}\r\n"
    for headers in ("", own + own, own + "Host: evil.example\r\n"):
        request = f"GET / HTTP/1.1\r\n{headers}\r\n".encode()
        assert services.Connection(server.port).answer(request, keep=False)[0] == 421


def test_a_network_service_accepts_addresses_and_allowed_hosts(served):
    app = Service([served], host="0.0.0.0", allowed_hosts=["Models.example"])
    for name in ("192.168.1.7:8000", "[fe80::1]:80", "localhost:1", "models.example"):
        assert app._is_allowed_host(name), name
    assert not app._is_allowed_host("evil.example:8000")
    assert not is_loopback("192.168.1.7")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_requests_from_other_sites_are_rejected(server, origin):
    content = explore_images.encoded(explore_images.drawn(1, 1))
    for name, status in ((origin, 403), (server.url.rstrip("/"), 200)):
        headers = {"Origin": name, "Content_Type": "image/png"}
        assert ask(server, "POST", f"{API}/look", content, **headers)[0] == status


WHOLE = explore_images.encoded(explore_images.drawn(1, 1))
HUGE = WHOLE[:16] + (60_000).to_bytes(4, "big") * 2 + WHOLE[24:]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [(b"", "image/png", 422), (b"\x89PNG\r\n", "image/png", 422), (WHOLE[:500], "image/png", 422),
     (HUGE, "image/png", 422), (b"<svg xmlns='x'/>", "image/svg+xml", 422),
     (b"hello", "text/plain", 415), (b"{}", "", 415), (b"x" * (20 << 20) + b"x", "image/png", 413)],
)  # fmt: skip
def test_invalid_images_are_rejected(server, content, kind, status):
    for _ in range(2):  # a connection that breaks does so at times
        found, answer = ask_json(server, "POST", f"{API}/look", content, Content_Type=kind)
        assert found == status
        assert answer["error"]


def test_a_half_closed_connection_is_answered(server):
    connection = services.Connection(server.port)
    body = WHOLE
    head = f"POST {API}/look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    assert connection.answer(head.encode() + body, send_end=True)[0] == 200
