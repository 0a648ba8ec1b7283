"""What `NgramFeatures.rows` computes, in Python."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from bitclass._native.ngrams import NgramFeatures


def reference_row(features: NgramFeatures, text: str | bytes) -> dict[int, float]:
    """Value of each column of a text."""
    weights = np.ones(features.n_columns, np.float32)
    if features.columns is not None:
        weights[:] = 0
        weights[features.columns] = features.idf
    sums: Counter[int] = Counter()
    for ngram in features.ngrams(text):
        sums[ngram.column] += ngram.sign
    row = {}
    for column, total in sorted(sums.items()):
        if total and weights[column]:
            size = 1.0 + math.log(abs(total))
            row[column] = math.copysign(size, total) * float(weights[column])
    length = math.sqrt(sum(value * value for value in row.values()))
    return {column: value / length for column, value in row.items()}
