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
from bitclass.report import Epoch, Report
from bitclass.storage import (
    PROJECTION_TYPES,
    Content,
    Expected,
    ModelFileError,
    load,
    open_file,
    save,
    write_file,
)

from .altered_files import split
from .format_reader import Reader
from .packed_models import made, plain, rows, saved

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())

LABELS = {
    "text": np.array(["b", "a", "long label with spaces"]),
    "unicode": np.array(["", "Ångström", "日本語", "😀", 'quote " and \\ and \n']),
    "objects": np.array(["日本", "1", "ends in null\0"], dtype=object),
    "bool": np.array([False, True]),
    **{f"{kind}{8 * size}": np.array([1, 100, 7], dtype=f"{kind}{size}")
       for kind in "iu" for size in (1, 2, 4, 8)},
    "least and most": np.array([-(2**63), 2**63 - 1]),
    "most unsigned": np.array([0, 2**64 - 1], dtype=np.uint64),
    **{f"f{8 * size}": np.array([-3.0, 0.0, 1e4], dtype=f"f{size}") for size in (2, 4, 8)},
}  # fmt: skip


def assert_same_labels(a, b):
    assert a.dtype == b.dtype
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


# -- Round trips


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
            size = {"8": 1, "6": 2, "2": 4, "4": 8}[entry["dtype"][-1]]
            assert entry["data_offsets"][0] % size == 0


@pytest.mark.parametrize("projection", PROJECTION_TYPES)
def test_a_projection_of_zeros_can_be_saved_in_any_type(tmp_path, projection):
    model = plain(np.zeros((3, 4)))
    if projection in ("int4", "1bit"):  # of wide rows
        columns = {"columns": np.arange(3, dtype=np.int32), "n_features": 3}
        function = HashFunction(np.zeros((3, 4), np.float32), np.ones(4), **columns)
        model = PackedModel(model.classes, model.weights, function)
    assert_same_model(saved(tmp_path, model, projection), model, rows(3))


@pytest.mark.parametrize("n_bits", [1, 8, 9, 65])
@pytest.mark.parametrize(("centre", "scale"), [*itertools.product([True, False], repeat=2)])
@pytest.mark.parametrize("projection", ["float32", "int8"])
def test_loaded_models_equal_the_saved_ones(tmp_path, projection, n_bits, centre, scale):
    model = made(np.arange(3), n_bits, d=40, centre=centre, scale=scale)
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
    path = tmp_path / "model.safetensors"
    before = path.read_bytes()
    again = saved(tmp_path, read, projection)
    assert path.read_bytes() == before
    assert_same_model(pickle.loads(pickle.dumps(again)), model, X)


@given(hnp.arrays(st.sampled_from(["<U6", "<i2", "<f4", ">i4"]), st.integers(1, 8)))
def test_any_labels_survive_a_round_trip_or_are_rejected(tmp_path_factory, labels):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    try:
        save(path, made(labels, n_bits=3, d=1))
    except ValueError as error:
        assert str(error).startswith("labels: ")  # noqa: PT017
    else:
        assert load(path).classes.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([1 + 2j, 3]), "found complex128; convert them to text"),
        (np.array([b"a", b"b"]), r"found \|S1; convert them to text"),
        (np.array(["2019", "2020"], dtype="M8[Y]"), "found datetime64.* convert them to text"),
        (np.array([1.0, 2.5]), "found 2.5; if these are classes, convert"),
        (np.array([1.0, np.nan]), "found nan"),
        (np.array([-np.inf, 1.0]), "found -inf"),
        (np.array([None, "a"], dtype=object), "found None of type NoneType in an array of objects"),
        (np.array([1, "a"], dtype=object), "found 1 of type int in an array of objects"),
        (np.array([("a", 1), ("b", 2)], dtype=object), "in one dimension"),
        (np.array([1, 1]), "distinct, found 1 among 2"),
        (np.array(["a", "a"]), "distinct, found 1 among 2"),
        (np.array(["\ud800", "a"]), "not Unicode"),
        (np.array(["x" * 100_000, *(str(i) for i in range(100))]), r"astype\(object\)"),
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
    precision = changes.pop("precision", "int8")
    hash_function = HashFunction(h.projection, h.intercept, scale=scale, precision=precision)
    given = {"classes": good.classes, "weights": good.weights, "temperature": 1.0} | changes
    return PackedModel(hash_function=hash_function, **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"precision": "float32"}, "precision"),
        ({"weights": np.full((3, 3), 255, np.uint8)}, "unused bits after"),
        ({"classes": np.arange(4)}, "classes"),
        ({"scale": np.full(7, 1e-40, np.float32)}, "positive"),
        ({"summary": {"feature_names": "abcdefg"}}, "'feature_names' must be 7 strings"),
        ({"summary": {"extractor": {"kind": "pickle"}}}, "'extractor' must be an object"),
        ({"summary": {"report": 5}}, "'report' is invalid: a report must be an object"),
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


