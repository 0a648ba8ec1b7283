"""Limits on connections: their number, their time, and the memory that they hold.

uvicorn has no limit on the size of headers, nor on the time that a client takes to send them or to
read an answer. Its limit on the number of connections would refuse health checks as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bitclass.serving.limits import Limits

MAX_HEAD_BYTES = 64 << 10
# Requests that a client may send without waiting for answers.
_MAX_PIPELINED = 100
# Smaller bodies and answers, such as those of health checks, pass however much is held.
_SMALL = 1 << 14


class Connections:
    """The open connections of a process.

    Attributes
    ----------
    open : dict of Connection to None
        In the order in which their last requests ended; new ones are the last.
    with_body : dict of Connection to None
        Those with a request in progress that has a body, oldest first.
    held_bytes : int
        Size of all bodies and answers in memory.
    freed : asyncio.Event
        Set for a moment when that becomes less.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: dict[Connection, None] = {}
        self.with_body: dict[Connection, None] = {}
        self.freed = asyncio.Event()
        self.held_bytes = 0

    async def watch(self) -> None:
        """Close connections whose clients take too long, for ever."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.head_seconds, self.limits.send_seconds) / 2)
            for connection in [*self.open]:
                connection.close_if_late()


class Connection(asyncio.Protocol):
    """A connection, whose HTTP is left to uvicorn.

    The application finds it in the state of its requests, as "connection", and says when a request
    begins and ends.

    Attributes
    ----------
    has_ended : bool
        Whether the client has closed its sending side, or left.
    """

    def __init__(
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._all: Connections = app_state["connections"]
        self._limits = self._all.limits
        state = app_state | {"connection": self}
        self._http = HttpToolsProtocol(config, server_state, state, _loop)
        self._transport: Any = None
        self.has_ended = False
        # When the client began to send headers, or to read an answer; 0 if it does neither.
        self._head_since = self._answer_since = 0.0
        self._head_bytes = 0
        self._body_bytes = 0
        self._answer_bytes = 0  # of answers that the client has not read

    # Called by the application

    def begin(self) -> None:
        """The headers of a request have arrived."""
        self._head_bytes, self._head_since = 0, 0.0

    def end(self) -> None:
        """A request has been answered, though the client may not have read the answer."""
        if self._all.open.pop(self, self) is None:
            self._all.open[self] = None
        self._all.with_body.pop(self, None)
        self._count(0, self._answer_bytes)
        self._http.loop.call_soon(self._forget_read)  # when the loop has written what it can

    @property
    def expects_body(self) -> bool:
        """Whether a part of the request body has not arrived yet."""
        return self._http.cycle is not None and self._http.cycle.more_body

    def await_end(self) -> None:
        """Notice if the client leaves; after a large body, uvicorn would not read on."""
        self._http.flow.resume_reading()

    async def hold(self, n_bytes: int) -> None:
        """Count bytes of a body; if there are too many in all, wait for other requests to end."""
        everyone = self._all
        everyone.with_body[self] = None
        if self._body_bytes + n_bytes > _SMALL and not self._has_room(n_bytes):
            try:
                async with asyncio.timeout(self._limits.wait_seconds):
                    while next(iter(everyone.with_body), self) is not self:
                        await everyone.freed.wait()
                        if self._has_room(n_bytes):
                            break
            except TimeoutError:
                raise _too_much() from None
        self._count(self._body_bytes + n_bytes, self._answer_bytes)

    def hold_answer(self, n_bytes: int) -> None:
        """Count the bytes of an answer, in the place of the body, until the client has read it."""
        if n_bytes > _SMALL and not self._has_room(n_bytes - self._body_bytes):
            raise _too_much()
        self._count(0, self._answer_bytes + n_bytes)

    def _has_room(self, n_bytes: int) -> bool:
        return n_bytes <= 0 or self._all.held_bytes + n_bytes <= self._limits.held_bytes

    def close_if_late(self) -> None:
        """Close the connection if its client has taken too long."""
        now = self._http.loop.time()
        if self._head_since and now - self._head_since > self._limits.head_seconds:
            self.abort()
        elif self._answer_since and now - self._answer_since > self._limits.send_seconds:
            self._forget_read()
            if self._answer_since:
                self.abort()

    def abort(self) -> None:
        """Close the connection without sending the rest of an answer."""
        self._all.open.pop(self, None)
        self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request; if there are too many, close the one idle for longest."""
        self._transport = transport
        self._http.connection_made(transport)  # type: ignore[arg-type]
        self._head_since = self._http.loop.time()
        if len(self._all.open) >= self._limits.connections:
            idle = next((each for each in self._all.open if not each._in_progress), None)
            if idle is not None:
                idle.abort()
        self._all.open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Free what the connection held."""
        self.has_ended = True
        self._all.open.pop(self, None)
        self._all.with_body.pop(self, None)
        self._count(0, 0)
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request."""
        self._http.data_received(data)
        if self._transport.is_closing():
            return
        if self._in_progress:
            if len(self._http.pipeline) > _MAX_PIPELINED:
                self.abort()
            return
        self._head_since = self._head_since or self._http.loop.time()
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._http.send_400_response("The headers of the request are too long.")

    def eof_received(self) -> bool:
        """Answer a client that has closed only its sending side, then close."""
        self.has_ended = True
        if not self._in_progress or self.expects_body:
            return False
        self._http.cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        """The client does not read as fast as the answer is written."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """The client has read nearly all."""
        self._http.resume_writing()
        self._answer_since = 0.0
        self._forget_read()

    @property
    def _in_progress(self) -> bool:
        return self._http.cycle is not None and not self._http.cycle.response_complete

    def _forget_read(self) -> None:
        """Count only what is left of the answers."""
        unread: int = self._transport.get_write_buffer_size()
        self._count(self._body_bytes, min(self._answer_bytes, unread))
        self._answer_since = (self._answer_since or self._http.loop.time()) if unread else 0.0

    def _count(self, body_bytes: int, answer_bytes: int) -> None:
        """Change what is counted of this connection."""
        more = body_bytes + answer_bytes - self._body_bytes - self._answer_bytes
        self._body_bytes, self._answer_bytes = body_bytes, answer_bytes
        self._all.held_bytes += more
        if more < 0:
            self._all.freed.set()
            self._all.freed.clear()


def _too_much() -> HTTPException:
    return HTTPException(503, "too many large requests at once", {"retry-after": "1"})
