"""Model files: loaded models predict the same as saved ones, with labels of any type."""

import itertools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bitclass
from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.storage import PROJECTION_TYPES, load, read_header, save
from bitclass.storage import labels as storage_labels
from format_reader import Reader
from mutations import split
from packed_models import made, plain, rows, saved

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected_v1.json").read_text())

LABELS = {
    "text": np.array(["b", "a", "long label with spaces"]),
    "unicode": np.array(["", "Ångström", "日本語", "😀", 'quote " and \\ and \n', "\ud800"]),
    "wider than needed": np.array(["a", "b"], dtype="<U40"),
    "bytes": np.array([b"", b"ab", b"\xff\xfe", b"\x00a"]),
    "bool": np.array([False, True]),
    **{f"{kind}{8 * size}": np.array([1, 100, 7], dtype=f"{kind}{size}")
       for kind in "iu" for size in (1, 2, 4, 8)},
    "least and most": np.array([-(2**63), 2**63 - 1]),
    "most unsigned": np.array([0, 2**64 - 1], dtype=np.uint64),
    **{f"f{8 * size}": np.array([-0.5, 1e4, np.inf], dtype=f"f{size}") for size in (2, 4, 8)},
    "big endian": np.array([1, 2, 3], dtype=">i4"),
    "big endian text": np.array(["a", "ü"], dtype=">U3"),
    "days": np.array(["2020-01-01", "1066-10-14"], dtype="M8[D]"),
    "spans": np.array([1, -5], dtype="m8[25us]"),
    "objects": np.array(["日本", "1", 1, -(10**40), 2.0, 5e-324, -0.0], dtype=object),
    "objects of truth values": np.array([True, False], dtype=object),
}  # fmt: skip


def assert_same_labels(a, b):
    assert a.dtype == b.dtype
    assert a.dtype.str == b.dtype.str
    np.testing.assert_array_equal(a, b)
    assert [repr(label) for label in a.tolist()] == [repr(label) for label in b.tolist()]


def assert_same_model(a, b, X):
    assert_same_labels(a.classes, b.classes)
    np.testing.assert_array_equal(a.weights, b.weights)
    for name in ("temperature", "n_bits", "rescore"):
        assert getattr(a, name) == getattr(b, name)
    assert a.hash_function.precision == b.hash_function.precision
    np.testing.assert_array_equal(a.encode(X), b.encode(X))
    assert_same_labels(a.predict(X), b.predict(X))
    np.testing.assert_array_equal(a.top_classes(X, 2)[1], b.top_classes(X, 2)[1])
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


# -------------------------------------------------------------------------------------------------
# Round trips
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind_survive_a_round_trip(tmp_path, kind):
    model = made(LABELS[kind], n_bits=9)
    read = saved(tmp_path, model, "int8")
    assert read.summary == model.summary
    assert_same_model(read, model, rows())
    # All arrays are aligned.
    content = (tmp_path / "model.safetensors").read_bytes()
    table, data = split(content)
    assert (len(content) - len(data)) % 8 == 0
    for name, entry in table.items():
        if name != "__metadata__":
            size = {"8": 1, "L": 1, "6": 2, "2": 4, "4": 8}[entry["dtype"][-1]]
            assert entry["data_offsets"][0] % size == 0


@pytest.mark.parametrize("projection", PROJECTION_TYPES)
def test_a_projection_of_zeros_can_be_saved_in_any_type(tmp_path, projection):
    model = plain(np.zeros((3, 4)))
    assert_same_model(saved(tmp_path, model, projection), model, rows(3))


