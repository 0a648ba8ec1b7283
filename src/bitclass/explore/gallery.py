"""Pictures with their codes, which serve as an image search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.data.pictures import PictureSet
from bitclass.model import PackedModel

__all__ = ["Gallery"]


@dataclass(frozen=True)
class Gallery:
    """Pictures, and the code of each.

    Attributes
    ----------
    pictures : PictureSet, of n >= 1 pictures
    codes : (n, ceil(r / 8)) uint8, packed
    """

    pictures: PictureSet
    codes: NDArray[np.uint8]
    _index: HammingIndex = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", HammingIndex(self.codes))

    @classmethod
    def of_features(
        cls,
        pictures: PictureSet,
        model: PackedModel,
        batches: Iterable[tuple[NDArray[np.intp], NDArray[np.float32]]],
    ) -> Self:
        """Make a gallery of the pictures whose features come, batch by batch.

        Parameters
        ----------
        pictures : PictureSet
        model : PackedModel, which encodes
        batches : of numbers (m,) of pictures and their features (m, d)

        Raises
        ------
        ValueError
            If there is none.
        """
        rows, codes = [], []
        for numbers, features in batches:
            rows.append(numbers)
            codes.append(model.encode(features))
        if not sum(map(len, rows)):
            raise ValueError("none of the pictures could be read")
        return cls(pictures.select(np.concatenate(rows)), np.concatenate(codes))

    def __len__(self) -> int:
        return len(self.pictures)

    def nearest(
        self, code: NDArray[np.uint8], k: int, leave_out: int | None = None
    ) -> list[tuple[int, int]]:
        """The pictures with the nearest codes.

        Parameters
        ----------
        code : (ceil(r / 8),) uint8
        k : at most so many
        leave_out : picture that is looked at itself

        Returns
        -------
        numbers of pictures and their distances, nearest first
        """
        n_asked = min(len(self), k if leave_out is None else k + 1)
        found, distances = self._index.top_k(code[None, :], n_asked)
        pairs = zip(found[0].tolist(), distances[0].tolist(), strict=True)
        return [(row, distance) for row, distance in pairs if row != leave_out][:k]
