"""Data for the web page: classes, their nearest neighbours, and the code of an input."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.model import PackedModel

__all__ = ["Page"]

#: Number of best classes, listed classes and pairs of classes per answer.
N_BEST = 10
N_LISTED = 50
N_PAIRS = 20
#: Number of n-grams shown per class, and maximum length of a text to explain.
N_NGRAMS = 12
MAX_EXPLAINED = 2000
# Finding the nearest pairs takes quadratic time, half a second for this many classes.
MAX_PAIRED_CLASSES = 50_000


class Page:
    """Queries about a model, answered in values that JSON can hold.

    Parameters
    ----------
    model : PackedModel
    names : list of str
        Labels of the classes as text.
    """

    def __init__(self, model: PackedModel, names: list[str]) -> None:
        self._model, self._names = model, names

    def classes(self, search: str = "", start: int = 0) -> dict[str, Any]:
        """Classes whose labels contain a text, each with its nearest other class.

        Returns the number of matches, and at most `N_LISTED` of them from `start` on.
        """
        names, wanted = self._names, search.strip().casefold()
        found = [i for i, name in enumerate(names) if wanted in name.casefold()]
        listed = found[start : start + N_LISTED]
        nearest, distances = self._nearest_other(np.array(listed, dtype=np.int64))
        answer: list[dict[str, Any]] = []
        for i, j, distance in zip(listed, nearest.tolist(), distances.tolist(), strict=True):
            answer.append({"class": i, "label": names[i]})
            if j >= 0:
                answer[-1] |= {"nearest": names[j], "distance": distance}
        return {"total": len(found), "classes": answer}

    @functools.cached_property
    def pairs(self) -> dict[str, Any]:
        """Pairs of classes with the nearest codes; none above `MAX_PAIRED_CLASSES` classes."""
        if not 2 <= len(self._names) <= MAX_PAIRED_CLASSES:
            return {"pairs": []}
        classes = np.arange(len(self._names))
        nearest, distances = self._nearest_other(classes)
        both = np.sort(np.stack([classes, nearest], axis=1), axis=1)
        found = np.unique(np.column_stack([distances, both]), axis=0)[:N_PAIRS]
        pairs = [
            {"label": self._names[i], "other": self._names[j], "distance": distance}
            for distance, i, j in found.tolist()
        ]
        return {"pairs": pairs}

    def look(self, X: Any) -> dict[str, Any]:
        """Code and best classes of one row (1, d), or of a list of one text.

        For a text of at most `MAX_EXPLAINED` characters, each class has the n-grams that contribute
        most for and against it, and their relative contributions.
        """
        model, k = self._model, min(N_BEST, len(self._names))
        found = model.top_classes(X, k, probabilities=True)
        assert found.probabilities is not None
        labels, distances, shares = (
            each[0].tolist() for each in (found.labels, found.distances, found.probabilities)
        )
        best: list[dict[str, Any]] = []
        for label, distance, share in zip(labels, distances, shares, strict=True):
            i = self._rank[label]
            best.append(
                {
                    "label": self._names[i],
                    "distance": distance,
                    "probability": share,
                    "bits": self._bits(model.weights[i]),
                }
            )
            if model.text is not None and isinstance(X[0], str) and len(X[0]) <= MAX_EXPLAINED:
                ngrams = model.explain(X[0], label, n_ngrams=5 * MAX_EXPLAINED)
                strongest = sorted(ngrams, key=lambda each: -abs(each[1]))[:N_NGRAMS]
                best[-1]["ngrams"] = sorted(strongest, key=lambda each: -each[1])
        return {"bits": self._bits(model.encode(X)[0]), "classes": best}

    @functools.cached_property
    def _index(self) -> HammingIndex:
        return HammingIndex(self._model.weights)

    @functools.cached_property
    def _rank(self) -> dict[Any, int]:
        return {label: i for i, label in enumerate(self._model.classes.tolist())}

    def _nearest_other(
        self, classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Nearest other class of each class, -1 if there is none, and its distance."""
        if len(self._names) < 2 or not len(classes):
            return np.full(len(classes), -1), np.zeros(len(classes), dtype=np.int32)
        found, distances = self._index.top_k(self._model.weights[classes], 2)
        # Equal codes are sorted by class index, so the class itself may be second, or missing.
        rows, other = np.arange(len(classes)), np.where(found[:, 0] == classes, 1, 0)
        return found[rows, other], distances[rows, other]

    def _bits(self, code: NDArray[np.uint8]) -> str:
        bits = np.unpackbits(code, count=self._model.n_bits, bitorder="little")
        return "".join(map(str, bits.tolist()))
