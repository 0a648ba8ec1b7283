"""HTTP service: Open Inference Protocol, plain JSON, metrics and a web page."""

from bitclass._warn import how_to_install

try:
    import httptools
    import orjson
    import prometheus_client
    import starlette
    import uvicorn
except ImportError as error:
    raise ImportError(f"serving requires {error.name}; {how_to_install('serve')}") from error

from bitclass.serving.app import Service
from bitclass.serving.limits import Limits
from bitclass.serving.models import ServedModel, load_model
from bitclass.serving.server import is_loopback, listen, serve

__all__ = [
    "Limits",
    "ServedModel",
    "Service",
    "is_loopback",
    "listen",
    "load_model",
    "serve",
]

del how_to_install, httptools, orjson, prometheus_client, starlette, uvicorn
