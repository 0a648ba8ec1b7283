"""What happens to the pixels of a picture before features are taken of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bitclass.images.pillow import pillow_image

__all__ = ["Preparation"]


@dataclass(frozen=True)
class Preparation:
    """The square in the middle of a picture, brought to a size that an extractor takes.

    A square picture whose side is within the bounds is left as it is, so that preparing twice is
    preparing once.

    Parameters
    ----------
    smallest, largest : int
        Bounds of the side in pixels.
    crop : float in (0, 1]
        Side of the square that is kept, as a share of the shorter side of the picture.
    filter : {"bilinear", "bicubic"}
        How pixels are blended; shrinking blends all pixels that a new one covers.

    Examples
    --------
    >>> import numpy as np
    >>> preparation = Preparation(smallest=16, largest=64, crop=1.0, filter="bilinear")
    >>> preparation(np.zeros((100, 300, 3), dtype=np.uint8)).shape
    (64, 64, 3)
    """

    smallest: int
    largest: int
    crop: float
    filter: Literal["bilinear", "bicubic"]

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Pixels (s, s, 3) of a picture (h, w, 3)."""
        height, width = picture.shape[:2]
        if height == width and self.smallest <= width <= self.largest:
            return picture
        shorter = min(height, width)
        side = max(1.0, self.crop * shorter)
        new = int(min(max(round(side), self.smallest), self.largest))
        left, top = (width - side) / 2, (height - side) / 2
        image = pillow_image()
        filters = {"bilinear": image.Resampling.BILINEAR, "bicubic": image.Resampling.BICUBIC}
        resized = image.fromarray(np.ascontiguousarray(picture)).resize(
            (new, new), filters[self.filter], box=(left, top, left + side, top + side)
        )
        return np.asarray(resized)

    def specification(self) -> dict[str, Any]:
        """The parameters, as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_specification(cls, specification: dict[str, Any]) -> Self:
        """The preparation that gave this specification."""
        return cls(**specification)
