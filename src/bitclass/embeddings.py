"""Sentence embeddings by models of other libraries."""

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

from bitclass.storage import check_extractor, extractor_of

__all__ = ["SentenceEmbeddings", "embeddings_named", "recorded_embeddings"]

# Module, class and constructor of each library; both load a model by name or folder.
_LIBRARIES = {
    "model2vec": ("model2vec", "StaticModel", "from_pretrained"),
    "sentence-transformers": ("sentence_transformers", "SentenceTransformer", ""),
}


@dataclass(frozen=True)
class SentenceEmbeddings:
    """Text embeddings by a model of `model2vec` or `sentence-transformers`.

    Parameters
    ----------
    library : {"model2vec", "sentence-transformers"}
    model : str
        Folder of a model, or its name on the library's hub; it is downloaded on first use.

    Examples
    --------
    >>> embeddings = SentenceEmbeddings("model2vec", "minishlab/potion-base-8M")
    >>> embeddings.rows(["book a table for two"]).shape  # doctest: +SKIP
    (1, 256)
    """

    library: str
    model: str

    @classmethod
    def of(cls, embedding: Any) -> SentenceEmbeddings:
        """Embeddings by a model in memory, or by the one that a text names.

        Parameters
        ----------
        embedding : str, or object with a method `encode` from a list of str to an array (n, d)
            A text is that of `embeddings_named`.
        """
        if isinstance(embedding, str):
            return embeddings_named(embedding)
        if not callable(getattr(embedding, "encode", None)):
            raise ValueError(
                "embedding must be a model with a method encode, or a text such as "
                f"'model2vec:FOLDER', found {embedding!r:.80}"
            )
        found = cls.__new__(cls)
        found.__dict__.update(library=type(embedding).__module__, model=type(embedding).__name__)
        found.__dict__["_model"] = embedding
        return found

    def __post_init__(self) -> None:
        if self.library not in _LIBRARIES:
            raise ValueError(f"library must be one of {list(_LIBRARIES)}, found {self.library!r}")
        # The libraries also accept URLs, but a model file must not choose what is downloaded.
        is_name = isinstance(self.model, str) and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self.model)
        if not is_name and not (isinstance(self.model, str) and os.path.isdir(self.model)):
            raise ValueError(
                f"model must be the folder or name of a {self.library} model, "
                f"found {self.model!r:.80}"
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
            raise ValueError(f"{self.library}:{self.model} cannot embed texts: {error}") from error
        if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
            raise ValueError(
                f"{self.library}:{self.model} must return {len(texts)} finite rows, "
                f"found an array of shape {found.shape}"
            )
        return found

    def specification(self) -> dict[str, str]:
        """The description of these embeddings in a model file, as JSON values."""
        model = os.path.abspath(self.model) if os.path.isdir(self.model) else self.model
        return {"kind": self.library, "model": model}

    @cached_property
    def _model(self) -> Any:
        module, name, constructor = _LIBRARIES[self.library]
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ImportError(
                f"{self.library}:{self.model} requires {self.library}; install it with: pip "
                f"install {self.library} ({error})"
            ) from error
        try:
            return getattr(found, constructor)(self.model) if constructor else found(self.model)
        except Exception as error:  # unknown names, failed downloads, damaged folders
            raise ValueError(f"{self.library} cannot load {self.model!r}: {error}") from error


def embeddings_named(text: str) -> SentenceEmbeddings:
    """Create embeddings from a text such as ``model2vec:FOLDER``.

    Parameters
    ----------
    text : str

    Returns
    -------
    SentenceEmbeddings

    Examples
    --------
    >>> embeddings_named("sentence-transformers:all-MiniLM-L6-v2").library
    'sentence-transformers'
    """
    library, colon, model = text.partition(":")
    if library not in _LIBRARIES or not colon or not model:
        expected = " or ".join(f"{name}:MODEL" for name in _LIBRARIES)
        raise ValueError(f"unknown extractor {text!r}; expected {expected}")
    return SentenceEmbeddings(library, model)


def recorded_embeddings(
    summary: Mapping[str, Any],
    folder: str | os.PathLike[str] | None = None,
    *,
    allow_external: bool = False,
) -> SentenceEmbeddings | None:
    """Restore the sentence embeddings that a model was trained with.

    Parameters
    ----------
    summary : mapping
        Summary of a `PackedModel`; it may be untrusted.
    folder : path-like, optional
        Folder of the model file, in which the embeddings are looked for.
    allow_external : bool, default=False
        Whether the model may be in any folder, or downloaded: see `storage.check_extractor`.

    Returns
    -------
    SentenceEmbeddings or None
        None if the model was trained on other features.
    """
    entry = extractor_of(summary)
    if entry is None or entry["kind"] not in _LIBRARIES:
        return None
    entry = check_extractor(entry, folder, allow_external=allow_external)
    return SentenceEmbeddings(entry["kind"], entry["model"])


def _readable(text: Any, i: int) -> str:
    """Convert a text to valid Unicode."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        raise TypeError(f"texts: expected str or bytes, found {type(text).__name__} in text {i}")
    return text.decode("utf-8", "replace")
