"""Features of the paper's images, from class folders as `archives.unpack` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

__all__ = ["extract_features"]

_IMAGES_PER_BATCH = 256


def extract_features(folder: Path, extractor: str) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Features (n, d) of the images in ``folder/CLASS``, and their classes (n,).

    The extractor is "gist", or the description of a network: see `bitclass.images`.
    """
    paths = sorted(path for path in folder.glob("*/*") if path.is_file())
    if not paths:
        raise ValueError(f"{folder}: has no images in class folders")
    described = _extractor(extractor)
    features = []
    for start in range(0, len(paths), _IMAGES_PER_BATCH):
        prepared = [described.prepare(_read(path)) for path in paths[start:][:_IMAGES_PER_BATCH]]
        features.append(described.extract(prepared))
    return np.concatenate(features), np.array([path.parent.name for path in paths])


def _extractor(name: str) -> Any:
    if name == "gist":
        from reproduction.gist import Gist

        return Gist()
    from bitclass.images import extractor_named

    return extractor_named(name)


def _read(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise ValueError(f"{path}: is not an image") from error
