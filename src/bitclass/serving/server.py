"""The uvicorn server, with connection limits and a graceful shutdown."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bitclass.serving.app import Service

__all__ = ["create_server", "listen", "serve_in_thread"]

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS = 30.0
# After the signal to stop, connections that clients have already opened are still accepted, and
# every response closes its connection.
STOP_SECONDS = 0.5
START_SECONDS = 30.0


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Parameters
    ----------
    host : str
        Name or address.
    port : int
        Port number; 0 for any free port.

    Raises
    ------
    OSError
        If the socket cannot be opened.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def create_server(
    app: Service,
    *,
    max_connections: int = 256,
    on_start: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """Create a server; its method `run` serves until SIGINT or SIGTERM.

    It then answers all accepted requests before it stops.

    Parameters
    ----------
    app : Service
    max_connections : int, default=256
        Requests on additional connections are answered with status 503.
    on_start : callable, optional
        Called when the server is ready to accept requests.
    """
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # uvicorn warns of every malformed request
        access_log=False,
        server_header=False,
        # uvicorn already rejects the connection that reaches this limit.
        limit_concurrency=max_connections + 1,
        timeout_keep_alive=75,
        proxy_headers=False,
    )
    return _Server(config, app, on_start)


def serve_in_thread(app: Service, listener: socket.socket) -> Callable[[], None]:
    """Serve in a thread; returns a function that answers open requests and stops the server."""
    started = threading.Event()
    server = create_server(app, on_start=started.set)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="bitclass-serve", daemon=True
    )
    thread.start()
    if not started.wait(START_SECONDS):
        raise RuntimeError("the server did not start")

    def stop() -> None:
        server.should_exit = True
        thread.join()

    return stop


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: Service, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._on_start = app, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stopping = True
        await asyncio.sleep(STOP_SECONDS)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop without raising the signal again, as uvicorn does, which looks like a failure."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class _Protocol(HttpToolsProtocol):
    """HTTP with limits on the size and duration of a request's headers, and errors in JSON."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None  # until the headers are complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        too_long = self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES
        if too_long and not self.transport.is_closing():
            self.send_400_response(
                f"the headers of a request must have at most {MAX_HEAD_BYTES} bytes"
            )

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has closed only its sending side, then close."""
        waiting = self.cycle is not None and not self.cycle.response_complete
        if waiting and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return True
        return False

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_arrived()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def send_400_response(self, msg: str) -> None:
        content = orjson.dumps({"error": msg})
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
