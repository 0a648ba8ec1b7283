"""A model under its name: what it takes, and what its labels are in JSON."""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitclass.images import Extractor, decode, recorded_extractor
from bitclass.model import PackedModel
from bitclass.serving.errors import RequestError
from bitclass.serving.gallery import Gallery

__all__ = ["InputKind", "ServedModel", "image_content", "label_value"]

InputKind = Literal["rows", "texts", "images"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ServedModel:
    """A model, and what the service knows about it.

    Parameters
    ----------
    name : str
        In addresses: letters, digits, ".", "_" and "-".
    model : PackedModel
    extractor : Extractor, optional
        The one that the model was trained with; then it takes images.
    gallery : Gallery, optional
        Images that the page shows.
    embed : callable, optional
        Turns n texts into features (n, d), for a model of sentence embeddings.
    """

    name: str
    model: PackedModel
    extractor: Extractor | None = None
    gallery: Gallery | None = None
    embed: Callable[[list[str]], NDArray[np.float32]] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name of a model must be at most 100 letters, digits, '.', '_' or '-', starting "
                f"with a letter or digit, found {self.name!r}"
            )

    def with_extractor(self) -> ServedModel:
        """The model with the extractor that it was trained with, so that it takes images or texts.

        Raises
        ------
        ValueError
            If the extractor does not give the features that the model takes.
        """
        model = self.model
        if "extractor" not in model.summary:
            return self
        # On demand: it needs scikit-learn, and an image that serves models does not have that.
        from bitclass.text import recorded_embeddings

        embeddings = recorded_embeddings(model.summary)
        extractor = None if embeddings is not None else recorded_extractor(model.summary)
        opened = embeddings or extractor
        assert opened is not None
        if opened.n_features != model.n_features:  # opens it, before the first request
            raise ValueError(
                f"model {self.name} takes {model.n_features} features, and its extractor gives "
                f"{opened.n_features}"
            )
        embed = None if embeddings is None else embeddings.rows
        return dataclasses.replace(self, extractor=extractor, embed=embed)

    @property
    def inputs(self) -> tuple[InputKind, ...]:
        """Kinds of input that the model takes, the most natural first."""
        if self.extractor is not None:
            return ("images", "rows")
        if self.embed is not None or self.model.text is not None:
            return ("texts", "rows")
        return ("rows",)

    def check_kind(self, kind: Any) -> None:
        """Refuse input that the model does not take."""
        if kind not in self.inputs:
            raise RequestError(
                f"model {self.name} takes {' or '.join(self.inputs)}, found {kind!r:.80}"
            )

    def check_top(self, top: Any) -> int:
        """The number of best classes that a request asks for.

        Raises
        ------
        RequestError
        """
        n_classes = len(self.model.classes)
        if type(top) is not int or not 1 <= top <= n_classes:
            raise RequestError(
                f"top must be an integer from 1 to the number of classes, {n_classes}, "
                f"found {top!r:.80}"
            )
        return top

    def features(self, images: list[bytes]) -> NDArray[np.float32]:
        """Features of image files, shape (n, d).

        Raises
        ------
        ImageError
            If one cannot be read.
        """
        assert self.extractor is not None
        rows = [
            self.extractor.extract([self.extractor.prepare(decode(content, f"image {i}"))])
            for i, content in enumerate(images)
        ]
        return np.concatenate(rows)


def image_content(value: str | bytes, i: int) -> bytes:
    """Content of an image file, which JSON holds in base64."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise RequestError(f"image {i} must be in base64: {error}") from None


def label_value(label: Any) -> str | int | float | bool:
    """A label as JSON holds it.

    Examples
    --------
    >>> label_value(np.int64(3)), label_value(np.datetime64("2020-01-01"))
    (3, '2020-01-01')
    """
    value = label.item() if isinstance(label, (np.number, np.bool_, np.str_, np.bytes_)) else label
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # lone surrogates are no JSON
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
