"""The page's server: what it gives, and the 4xx that everything else gets."""

import http.client
import json
import socket

import explore_images
import numpy as np
import pytest

from bitclass.explore import MAX_UPLOAD_BYTES, PageServer
from bitclass.explore import server as server_module
from bitclass.explore.server import is_loopback


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
    status, headers, content = ask(server, "GET", "/api/facts")
    facts = json.loads(content)
    assert (status, headers.get_content_type()) == (200, "application/json")
    assert (facts["classes"], facts["bits"], facts["images"]) == (4, 96, 48)
    assert facts["max_bytes"] == MAX_UPLOAD_BYTES
    assert len(facts["samples"]) == 12
    status, headers, content = ask(server, "GET", "/images/3.jpg")
    assert (status, headers.get_content_type(), content[:2]) == (200, "image/jpeg", b"\xff\xd8")
    assert json.loads(ask(server, "GET", "/api/look/3")[2])["row"] == 3


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/facts", "/api/look/3", "/images/3.jpg"])
def test_a_browser_keeps_nothing_that_another_run_would_show_otherwise(server, path):
    assert ask(server, "GET", path)[1]["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("format", "kind"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("BMP", "application/octet-stream"),
     ("GIF", "image/gif"), ("TIFF", "image/tiff"), ("WEBP", "image/webp")],
)  # fmt: skip
def test_an_image_of_any_format_is_looked_at(server, format, kind):
    content = explore_images.encoded(explore_images.drawn(2, 7), format)
    status, _, answer = ask(server, "POST", "/api/look", content, Content_Type=kind)
    assert status == 200
    assert json.loads(answer)["classes"][0]["label"] == explore_images.CLASSES[2]


def test_an_image_of_some_megabytes_is_looked_at(server):
    noise = np.random.default_rng(0).integers(0, 256, (900, 1200, 3), dtype=np.uint8)
    content = explore_images.encoded(noise, compress_level=0)
    assert len(content) > 3_000_000
    assert ask(server, "POST", "/api/look", content, Content_Type="image/png")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd", "/static/../server.py",
     "/images/../../secret.png", "/images/..%2fsecret.jpg", "/images/48.jpg",
     "/images/-1.jpg", "/images/1e1.jpg", "/images/%31.jpg", "/images/99999999999.jpg",
     "/images/\u0663.jpg".encode().decode("latin-1"), "/images/1.png", "/images/",
     "/page.js/", "/api/look/48", "/api/look", "/api", "/server.py", "/index.html", "/page.js%00",
     "/favicon.ico", "http://evil.example/", "*"],
)  # fmt: skip
def test_nothing_else_is_served(server, path):
    request = f"GET {path} HTTP/1.1\r\nHost: {host(server)}\r\nConnection: close\r\n\r\n"
    answer = said(server, request.encode("latin-1"))
    assert status_of(answer) in (400, 404), answer
    assert b"Content-Security-Policy" in answer


@pytest.mark.parametrize("name", ["evil.example", "evil.example:{port}", "127.0.0.1", "",
                                  "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "[::1",
                                  "0:{port}", "192.168.1.7:{port}", "127.0.0.1:{port}@evil.example",
                                  "127.0.0.1:x"])  # fmt: skip
def test_another_name_for_this_server_is_refused(server, name):
    text = name.format(port=server.server_port)
    request = f"GET /api/facts HTTP/1.1\r\nHost: {text}\r\nConnection: close\r\n\r\n"
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


def test_a_server_for_the_network_is_known_by_numbers_and_its_own_name(explored):
    with PageServer(explored[0], "0.0.0.0") as running:
        port = running.server_port
        assert running.is_own_name(f"192.168.1.7:{port}")
        assert running.is_own_name(f"[fe80::1]:{port}")
        assert running.is_own_name(f"localhost:{port}")
        assert not running.is_own_name(f"evil.example:{port}")
    assert not is_loopback("192.168.1.7")
    assert not is_loopback("evil.example")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://localhost"]
)
def test_a_page_of_another_site_may_not_ask(server, origin):
    image = explore_images.encoded(explore_images.drawn(0, 1))
    answer = ask(server, "POST", "/api/look", image, Origin=origin, Content_Type="image/png")
    assert answer[0] == 403
    own = f"http://{host(server)}"
    assert ask(server, "POST", "/api/look", image, Origin=own, Content_Type="image/png")[0] == 200


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"", "image/png", 422),
        (b"not an image", "image/png", 422),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", 422),
        (b"hello", "text/plain", 415),
        (b"a=1", "application/x-www-form-urlencoded", 415),
        (b"{}", "application/json", 415),
        (b"--x\r\n", "multipart/form-data; boundary=x", 415),
    ],
)
def test_anything_but_an_image_is_refused(server, content, kind, status):
    found, headers, answer = ask(server, "POST", "/api/look", content, Content_Type=kind)
    assert (found, headers.get_content_type()) == (status, "application/json")
    assert json.loads(answer)["error"]


def test_images_that_are_cut_short_or_claim_to_be_huge_are_refused(server):
    whole = explore_images.encoded(explore_images.drawn(1, 1))
    bomb = bytearray(whole)
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2
    for content in (whole[: len(whole) // 2], bytes(bomb)):
        assert ask(server, "POST", "/api/look", content, Content_Type="image/png")[0] == 422


def posted(server, headers, content=b""):
    lines = "".join(f"{line}\r\n" for line in headers)
    head = (
        f"POST /api/look HTTP/1.1\r\nHost: {host(server)}\r\nContent-Type: image/png\r\n{lines}\r\n"
    )
    return said(server, head.encode("latin-1") + content)


def test_a_file_that_is_too_large_is_refused_before_it_comes(server):
    answer = posted(server, [f"Content-Length: {MAX_UPLOAD_BYTES + 1}"])
    assert status_of(answer) == 413
    assert b"more than 20 MB" in answer
    asked = posted(server, [f"Content-Length: {MAX_UPLOAD_BYTES + 1}", "Expect: 100-continue"])
    assert status_of(asked) == 413


def sent_whole(server, path, headers, content):
    """The answer to a client that reads only after it has sent everything, as some do."""
    address = ("127.0.0.1", server.server_port)
    with socket.create_connection(address, timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {host(server)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        connection.sendall(head.encode() + content)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [("/api/look", "image/png", 413), ("/api/look", "text/plain", 415), ("/x", "image/png", 404)],
)
def test_who_sends_all_of_a_refused_file_still_reads_the_answer(server, path, kind, status):
    content = b"x" * (21 << 20)
    headers = {"Content-Type": kind, "Content-Length": len(content)}
    for _ in range(3):  # a connection that breaks does so at times
        answer = sent_whole(server, path, headers, content)
        assert status_of(answer) == status
        assert answer.endswith(b"}")


def test_what_is_refused_is_not_read_for_ever(server, monkeypatch):
    monkeypatch.setattr(server_module, "_LINGER_BYTES", 1 << 20)
    headers = {"Content-Type": "text/plain", "Content-Length": 1 << 40}
    with pytest.raises(ConnectionError):
        sent_whole(server, "/api/look", headers, b"x" * (64 << 20))


def test_who_sends_no_more_of_a_refused_file_is_let_go(server, monkeypatch):
    monkeypatch.setattr(server_module, "_LINGER_PAUSE", 0.2)
    headers = {"Content-Type": "text/plain", "Content-Length": 1000}
    assert status_of(sent_whole(server, "/api/look", headers, b"x")) == 415


def test_who_waits_to_be_told_to_go_on_is_told(server):
    content = explore_images.encoded(explore_images.drawn(1, 1))
    answer = posted(server, [f"Content-Length: {len(content)}", "Expect: 100-continue"], content)
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert status_of(answer.partition(b"\r\n\r\n")[2]) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 411),
        (["Transfer-Encoding: chunked"], 411),
        (["Content-Length: 5", "Transfer-Encoding: chunked"], 411),
        (["Content-Length: 5", "Content-Length: 6"], 411),
        (["Content-Length: -5"], 400),
        (["Content-Length: +5"], 400),
        (["Content-Length: five"], 400),
        (["Content-Length: 5.0"], 400),
        (["Content-Length: 99999999999999999999"], 400),
        (["Content-Length: 500"], 400),
    ],
)
def test_an_image_of_unknown_or_wrong_length_is_refused(server, headers, status):
    assert status_of(posted(server, headers, b"abcde")) == status


def test_what_follows_a_refused_image_is_not_taken_for_a_request(server):
    hidden = f"GET /api/facts HTTP/1.1\r\nHost: {host(server)}\r\n\r\n".encode()
    answer = posted(server, ["Transfer-Encoding: chunked"], hidden)
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "X"])
def test_other_methods_are_not_allowed(server, method):
    status, headers, _ = ask(server, method, "/")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    "request_line",
    [b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
     b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
     b"GET / HTTP/x\r\n\r\n", b"GET /\r\n", b"POST /api/look\r\n\r\n", b"a b c d\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_request_gets_4xx(server, request_line):
    answer = said(server, request_line)
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert b"Content-Security-Policy" in answer


def test_a_connection_serves_several_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    content = explore_images.encoded(explore_images.drawn(3, 1))
    for _ in range(2):
        connection.request("GET", "/images/0.jpg")
        assert connection.getresponse().read()[:2] == b"\xff\xd8"
        connection.request("POST", "/api/look", content, {"Content-Type": "image/png"})
        answer = connection.getresponse()
        assert (answer.status, answer.will_close) == (200, False)
        answer.read()
    connection.close()


def test_what_goes_wrong_within_is_an_answer_too(server, monkeypatch, capsys):
    def fail():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(server.explorer, "facts", fail)
    status, _, content = ask(server, "GET", "/api/facts")
    assert (status, json.loads(content)["error"]) == (500, "this is a mistake of the server")
    assert "BlockingIOError" in capsys.readouterr().err
