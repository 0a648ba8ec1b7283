"""The limits of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits that keep one client from taking the service away from the others."""

    body_bytes: int = 10_000_000  # of a request body
    # Of all bodies, predictions and answers in one process. The oldest request may exceed it.
    held_bytes: int = 15_000_000
    wait_seconds: float = 5.0  # that a request waits until others have made room for it
    # Of JSON, whose values take far more memory than their text.
    json_bytes: int = 4_000_000
    json_values: int = 250_000
    rows: int = 10_000  # or texts, per request
    images: int = 100  # per request
    best_classes: int = 50_000  # rows times best classes per request; fewer if labels are long
    image_pixels: int = 16_000_000
    request_pixels: int = 64_000_000  # of all images of a request
    connections: int = 256  # per process
    # To send the headers and the body of a request, and to read the answer: if that is large, only
    # half of `wait_seconds` while others wait.
    head_seconds: float = 30.0
    body_seconds: float = 30.0
    send_seconds: float = 60.0
    discard_seconds: float = 1.0  # to send the rest of a body that is refused
    stop_seconds: int = 20  # for open requests after the signal to stop
    reload_seconds: float = 1.0  # between looks at the model files
