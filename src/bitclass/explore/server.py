"""The page's server: a few addresses, and a 4xx for everything else.

Images are asked for by number and files by the names below, so that no path of a request
ever becomes a path on disk.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import socket
import sys
import time
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from bitclass.explore.explorer import Explorer
from bitclass.images import ImageError

__all__ = ["MAX_UPLOAD_BYTES", "PageServer", "is_loopback"]

#: A larger file is not taken.
MAX_UPLOAD_BYTES = 20 << 20

_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_JSON = "application/json"
_SMALL = re.compile(r"/images/([0-9]{1,9})\.jpg")
_LOOK_AT = re.compile(r"/api/look/([0-9]{1,9})")
_NUMBER = re.compile(r"[0-9]{1,18}")
# The page may load what comes from here, and the image that was chosen; nobody may frame it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


# A client that still sends what was refused would see its connection broken rather than the answer:
# so much is read and thrown away first, for so long, with no longer a pause than that.
_LINGER_BYTES = 64 << 20
_LINGER_SECONDS = 10.0
_LINGER_PAUSE = 2.0


class _RefusedError(Exception):
    """A request gets an answer of 4xx."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class PageServer(ThreadingHTTPServer):
    """Serves the page.

    Parameters
    ----------
    explorer : Explorer
    host : name or address to listen on
    port : 0 for any that is free
    """

    daemon_threads = True
    # A thread that still answers when the command ends has nobody to answer to.
    block_on_close = False

    def __init__(self, explorer: Explorer, host: str = "127.0.0.1", port: int = 0) -> None:
        self.explorer = explorer
        self.host = host
        if ":" in host:
            self.address_family = socket.AF_INET6
        folder = resources.files("bitclass.explore") / "static"
        self.pages = {
            path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGES.items()
        }
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/"

    def is_own_name(self, host: str | None) -> bool:
        """Whether a Host header names this server.

        A page of another site can have its own name lead here, and would then be taken for this
        one (DNS rebinding); it cannot have a number for a name.
        """
        try:
            parts = urlsplit(f"//{host or ''}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.server_port:
            return False
        if name == self.host.lower() or is_loopback(name):
            return True
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return not is_loopback(self.host)
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "bitclass", ""
    timeout = 30.0  # for a browser that sends half a request

    def do_GET(self) -> None:
        """Answer a request for the page, for facts or for an image."""
        self._answer(self._got)

    def do_HEAD(self) -> None:
        """Answer as `do_GET` does, without the content."""
        self._answer(self._got)

    def do_POST(self) -> None:
        """Answer about an image that comes with the request."""
        self._answer(self._posted)

    def _answer(self, make: Any) -> None:
        try:
            self._check_origin()
            content, kind = make(self.path.partition("?")[0])
        except _RefusedError as error:
            self.send_error(error.status, str(error))
        except IndexError as error:
            self.send_error(HTTPStatus.NOT_FOUND, str(error))
        except ImageError as error:
            self.send_error(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except ConnectionError:
            raise  # nobody is there to be told
        except Exception:
            traceback.print_exc()
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a mistake of the server")
        else:
            self._send(HTTPStatus.OK, content, kind)

    def _check_origin(self) -> None:
        """Refuse what another site asks, by a name that leads here or from its own page."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.is_own_name(hosts[0]):
            raise _RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, "this server is not known by that name"
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            raise _RefusedError(HTTPStatus.FORBIDDEN, "a page of another site may not ask this")

    def _got(self, path: str) -> tuple[bytes, str]:
        if path in self.server.pages:
            return self.server.pages[path]
        if path == "/api/facts":
            return _json(self.server.explorer.facts() | {"max_bytes": MAX_UPLOAD_BYTES})
        if found := _SMALL.fullmatch(path):
            return self.server.explorer.small_image(int(found[1])), "image/jpeg"
        if found := _LOOK_AT.fullmatch(path):
            return _json(self.server.explorer.look_at(int(found[1])))
        raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")

    def _posted(self, path: str) -> tuple[bytes, str]:
        if path != "/api/look":
            raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        kind = self.headers.get_content_type()
        if not kind.startswith("image/") and kind != "application/octet-stream":
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"an image is expected, not {kind:.80}"
            )
        return _json(self.server.explorer.look(self._body()))

    def _body(self) -> bytes:
        """The content of a request, if it is not too long."""
        lengths = self.headers.get_all("Content-Length") or []
        if "Transfer-Encoding" in self.headers or len(set(lengths)) != 1:
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "the length of the image is missing")
        if not _NUMBER.fullmatch(lengths[0]):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the length of the image is no number")
        length = int(lengths[0])
        if length > MAX_UPLOAD_BYTES:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the file has more than {MAX_UPLOAD_BYTES >> 20} MB",
            )
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
        try:
            content = self.rfile.read(length)
        except TimeoutError as error:
            raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the image did not come") from error
        if len(content) < length:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the image is cut short")
        return content

    def handle_expect_100(self) -> bool:
        """Wait with the answer until the length is known to be allowed."""
        return True

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        # Another run has other images at the same addresses.
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD, POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with what is wrong, as JSON.

        What Python's server takes for lacks of its own (501, 505) are requests that nobody needs.
        """
        wrong = {
            HTTPStatus.NOT_IMPLEMENTED: HTTPStatus.METHOD_NOT_ALLOWED,
            HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: HTTPStatus.BAD_REQUEST,
        }
        status = wrong.get(HTTPStatus(code), HTTPStatus(code))
        # What is left of the request must not be taken for the next one.
        self.close_connection = True
        # To what is no request at all, Python's server would answer without a status.
        self.request_version = self.protocol_version
        self._send(status, *_json({"error": message or status.phrase}))
        self._linger()

    def _linger(self) -> None:
        """Let the client send what is left of its request, so that it comes to read the answer."""
        self.wfile.flush()
        end, left = time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES
        with contextlib.suppress(OSError):  # who has gone away needs no answer
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := end - time.monotonic()) > 0:
                self.connection.settimeout(min(seconds, _LINGER_PAUSE))
                part = self.connection.recv(min(left, 1 << 16))
                if not part:
                    break
                left -= len(part)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep quiet: a page of 24 images would fill the terminal."""


def _json(value: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(value).encode(), _JSON
