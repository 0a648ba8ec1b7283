"""Texts as they should not be: each is handled, or refused by name."""

import random

import numpy as np
import pytest
from ngram_rows import reference_row

from bitclass._native.ngrams import NgramFeatures
from text_models import fitted

# Pieces that break decoders: overlong forms, surrogates, cut and stray bytes, NUL, beyond Unicode.
BROKEN = [
    b"\x00", b"\xff", b"\xfe\xff", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80",
    b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82",
    b"\xf0\x9f\x98", b"\x80", b"\xbf\xbf", b"\xc3", b"\r\n", b"\xe2\x80\xa8",
    b"\xef\xbb\xbf", b"\xef\xbf\xbf", b"\xcc\x81" * 9,
]  # fmt: skip
WHOLE = ["a", "Z", "word", "é", "Ωμέγα", "ДА", "日本", "😀", " ", "\t", "'", "İ", "ẞ", "ﬁ", "٣"]


def malformed(rng):
    """Bytes or text with something wrong in it."""
    kind = rng.random()
    if kind < 0.1:
        return "".join(chr(rng.choice([0, 65, 0xD800, 0xDFFF, 0x10FFFF])) for _ in range(9))
    pieces = [
        rng.choice(BROKEN) if rng.random() < 0.5 else rng.choice(WHOLE).encode()
        for _ in range(rng.randint(0, 8))
    ]
    text = b"".join(pieces)
    return text[: rng.randint(0, len(text))] if kind < 0.5 else text


def test_ten_thousand_malformed_texts_are_read_as_python_decodes_them():
    rng = random.Random(0)
    features = NgramFeatures(4096, (1, 3), (1, 2))
    texts = [malformed(rng) for _ in range(10_000)]
    indptr, indices, values = features.rows(texts)
    assert np.isfinite(values).all()
    for i, text in enumerate(texts):
        row = slice(indptr[i], indptr[i + 1])
        found = dict(zip(indices[row].tolist(), values[row].tolist(), strict=True))
        expected = reference_row(features, text)
        assert found == {c: float(np.float32(v)) for c, v in expected.items()}, text


def test_a_line_of_a_hundred_megabytes_is_a_text_too():
    features = NgramFeatures(2**18, (1, 4), (1, 2))
    line = b"what is the weather in Paris today? " * (100 * 1000 * 1000 // 36)
    indptr, indices, values = features.rows([line, b"\xff" * 1000, b"\x00" * 1000])
    assert indptr.tolist() == [0, indptr[1], indptr[1], indptr[1]]
    assert len(indices) <= len({n.column for n in features.ngrams(line[:100])})
    assert np.linalg.norm(values) == pytest.approx(1, abs=1e-6)


def test_a_model_predicts_whatever_the_text():
    _, _, hasher, classifier = fitted()
    model = classifier.packed().with_text(hasher.features_)
    rng = random.Random(1)
    texts = [malformed(rng) for _ in range(1000)]
    assert set(model.predict(texts)) <= set(model.classes)
    for text in texts[:50]:
        assert all(np.isfinite(share) for _, share in model.explain(text))
