"""Sentence embeddings by models of other libraries."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.storage import check_extractor, extractor_of

# Module, class and constructor of each library; both load a model by name or folder.
_LIBRARIES = {
    "model2vec": ("model2vec", "StaticModel", "from_pretrained"),
    "sentence-transformers": ("sentence_transformers", "SentenceTransformer", ""),
}


class SentenceEmbeddings:
    """Text embeddings by a model of `model2vec` or `sentence-transformers`, or by any other.

    Parameters
    ----------
    model : str, or object with a method `encode` from a list of str to an array (n, d)
        Either ``"model2vec:MODEL"`` or ``"sentence-transformers:MODEL"``, with the folder of a
        model, or its name on the library's hub; it is downloaded on first use.

    Examples
    --------
    >>> embeddings = SentenceEmbeddings("model2vec:minishlab/potion-base-8M")
    >>> embeddings.rows(["book a table for two"]).shape  # doctest: +SKIP
    (1, 256)
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, str):
            if not callable(getattr(model, "encode", None)):
                raise ValueError(
                    "embedding must be a model with a method encode, or a text such as "
                    f"'model2vec:FOLDER', found {model!r:.80}"
                )
            self.name, self._model = type(model).__name__, model
            return
        self.name = model
        self._library, _, self._place = model.partition(":")
        # The libraries also accept URLs, but a model file must not choose what is downloaded.
        is_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self._place) is not None
        if self._library not in _LIBRARIES or not (is_name or os.path.isdir(self._place)):
            expected = " or ".join(f"{name}:MODEL" for name in _LIBRARIES)
            raise ValueError(
                f"unknown extractor {model!r:.80}; expected {expected}, with the folder or name of "
                "a model"
            )

    @cached_property
    def n_features(self) -> int:
        """Dimension of the embeddings."""
        return int(self.rows(["a"]).shape[1])

    def rows(self, texts: Sequence[str | bytes]) -> NDArray[np.float32]:
        """Embed texts.

        Parameters
        ----------
        texts : sequence of n str or bytes
            Invalid Unicode is replaced.

        Returns
        -------
        ndarray of shape (n, n_features), float32
        """
        readable = [_readable(text, i) for i, text in enumerate(texts)]
        model = self._model
        try:
            found = np.asarray(model.encode(readable), dtype=np.float32)
        except Exception as error:  # each library has its own error types
            raise ValueError(f"{self.name} cannot embed texts: {error}") from error
        if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
            raise ValueError(
                f"{self.name} must return {len(texts)} finite rows, found an array of shape "
                f"{found.shape}"
            )
        return found

    def specification(self) -> dict[str, str]:
        """The description of these embeddings in a model file, as JSON values."""
        is_folder = os.path.isdir(self._place)
        model = os.path.abspath(self._place) if is_folder else self._place
        return {"kind": self._library, "model": model}

    @cached_property
    def _model(self) -> Any:
        module, name, constructor = _LIBRARIES[self._library]
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ImportError(
                f"{self.name} requires {self._library}; install it with: pip install "
                f"{self._library} ({error})"
            ) from error
        try:
            return getattr(found, constructor)(self._place) if constructor else found(self._place)
        except Exception as error:  # unknown names, failed downloads, damaged folders
            raise ValueError(f"cannot load {self.name!r}: {error}") from error


def recorded_embeddings(
    summary: Mapping[str, Any],
    folder: str | os.PathLike[str] | None = None,
    *,
    allow_external: bool = False,
) -> SentenceEmbeddings | None:
    """Restore the sentence embeddings that a model was trained with; None if there were none.

    They are looked for in the `folder` of the model file, whose summary may be untrusted. With
    `allow_external`, they may be anywhere, or downloaded: see `storage.check_extractor`.
    """
    entry = extractor_of(summary)
    if entry is None or entry["kind"] not in _LIBRARIES:
        return None
    entry = check_extractor(entry, folder, allow_external=allow_external)
    return SentenceEmbeddings(f"{entry['kind']}:{entry['model']}")


def _readable(text: Any, i: int) -> str:
    """Convert a text to valid Unicode."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        raise TypeError(f"texts: expected str or bytes, found {type(text).__name__} in text {i}")
    return text.decode("utf-8", "replace")
