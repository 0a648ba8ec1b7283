"""What is wrong with a request, and the status that says so."""

from __future__ import annotations

__all__ = ["RequestError"]


class RequestError(Exception):
    """A request that is answered with a 4xx status and this message.

    Parameters
    ----------
    message : str
    status : int, default=400
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
