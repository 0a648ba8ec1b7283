"""Sentence embeddings: models of other libraries as extractors."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SentenceEmbeddings", "embeddings_named", "recorded_embeddings"]

# Module and class of each library; both make a model by name or folder, and have `encode`.
_LIBRARIES = {
    "model2vec": ("model2vec", "StaticModel", "from_pretrained"),
    "sentence-transformers": ("sentence_transformers", "SentenceTransformer", ""),
}


@dataclass(frozen=True)
class SentenceEmbeddings:
    """Embeddings of texts by a model of `model2vec` or `sentence-transformers`.

    Parameters
    ----------
    library : {"model2vec", "sentence-transformers"}
    model : str
        Folder of a model, or its name at the hub of the library, which downloads it on first use.

    Examples
    --------
    >>> embeddings = SentenceEmbeddings("model2vec", "minishlab/potion-base-8M")
    >>> embeddings.rows(["book a table for two"]).shape  # doctest: +SKIP
    (1, 256)
    """

    library: str
    model: str

    def __post_init__(self) -> None:
        if self.library not in _LIBRARIES:
            raise ValueError(f"library must be one of {list(_LIBRARIES)}, found {self.library!r}")
        # The libraries also take addresses, and a model file must not choose what is downloaded.
        is_name = isinstance(self.model, str) and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self.model)
        if not is_name and not (isinstance(self.model, str) and os.path.isdir(self.model)):
            raise ValueError(
                f"model must be the folder or name of a model of {self.library}, "
                f"found {self.model!r:.80}"
            )

    @cached_property
    def n_features(self) -> int:
        """Number of features of a text."""
        return int(self.rows(["a"]).shape[1])

    def rows(self, texts: Sequence[str | bytes]) -> NDArray[np.float32]:
        """Embeddings of texts.

        Parameters
        ----------
        texts : sequence of n str or bytes
            What is not valid Unicode is replaced.

        Returns
        -------
        ndarray of shape (n, n_features), float32
        """
        readable = [_readable(text, i) for i, text in enumerate(texts)]
        model = self._model
        try:
            found = np.asarray(model.encode(readable), dtype=np.float32)
        except Exception as error:  # each library has errors of its own
            raise ValueError(f"{self.library}:{self.model} cannot embed texts: {error}") from error
        if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
            raise ValueError(
                f"{self.library}:{self.model} must give {len(texts)} finite rows, "
                f"found an array of shape {found.shape}"
            )
        return found

    def specification(self) -> dict[str, str]:
        """What a model file records of this, in JSON."""
        model = os.path.abspath(self.model) if os.path.isdir(self.model) else self.model
        return {"kind": self.library, "model": model}

    @cached_property
    def _model(self) -> Any:
        module, name, constructor = _LIBRARIES[self.library]
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ImportError(
                f"{self.library}:{self.model} needs {self.library}; install it with: pip install "
                f"{self.library} ({error})"
            ) from error
        try:
            return getattr(found, constructor)(self.model) if constructor else found(self.model)
        except Exception as error:  # unknown names, failed downloads, damaged folders
            raise ValueError(f"{self.library} cannot load {self.model!r}: {error}") from error


def embeddings_named(text: str) -> SentenceEmbeddings:
    """Make the extractor that a text such as ``model2vec:FOLDER`` names.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> embeddings_named("sentence-transformers:all-MiniLM-L6-v2").library
    'sentence-transformers'
    """
    library, colon, model = text.partition(":")
    if library not in _LIBRARIES or not colon or not model:
        expected = " or ".join(f"{name}:MODEL" for name in _LIBRARIES)
        raise ValueError(f"extractor {text!r} is not known; expected {expected}")
    return SentenceEmbeddings(library, model)


def recorded_embeddings(summary: Mapping[str, Any]) -> SentenceEmbeddings | None:
    """Restore the sentence embeddings that a model was trained with.

    Parameters
    ----------
    summary : mapping
        Of a `PackedModel`; it need not be trusted.

    Returns
    -------
    SentenceEmbeddings or None
        None if the model was trained on something else.
    """
    specification = summary.get("extractor")
    if not isinstance(specification, dict) or specification.get("kind") not in _LIBRARIES:
        return None
    return SentenceEmbeddings(specification["kind"], specification.get("model", ""))


def _readable(text: Any, i: int) -> str:
    """A text that every library can encode."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        raise TypeError(f"texts: expected str or bytes, found {type(text).__name__} in text {i}")
    return text.decode("utf-8", "replace")