# -- The format


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_files_load_forever(tmp_path, name):
    """As a reader written from the specification does; saved again, they are the same bytes."""
    expected, path = EXPECTED[name], GOLDEN / f"{name}.safetensors"
    model, reader = load(path), Reader(path)
    X = np.load(GOLDEN / "rows.npy")
    if model.text is not None:
        X = (np.arange(16 * 1024).reshape(16, 1024) % 7 == 0) / 2
        assert model.predict(["book a table"])[0] in model.classes
    assert_same_labels(reader.labels(), model.classes)
    assert model.classes.tolist() == expected["labels"]
    assert [code.tobytes().hex() for code in model.encode(X)] == expected["codes"]
    np.testing.assert_array_equal(pack(reader.bits(X)), model.encode(X))
    assert model.predict(X).tolist() == expected["predicted"]
    assert reader.predict(X).tolist() == expected["predicted"]
    if "typicality" in reader.tensors:
        np.testing.assert_allclose(model.typicality(X), reader.typicality(X), rtol=1e-6)
    assert Report.from_dict(model.summary["report"]).epochs == (Epoch(1, 20, 0.9, 1.5),)
    save(tmp_path / "again", model, projection=reader.header["projection"])
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("rescore", [0, 1, 4, 100])
@pytest.mark.parametrize("projection", ["float32", "int8"])
def test_a_reader_written_from_the_specification_ranks_the_short_list(
    tmp_path, projection, rescore
):
    y = np.arange(600) % 20
    X = 2 * np.random.default_rng(0).standard_normal((20, 8))[y]
    X = (X + np.random.default_rng(1).standard_normal((600, 8))).astype(np.float32)
    given = {"rescore": rescore, "refine": False, "random_state": 0}
    path = tmp_path / "model.safetensors"
    BinaryCodeClassifier(24, **given).fit(X, y).save(path, projection=projection)
    model, reader = bitclass.load(path), Reader(path)
    scores = np.sort(reader.scores(X), axis=1)
    clear = scores[:, -1] - scores[:, -2] > 0.5 / 127  # otherwise rounding to these steps decides
    assert clear.mean() > (0.5 if rescore else 0.3)  # sums of bits are often equal
    np.testing.assert_array_equal(reader.predict(X)[clear], model.predict(X)[clear])
    if rescore > 1:
        assert np.any(reader.labels()[reader.distances(X).argmin(axis=1)] != reader.predict(X))


def test_the_generic_pair_for_files_of_another_kind(tmp_path):
    path = tmp_path / "model.sums.safetensors"
    layout = {"mass": Expected("F64", ("classes",), low=0)}
    write_file(path, "sums", Content({"n_rows": 3}, {"mass": np.arange(4.0)[::2]}))
    with open_file(path, "sums") as content:
        assert content.fields(n_rows=int) == {"n_rows": 3}
        assert content.lengths(layout) == {"classes": 2}
        assert content.read("mass").tolist() == [0.0, 2.0]
    with pytest.raises(ModelFileError, match="sums.safetensors: expected a model file, found kind"):
        load(path)


def test_loading_imports_neither_scikit_learn_nor_scipy():
    code = (
        "import sys, bitclass, numpy as np;"
        "model = bitclass.load(sys.argv[1]);"
        "model.predict(np.zeros((2, 12), np.float32));"
        "unwanted = {'sklearn', 'scipy', 'pandas', 'joblib', 'huggingface_hub'};"
        "print(sorted({m.split('.')[0] for m in sys.modules} & unwanted))"
    )
    path = GOLDEN / "linear_int8.safetensors"
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr
