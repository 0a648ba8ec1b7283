"""The ASGI application: routes, limits and errors.

Models are requested by name and the files of the page by fixed names, so that no part of a request
becomes a path on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from importlib.metadata import version
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send

from bitclass.arrays import RowError
from bitclass.images import ImageError
from bitclass.model import TopClasses
from bitclass.serving.batching import Batcher
from bitclass.serving.connections import MAX_HEAD_BYTES, Connection, Connections
from bitclass.serving.limits import Limits
from bitclass.serving.metrics import Metrics
from bitclass.serving.models import ModelFiles, ServedModel
from bitclass.serving.page import listed_classes, look
from bitclass.serving.protocol import (
    Query,
    RequestError,
    infer_answer,
    metadata,
    parse_infer,
    parse_number,
    parse_plain,
    plain_answer,
    shown,
)

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/openapi.json": ("openapi.json", "application/json"),
}
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    # The next run may serve other models at the same URLs.
    (b"cache-control", b"no-store"),
    # The page may load files from this server, and the image that the user chose.
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]
# Query parameters by the method that answers; each may be given once.
_PARAMETERS = {
    "_predict": ("top", "reject"), "_file": ("model",), "_classes": ("search", "start"),
}  # fmt: skip
_HEALTH = ("/v2/health/live", "/v2/health/ready")
# Smaller bodies and answers are converted without going to another thread.
_SMALL_BODY = 1 << 15
_SMALL_ANSWER = 1000

_T = TypeVar("_T")


class Service:
    """ASGI application that serves models, behind connections of type `Connection`.

    Parameters
    ----------
    models : mapping of str to ServedModel
        The first is the default. A `ModelFiles` is reloaded when its files change.
    limits : Limits, optional
    hosts : sequence of str
        Host names that clients may use, beside addresses and "localhost".
    parent : int, optional
        Process ID of the parent, without which the process ends.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        *,
        limits: Limits | None = None,
        hosts: Sequence[str] = (),
        parent: int | None = None,
    ) -> None:
        self._models, self._limits = models, limits or Limits()
        self._hosts = {"localhost", *map(str.lower, hosts)}
        self._parent = parent
        self._metrics = Metrics(list(models))
        self._connections = Connections(self._limits)
        self._batcher = Batcher(self._metrics.batch)
        # One request at a time: extraction already uses all cores, and conversions take memory.
        self._extracting = ThreadPoolExecutor(1, thread_name_prefix="bitclass-extract")
        self._converting = ThreadPoolExecutor(1, thread_name_prefix="bitclass-convert")
        # Looking through a million names takes seconds, for which predictions must not wait.
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="bitclass-look")
        folder = resources.files("bitclass.serving") / "static"
        self._files = {
            path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()
        }
        api = "/api/models/{model}"
        self._routes = [  # tried in this order
            Route("/v2/models/{model}/infer", self._infer, methods=["POST"]),
            Route("/predict/{model}", self._predict, methods=["POST"]),
            Route("/predict", self._predict, methods=["POST"]),
            *(Route(path, self._health) for path in _HEALTH),
            Route("/v2", self._server_metadata),
            Route("/v2/models/{model}", self._model_metadata),
            Route("/v2/models/{model}/ready", self._model_ready),
            Route("/metrics", self._show_metrics),
            *(Route(path, self._file) for path in _FILES),
            Route("/api/models", self._list_models),
            Route(f"{api}/classes", self._classes),
            Route(f"{api}/look", self._look, methods=["POST"]),
        ]
        self._lifetime = Router(lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the checks, headers and metrics common to all responses."""
        if scope["type"] != "http":
            await self._lifetime(scope, receive, send)
            return
        start = time.perf_counter()
        connection: Connection = scope["state"]["connection"]
        request, endpoint, status = Request(scope, receive), "none", 500
        connection.begin()
        try:
            try:
                self._check(scope)
                handler = self._handler(request)
                endpoint = handler.__name__[1:]
                response = await handler(request)
                connection.hold_answer(len(response.body))
            except (HTTPException, ClientDisconnect) as error:
                # The traceback would keep all values of the request in memory while it is answered.
                response = await self._refusal(error.with_traceback(None), request)
            except Exception:  # uvicorn writes it to the log, and closes the connection
                response = _json({"error": "internal error; see the server log for details"}, 500)
                response.headers["connection"] = "close"
                await self._send(response, connection, send)
                raise
            status = response.status_code
            await self._send(response, connection, send)
        finally:
            connection.end()
            self._metrics.request(endpoint, status, time.perf_counter() - start)

    async def _send(self, response: Response, connection: Connection, send: Send) -> None:
        if connection.expects_body:
            response.headers["connection"] = "close"
        headers = [*response.raw_headers, *_HEADERS]
        await send(
            {"type": "http.response.start", "status": response.status_code, "headers": headers}
        )
        await send({"type": "http.response.body", "body": response.body})

    async def _refusal(self, error: Exception, request: Request) -> Response:
        """The answer to a request that is refused, of which no more is to come."""
        if not isinstance(error, HTTPException):
            error = HTTPException(400, "the connection was closed before the request was answered")
        response = _json(
            {"error": error.detail.encode(errors="replace").decode()}, error.status_code
        )
        response.headers.update(error.headers or {})
        connection = request.scope["state"]["connection"]
        if connection.expects_body and error.status_code < 500 and "expect" not in request.headers:
            # For a moment: a client that is still sending does not read errors.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.discard_seconds):
                    while (await request.receive()).get("more_body", False):
                        pass
        return response

    def _handler(self, request: Request) -> Callable[[Request], Awaitable[Response]]:
        """The method that answers a request, whose query parameters it has."""
        for route in self._routes:
            match, found = route.matches(request.scope)
            if match is Match.PARTIAL:
                raise HTTPException(405, headers={"allow": ", ".join(route.methods or ())})
            if match is Match.FULL:
                request.scope.update(found)
                handler: Callable[[Request], Awaitable[Response]] = route.endpoint
                known = _PARAMETERS.get(handler.__name__, ())
                given = [name for name, _ in request.query_params.multi_items()]
                for name in given:
                    if name not in known or given.count(name) > 1:
                        raise RequestError(
                            f"unknown or repeated query parameter {shown(name)}; expected: "
                            f"{', '.join(known) or 'none'}"
                        )
                return handler
        raise HTTPException(404)

    def _check(self, scope: Scope) -> None:
        """Refuse too many connections, long headers, and requests from pages of other sites."""
        if len(self._connections.open) > self._limits.connections and scope["path"] not in _HEALTH:
            raise HTTPException(
                503, "too many connections", {"retry-after": "1", "connection": "close"}
            )
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > MAX_HEAD_BYTES:
            raise HTTPException(
                431, f"the headers of a request must have at most {MAX_HEAD_BYTES} bytes"
            )
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not _is_allowed(hosts[0].decode("latin-1"), self._hosts):
            raise HTTPException(421, "the host name is not allowed; see --allow-host")
        for name, value in scope["headers"]:
            if name == b"origin" and value.partition(b"://")[2] != hosts[0]:
                raise HTTPException(403, "requests from pages of other sites are not allowed")

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Router) -> AsyncIterator[dict[str, Any]]:
        if isinstance(self._models, ModelFiles) and self._parent is not None:
            for _ in range(2):  # the files may have changed since this process's parent read them
                await self._models.reload_changed()
        tasks = [asyncio.create_task(each) for each in (self._watch(), self._connections.watch())]
        yield {"connections": self._connections}
        for task in tasks:
            task.cancel()

    async def _watch(self) -> None:
        """Reload models whose files have changed, and stop if the parent process has died."""
        while True:
            await asyncio.sleep(self._limits.reload_seconds)
            if self._parent is not None and os.getppid() != self._parent:
                signal.raise_signal(signal.SIGTERM)
            if isinstance(self._models, ModelFiles):
                for name, success in await self._models.reload_changed():
                    self._metrics.reloads(name, "loaded" if success else "refused").inc()

    # Open Inference Protocol

    async def _health(self, request: Request) -> Response:
        return _json({request.url.path.rpartition("/")[2]: True})

    async def _server_metadata(self, request: Request) -> Response:
        extensions = ["binary_tensor_data"]
        return _json({"name": "bitclass", "version": version("bitclass"), "extensions": extensions})

    async def _model_metadata(self, request: Request) -> Response:
        return _json(metadata(self._served(request)))

    async def _model_ready(self, request: Request) -> Response:
        return _json({"name": self._served(request).name, "ready": True})

    async def _infer(self, request: Request) -> Response:
        served, limits = self._served(request), self._limits
        length = request.headers.get("inference-header-content-length")
        query = await self._parsed(request, lambda body: parse_infer(body, length, served, limits))
        prediction = await self._predicted(request, served, query)
        content, headers = await self._converted(
            prediction.labels.size < _SMALL_ANSWER, lambda: infer_answer(served, query, prediction)
        )
        return Response(content, headers=headers)

    # Plain JSON

    async def _predict(self, request: Request) -> Response:
        served, limits = self._served(request), self._limits
        kind = request.headers.get("content-type", "")
        top, reject = request.query_params.get("top"), request.query_params.get("reject")
        query = await self._parsed(
            request, lambda body: parse_plain(body, kind, top, reject, served, limits)
        )
        prediction = await self._predicted(request, served, query)
        content = await self._converted(
            prediction.labels.size < _SMALL_ANSWER, lambda: plain_answer(served, query, prediction)
        )
        return _json(content)

    async def _parsed(self, request: Request, parse: Callable[[bytearray], Query]) -> Query:
        """The parsed body of a request; the body itself is not kept."""
        body = await self._body(request)
        return await self._converted(len(body) < _SMALL_BODY, lambda: parse(body))

    async def _predicted(self, request: Request, served: ServedModel, query: Query) -> TopClasses:
        X = await self._extracted(served, query.kind, query.values)
        # Of requests that wait, the predictions would take more memory than the bodies.
        await request.scope["state"]["connection"].hold(query.answer_bytes(served))
        connection, with_typicality = request.scope["state"]["connection"], query.reject is not None
        try:
            prediction = await self._batcher.predict(
                served, X, query.top, with_typicality, lambda: connection.has_ended
            )
        except RowError as error:
            if query.kind != "rows":  # an error of the extractor
                raise
            raise RequestError(str(error)) from None
        if prediction.typicality is not None and query.reject is not None:
            n_rejected = int((prediction.typicality < query.reject).sum())
            self._metrics.rejected(served.name).inc(n_rejected)
        return prediction

    async def _extracted(self, served: ServedModel, kind: str, values: Any) -> Any:
        """The input of the model: rows, or texts if it has n-grams."""
        if kind == "rows" or served.extractor is None:
            return values
        options = {}
        if kind == "images":
            options["max_pixels"] = self._limits.image_pixels
            options["max_total_pixels"] = self._limits.request_pixels
        extract = partial(served.extractor.rows, values, **options)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._extracting, extract)
        except ImageError as error:
            raise HTTPException(422, str(error)) from None

    async def _converted(self, is_small: bool, function: Callable[[], _T]) -> _T:
        """Call a function, in another thread unless it takes little time."""
        if is_small:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._converting, function)

    # Metrics and the page

    async def _show_metrics(self, request: Request) -> Response:
        content = await self._converted(False, self._metrics.text)
        return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})

    async def _file(self, request: Request) -> Response:
        content, kind = self._files[request.url.path]
        return Response(content, headers={"content-type": kind})

    async def _list_models(self, request: Request) -> Response:
        facts = [
            {
                "name": served.name,
                "input": served.inputs[0],
                "classes": len(served.model.classes),
                "bits": served.model.n_bits,
                "features": served.model.n_features,
                "extractor": getattr(served.extractor, "name", None),
                "ngrams": served.model.text is not None,
                "reject": served.model.reject,
            }
            for served in self._models.values()
        ]
        return _json({"models": facts, "max_bytes": self._limits.body_bytes})

    async def _classes(self, request: Request) -> Response:
        served, search = self._served(request), request.query_params.get("search", "")
        start = parse_number(request.query_params.get("start", "0"), "start")
        return _json(await self._looked(partial(listed_classes, served.model, search, start)))

    async def _look(self, request: Request) -> Response:
        served = self._served(request)
        content_type = request.headers.get("content-type", "").partition(";")[0]
        is_text = content_type == "text/plain" and served.inputs[0] == "texts"
        is_image = content_type.startswith("image/") or content_type == "application/octet-stream"
        if not is_text and not (is_image and served.inputs[0] == "images"):
            raise HTTPException(
                415, f"model {served.name} takes {served.inputs[0]}, found {shown(content_type)}"
            )
        body = await self._body(request)
        try:
            content = body.decode() if is_text else bytes(body)
        except UnicodeDecodeError:
            raise RequestError("the text must be UTF-8") from None
        X = await self._extracted(served, served.inputs[0], [content])
        return _json(await self._looked(partial(look, served.model, X)))

    async def _looked(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._looking, function)

    # Parts of requests

    def _served(self, request: Request) -> ServedModel:
        name = request.path_params.get("model", next(iter(self._models)))
        if name not in self._models:
            raise HTTPException(
                404, f"no model {shown(name)}; the models are {', '.join(self._models)}"
            )
        return self._models[name]

    async def _body(self, request: Request) -> bytearray:
        """Receive the body of a request, unless it is too large or too slow."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise HTTPException(415, f"content-encoding must be identity, found {shown(encoding)}")
        limit, connection = self._limits.body_bytes, request.scope["state"]["connection"]
        length = request.headers.get("content-length", "0")
        too_large = f"the body must have at most {limit} bytes"
        if len(length) > 18 or int(length) > limit:
            raise HTTPException(413, too_large)
        body = bytearray()
        try:
            seconds = self._limits.body_seconds if connection.expects_body else None
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    if len(body) + len(part) > limit:
                        raise HTTPException(413, too_large)
                    await connection.hold(len(part))
                    body += part
        except TimeoutError:
            message = f"the body must arrive within {self._limits.body_seconds:g} seconds"
            raise HTTPException(408, message) from None
        connection.await_end()
        return body


def _is_allowed(host: str, allowed: set[str]) -> bool:
    """Whether a host name is known, or an address.

    A site can make its host name resolve to this address, so that its requests look like
    same-origin requests (DNS rebinding); this is not possible with a numeric address.
    """
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port  # raises an error if it is no number
        return name in allowed or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _json(value: Any, status: int = 200) -> Response:
    content = value if isinstance(value, bytes) else orjson.dumps(value)
    return Response(content, status, headers={"content-type": "application/json"})
