"""A model under its name: what it takes, the images that the page shows, labels in JSON."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bitclass.images import Extractor, ImageRows, ImageSet, decode, recorded_extractor
from bitclass.model import PackedModel

__all__ = ["N_CLASSES", "Gallery", "ServedModel", "label_value"]

#: Number of best classes that the page shows.
N_CLASSES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Gallery:
    """Images in which the page finds similar ones.

    Parameters
    ----------
    images : ImageSet
        n images, at least one.
    codes : ndarray of shape (n, ceil(n_bits / 8)), uint8
    classes : tuple of ndarray of shape (n, k)
        Labels, distances and probabilities of the best classes of each image.
    """

    images: ImageSet
    codes: NDArray[np.uint8]
    classes: tuple[NDArray[Any], ...]

    @classmethod
    def of_rows(cls, rows: ImageRows, model: PackedModel) -> Self:
        """Make a gallery of images by their features.

        Parameters
        ----------
        rows : ImageRows
        model : PackedModel

        Returns
        -------
        Gallery
        """
        k = min(N_CLASSES, len(model.classes))
        codes, classes = [], []
        for batch in rows.batches():
            codes.append(model.encode(batch.X))
            classes.append(model.top_classes(batch.X, k, probabilities=True))
        joined = tuple(np.concatenate(parts) for parts in zip(*classes, strict=True))
        return cls(rows.images, np.concatenate(codes), joined)

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def labels(self) -> NDArray[np.str_] | None:
        """Label of each image, if these are known."""
        return None if self.images.labels is None else self.images.labels.astype(str)

    @cached_property
    def predicted(self) -> NDArray[np.str_]:
        """Predicted label of each image."""
        return np.array([str(label_value(label)) for label in self.classes[0][:, 0]])

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether each image has another label than the predicted one; False without labels."""
        known = self.predicted if self.labels is None else self.labels
        return np.asarray(self.predicted != known)


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
    def inputs(self) -> tuple[str, ...]:
        """Kinds of input that the model takes, the most natural first."""
        if self.extractor is not None:
            return ("images", "rows")
        if self.embed is not None or self.model.text is not None:
            return ("texts", "rows")
        return ("rows",)

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
