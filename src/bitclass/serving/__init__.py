"""HTTP service: Open Inference Protocol, plain JSON, metrics, and a web page to explore models."""

try:
    import httptools
    import orjson
    import starlette
    import uvicorn
except ImportError as error:
    raise ImportError(
        f"serving requires {error.name}; install it with: pip install 'bitclass[serve]'"
    ) from error

from bitclass.serving.app import Service, is_loopback
from bitclass.serving.metrics import Metrics
from bitclass.serving.notebook import Exploration, explore
from bitclass.serving.served_model import Gallery, ServedModel
from bitclass.serving.server import create_server, listen
from bitclass.serving.workers import fork_workers

__all__ = [
    "Exploration",
    "Gallery",
    "Metrics",
    "ServedModel",
    "Service",
    "create_server",
    "explore",
    "fork_workers",
    "is_loopback",
    "listen",
]

del httptools, orjson, starlette, uvicorn
