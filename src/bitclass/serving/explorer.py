"""Answers for the page: codes, nearest classes and images, confused classes."""

from __future__ import annotations

import functools
import io
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.images import ImageError, centre_square, decode
from bitclass.serving.errors import RequestError
from bitclass.serving.gallery import N_CLASSES
from bitclass.serving.served_model import ServedModel, label_value

__all__ = ["Explorer"]

#: Number of images, classes and pairs of classes per answer.
N_IMAGES = 24
N_LISTED = 50
N_PAIRS = 20
#: N-grams that are told of a text for each class, and the longest text of which they are.
N_NGRAMS = 12
MAX_EXPLAINED = 2000
# Finding the nearest pair compares all classes with all others, half a second at this many.
MAX_PAIRED_CLASSES = 50_000

_SMALL_SIDE = 192
_KEPT_SMALL_IMAGES = 1024


class Explorer:
    """Answers about a model and its gallery, in values that JSON can hold.

    Parameters
    ----------
    served : ServedModel
    """

    def __init__(self, served: ServedModel) -> None:
        self._served, self._model, self._gallery = served, served.model, served.gallery
        self._small = functools.lru_cache(_KEPT_SMALL_IMAGES)(self._make_small)

    def facts(self) -> dict[str, Any]:
        """Sizes of the model and the gallery."""
        gallery, extractor = self._gallery, self._served.extractor
        return {
            "name": self._served.name,
            "input": self._served.inputs[0],
            "classes": len(self._model.classes),
            "bits": self._model.n_bits,
            "features": self._model.n_features,
            "extractor": None if extractor is None else extractor.name,
            "ngrams": self._model.text is not None,
            "images": 0 if gallery is None else len(gallery),
            "labelled": gallery is not None and gallery.images.labels is not None,
        }

    def classes(self, search: str = "", start: int = 0) -> dict[str, Any]:
        """Classes whose labels contain a text, each with the class that is nearest to it.

        Parameters
        ----------
        search : str
            Upper and lower case are the same.
        start : int
            Number of matches to skip.

        Returns
        -------
        dict
            The number of matches, and at most `N_LISTED` of them. With a labelled gallery each
            has its number of images, and of those that are assigned to other classes.
        """
        names, wanted = self._names, search.strip().casefold()
        found = [i for i, name in enumerate(names) if wanted in name.casefold()]
        listed = found[start : start + N_LISTED]
        nearest, distances = self._nearest_other(np.array(listed, dtype=np.int64))
        answer = [
            {"class": i, "label": names[i]}
            | ({"nearest": names[j], "distance": distance} if j >= 0 else {})
            for i, j, distance in zip(listed, nearest.tolist(), distances.tolist(), strict=True)
        ]
        counts = self._image_counts
        if counts is not None:
            for each in answer:
                n_images, n_wrong = counts.get(str(each["label"]), (0, 0))
                each |= {"images": n_images, "wrong": n_wrong}
        return {"total": len(found), "classes": answer}

    @functools.cached_property
    def _names(self) -> list[str]:
        return [str(label_value(label)) for label in self._model.classes]

    @functools.cached_property
    def _image_counts(self) -> dict[str, tuple[int, int]] | None:
        """Number of images per label of the gallery, and of those assigned to other classes."""
        if self._gallery is None or self._gallery.images.labels is None:
            return None
        labels = self._gallery.images.labels.astype(str)
        n_images, n_wrong = Counter(labels.tolist()), Counter(labels[self._wrong].tolist())
        return {label: (n, n_wrong[label]) for label, n in n_images.items()}

    @functools.cached_property
    def _predicted(self) -> NDArray[np.str_]:
        assert self._gallery is not None
        return np.array([str(label_value(label)) for label in self._gallery.classes[0][:, 0]])

    @functools.cached_property
    def _wrong(self) -> NDArray[np.bool_]:
        """Whether each image of a labelled gallery is assigned to another class than its own."""
        assert self._gallery is not None
        labels = self._gallery.images.labels
        assert labels is not None
        wrong: NDArray[np.bool_] = self._predicted != labels.astype(str)
        return wrong

    @functools.cached_property
    def _index(self) -> HammingIndex:
        return HammingIndex(self._model.weights)

    def _nearest_other(
        self, classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """For each class the nearest other one, -1 if there is none, and its distance."""
        if len(self._model.classes) < 2 or not len(classes):
            return np.full(len(classes), -1), np.zeros(len(classes), dtype=np.int32)
        found, distances = self._index.top_k(self._model.weights[classes], 2)
        # Equal codes come in the order of the classes, so the class itself may be second, or
        # not among them at all.
        own_first = found[:, 0] == classes
        rows = np.arange(len(classes))
        other = np.where(own_first, 1, 0)
        return found[rows, other], distances[rows, other]

    @functools.cached_property
    def _pairs(self) -> dict[str, Any]:
        if self._image_counts is not None and self._wrong.any():
            assert self._gallery is not None
            assert self._gallery.images.labels is not None
            labels = self._gallery.images.labels.astype(str)[self._wrong].tolist()
            counts = Counter(zip(labels, self._predicted[self._wrong].tolist(), strict=True))
            pairs = [
                {"label": label, "other": other, "images": n}
                for (label, other), n in counts.most_common(N_PAIRS)
            ]
            return {"by": "images", "pairs": pairs}
        if len(self._model.classes) > MAX_PAIRED_CLASSES:
            return {"by": "distance", "pairs": []}
        classes = np.arange(len(self._model.classes))
        nearest, distances = self._nearest_other(classes)
        found = {
            (min(i, j), max(i, j)): distance
            for i, j, distance in zip(
                classes.tolist(), nearest.tolist(), distances.tolist(), strict=True
            )
            if j >= 0
        }
        ordered = sorted(found.items(), key=lambda item: (item[1], item[0]))[:N_PAIRS]
        names = self._names
        pairs = [
            {"label": names[i], "other": names[j], "distance": distance}
            for (i, j), distance in ordered
        ]
        return {"by": "distance", "pairs": pairs}

    def pairs(self) -> dict[str, Any]:
        """Pairs of classes that are most easily confused.

        Returns
        -------
        dict
            The pairs of label and predicted class with the most images of the gallery. Where
            that has no errors to show, the pairs of classes whose codes are nearest; none
            above `MAX_PAIRED_CLASSES` classes.
        """
        return self._pairs

    def images(self, label: str = "", wrong: bool = False, start: int = 0) -> dict[str, Any]:
        """Images of the gallery.

        Parameters
        ----------
        label : str
            Only images of this label, or predicted as it if the gallery has no labels.
        wrong : bool
            Only images that are assigned to another class than their own.
        start : int
            Number of matches to skip.

        Returns
        -------
        dict
            The number of matches, and at most `N_IMAGES` of them.
        """
        gallery = self._gallery
        if gallery is None:
            return {"total": 0, "images": []}
        chosen = np.ones(len(gallery), dtype=np.bool_)
        labels = gallery.images.labels
        if label:
            chosen &= (self._predicted if labels is None else labels.astype(str)) == label
        if wrong and labels is not None:
            chosen &= self._wrong
        rows = np.flatnonzero(chosen)
        listed = rows[start : start + N_IMAGES].tolist()
        return {"total": len(rows), "images": [self._image(row) for row in listed]}

    def look(self, X: Any) -> dict[str, Any]:
        """Code, nearest classes and nearest images of one row or text.

        Parameters
        ----------
        X : array-like of shape (1, d), or list of one str

        Returns
        -------
        dict
            Of a text of at most `MAX_EXPLAINED` characters each class has the n-grams that say
            most for and against it, and their shares of all that is said.
        """
        k = min(N_CLASSES, len(self._model.classes))
        labels, *numbers = (each[0] for each in self._model.top_classes(X, k, probabilities=True))
        answer = self._near(self._model.encode(X)[0], [labels, *numbers])
        if self._model.text is not None and isinstance(X[0], str) and len(X[0]) <= MAX_EXPLAINED:
            for found, label in zip(answer["classes"], labels.tolist(), strict=True):
                told = self._model.explain(X[0], label, n_ngrams=5 * MAX_EXPLAINED)
                strongest = sorted(told, key=lambda each: -abs(each[1]))[:N_NGRAMS]
                found["ngrams"] = sorted(strongest, key=lambda each: -each[1])
        return answer

    def look_at(self, row: int) -> dict[str, Any]:
        """Code, nearest classes and nearest images of an image of the gallery.

        Raises
        ------
        RequestError
            If there is no such image.
        """
        gallery = self._check(row)
        classes = [each[row] for each in gallery.classes]
        return self._image(row) | self._near(gallery.codes[row], classes, row)

    def small_image(self, row: int) -> bytes:
        """The central square of an image of the gallery as a small JPEG.

        Raises
        ------
        RequestError
            If there is no such image.
        ImageError
            If it cannot be read any more.
        """
        self._check(row)
        return self._small(row)

    def _make_small(self, row: int) -> bytes:
        images = self._check(row).images
        try:
            content = images.read(row)
        except OSError as error:
            raise ImageError(f"{images.names[row]}: {error.strerror or error}") from error
        image = decode(content, images.names[row])
        pixels = centre_square(image, min(_SMALL_SIDE, *image.size), crop=1.0)
        stream = io.BytesIO()
        decode(pixels, images.names[row]).save(stream, "JPEG", quality=88)
        return stream.getvalue()

    def _check(self, row: int) -> Any:
        n_images = 0 if self._gallery is None else len(self._gallery)
        if not 0 <= row < n_images:
            raise RequestError(f"there is no image {row}; there are {n_images}", 404)
        return self._gallery

    def _image(self, row: int) -> dict[str, Any]:
        assert self._gallery is not None
        labels = self._gallery.images.labels
        image = {
            "row": row,
            "name": self._gallery.images.names[row].encode(errors="replace").decode(),
            "label": None if labels is None else label_value(str(labels[row])),
        }
        if labels is not None and self._wrong[row]:
            image["predicted"] = str(self._predicted[row])
        return image

    def _near(
        self, code: NDArray[np.uint8], classes: list[NDArray[Any]], row: int | None = None
    ) -> dict[str, Any]:
        near = [] if self._gallery is None else self._gallery.nearest(code, N_IMAGES, row)
        return {
            "bits": self._bits(code),
            "classes": self._best_classes(*classes),
            "images": [self._image(each) | {"distance": distance} for each, distance in near],
        }

    def _best_classes(
        self, labels: NDArray[Any], distances: NDArray[Any], probabilities: NDArray[Any]
    ) -> list[dict[str, Any]]:
        """The best classes, (k,) each, as `PackedModel.top_classes` returns them."""
        return [
            {
                "label": str(label_value(label)),
                "distance": distance,
                "probability": probability,
                "bits": self._bits(self._weights[label]),
            }
            for label, distance, probability in zip(
                labels.tolist(), distances.tolist(), probabilities.tolist(), strict=True
            )
        ]

    @functools.cached_property
    def _weights(self) -> dict[Any, NDArray[np.uint8]]:
        """Packed weights by label."""
        return dict(zip(self._model.classes.tolist(), self._model.weights, strict=True))

    def _bits(self, code: NDArray[np.uint8]) -> str:
        bits = np.unpackbits(code, count=self._model.n_bits, bitorder="little")
        return "".join(map(str, bits.tolist()))
