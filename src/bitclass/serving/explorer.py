"""Data for the web page: codes, nearest classes and images, confused classes."""

from __future__ import annotations

import functools
import io
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from bitclass._native import HammingIndex
from bitclass.images import ImageError, centre_square, decode
from bitclass.serving.served_model import N_CLASSES, Gallery, ServedModel, label_value

__all__ = ["Explorer"]

#: Number of images, classes and class pairs per response.
N_IMAGES = 24
N_LISTED = 50
N_PAIRS = 20
#: Number of n-grams shown per class, and maximum length of a text to explain.
N_NGRAMS = 12
MAX_EXPLAINED = 2000
# Finding the nearest pairs takes quadratic time, half a second for this many classes.
MAX_PAIRED_CLASSES = 50_000

_SMALL_SIDE = 192
_KEPT_SMALL_IMAGES = 1024


class Explorer:
    """Queries about a model and its gallery, answered in values that JSON can hold."""

    def __init__(self, served: ServedModel) -> None:
        self._served, self._model, self._gallery = served, served.model, served.gallery
        self.small_image = functools.lru_cache(_KEPT_SMALL_IMAGES)(self._small_image)

    def facts(self) -> dict[str, Any]:
        """Sizes of the model and the gallery."""
        gallery, extractor = self._gallery, self._served.extractor
        return {
            "name": self._served.name,
            "input": self._served.inputs[0],
            "classes": len(self._model.classes),
            "bits": self._model.n_bits,
            "features": self._model.n_features,
            "extractor": getattr(extractor, "name", None),
            "ngrams": self._model.text is not None,
            "images": 0 if gallery is None else len(gallery),
            "labelled": gallery is not None and gallery.labels is not None,
        }

    def classes(self, search: str = "", start: int = 0) -> dict[str, Any]:
        """Classes whose labels contain a text, each with its nearest other class.

        Returns the number of matches, and at most `N_LISTED` of them from `start` on. With a
        labelled gallery, each class has its number of images and of misclassified images.
        """
        names, wanted = self._names, search.strip().casefold()
        found = [i for i, name in enumerate(names) if wanted in name.casefold()]
        listed = found[start : start + N_LISTED]
        nearest, distances = self._nearest_other(np.array(listed, dtype=np.int64))
        answer = []
        for i, j, distance in zip(listed, nearest.tolist(), distances.tolist(), strict=True):
            answer.append({"class": i, "label": names[i]})
            if j >= 0:
                answer[-1] |= {"nearest": names[j], "distance": distance}
            if self._image_counts is not None:
                n_images, n_wrong = self._image_counts
                answer[-1] |= {"images": n_images[names[i]], "wrong": n_wrong[names[i]]}
        return {"total": len(found), "classes": answer}

    @functools.cached_property
    def _names(self) -> list[str]:
        return [str(label_value(label)) for label in self._model.classes]

    @functools.cached_property
    def _image_counts(self) -> tuple[Counter[str], Counter[str]] | None:
        """Number of images and of misclassified images per label."""
        gallery = self._gallery
        if gallery is None or gallery.labels is None:
            return None
        return Counter(gallery.labels.tolist()), Counter(gallery.labels[gallery.wrong].tolist())

    @functools.cached_property
    def _index(self) -> HammingIndex:
        return HammingIndex(self._model.weights)

    def _nearest_other(
        self, classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Nearest other class of each class, -1 if there is none, and its distance."""
        if len(self._model.classes) < 2 or not len(classes):
            return np.full(len(classes), -1), np.zeros(len(classes), dtype=np.int32)
        found, distances = self._index.top_k(self._model.weights[classes], 2)
        # Equal codes are sorted by class index, so the class itself may be second, or missing.
        rows, other = np.arange(len(classes)), np.where(found[:, 0] == classes, 1, 0)
        return found[rows, other], distances[rows, other]

    @functools.cached_property
    def pairs(self) -> dict[str, Any]:
        """The most confused pairs of classes.

        The pairs of label and predicted class with the most images in the gallery. If there are no
        misclassified images, the pairs of classes with the nearest codes; none above
        `MAX_PAIRED_CLASSES` classes.
        """
        gallery = self._gallery
        if gallery is not None and gallery.labels is not None and gallery.wrong.any():
            labels, predicted = gallery.labels[gallery.wrong], gallery.predicted[gallery.wrong]
            counts = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
            pairs = [
                {"label": label, "other": other, "images": n}
                for (label, other), n in counts.most_common(N_PAIRS)
            ]
            return {"by": "images", "pairs": pairs}
        if not 2 <= len(self._model.classes) <= MAX_PAIRED_CLASSES:
            return {"by": "distance", "pairs": []}
        classes = np.arange(len(self._model.classes))
        nearest, distances = self._nearest_other(classes)
        both = np.sort(np.stack([classes, nearest], axis=1), axis=1)
        found = np.unique(np.column_stack([distances, both]), axis=0)[:N_PAIRS]
        names = self._names
        pairs = [
            {"label": names[i], "other": names[j], "distance": distance}
            for distance, i, j in found.tolist()
        ]
        return {"by": "distance", "pairs": pairs}

    def images(self, label: str = "", wrong: bool = False, start: int = 0) -> dict[str, Any]:
        """Images with a label, or with that prediction if the gallery has no labels.

        Returns the number of matches, and at most `N_IMAGES` of them from `start` on; with `wrong`,
        only misclassified images.
        """
        gallery = self._gallery
        if gallery is None:
            return {"total": 0, "images": []}
        chosen = np.ones(len(gallery), dtype=np.bool_)
        if label:
            chosen &= (gallery.predicted if gallery.labels is None else gallery.labels) == label
        if wrong and gallery.labels is not None:
            chosen &= gallery.wrong
        rows = np.flatnonzero(chosen)
        listed = rows[start : start + N_IMAGES].tolist()
        return {"total": len(rows), "images": [_image(gallery, row) for row in listed]}

    def look(self, X: Any) -> dict[str, Any]:
        """Code, nearest classes and nearest images of one row (1, d), or of a list of one text.

        For a text of at most `MAX_EXPLAINED` characters, each class has the n-grams that contribute
        most for and against it, and their relative contributions.
        """
        k = min(N_CLASSES, len(self._model.classes))
        found = self._model.top_classes(X, k, probabilities=True)
        classes = [each[0] for each in found if each is not None]
        answer = self._near(self._model.encode(X)[0], classes)
        if self._model.text is not None and isinstance(X[0], str) and len(X[0]) <= MAX_EXPLAINED:
            for found, label in zip(answer["classes"], classes[0].tolist(), strict=True):
                ngrams = self._model.explain(X[0], label, n_ngrams=5 * MAX_EXPLAINED)
                strongest = sorted(ngrams, key=lambda each: -abs(each[1]))[:N_NGRAMS]
                found["ngrams"] = sorted(strongest, key=lambda each: -each[1])
        return answer

    def look_at(self, row: int) -> dict[str, Any]:
        """Code, nearest classes and nearest images of an image in the gallery."""
        gallery = self._with_row(row)
        classes = [each[row] for each in gallery.classes]
        return _image(gallery, row) | self._near(gallery.codes[row], classes, row)

    def _small_image(self, row: int) -> bytes:
        """The central square of an image in the gallery, as a small JPEG."""
        images = self._with_row(row).images
        name = images.names[row]
        try:
            image = decode(images.read(row), name)
        except (OSError, ImageError):
            raise HTTPException(404, f"{name}: can no longer be read") from None
        pixels = centre_square(image, min(_SMALL_SIDE, *image.size), crop=1.0)
        stream = io.BytesIO()
        decode(pixels, name).save(stream, "JPEG", quality=88)
        return stream.getvalue()

    def _with_row(self, row: int) -> Gallery:
        """The gallery; an error if it has no such image."""
        n_images = 0 if self._gallery is None else len(self._gallery)
        if self._gallery is None or not 0 <= row < n_images:
            raise HTTPException(404, f"no image {row}; there are {n_images} images")
        return self._gallery

    def _near(
        self, code: NDArray[np.uint8], classes: list[NDArray[Any]], row: int | None = None
    ) -> dict[str, Any]:
        """The bits of a code, its best classes, and the images with the nearest codes.

        `classes` are labels, distances and probabilities, each of shape (k,).
        """
        gallery, images = self._gallery, []
        if gallery is not None:
            found, distances = self._gallery_index.top_k(
                code[None, :], min(len(gallery), N_IMAGES + 1)
            )
            images = [
                _image(gallery, other) | {"distance": distance}
                for other, distance in zip(found[0].tolist(), distances[0].tolist(), strict=True)
                if other != row
            ]
        best = [
            {
                "label": str(label_value(label)),
                "distance": distance,
                "probability": probability,
                "bits": self._bits(self._weights[label]),
            }
            for label, distance, probability in zip(*(c.tolist() for c in classes), strict=True)
        ]
        return {"bits": self._bits(code), "classes": best, "images": images[:N_IMAGES]}

    @functools.cached_property
    def _gallery_index(self) -> HammingIndex:
        assert self._gallery is not None
        return HammingIndex(self._gallery.codes)

    @functools.cached_property
    def _weights(self) -> dict[Any, NDArray[np.uint8]]:
        """Packed weights by label."""
        return dict(zip(self._model.classes.tolist(), self._model.weights, strict=True))

    def _bits(self, code: NDArray[np.uint8]) -> str:
        bits = np.unpackbits(code, count=self._model.n_bits, bitorder="little")
        return "".join(map(str, bits.tolist()))


def _image(gallery: Gallery, row: int) -> dict[str, Any]:
    image = {
        "row": row,
        "name": gallery.images.names[row].encode(errors="replace").decode(),
        "label": None if gallery.labels is None else label_value(str(gallery.labels[row])),
    }
    if gallery.wrong[row]:
        image["predicted"] = str(gallery.predicted[row])
    return image
