"""The limits of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits that keep one client from taking the service away from the others.

    Attributes
    ----------
    body_bytes : int
        Size of a request body.
    held_bytes : int
        Size of all bodies and answers together, in one process. The oldest request may exceed it.
    wait_seconds : float
        Time that a request waits until others have made room for its body.
    json_bytes, json_values : int
        Size of JSON, and its number of values, which take far more memory than their text.
    rows, images : int
        Number of rows or texts, and of images, per request.
    best_classes : int
        Number of rows times number of best classes per request.
    image_pixels, request_pixels : int
        Number of pixels of an image, and of all images of a request.
    connections : int
        Number of connections per process.
    head_seconds, body_seconds, send_seconds : float
        Time to send the headers and the body of a request, and to read the answer.
    discard_seconds : float
        Time to send the rest of a body that is refused.
    stop_seconds : int
        Time for open requests after the signal to stop.
    reload_seconds : float
        Time between looks at the model files.
    """

    body_bytes: int = 10_000_000
    held_bytes: int = 15_000_000
    wait_seconds: float = 5.0
    json_bytes: int = 4_000_000
    json_values: int = 250_000
    rows: int = 10_000
    images: int = 100
    best_classes: int = 50_000
    image_pixels: int = 16_000_000
    request_pixels: int = 64_000_000
    connections: int = 256
    head_seconds: float = 30.0
    body_seconds: float = 30.0
    send_seconds: float = 60.0
    discard_seconds: float = 1.0
    stop_seconds: int = 20
    reload_seconds: float = 1.0
