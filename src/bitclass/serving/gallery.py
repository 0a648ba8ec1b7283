"""Images with their codes, which serve as an image search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.images import ImageRows, ImageSet
from bitclass.model import PackedModel

__all__ = ["N_CLASSES", "Gallery"]

#: How many classes an answer tells of.
N_CLASSES = 10


@dataclass(frozen=True)
class Gallery:
    """Images, and the code of each.

    Attributes
    ----------
    images : ImageSet, of n >= 1 images
    codes : (n, ceil(r / 8)) uint8, packed
    classes : labels, distances and probabilities (n, k) of the best classes of each image
    """

    images: ImageSet
    codes: NDArray[np.uint8]
    classes: tuple[NDArray[Any], ...]
    _index: HammingIndex = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", HammingIndex(self.codes))

    @classmethod
    def of_rows(cls, rows: ImageRows, model: PackedModel) -> Self:
        """Make a gallery of the images that rows of features are of.

        Parameters
        ----------
        rows : ImageRows
        model : PackedModel
            Encodes the features.

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

    def nearest(
        self, code: NDArray[np.uint8], k: int, leave_out: int | None = None
    ) -> list[tuple[int, int]]:
        """The images with the nearest codes.

        Parameters
        ----------
        code : (ceil(r / 8),) uint8
        k : at most so many
        leave_out : image that is looked at itself

        Returns
        -------
        numbers of images and their distances, nearest first
        """
        n_asked = min(len(self), k if leave_out is None else k + 1)
        found, distances = self._index.top_k(code[None, :], n_asked)
        pairs = zip(found[0].tolist(), distances[0].tolist(), strict=True)
        return [(row, distance) for row, distance in pairs if row != leave_out][:k]
