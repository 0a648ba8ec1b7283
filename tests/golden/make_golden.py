"""Write the golden files of a format version; run once for each, and never again for an old one.

The files must load forever: those that are there are left alone. A change of the format gets new
files beside the old ones.
"""

import json
from pathlib import Path

import numpy as np
from bitclass.anchors import RbfAnchors

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.codes import pack
from bitclass.storage import load, save
from bitclass.training import RandomCodes, Statistics, save_statistics
from bitclass.training.starting_codes import MeanCodes, ProjectionCodes

HERE = Path(__file__).parent
D = 12

MODELS = {
    # name: labels, bits, projection, precision, which of centre and scale
    "text_float32": (
        ["", "cat", "Ångström", "日本語", 'a b\n"c"'],
        "U",
        20,
        "float32",
        "int8",
        "cs",
    ),
    "int64_int8": ([-5, 0, 3, 2**40, -(2**63)], "i8", 24, "int8", "int8", "cs"),
    "bytes_float16": ([b"", b"ab", b"\xff\x00\x01", b"zz"], "S", 17, "float16", "int8", "cs"),
    "bool_float32": ([False, True], "?", 7, "float32", "float32", ""),
    "float32_int8": ([0.5, -1.25, np.inf], "f4", 9, "int8", "float32", "cs"),
    "datetime_int8": (["1970-01-01", "2026-02-28"], "M8[D]", 64, "int8", "int8", "c"),
    "timedelta_float16": ([3, 5, 8], "m8[25s]", 33, "float16", "float32", "s"),
    "objects_float32": (["rot", "grün", "😀"], "O", 65, "float32", "int8", ""),
    "numbers_int8": ([1, 2.5, 10**30, -7], "O", 8, "int8", "int8", ""),
    "uint8_float16": (range(250, 256), "u1", 12, "float16", "int8", "cs"),
    "big_endian_float32": ([1, 2, 300], ">i2", 10, "float32", "float32", "cs"),
}


def model(labels, n_bits, precision, given, rng):
    projection = rng.standard_normal((D, n_bits)).astype(np.float32)
    centre = rng.standard_normal(D).astype(np.float32)
    scale = rng.uniform(0.1, 10, D).astype(np.float32)
    return PackedModel(
        labels,
        pack(rng.standard_normal((len(labels), n_bits)) > 0),
        projection,
        rng.standard_normal(n_bits),
        centre=centre if "c" in given else None,
        scale=scale if "s" in given else None,
        temperature=0.7,
        precision=precision,
        summary={"loss": "none", "made for": "tests/golden"},
    )


def learned(rng):
    y = np.array(["ant", "bee", "cow", "dog"])[np.arange(80) % 4]
    X = (
        rng.standard_normal((80, D)).astype(np.float32)
        + 3 * np.eye(4, D, dtype=np.float32)[np.arange(80) % 4]
    )
    return BinaryCodeClassifier(16, random_state=0, class_weight={"ant": 2.0, "bee": 1.0}).fit(X, y)


def anchored(n_bits, precision, rng):
    """A model of 5 anchors, whose hash function takes similarities."""
    anchors = RbfAnchors(
        rng.standard_normal((5, D)).astype(np.float32),
        rng.standard_normal(D).astype(np.float32),
        rng.uniform(2, 6, D).astype(np.float32),
        gamma=0.1,
    )
    return PackedModel(
        np.array([3, 5, 8]),
        pack(rng.standard_normal((3, n_bits)) > 0),
        rng.standard_normal((5, n_bits)).astype(np.float32),
        0.1 * rng.standard_normal(n_bits),
        centre=rng.uniform(0, 0.5, 5).astype(np.float32),
        scale=rng.uniform(0.1, 0.5, 5).astype(np.float32),
        temperature=0.7,
        precision=precision,
        anchors=anchors,
        summary={"loss": "none", "made for": "tests/golden"},
    )


def statistics_of_means(rng):
    anchors = anchored(8, "float32", rng).anchors
    sums = Statistics(MeanCodes(10, seed=7), np.full(5, 0.3), np.full(5, 0.2), False, anchors)
    X = rng.standard_normal((12, D)).astype(np.float32)
    sums.add(X, np.arange(12) % 4, rng.integers(1, 4, 12).astype(float))
    return sums


def statistics(starting, labels, rng):
    shift, scale = rng.standard_normal(D), rng.uniform(0.5, 2.0, D)
    sums = Statistics(starting, shift, scale, keep_codes=len(labels) > 3)
    for _ in range(2):
        X = rng.standard_normal((6, D)).astype(np.float32)
        sums.add(X, labels[rng.integers(len(labels), size=6)], rng.integers(1, 4, 6).astype(float))
    return sums


def main():
    rng = np.random.default_rng(1)
    rows = (4 * rng.standard_normal((16, D))).astype(np.float32)
    known = HERE / "expected_v1.json"
    expected = json.loads(known.read_text()) if known.exists() else {}
    models = {
        name: (model(np.array(labels, kind), n_bits, precision, given, rng), projection)
        for name, (labels, kind, n_bits, projection, precision, given) in MODELS.items()
    }
    models["learned_float32"] = (learned(rng).packed(), "float32")
    later = np.random.default_rng(2)
    for projection, precision in (("float32", "float32"), ("float16", "float32"), ("int8", "int8")):
        models[f"anchors_{projection}"] = (anchored(21, precision, later), projection)
    for name, (made, projection) in models.items():
        if name in expected:
            continue
        save(HERE / f"v1_{name}.safetensors", made, projection=projection)
        read = load(HERE / f"v1_{name}.safetensors")
        if projection == "float32" or projection == made.precision:
            np.testing.assert_array_equal(read.encode(rows), made.encode(rows))
        expected[name] = {
            "type": made.classes.dtype.str,
            "labels": [repr(label) for label in made.classes.tolist()],
            "codes": [code.tobytes().hex() for code in read.encode(rows)],
            "predicted": [repr(label) for label in read.predict(rows).tolist()],
            "distances": read.top_classes(rows, 1)[1][:, 0].tolist(),
        }
    notes = {"made for": "tests/golden"}
    new_statistics("random", statistics(RandomCodes(10, seed=7), np.array([1, 5, 9]), rng), notes)
    projection = ProjectionCodes(
        rng.standard_normal((D, 10)), np.zeros(D), np.full(D, 2.0), "projection"
    )
    new_statistics("projection", statistics(projection, np.array(["a", "b", "c", "d"]), rng))
    new_statistics("means", statistics_of_means(later), notes)
    if not (HERE / "rows.npy").exists():
        np.save(HERE / "rows.npy", rows)
    known.write_text(json.dumps(expected, indent=1) + "\n")


def new_statistics(name, sums, notes=None):
    path = HERE / f"statistics_v1_{name}.safetensors"
    if not path.exists():
        save_statistics(path, sums, notes)


if __name__ == "__main__":
    main()
