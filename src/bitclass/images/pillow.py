"""Pillow, imported when a picture is at hand, or a line that says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["import_images_extra", "pillow_image"]


def import_images_extra(module: str, what: str) -> Any:
    """Import a module of the extra `images`, or say what to install.

    Parameters
    ----------
    module : its name
    what : what it is needed for
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what} needs {module.split('.')[0]}; install it with: pip install 'bitclass[images]'"
        ) from error


def pillow_image() -> ModuleType:
    """Pillow's module `Image`."""
    module: ModuleType = import_images_extra("PIL.Image", "reading pictures")
    return module