@pytest.mark.parametrize("n_bits", [1, 8, 9, 65])
@pytest.mark.parametrize(("centre", "scale"), [*itertools.product([True, False], repeat=2)])
@pytest.mark.parametrize(
    ("projection", "precision"), [("float32", "float32"), ("float32", "int8"), ("int8", "int8")]
)
def test_loaded_models_equal_the_saved_ones(tmp_path, projection, precision, n_bits, centre, scale):
    model = made(np.arange(3), n_bits, d=40, precision=precision, centre=centre, scale=scale)
    X = rows(40, n=500)
    read = saved(tmp_path, model, projection)
    assert_same_model(read, model, X)
    for name in ("projection", "intercept", "centre", "scale") if projection == "float32" else ():
        a, b = getattr(read.hash_function, name), getattr(model.hash_function, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    # Also after saving again, byte by byte, and after pickling.
    before = (tmp_path / "model.safetensors").read_bytes()
    again = saved(tmp_path, read, projection)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert_same_model(pickle.loads(pickle.dumps(again)), model, X)


@pytest.mark.parametrize(("projection", "most"), [("float16", 5e-3), ("int8", 3e-2)])
def test_float32_codes_stay_close_with_a_rounded_projection(tmp_path, projection, most):
    model = made(np.arange(3), 256, d=200, precision="float32")
    h = model.hash_function
    # Rows far from 0, whose features differ in magnitude.
    P, centre = h.projection / h.scale[:, None], 2000 * h.scale
    X = centre + h.scale * rows(200, n=300)
    model.hash_function = HashFunction(
        P, h.intercept - centre @ P, centre=centre, scale=h.scale, precision="float32"
    )
    changed = np.bitwise_count(saved(tmp_path, model, projection).encode(X) ^ model.encode(X))
    assert changed.sum() / (256 * len(X)) < most


@given(hnp.arrays(st.sampled_from(["<U6", "|S4", "<i2", "<f4", "M8[s]"]), st.integers(1, 8)))
def test_any_labels_survive_a_round_trip_or_are_rejected(tmp_path_factory, labels):
    try:
        distinct = len(np.unique(labels)) == len(labels) and np.array_equal(labels, labels)
    except UnicodeError:
        return
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    if distinct:
        save(path, made(labels, n_bits=3, d=1))
        assert_same_labels(load(path).classes, labels)
    else:
        with pytest.raises(ValueError, match="distinct|NaN"):
            save(path, made(labels, n_bits=3, d=1))


def test_labels_with_equal_hashes_do_not_make_loading_quadratic(tmp_path, monkeypatch):
    labels = np.array([i * (2**61 - 1) for i in range(4000)], dtype=object)
    assert len({hash(label) for label in labels}) == 1
    save(tmp_path / "model", plain(np.ones((1, 8)), labels=labels))
    n_compared = 0

    class Counted(int):
        __hash__ = int.__hash__

        def __lt__(self, other):
            nonlocal n_compared
            n_compared += 1
            return int(self) < int(other)

        def __eq__(self, other):
            nonlocal n_compared
            n_compared += 1
            return int(self) == int(other)

    parse = storage_labels.parse_json
    monkeypatch.setattr(
        storage_labels, "parse_json", lambda *given: [Counted(v) for v in parse(*given)]
    )
    monkeypatch.setattr(storage_labels, "_OBJECT_TYPES", (Counted,))
    assert_same_labels(load(tmp_path / "model").classes, labels)
    assert 0 < n_compared < 40 * len(labels), "n^2 / 2 would be 8 million"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([1 + 2j, 3]), "complex128.*cannot be saved"),
        (np.array([1.0, np.nan]), "NaN"),
        (np.array(["NaT", "2020"], dtype="M8[Y]"), "NaT"),
        (np.array([None, "a"], dtype=object), "None of type NoneType"),
        (np.array([("a", 1), ("b", 2)], dtype=object), "one axis"),
        (np.array([float("inf"), 1.0], dtype=object), "inf"),
        (np.array([10**5000, 1], dtype=object), "digits"),
        (np.array([1, True], dtype=object), "distinct"),
        (np.array(["x" * 100_000, *(str(i) for i in range(100))]), r"astype\(object\)"),
        (np.array(["\ud83d\ude00", "a"], dtype=object), "without changing"),
    ],
)
def test_unsupported_labels_are_refused(tmp_path, labels, message):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match=message):
        save(path, made(labels))
    assert os.listdir(tmp_path) == []


def changed(**changes):
    """A model with one invalid part."""
    good = made(np.arange(3))
    h = good.hash_function
    scale = changes.pop("scale", h.scale)
    hash_function = HashFunction(h.projection, h.intercept, scale=scale, precision="float32")
    given = {"classes": good.classes, "weights": good.weights, "temperature": 1.0} | changes
    return PackedModel(hash_function=hash_function, **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"weights": np.full((3, 3), 255, np.uint8)}, "unused bits after"),
        ({"classes": np.arange(4)}, "classes"),
        ({"scale": np.full(7, 1e-40, np.float32)}, "positive"),
        ({"summary": {"feature_names": "abcdefg"}}, "'feature_names' must be 7 strings"),
        ({"summary": {"a": np.nan}}, "JSON"),
        ({"summary": {"a": "x" * (5 << 20)}}, "shorten the summary"),
    ],
)
def test_a_model_that_cannot_be_loaded_again_is_not_saved(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "model", changed(**change))
    with pytest.raises(ValueError, match="projection must be one of .* found 'float64'"):
        save(tmp_path / "model", made(np.arange(3)), projection="float64")
    assert os.listdir(tmp_path) == []


