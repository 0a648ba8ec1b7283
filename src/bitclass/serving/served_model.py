"""A model with its name, input types and gallery of images; labels in JSON."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bitclass.images import Extractor, ImageRows, ImageSet, decode, recorded_extractor
from bitclass.model import PackedModel

if TYPE_CHECKING:
    from bitclass.text import SentenceEmbeddings

__all__ = ["N_CLASSES", "Gallery", "ServedModel", "label_value"]

#: Number of best classes shown by the page.
N_CLASSES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Gallery:
    """Images that the page searches for similar ones.

    Parameters
    ----------
    images : ImageSet
        At least one image.
    codes : ndarray of shape (n, ceil(n_bits / 8)), uint8
    classes : tuple of ndarray of shape (n, k)
        Labels, distances and probabilities of the best classes of each image.
    """

    images: ImageSet
    codes: NDArray[np.uint8]
    classes: tuple[NDArray[Any], ...]

    @classmethod
    def of_rows(cls, rows: ImageRows, model: PackedModel) -> Self:
        """Create a gallery from the features of images.

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
            classes.append(model.top_classes(batch.X, k, probabilities=True)[:3])
        joined = tuple(np.concatenate(parts) for parts in zip(*classes, strict=True))
        return cls(rows.images, np.concatenate(codes), joined)

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def labels(self) -> NDArray[np.str_] | None:
        """Label of each image; None if unknown."""
        return None if self.images.labels is None else self.images.labels.astype(str)

    @cached_property
    def predicted(self) -> NDArray[np.str_]:
        """Predicted label of each image."""
        return np.array([str(label_value(label)) for label in self.classes[0][:, 0]])

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether each image is misclassified; False without labels."""
        known = self.predicted if self.labels is None else self.labels
        return np.asarray(self.predicted != known)


@dataclass(frozen=True)
class ServedModel:
    """A model with its name, extractor and gallery.

    Parameters
    ----------
    name : str
        Name in URLs: letters, digits, ".", "_" and "-".
    model : PackedModel
    extractor : Extractor or SentenceEmbeddings, optional
        The extractor that the model was trained with, so that it takes images or texts.
    gallery : Gallery, optional
        Images shown by the page.
    """

    name: str
    model: PackedModel
    extractor: Extractor | SentenceEmbeddings | None = None
    gallery: Gallery | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"a model name must be at most 100 letters, digits, '.', '_' or '-', starting "
                f"with a letter or digit, found {self.name!r}"
            )

    def with_extractor(self) -> ServedModel:
        """Add the extractor that the model was trained with, so that it takes images or texts.

        Raises
        ------
        ValueError
            If the extractor returns another number of features than the model takes.
        """
        model = self.model
        if "extractor" not in model.summary:
            return self
        # Imported on demand: it needs scikit-learn, which a serving container does not have.
        from bitclass.text import recorded_embeddings

        extractor = recorded_embeddings(model.summary) or recorded_extractor(model.summary)
        assert extractor is not None
        if extractor.n_features != model.n_features:  # also loads it before the first request
            raise ValueError(
                f"model {self.name} takes {model.n_features} features, but its extractor returns "
                f"{extractor.n_features}"
            )
        return dataclasses.replace(self, extractor=extractor)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Kinds of input that the model accepts, the preferred one first."""
        if isinstance(self.extractor, Extractor):
            return ("images", "rows")
        if self.extractor is not None or self.model.text is not None:
            return ("texts", "rows")
        return ("rows",)

    def features(self, values: list[Any]) -> NDArray[np.float32]:
        """Extract the features of image files or texts, shape (n, d).

        Raises
        ------
        ImageError
            If an image cannot be read.
        """
        extractor = self.extractor
        assert extractor is not None
        if not isinstance(extractor, Extractor):
            return extractor.rows(values)
        rows = [
            extractor.extract([extractor.prepare(decode(content, f"image {i}"))])
            for i, content in enumerate(values)
        ]
        return np.concatenate(rows)


def label_value(label: Any) -> str | int | float | bool:
    """Convert a label to a JSON value.

    Examples
    --------
    >>> label_value(np.int64(3)), label_value(np.datetime64("2020-01-01"))
    (3, '2020-01-01')
    """
    value = label.item() if isinstance(label, (np.number, np.bool_, np.str_, np.bytes_)) else label
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # JSON has no lone surrogates
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
