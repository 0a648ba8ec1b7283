"""What the page loads: files, facts, images by number, and 4xx for everything else."""

import http.client
import json
import socket

import explore_images
import numpy as np
import pytest

from bitclass.serving import Service, is_loopback

API = "/api/models/drawn"


def ask(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, names)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def said(server, request):
    """The answer to the very bytes of a request, until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


def host(server):
    return f"127.0.0.1:{server.server_port}"


def test_the_page_and_its_parts_are_served_with_a_policy(server):
    for path, kind in [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/page.css", "text/css"),
    ]:
        status, headers, content = ask(server, "GET", path)
        assert (status, headers.get_content_type()) == (200, kind)
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert len(content) == int(headers["Content-Length"])
    assert ask(server, "HEAD", "/")[::2] == (200, b"")


def test_facts_and_images_are_given_by_number(server):
    status, headers, content = ask(server, "GET", "/api/models")
    drawn, rows, _ = json.loads(content)["models"]
    assert (status, headers.get_content_type()) == (200, "application/json")
    assert (drawn["name"], drawn["input"], drawn["images"], drawn["bits"]) == (
        "drawn", "images", 48, 96,
    )  # fmt: skip
    assert (rows["name"], rows["input"], rows["images"]) == ("rows", "rows", 0)
    status, headers, content = ask(server, "GET", f"{API}/images/3.jpg")
    assert (status, headers.get_content_type(), content[:2]) == (200, "image/jpeg", b"\xff\xd8")
    assert json.loads(ask(server, "GET", f"{API}/images/3")[2])["row"] == 3
    listed = json.loads(ask(server, "GET", f"{API}/images?start=20&label=stripes")[2])
    assert (listed["total"], listed["images"]) == (12, [])
    found = json.loads(ask(server, "GET", f"{API}/classes?search=RINGS")[2])
    assert [each["label"] for each in found["classes"]] == ["rings & dots"]
    assert json.loads(ask(server, "GET", f"{API}/pairs")[2])["by"] in ("images", "distance")


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/api/models", f"{API}/images/3", f"{API}/images/3.jpg"]
)
def test_a_browser_keeps_nothing_that_another_run_would_show_otherwise(server, path):
    assert ask(server, "GET", path)[1]["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("format", "kind"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("BMP", "application/octet-stream"),
     ("GIF", "image/gif"), ("TIFF", "image/tiff"), ("WEBP", "image/webp")],
)  # fmt: skip
def test_an_image_of_any_format_is_looked_at(server, format, kind):
    content = explore_images.encoded(explore_images.drawn(2, 7), format)
    status, _, answer = ask(server, "POST", f"{API}/look", content, Content_Type=kind)
    assert status == 200
    assert json.loads(answer)["classes"][0]["label"] == explore_images.CLASSES[2]


def test_an_image_of_some_megabytes_is_looked_at(server):
    noise = np.random.default_rng(0).integers(0, 256, (900, 1200, 3), dtype=np.uint8)
    content = explore_images.encoded(noise, compress_level=0)
    assert len(content) > 3_000_000
    assert ask(server, "POST", f"{API}/look", content, Content_Type="image/png")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd", "/static/../app.py",
     f"{API}/images/../../secret.png", f"{API}/images/..%2fsecret.jpg", f"{API}/images/48.jpg",
     f"{API}/images/-1.jpg", f"{API}/images/1e1.jpg", f"{API}/images/99999999999.jpg",
     f"{API}/images/" + "9" * 5000, f"{API}/images/48", f"{API}/images/1.png", f"{API}/images/",
     f"{API}/images?start=-1", f"{API}/classes?start=x", "/api/models/absent/classes",
     "/api/models/rows/images/0", "/api/models/%2e%2e/images", "/page.js/", "/api", "/app.py",
     "/index.html", "/page.js%00", "/favicon.ico", "*"],
)  # fmt: skip
def test_nothing_else_is_served(server, path):
    request = f"GET {path} HTTP/1.1\r\nHost: {host(server)}\r\nConnection: close\r\n\r\n"
    answer = said(server, request.encode("latin-1"))
    assert status_of(answer) in (400, 404), answer
    assert b"content-security-policy" in answer


@pytest.mark.parametrize("name", ["evil.example", "evil.example:{port}", "",
                                  "127.0.0.1.evil.example:{port}", "[::1",
                                  "0:{port}", "192.168.1.7:{port}", "127.0.0.1:{port}@evil.example",
                                  "127.0.0.1:x"])  # fmt: skip
def test_another_name_for_this_server_is_refused(server, name):
    text = name.format(port=server.server_port)
    request = f"GET /api/models HTTP/1.1\r\nHost: {text}\r\nConnection: close\r\n\r\n"
    assert status_of(said(server, request.encode())) == 421


def test_a_request_without_name_or_with_two_is_refused(server):
    own = f"Host: {host(server)}\r\n"
    for headers in ("", own + own, own + "Host: evil.example\r\n"):
        request = f"GET / HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"
        assert status_of(said(server, request.encode())) == 421


@pytest.mark.parametrize("name", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}",
                                  "[::1]:{port}", "127.0.0.2:{port}"])  # fmt: skip
def test_every_name_of_this_machine_itself_will_do(server, name):
    text = name.format(port=server.server_port)
    assert ask(server, "GET", "/", Host=text)[0] == 200


def test_a_service_for_the_network_is_known_by_numbers_and_allowed_names(served):
    app = Service([served], host="0.0.0.0", allowed_hosts=["Models.example"])
    for name in ("192.168.1.7:8000", "[fe80::1]:80", "localhost:1", "models.example"):
        assert app._is_own_name(name), name
    assert not app._is_own_name("evil.example:8000")
    assert not is_loopback("192.168.1.7")
    assert not is_loopback("evil.example")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "file://"])
def test_a_page_of_another_site_may_not_ask(server, origin):
    content = explore_images.encoded(explore_images.drawn(1, 1))
    headers = {"Origin": origin, "Content_Type": "image/png"}
    assert ask(server, "POST", f"{API}/look", content, **headers)[0] == 403
    headers["Origin"] = server.url.rstrip("/")
    assert ask(server, "POST", f"{API}/look", content, **headers)[0] == 200


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [(b"", "image/png", 422), (b"GIF89a", "image/gif", 422), (b"\x89PNG\r\n", "image/png", 422),
     (b"<svg xmlns='x'/>", "image/svg+xml", 422), (b"hello", "text/plain", 415), (b"{}", "", 415),
     (b"x" * (20 << 20) + b"x", "image/png", 413)],
)  # fmt: skip
def test_what_is_no_image_is_refused(server, content, kind, status):
    for _ in range(2):  # a connection that breaks does so at times
        found, headers, answer = ask(server, "POST", f"{API}/look", content, Content_Type=kind)
        assert (found, headers.get_content_type()) == (status, "application/json")
        assert json.loads(answer)["error"]


def test_images_that_are_cut_short_or_claim_to_be_huge_are_refused(server):
    whole = explore_images.encoded(explore_images.drawn(1, 1))
    bomb = bytearray(whole)
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2
    for content in (whole[: len(whole) // 2], bytes(bomb)):
        assert ask(server, "POST", f"{API}/look", content, Content_Type="image/png")[0] == 422


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "POST"])
def test_other_methods_are_not_allowed(server, method):
    status, headers, _ = ask(server, method, "/")
    assert status == 405
    assert "GET" in headers["Allow"]