# -------------------------------------------------------------------------------------------------
# The format
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_files_load_forever(name):
    expected = EXPECTED[name]
    X = np.load(GOLDEN / "rows.npy")
    path = GOLDEN / f"v1_{name}.safetensors"
    model, reader = load(path), Reader(path)
    assert model.classes.dtype.str == expected["type"]
    assert [repr(label) for label in model.classes.tolist()] == expected["labels"]
    assert [code.tobytes().hex() for code in model.encode(X)] == expected["codes"]
    assert [repr(label) for label in model.predict(X).tolist()] == expected["predicted"]
    assert model.top_classes(X, 1)[1][:, 0].tolist() == expected["distances"]
    assert model.rescore == 0
    assert read_header(path).version == 1
    # A reader written from the specification reads the same.
    assert_same_labels(reader.labels(), model.classes)
    np.testing.assert_array_equal(pack(reader.bits(X)), model.encode(X))
    np.testing.assert_array_equal(reader.predict(X), model.predict(X))
    np.testing.assert_allclose(reader.probabilities(X), model.predict_proba(X))


@pytest.mark.parametrize("rescore", [0, 1, 4, 100])
@pytest.mark.parametrize(
    ("projection", "precision"), [("float32", "float32"), ("float32", "int8"), ("int8", "int8")]
)
def test_a_reader_written_from_the_specification_ranks_the_short_list(
    tmp_path, projection, precision, rescore
):
    y = np.arange(600) % 20
    X = 2 * np.random.default_rng(0).standard_normal((20, 8))[y]
    X = (X + np.random.default_rng(1).standard_normal((600, 8))).astype(np.float32)
    given = {"rescore": rescore, "precision": precision, "refine": False, "random_state": 0}
    path = tmp_path / "model.safetensors"
    BinaryCodeClassifier(24, **given).fit(X, y).save(path, projection=projection)
    model, reader = bitclass.load(path), Reader(path)
    scores = np.sort(reader.scores(X), axis=1)
    clear = scores[:, -1] - scores[:, -2] > 0.5 / 127  # otherwise rounding to these steps decides
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(reader.predict(X)[clear], model.predict(X)[clear])
    if rescore > 1:
        assert np.any(reader.labels()[reader.distances(X).argmin(axis=1)] != reader.predict(X))


def test_files_are_compatible_with_the_safetensors_package(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    theirs = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    for name in EXPECTED:
        content = (GOLDEN / f"v1_{name}.safetensors").read_bytes()
        arrays = theirs.load(content)
        path.write_bytes(content)
        with safetensors.safe_open(path, framework="numpy") as opened:
            metadata = opened.metadata()
        model = load(path)
        np.testing.assert_array_equal(arrays["weights"], model.weights)
        theirs.save_file(arrays, path, metadata=metadata)
        assert_same_model(load(path), model, np.load(GOLDEN / "rows.npy"))


def test_the_header_describes_the_model_without_its_arrays(tmp_path):
    save(tmp_path / "model", made(LABELS["text"], precision="float32"), projection="int8")
    header = read_header(tmp_path / "model")
    assert (header.n_classes, header.n_features, header.n_bits) == (3, 7, 20)
    assert (header.projection, header.precision, header.labels) == ("int8", "float32", "<U22")
    assert (header.version, header.rescore) == (3, 2)
    assert header.summary["loss"] == "none"
    assert header.temperature == 1.0 / 3.0
    assert header.tensors["weights"].shape == (3, 3)


def test_loading_imports_neither_scikit_learn_nor_scipy():
    code = (
        "import sys, bitclass, numpy as np;"
        "model = bitclass.load(sys.argv[1]);"
        "model.predict(np.zeros((2, 12), np.float32));"
        "unwanted = {'sklearn', 'scipy', 'pandas', 'joblib', 'safetensors'};"
        "print(sorted({m.split('.')[0] for m in sys.modules} & unwanted))"
    )
    path = GOLDEN / "v1_text_float32.safetensors"
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr
