"""What turns texts into rows, in a model file: three arrays, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native.ngrams import NgramFeatures
from bitclass.storage.layout import Expected
from bitclass.storage.strict_json import ModelFileError

__all__ = ["TEXT_LAYOUT", "saved_text", "text_from"]

#: The columns of the hashed n-grams are the features of the hash function.
TEXT_LAYOUT = {
    "text_ngrams": Expected("U8", ("n-gram lengths",), required=False),
    "text_columns": Expected("U32", ("text columns",), required=False),
    "text_idf": Expected("F32", ("text columns",), required=False),
}


def saved_text(text: NgramFeatures | None) -> dict[str, NDArray[Any]]:
    """Arrays by name."""
    if text is None:
        return {}
    columns, idf = text.columns, text.idf
    if columns is None or idf is None:
        columns = np.arange(text.n_columns, dtype=np.uint32)
        idf = np.ones(text.n_columns, dtype=np.float32)
    lengths = [*(text.char_ngrams or (0, 0)), *(text.word_ngrams or (0, 0))]
    return {
        "text_ngrams": np.array(lengths, dtype=np.uint8),
        "text_columns": columns,
        "text_idf": idf,
    }


def text_from(tensors: Mapping[str, NDArray[Any]], n_features: int) -> NgramFeatures | None:
    """Features of texts of a file whose layout has been checked, None where it has none.

    Parameters
    ----------
    tensors : arrays by name
    n_features : int, number of features of the model
    """
    there = [name for name in TEXT_LAYOUT if name in tensors]
    if not there:
        return None
    missing = [name for name in TEXT_LAYOUT if name not in tensors]
    if missing:
        raise ModelFileError(f"tensor {missing[0]!r} is missing beside {there[0]!r}")
    lengths = tensors["text_ngrams"].tolist()
    if len(lengths) != 4:
        raise ModelFileError(f"tensor 'text_ngrams' must hold 4 numbers, found {len(lengths)}")
    chars, words = lengths[:2], lengths[2:]
    try:
        return NgramFeatures(
            n_features,
            chars if any(chars) else None,
            words if any(words) else None,
            tensors["text_columns"],
            tensors["text_idf"],
        )
    except ValueError as error:
        raise ModelFileError(f"the n-grams of texts cannot be used: {error}") from None
