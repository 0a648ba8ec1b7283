"""Data for the web page: classes, their nearest neighbours, and the code of an input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.model import PackedModel

#: Number of best classes and of listed classes per answer.
N_BEST = 10
N_LISTED = 50
#: Number of n-grams shown per class, and maximum length of a text to explain.
N_NGRAMS = 12
MAX_EXPLAINED = 2000


def label_value(label: Any) -> str | int | float:
    """Convert a label to a JSON value.

    Examples
    --------
    >>> label_value(np.int64(3)), label_value(np.str_("a"))
    (3, 'a')
    """
    value: Any = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # JSON has no lone surrogates
    return value  # type: ignore[no-any-return]


def listed_classes(model: PackedModel, search: str = "", start: int = 0) -> dict[str, Any]:
    """Classes whose labels contain a text, each with its nearest other class.

    Returns the number of matches, and at most `N_LISTED` of them from `start` on.
    """
    wanted, total, listed = search.strip().casefold(), 0, []
    for i in range(len(model.classes)):
        if not wanted or wanted in _name(model, i).casefold():
            if start <= total < start + N_LISTED:
                listed.append(i)
            total += 1
    nearest, distances = _nearest_other(model.weights, np.array(listed, dtype=np.int64))
    answer: list[dict[str, Any]] = []
    for i, j, distance in zip(listed, nearest.tolist(), distances.tolist(), strict=True):
        answer.append({"class": i, "label": _name(model, i)})
        if j >= 0:
            answer[-1] |= {"nearest": _name(model, j), "distance": distance}
    return {"total": total, "classes": answer}


def look(model: PackedModel, X: Any) -> dict[str, Any]:
    """Code and best classes of one row (1, d), or of a list of one text.

    For a text of at most `MAX_EXPLAINED` characters, each class has the n-grams that contribute
    most for and against it, and their relative contributions. Models that can tell inputs of no
    known class also give the typicality.
    """
    has_typicality = model.typicality_table is not None
    found = model.top_classes(
        X, min(N_BEST, len(model.classes)), probabilities=True, typicality=has_typicality
    )
    assert found.probabilities is not None
    answer: dict[str, Any] = {"bits": _bits(model.encode(X)[0], model.n_bits), "classes": []}
    for label, distance, share in zip(
        found.labels[0], found.distances[0].tolist(), found.probabilities[0].tolist(),
        strict=True,
    ):  # fmt: skip
        code = model.weights[np.flatnonzero(model.classes == label)[0]]
        best = {"label": str(label_value(label)), "distance": distance, "probability": share}
        best["bits"] = _bits(code, model.n_bits)
        if model.text is not None and isinstance(X[0], str) and len(X[0]) <= MAX_EXPLAINED:
            ngrams = model.explain(X[0], label, n_ngrams=5 * MAX_EXPLAINED)
            strongest = sorted(ngrams, key=lambda each: -abs(each[1]))[:N_NGRAMS]
            best["ngrams"] = sorted(strongest, key=lambda each: -each[1])
        answer["classes"].append(best)
    if found.typicality is not None:
        answer["typicality"] = float(found.typicality[0])
    return answer


def _nearest_other(
    weights: NDArray[np.uint8], classes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Nearest other class of each class, -1 if there is none, and its distance."""
    if len(weights) < 2 or not len(classes):
        return np.full(len(classes), -1), np.zeros(len(classes), dtype=np.int32)
    found, distances = HammingIndex(weights).top_k(weights[classes], 2)
    # Equal codes are sorted by class index, so the class itself may be second, or missing.
    rows, other = np.arange(len(classes)), np.where(found[:, 0] == classes, 1, 0)
    return found[rows, other], distances[rows, other]


def _bits(code: NDArray[np.uint8], n_bits: int) -> str:
    bits = np.unpackbits(code, count=n_bits, bitorder="little")
    return "".join(map(str, bits.tolist()))


def _name(model: PackedModel, i: int) -> str:
    """Label of a class as text; not kept, since a million names take much memory."""
    return str(label_value(model.classes[i]))
