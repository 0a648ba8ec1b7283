"""The ASGI application: routes, limits and errors.

Models are requested by name, images by number, and the files of the page by fixed names, so that
no part of a request becomes a path on disk.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bitclass.arrays import RowError
from bitclass.images import ImageError
from bitclass.serving.batching import Batcher, Prediction
from bitclass.serving.explorer import Explorer
from bitclass.serving.metrics import CONTENT_TYPE, Metrics
from bitclass.serving.protocol import (
    Query,
    RequestError,
    infer_answer,
    metadata,
    parse_infer,
    parse_number,
    parse_plain,
    plain_answer,
)
from bitclass.serving.served_model import ServedModel

__all__ = ["Service", "is_loopback"]

_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# The page may load files from this server, and the image that the user chose.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
)
# Pages that may embed it, if `in_frames`.
_NOTEBOOKS = "http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:"
_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        # The next run may serve other models and images at the same URLs.
        "cache-control": "no-store",
    }.items()
]


class Service:
    """ASGI application that serves models.

    Parameters
    ----------
    models : sequence of ServedModel
        Models with distinct names; the first is the default.
    max_body_bytes : int
        Maximum size of a request body.
    max_rows : int
        Maximum number of rows, texts or images per request.
    body_seconds : float
        Timeout for receiving the body of a request.
    host : str
        Address that the server listens on.
    allowed_hosts : sequence of str
        Additional host names that clients may use.
    metrics : Metrics, optional
        Metrics shared by several workers.
    in_frames : bool, default=False
        Whether notebooks on this machine may embed the page.

    Attributes
    ----------
    stopping : bool
        If True, every response closes its connection, and the service reports that it is not
        ready.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        *,
        max_body_bytes: int = 20 << 20,
        max_rows: int = 10_000,
        body_seconds: float = 30.0,
        host: str = "127.0.0.1",
        allowed_hosts: Sequence[str] = (),
        metrics: Metrics | None = None,
        in_frames: bool = False,
    ) -> None:
        self.stopping = False
        self._models = {served.name: served for served in models}
        if len(self._models) != len(models) or not models:
            names = ", ".join(served.name for served in models)
            raise ValueError(f"models must have distinct names, found {names or 'none'}")
        self._max_body_bytes, self._max_rows = max_body_bytes, max_rows
        self._body_seconds = body_seconds
        self._hosts = {host.lower(), *map(str.lower, allowed_hosts)}
        policy = _POLICY + (_NOTEBOOKS if in_frames else "'none'")
        self._headers = [*_HEADERS, (b"content-security-policy", policy.encode())]
        self._metrics = metrics or Metrics(list(self._models))
        self._batchers = {
            name: Batcher(served.model, partial(self._metrics.batch, name))
            for name, served in self._models.items()
        }
        self._explorers = {name: Explorer(served) for name, served in self._models.items()}
        # One request at a time: extraction already uses all cores.
        self._extracting = ThreadPoolExecutor(1, thread_name_prefix="bitclass-extract")
        folder = resources.files("bitclass.serving") / "static"
        self._pages = {
            path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGES.items()
        }
        api = "/api/models/{model}"
        self._app = Starlette(
            routes=[  # tried in this order
                Route("/v2/models/{model}/infer", self._infer, methods=["POST"]),
                Route("/predict/{model}", self._predict, methods=["POST"]),
                Route("/predict", self._predict, methods=["POST"]),
                Route("/v2/health/live", self._live),
                Route("/v2/health/ready", self._ready),
                Route("/v2", self._server_metadata),
                Route("/v2/models/{model}", self._model_metadata),
                Route("/v2/models/{model}/ready", self._model_ready),
                Route("/metrics", self._show_metrics),
                *(Route(path, self._page) for path in _PAGES),
                Route("/api/models", self._list_models),
                Route(f"{api}/classes", self._classes),
                Route(f"{api}/pairs", self._pairs),
                Route(f"{api}/look", self._look, methods=["POST"]),
                Route(f"{api}/images", self._list_images),
                Route(f"{api}/images/{{row}}.jpg", self._small_image),
                Route(f"{api}/images/{{row}}", self._look_at),
            ],
            # Errors in a request are HTTPExceptions; all others are internal errors.
            exception_handlers={HTTPException: _refuse, Exception: _fail},
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the checks, headers and metrics common to all responses."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._headers]
                if self.stopping:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        self._metrics.begin()
        try:
            refusal = self._check_origin(scope)
            app: ASGIApp = self._app if refusal is None else refusal
            await app(scope, receive, send_with_headers)
        finally:
            endpoint = getattr(scope.get("endpoint"), "__name__", "_none")[1:]
            self._metrics.end(endpoint, status, time.perf_counter() - start)

    def _check_origin(self, scope: Scope) -> Response | None:
        """Reject requests from pages of other sites.

        A site can make its host name resolve to this address, so that its requests look like
        same-origin requests (DNS rebinding); this is not possible with a numeric address.
        """
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._is_allowed_host(hosts[0].decode("latin-1")):
            return _error(421, "the host name is not allowed; see --allow-host")
        for name, value in scope["headers"]:
            if name == b"origin" and value.partition(b"://")[2] != hosts[0]:
                return _error(403, "requests from pages of other sites are not allowed")
        return None

    def _is_allowed_host(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name = parts.hostname or ""
            _ = parts.port  # must be a number
        except ValueError:
            return False
        if "@" in host or not name:
            return False
        if name in self._hosts or is_loopback(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return not all(map(is_loopback, self._hosts))

    # Open Inference Protocol

    async def _live(self, request: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, request: Request) -> Response:
        return _json({"ready": not self.stopping}, 503 if self.stopping else 200)

    async def _server_metadata(self, request: Request) -> Response:
        extensions = ["binary_tensor_data"]
        return _json({"name": "bitclass", "version": version("bitclass"), "extensions": extensions})

    async def _model_metadata(self, request: Request) -> Response:
        return _json(metadata(self._served(request)))

    async def _model_ready(self, request: Request) -> Response:
        return _json({"name": self._served(request).name, "ready": True})

    async def _infer(self, request: Request) -> Response:
        served, body = self._served(request), await self._body(request)
        json_length = request.headers.get("inference-header-content-length")
        query = parse_infer(body, json_length, served, self._max_rows)
        prediction = await self._predicted(served, query)
        content, headers = infer_answer(query, served, prediction)
        return Response(content, headers=headers)

    # Plain JSON

    async def _predict(self, request: Request) -> Response:
        served, body = self._served(request), await self._body(request)
        content_type = request.headers.get("content-type", "")
        top = request.query_params.get("top")
        query = parse_plain(body, content_type, top, served, self._max_rows)
        prediction = await self._predicted(served, query)
        return _json(plain_answer(served, prediction))

    async def _predicted(self, served: ServedModel, query: Query) -> Prediction:
        X = await self._extracted(served, query.kind, query.values)
        try:
            return await self._batchers[served.name].predict(X, query.top)
        except RowError as error:
            if query.kind == "rows":  # otherwise it is an error of the extractor
                raise RequestError(str(error)) from None
            raise

    async def _extracted(self, served: ServedModel, kind: str, values: Any) -> Any:
        """The input of the model: rows, or texts if it has n-grams."""
        if kind == "rows" or served.extractor is None:
            return values
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._extracting, served.features, values)
        except ImageError as error:
            raise HTTPException(422, str(error)) from None

    # Metrics and the page

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def _page(self, request: Request) -> Response:
        content, kind = self._pages[request.url.path]
        return Response(content, headers={"content-type": kind})

    async def _list_models(self, request: Request) -> Response:
        facts = [explorer.facts() for explorer in self._explorers.values()]
        return _json({"models": facts, "max_bytes": self._max_body_bytes})

    async def _classes(self, request: Request) -> Response:
        search, start = request.query_params.get("search", ""), _number(request, "start")
        return await self._explored(request, lambda explorer: explorer.classes(search, start))

    async def _pairs(self, request: Request) -> Response:
        return await self._explored(request, lambda explorer: explorer.pairs)

    async def _list_images(self, request: Request) -> Response:
        label, start = request.query_params.get("label", ""), _number(request, "start")
        wrong = request.query_params.get("wrong") == "1"
        return await self._explored(request, lambda explorer: explorer.images(label, wrong, start))

    async def _look_at(self, request: Request) -> Response:
        row = _number(request, "row")
        return await self._explored(request, lambda explorer: explorer.look_at(row))

    async def _small_image(self, request: Request) -> Response:
        explorer = self._explorers[self._served(request).name]
        content = await asyncio.to_thread(explorer.small_image, _number(request, "row"))
        return Response(content, headers={"content-type": "image/jpeg"})

    async def _look(self, request: Request) -> Response:
        served = self._served(request)
        content_type = request.headers.get("content-type", "").partition(";")[0]
        is_text = content_type == "text/plain" and served.inputs[0] == "texts"
        is_image = content_type.startswith("image/") or content_type == "application/octet-stream"
        if not is_text and not (is_image and served.inputs[0] == "images"):
            raise HTTPException(
                415, f"model {served.name} takes {served.inputs[0]}, found {content_type!r:.80}"
            )
        body = await self._body(request)
        try:
            content = body.decode() if is_text else body
        except UnicodeDecodeError:
            raise RequestError("the text must be UTF-8") from None
        X = await self._extracted(served, served.inputs[0], [content])
        return await self._explored(request, lambda explorer: explorer.look(X))

    async def _explored(
        self, request: Request, query: Callable[[Explorer], dict[str, Any]]
    ) -> Response:
        explorer = self._explorers[self._served(request).name]
        return _json(await asyncio.to_thread(query, explorer))

    # Parts of requests

    def _served(self, request: Request) -> ServedModel:
        name = request.path_params.get("model", next(iter(self._models)))
        if name not in self._models:
            raise HTTPException(
                404, f"no model {name!r:.80}; the models are {', '.join(self._models)}"
            )
        return self._models[name]

    async def _body(self, request: Request) -> bytes:
        """Receive the body of a request, unless it is too large or too slow."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise HTTPException(415, f"content-encoding must be identity, found {encoding!r:.80}")
        limit = self._max_body_bytes
        length = request.headers.get("content-length", "0")
        too_large = HTTPException(413, f"the body must have at most {limit} bytes")
        if len(length) > 18 or int(length) > limit:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._body_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            message = f"the body must arrive within {self._body_seconds:g} seconds"
            raise HTTPException(408, message) from None
        except ClientDisconnect:
            raise RequestError("the body is shorter than its content-length") from None
        return b"".join(parts)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine.

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


def _number(request: Request, name: str) -> int:
    """A number in the URL; 0 if it is missing."""
    text = request.path_params.get(name) or request.query_params.get(name, "0")
    return parse_number(text, name)


def _json(value: Any, status: int = 200) -> Response:
    content = value if isinstance(value, bytes) else orjson.dumps(value)
    return Response(content, status, headers={"content-type": "application/json"})


def _error(status: int, message: str) -> Response:
    return _json({"error": message.encode(errors="replace").decode()}, status)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _error(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response


async def _fail(request: Request, error: Exception) -> Response:
    response = _error(500, "internal error; see the server log for details")
    response.headers["connection"] = "close"  # as the server does after an error
    return response
