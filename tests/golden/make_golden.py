"""Write the golden model files and the answers of an independent reader to them.

Existing files must load as long as the format has version 1, so this is run for a new kind only.
"""

import json
from pathlib import Path

import numpy as np

from bitclass.codes import pack
from bitclass.report import Epoch, Report
from bitclass.storage import Content, encode_labels, write_file
from bitclass.text import fit_ngrams

from ..format_reader import Reader

HERE = Path(__file__).parent


TEXTS = ["book a table", "what is the weather", "play some music", "set an alarm", "Grüße"] * 3


def content(labels, n_bits, d, seed, **changed):
    """Fields and arrays of a linear model in int8."""
    rng = np.random.default_rng(seed)
    kind, classes = encode_labels(np.asarray(labels))
    report = Report(n_rows=600, n_judged=100, accuracy=0.9, refined=True, alpha=0.1,
                    epochs=(Epoch(1, 20, 0.9, 1.5),))  # fmt: skip
    header = {
        "projection": "int8",
        "rescore": 3,
        "temperature": 1.5,
        "labels": kind,
        "reject": 0.0,
        "unknown_label": None,
        "summary": {"parameters": {"n_bits": n_bits}, "report": report.to_dict()},
    }
    tensors = {
        "weights": pack(rng.standard_normal((len(labels), n_bits)) > 0),
        "classes": classes,
        "projection": rng.integers(-127, 128, (d, n_bits)).astype(np.int8),
        "column_scale": rng.uniform(0.001, 0.01, n_bits),
        "thresholds": 10 * rng.standard_normal(n_bits),
        "centre": rng.standard_normal(d).astype(np.float32),
        "scale": rng.uniform(0.5, 2, d).astype(np.float32),
    }
    tensors |= changed
    return Content(header, {name: array for name, array in tensors.items() if array is not None})


def models():
    rng = np.random.default_rng(0)
    float32 = {"projection": (rng.standard_normal((5, 20)) / 2).astype(np.float32)}
    float32 |= {"column_scale": None, "thresholds": None, "intercept": rng.standard_normal(20)}
    anchors = {
        "anchors": rng.standard_normal((5, 12)).astype(np.float32),
        "anchor_centre": rng.standard_normal(12).astype(np.float32),
        "anchor_scale": rng.uniform(1, 3, 12).astype(np.float32),
        "anchor_gamma": np.array([0.05]),
    }
    features = fit_ngrams([TEXTS], n_columns=1 << 10)
    text = {
        "centre": None,
        "columns": features.columns.astype(np.int32),
        "n_columns": np.array([1 << 10]),
        "text_ngrams": np.array([*features.char_ngrams, *features.word_ngrams], np.uint8),
        "text_idf": features.idf.astype(np.float16),
    }
    bias = {"bias": 4 * rng.standard_normal(6).astype(np.float32)}
    bias |= {"typicality": np.sort(rng.uniform(5, 20, 9)).astype(np.float32)}
    d = len(features.columns)
    yield "linear_int8", content([2, 3, 5, 7, 11], 20, 12, 1)
    anchors_float32 = content(list("abc"), 20, 5, 2, **float32, **anchors)
    anchors_float32.header |= {"projection": "float32"}
    yield "anchors_float32", anchors_float32
    labels = ["", "日本語", "😀", 'quote " and \\']
    yield "text_int8", content(labels, 24, d, 3, **text)
    for name, kind, n_bits in (("text_int4", "int4", 25), ("text_1bit", "1bit", 21)):
        entries = (
            rng.integers(-7, 8, (d, n_bits)) if kind == "int4" else rng.integers(0, 2, (d, n_bits))
        )
        stored = np.packbits(entries, axis=1, bitorder="little")
        if kind == "int4":
            halves = np.zeros((d, n_bits + 1), np.uint8)
            halves[:, :n_bits] = entries + 8
            stored = halves[:, ::2] | halves[:, 1::2] << 4
        packed = content(labels, n_bits, d, 5, **text | {"projection": stored})
        packed.header["projection"] = kind
        yield name, packed
    yield "bias_typicality", content([True, False], 9, 12, 4, bias=bias["bias"][:2],
                                     typicality=bias["typicality"])  # fmt: skip


def main():
    answers = {}
    X = np.load(HERE / "rows.npy")
    for name, made in models():
        path = HERE / f"{name}.safetensors"
        if not path.exists():
            write_file(path, "model", made)
        reader = Reader(path)
        rows = X if "text" not in name else (np.arange(16 * 1024).reshape(16, 1024) % 7 == 0) / 2
        answers[name] = {
            "labels": reader.labels().tolist(),
            "codes": [code.tobytes().hex() for code in pack(reader.bits(rows))],
            "predicted": reader.predict(rows).tolist(),
        }
    (HERE / "expected.json").write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
