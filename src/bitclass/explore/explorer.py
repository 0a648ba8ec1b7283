"""What the page asks: the code of an image, the classes and the images near it."""

from __future__ import annotations

import functools
import io
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.explore.gallery import N_CLASSES, Gallery
from bitclass.images import Extractor, ImageError, Preparation, decode
from bitclass.model import PackedModel

__all__ = ["Explorer"]

#: How many images an answer tells of.
N_IMAGES = 24
#: Images to begin with.
N_SAMPLES = 12

_SMALL = Preparation(min_side=1, max_side=192, crop=1.0, filter="bilinear")
_KEPT_SMALL_IMAGES = 1024


class Explorer:
    """Answers about a model and a gallery, in values that JSON can hold.

    Parameters
    ----------
    model : PackedModel
    extractor : Extractor, the one that the model was learned with
    gallery : Gallery
    """

    def __init__(self, model: PackedModel, extractor: Extractor, gallery: Gallery) -> None:
        self._model, self._extractor = model, extractor
        self._gallery = gallery
        self._weights = dict(zip(model.classes.tolist(), model.weights, strict=True))
        # One image at a time: extracting takes all cores as it is.
        self._extracting = threading.Lock()
        self._small = functools.lru_cache(_KEPT_SMALL_IMAGES)(self._make_small)

    def facts(self) -> dict[str, Any]:
        """What the model and the gallery are, and some images to begin with."""
        n_samples = min(N_SAMPLES, len(self._gallery))
        spread = np.linspace(0, len(self._gallery) - 1, n_samples).astype(int)
        return {
            "classes": len(self._model.classes),
            "bits": self._model.n_bits,
            "features": self._model.n_features,
            "extractor": self._extractor.name,
            "images": len(self._gallery),
            "samples": [self._image(row) for row in sorted(set(spread.tolist()))],
        }

    def look(self, content: bytes) -> dict[str, Any]:
        """Tell of an image that somebody brings.

        Parameters
        ----------
        content : of an image file

        Raises
        ------
        ImageError
            If it cannot be read.
        """
        pixels = self._extractor.preparation(decode(content, "the image"))
        with self._extracting:
            features = self._extractor.extract([pixels])
        k = min(N_CLASSES, len(self._model.classes))
        classes = self._model.top_classes(features, k, probabilities=True)
        return self._near(self._model.encode(features)[0], [each[0] for each in classes])

    def look_at(self, row: int) -> dict[str, Any]:
        """Tell of an image of the gallery.

        Raises
        ------
        IndexError
            If there is no such image.
        """
        self._check(row)
        classes = [each[row] for each in self._gallery.classes]
        return self._image(row) | self._near(self._gallery.codes[row], classes, row)

    def small_image(self, row: int) -> bytes:
        """An image of the gallery as a small JPEG, the square in its middle.

        Raises
        ------
        IndexError
            If there is no such image.
        ImageError
            If it cannot be read any more.
        """
        self._check(row)
        return self._small(row)

    def _make_small(self, row: int) -> bytes:
        images = self._gallery.images
        try:
            content = images.read(row)
        except OSError as error:
            raise ImageError(f"{images.names[row]}: {error.strerror or error}") from error
        pixels = _SMALL(decode(content, images.names[row]))
        stream = io.BytesIO()
        decode(pixels, images.names[row]).save(stream, "JPEG", quality=88)
        return stream.getvalue()

    def _check(self, row: int) -> None:
        if not 0 <= row < len(self._gallery):
            raise IndexError(f"image {row}: there are {len(self._gallery)}")

    def _image(self, row: int) -> dict[str, Any]:
        labels = self._gallery.images.labels
        return {
            "row": row,
            "name": self._gallery.images.names[row],
            "label": None if labels is None else str(labels[row]),
        }

    def _near(
        self, code: NDArray[np.uint8], classes: list[NDArray[Any]], row: int | None = None
    ) -> dict[str, Any]:
        near = self._gallery.nearest(code, N_IMAGES, leave_out=row)
        return {
            "bits": self._bits(code),
            "classes": self._best_classes(*classes),
            "images": [self._image(each) | {"distance": distance} for each, distance in near],
        }

    def _best_classes(
        self, labels: NDArray[Any], distances: NDArray[Any], probabilities: NDArray[Any]
    ) -> list[dict[str, Any]]:
        """The best classes of an image, (k,) each, as `PackedModel.top_classes` gives them."""
        return [
            {
                "label": str(label),
                "distance": distance,
                "probability": probability,
                "bits": self._bits(self._weights[label]),
            }
            for label, distance, probability in zip(
                labels.tolist(), distances.tolist(), probabilities.tolist(), strict=True
            )
        ]

    def _bits(self, code: NDArray[np.uint8]) -> str:
        bits = np.unpackbits(code, count=self._model.n_bits, bitorder="little")
        return "".join(map(str, bits.tolist()))
