"""Statistics files: training that goes on from one ends as if it had never stopped."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bitclass import ModelFileError
from bitclass.learning import learn
from bitclass.storage import save
from bitclass.training import RandomCodes, Statistics, load_statistics, save_statistics
from bitclass.training.starting_codes import GivenCodes, MeanCodes, ProjectionCodes
from bitclass.validation import check_parameters
from mutations import join, split

GOLDEN = Path(__file__).parent / "golden"
D, R = 9, 60


def starting(kind, rng):
    if kind == "means":
        return MeanCodes(R, seed=12345678901)
    if kind == "random":
        return RandomCodes(R, seed=12345678901)
    centre, scale = rng.standard_normal(D), rng.uniform(0.5, 2.0, D)
    return ProjectionCodes(rng.standard_normal((D, R)), centre, scale, "projection")


def batches(rng, classes, n=4, weighted=True):
    centres = 4 * rng.standard_normal((len(classes), D)).astype(np.float32)
    for at in range(n):
        # Later batches bring classes that earlier ones did not have.
        own = rng.integers(0, min(len(classes), 3 + at), 50)
        X = rng.standard_normal((50, D)).astype(np.float32) + centres[own]
        yield X, classes[own], rng.uniform(0.5, 2, 50) if weighted else None


def settings(loss):
    from bitclass import BinaryCodeClassifier

    parameters = BinaryCodeClassifier(R, loss=loss).get_params()
    return check_parameters(parameters)[0]


def assert_same(a, b):
    assert a.classes.dtype == b.classes.dtype
    np.testing.assert_array_equal(a.classes, b.classes)
    for name in ("shift", "gram", "feature_sums", "code_sums", "class_weights"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes()
    assert (a.n_rows, a.keep_codes) == (b.n_rows, b.keep_codes)
    if a.keep_codes:
        for one, other in zip(a.kept_rows(), b.kept_rows(), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


CLASSES = {
    "text": np.array(["ant", "bee", "cow", "dog", "elephant", "日本"]),
    "integers": np.array([-3, 5, 7, 8, 100, 2**40]),
    "bytes": np.array([b"a", b"b", b"c", b"d", b"e", b"f"]),
    "objects": np.array(["a", "b", "c", "d", "e", "f"], dtype=object),
    "days": np.arange(6).astype("M8[D]"),
}


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.parametrize("kind", ["means", "random", "projection"])
@pytest.mark.parametrize("labels", CLASSES)
@pytest.mark.parametrize("weighted", [True, False])
def test_training_goes_on_bit_for_bit(tmp_path, loss, kind, labels, weighted):
    classes = CLASSES[labels]
    rng = np.random.default_rng(0)
    parts = list(batches(rng, classes, weighted=weighted))
    codes, shift = starting(kind, rng), rng.standard_normal(D)
    whole = Statistics(codes, shift, np.full(D, 1.5), keep_codes=loss == "exponential")
    interrupted = Statistics(codes, shift, np.full(D, 1.5), keep_codes=loss == "exponential")
    for at, (X, y, weights) in enumerate(parts):
        whole.add(X, y, weights)
        interrupted.add(X, y, weights)
        # The second time over a file that is there already.
        save_statistics(tmp_path / "statistics", interrupted, {"batches": at + 1})
        interrupted, notes = load_statistics(tmp_path / "statistics")
        assert notes == {"batches": at + 1}
        assert_same(interrupted, whole)
    for name, statistics in (("whole", whole), ("interrupted", interrupted)):
        save(tmp_path / name, learn(statistics, settings(loss)).model)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "interrupted").read_bytes()


@pytest.mark.parametrize("kind", ["means", "projection"])
@pytest.mark.parametrize("keep_codes", [True, False])
def test_statistics_without_any_row_can_be_saved(tmp_path, kind, keep_codes):
    rng = np.random.default_rng(0)
    empty = Statistics(starting(kind, rng), rng.standard_normal(D), np.ones(D), keep_codes)
    save_statistics(tmp_path / "statistics", empty)
    read, notes = load_statistics(tmp_path / "statistics")
    assert notes == {}
    assert_same(read, empty)
    for X, y, weights in batches(rng, CLASSES["text"]):
        read.add(X, y, weights)
        empty.add(X, y, weights)
    assert_same(read, empty)


def test_weights_of_one_take_no_room(tmp_path):
    rng = np.random.default_rng(0)
    sizes = {}
    for weighted in (True, False):
        statistics = Statistics(starting("random", rng), np.zeros(D), np.ones(D), keep_codes=True)
        for X, y, weights in batches(np.random.default_rng(1), CLASSES["text"], weighted=weighted):
            statistics.add(X, y, weights)
        save_statistics(tmp_path / "statistics", statistics)
        sizes[weighted] = (tmp_path / "statistics").stat().st_size
        assert_same(load_statistics(tmp_path / "statistics")[0], statistics)
    assert sizes[True] - sizes[False] >= 8 * 200


def test_codes_that_were_given_cannot_be_saved(tmp_path):
    statistics = Statistics(GivenCodes(np.ones((4, R))), np.zeros(D), np.ones(D), keep_codes=True)
    with pytest.raises(ValueError, match="codes given as an array cannot be saved"):
        save_statistics(tmp_path / "statistics", statistics)
    assert os.listdir(tmp_path) == []


def test_labels_whose_random_codes_would_change_cannot_be_saved(tmp_path):
    statistics = Statistics(RandomCodes(R, 0), np.zeros(D), np.ones(D), keep_codes=False)
    statistics.add_classes(np.array([np.str_("a"), np.str_("b")], dtype=object))
    with pytest.raises(ValueError, match="NumPy scalars inside an array of objects"):
        save_statistics(tmp_path / "statistics", statistics)


def test_golden_statistics_load_forever():
    statistics, notes = load_statistics(GOLDEN / "statistics_v1_random.safetensors")
    assert notes == {"made for": "tests/golden"}
    assert statistics.classes.tolist() == [1, 5, 9]
    assert (statistics.starting.seed, statistics.starting.n_bits) == (7, 10)
    assert (statistics.n_rows, statistics.keep_codes) == (12, False)
    # Every row of a class has its code.
    codes = statistics.starting.of_classes(statistics.classes)
    bits = np.unpackbits(codes, axis=1, count=10, bitorder="little").astype(float) * 2 - 1
    np.testing.assert_array_equal(statistics.code_sums, bits * statistics.class_weights[:, None])
    statistics, notes = load_statistics(GOLDEN / "statistics_v1_projection.safetensors")
    assert notes == {}
    assert statistics.classes.tolist() == ["a", "b", "c", "d"]
    assert statistics.starting.mapping.shape == (12, 10)
    labels, _, weights = statistics.kept_rows()
    sums = np.bincount(labels, weights=weights, minlength=4)
    np.testing.assert_array_equal(sums, statistics.class_weights)
    assert np.linalg.eigvalsh(statistics.gram).min() > -1e-6


def test_golden_statistics_of_means_load_forever():
    statistics, notes = load_statistics(GOLDEN / "statistics_v1_means.safetensors")
    assert notes == {"made for": "tests/golden"}
    assert statistics.classes.tolist() == [0, 1, 2, 3]
    assert (statistics.starting.kind, statistics.starting.seed) == ("means", 7)
    assert statistics.starting.n_bits == 10
    assert (statistics.n_rows, statistics.keep_codes) == (12, False)
    assert statistics.code_sums.shape == (4, 0)
    assert statistics.anchors.anchors.shape == (5, 12)
    assert statistics.n_features == 12
    codes = statistics.starting_sums() / statistics.class_weights[:, None]
    np.testing.assert_array_equal(np.abs(codes), 1.0)


def test_sums_that_no_rows_can_have_are_told():
    statistics, _ = load_statistics(GOLDEN / "statistics_v1_means.safetensors")
    statistics.gram[0, 1] = statistics.gram[1, 0] = 1e6
    with pytest.raises(ValueError, match="no rows can have: .* covariances are not positive"):
        statistics.starting_sums()


MEANS = {"kind": "means", "seed": 7, "bits": 10}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"starting": {"kind": "means", "seed": 7}}, "must have 'bits'"),
        ({"starting": MEANS | {"bits": 10.0}}, "must have 'bits'"),
        ({"starting": MEANS | {"bits": True}}, "must have 'bits'"),
        ({"starting": MEANS | {"bits": "10"}}, "must have 'bits'"),
        ({"starting": MEANS | {"bits": 0}}, "bits must be 1 to 16383, found 0"),
        ({"starting": MEANS | {"bits": 2**40}}, "bits must be 1 to 16383, found"),
        ({"starting": {"kind": "random", "seed": 7}}, "tensor 'code_sums'"),
        ({"starting": {"kind": "projection"}}, "tensor '(code_sums|starting_.*)'"),
        ({"keep_codes": True}, "tensor 'row_"),
    ],
)
def test_a_header_of_means_that_is_not_as_it_must_be_is_refused(tmp_path, changes, message):
    table, data = split((GOLDEN / "statistics_v1_means.safetensors").read_bytes())
    header = json.loads(table["__metadata__"]["bitclass"])
    table["__metadata__"]["bitclass"] = json.dumps(header | changes)
    (tmp_path / "statistics").write_bytes(join(table, data))
    with pytest.raises(ModelFileError, match=f"statistics: .*{message}"):
        load_statistics(tmp_path / "statistics")


@pytest.fixture
def content(tmp_path):
    rng = np.random.default_rng(0)
    statistics = Statistics(starting("projection", rng), np.zeros(D), np.ones(D), keep_codes=True)
    for X, y, weights in batches(rng, CLASSES["integers"]):
        statistics.add(X, y, weights)
    save_statistics(tmp_path / "statistics", statistics)
    return (tmp_path / "statistics").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 9}, "format version 9 is not understood, only 1"),
        ({"kind": "model"}, "expected a statistics file"),
        ({"starting": 3}, "'starting' must be a dict"),
        ({"starting": {"kind": "given"}}, "starting codes must be one of"),
        ({"starting": {"kind": ["random"]}}, "starting codes must be one of"),
        ({"starting": {"kind": "random", "seed": 1}}, "unknown tensor 'starting_"),
        ({"keep_codes": 1}, "'keep_codes' must be a bool"),
        ({"keep_codes": False}, "unknown tensor 'row_"),
        ({"n_rows": 199}, "n_rows is 199, but 200 rows are kept"),
        ({"n_rows": -1}, "n_rows is -1"),
        ({"n_rows": 200.0}, "'n_rows' must be a int"),
        ({"labels": "<u8"}, "must be of type U64"),
        ({"notes": []}, "'notes' must be a dict"),
        ({"other": 1}, "unknown field 'other'"),
    ],
)
def test_a_header_that_is_not_as_it_must_be_is_refused(tmp_path, content, changes, message):
    table, data = split(content)
    header = json.loads(table["__metadata__"]["bitclass"])
    table["__metadata__"]["bitclass"] = json.dumps(header | changes)
    (tmp_path / "statistics").write_bytes(join(table, data))
    with pytest.raises(ModelFileError, match=f"statistics: .*{message}"):
        load_statistics(tmp_path / "statistics")


@pytest.mark.parametrize(
    ("name", "dtype", "values", "message"),
    [
        ("gram", "<f8", [np.nan], "'gram' must hold finite numbers"),
        ("shift", "<f8", [np.inf], "'shift' must hold finite numbers"),
        ("starting_mapping", "<f8", [np.nan], "finite"),
        ("class_weights", "<f8", [-1.0], "'class_weights' must not hold negative"),
        ("row_weights", "<f8", [-1.0], "'row_weights' must not hold negative"),
        ("row_labels", "<i4", [-1], "'row_labels' must hold 0 to 5"),
        ("row_labels", "<i4", [6], "'row_labels' must hold 0 to 5"),
        ("row_codes", "u1", [0, 0, 0, 0, 0, 0, 0, 0x80], "bits past the last"),
        ("classes", "<i8", [9], "ascending"),
        ("classes", "<i8", [5], "distinct"),
    ],
)
def test_numbers_that_no_sums_can_have_are_refused(tmp_path, content, name, dtype, values, message):
    table, data = split(content)
    begin, _ = table[name]["data_offsets"]
    new = np.asarray(values, dtype=dtype).tobytes()
    spoiled = data[:begin] + new + data[begin + len(new) :]
    (tmp_path / "statistics").write_bytes(join(table, spoiled))
    with pytest.raises(ModelFileError, match=message):
        load_statistics(tmp_path / "statistics")


@pytest.mark.parametrize("kind", ["random", "means"])
def test_a_seed_must_be_an_integer(tmp_path, kind):
    table, data = split((GOLDEN / f"statistics_v1_{kind}.safetensors").read_bytes())
    for seed in ("1", None, 1.5, True, -1):
        header = json.loads(table["__metadata__"]["bitclass"])
        header["starting"]["seed"] = seed
        changed = {**table, "__metadata__": {"bitclass": json.dumps(header)}}
        (tmp_path / "statistics").write_bytes(join(changed, data))
        with pytest.raises(ModelFileError, match="must have a seed"):
            load_statistics(tmp_path / "statistics")
