"""Python reference of `NgramFeatures.rows`, and malformed texts."""

import math
from collections import Counter

import numpy as np

# Pieces that break decoders: overlong forms, surrogates, cut and stray bytes, NUL, beyond Unicode.
BROKEN = [
    b"\x00", b"\xff", b"\xfe\xff", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80",
    b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82",
    b"\xf0\x9f\x98", b"\x80", b"\xbf\xbf", b"\xc3", b"\r\n", b"\xe2\x80\xa8",
    b"\xef\xbb\xbf", b"\xef\xbf\xbf", b"\xcc\x81" * 9,
]  # fmt: skip
WHOLE = ["a", "Z", "word", "é", "Ωμέγα", "ДА", "日本", "😀", " ", "\t", "'", "İ", "ẞ", "ﬁ", "٣"]


def malformed(rng):
    """Malformed bytes or text."""
    kind = rng.random()
    if kind < 0.1:
        return "".join(chr(rng.choice([0, 65, 0xD800, 0xDFFF, 0x10FFFF])) for _ in range(9))
    pieces = [
        rng.choice(BROKEN) if rng.random() < 0.5 else rng.choice(WHOLE).encode()
        for _ in range(rng.randint(0, 8))
    ]
    text = b"".join(pieces)
    return text[: rng.randint(0, len(text))] if kind < 0.5 else text


def reference_row(features, text):
    """Value of each column of a text."""
    weights = np.ones(features.n_columns, np.float32)
    if features.columns is not None:
        weights[:] = 0
        weights[features.columns] = features.idf
    sums = Counter()
    for ngram in features.ngrams(text):
        sums[ngram.column] += ngram.sign
    row = {}
    for column, total in sorted(sums.items()):
        if total and weights[column]:
            size = 1.0 + math.log(abs(total))
            row[column] = math.copysign(size, total) * float(weights[column])
    length = math.sqrt(sum(value * value for value in row.values()))
    return {column: value / length for column, value in row.items()}
