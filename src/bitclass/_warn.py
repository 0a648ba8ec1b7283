"""Warnings that point at the line of the caller, however deep inside the package they arise."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["warn"]

# Code between the caller and ours: scikit-learn's methods, and context managers.
_PACKAGES = ("bitclass", "contextlib", "sklearn")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the first frame outside this package and scikit-learn.

    Parameters
    ----------
    message : str
    category : type of Warning
    """
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and _package(frame) in _PACKAGES:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
