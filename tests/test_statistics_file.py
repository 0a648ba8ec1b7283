"""Statistics files: training continues from one as if it had never stopped."""

import os
from pathlib import Path

import numpy as np
import pytest

from altered_files import with_data, with_header
from bitclass import BinaryCodeClassifier, ModelFileError
from bitclass.storage import save
from bitclass.training import Statistics, fit_model, load_statistics, save_statistics
from bitclass.training.starting_codes import GivenCodes, MeanCodes, ProjectionCodes, RandomCodes
from bitclass.validation import settings_of

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
        # Later batches contain new classes.
        y = rng.integers(0, min(len(classes), 3 + at), 50)
        X = rng.standard_normal((50, D)).astype(np.float32) + centres[y]
        yield X, classes[y], rng.uniform(0.5, 2, 50) if weighted else None


def assert_same(a, b):
    assert a.classes.dtype.kind == b.classes.dtype.kind
    np.testing.assert_array_equal(a.classes, b.classes)
    sums = ("gram", "feature_sums", "code_sums", "class_weights", "class_weights_when_refined")
    for name in ("shift", "scale", *sums):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes()
    assert (a.n_rows, a.keep_codes) == (b.n_rows, b.keep_codes)
    if a.keep_codes:
        for one, other in zip(a.kept_rows(), b.kept_rows(), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


CLASSES = {
    "text": np.array(["ant", "bee", "cow", "dog", "elephant", "日本"]),
    "integers": np.array([-3, 5, 7, 8, 100, 2**40]),
    "objects": np.array(["a", "b", "c", "d", "e", "f"], dtype=object),
}


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.parametrize(
    ("kind", "labels", "weighted"),
    [
        *(("random", labels, False) for labels in CLASSES),
        ("means", "text", True),
        ("projection", "text", True),
        ("projection", "integers", False),
    ],
)
def test_training_continues_bit_for_bit(tmp_path, loss, kind, labels, weighted):
    classes = CLASSES[labels]
    rng = np.random.default_rng(0)
    parts = list(batches(rng, classes, weighted=weighted))
    codes, shift = starting(kind, rng), rng.standard_normal(D)
    whole = Statistics(codes, shift, np.full(D, 1.5), keep_codes=loss == "exponential")
    interrupted = Statistics(codes, shift, np.full(D, 1.5), keep_codes=loss == "exponential")
    # Saved without any row, then over the existing file.
    for at, rows in enumerate([None, *parts]):
        if rows is not None:
            whole.add(*rows)
            interrupted.add(*rows)
        save_statistics(tmp_path / "statistics", interrupted, {"batches": at})
        interrupted, notes = load_statistics(tmp_path / "statistics")
        assert notes == {"batches": at}
        assert_same(interrupted, whole)
    for name, statistics in (("whole", whole), ("interrupted", interrupted)):
        settings = settings_of(BinaryCodeClassifier(R, loss=loss).get_params())
        save(tmp_path / name, fit_model(settings, statistics).model)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "interrupted").read_bytes()


def test_statistics_that_cannot_be_continued_are_not_saved(tmp_path):
    given = Statistics(GivenCodes(np.ones((4, R))), np.zeros(D), np.ones(D), keep_codes=True)
    with pytest.raises(ValueError, match="codes given as an array cannot be saved"):
        save_statistics(tmp_path / "statistics", given)
    # Random codes depend on the repr of a label.
    random = Statistics(RandomCodes(R, 0), np.zeros(D), np.ones(D), keep_codes=False)
    labels = np.array([np.str_("a"), np.str_("b")], dtype=object)
    random.add(np.zeros((0, D)), labels[:0], classes=labels)
    with pytest.raises(ValueError, match="NumPy scalars inside an object array"):
        save_statistics(tmp_path / "statistics", random)
    assert os.listdir(tmp_path) == []


def test_statistics_that_could_not_be_loaded_are_not_saved(tmp_path):
    """An existing file is left unchanged."""
    for name, value in (("gram", np.inf), ("feature_sums", np.nan), ("class_weights", -1.0)):
        statistics = Statistics(starting("means", None), np.zeros(D), np.ones(D))
        for batch in batches(np.random.default_rng(0), CLASSES["text"]):
            statistics.add(*batch)
        save_statistics(tmp_path / "statistics", statistics)
        before = (tmp_path / "statistics").read_bytes()
        getattr(statistics, name).flat[0] = value
        with pytest.raises(ValueError, match=f"cannot be saved: tensor '{name}'"):
            save_statistics(tmp_path / "statistics", statistics)
        assert (tmp_path / "statistics").read_bytes() == before
        assert os.listdir(tmp_path) == ["statistics"]


# -------------------------------------------------------------------------------------------------
# The format
# -------------------------------------------------------------------------------------------------


def golden(kind):
    return (GOLDEN / f"statistics_{kind}.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("kind", "classes"),
    [("random", [1, 5, 9]), ("projection", ["a", "b", "c", "d"]), ("means", [0, 1, 2, 3])],
)
def test_golden_statistics_load_forever(tmp_path, kind, classes):
    statistics, notes = load_statistics(GOLDEN / f"statistics_{kind}.safetensors")
    assert notes == ({} if kind == "projection" else {"made for": "tests/golden"})
    assert statistics.classes.tolist() == classes
    assert (statistics.starting.kind, statistics.starting.n_bits) == (kind, 10)
    assert statistics.n_features == 12
    if kind == "projection":
        labels, _, weights = statistics.kept_rows()
        assert len(labels) == statistics.n_rows == 12
        sums = np.bincount(labels, weights=weights, minlength=4)
        np.testing.assert_array_equal(sums, statistics.class_weights)
    else:
        assert statistics.starting.seed == 7
        assert not statistics.keep_codes
    if kind == "means":
        assert statistics.anchors.anchors.shape == (5, 12)
    # They can be learned from and saved again.
    statistics.add(np.load(GOLDEN / "rows.npy"), statistics.classes[np.arange(16) % 3])
    save_statistics(tmp_path / "statistics", statistics)
    read, _ = load_statistics(tmp_path / "statistics")
    assert_same(read, statistics)
    codes = read.starting.code_sums(read.sums())
    if kind == "random":  # version 0.1 kept the sums that follow from the labels
        assert b"code_sums" in golden(kind)
        np.testing.assert_array_equal(np.abs(codes), read.class_weights[:, None] * np.ones(10))


MEANS = {"kind": "means", "seed": 7, "bits": 10}


def refused(tmp_path, content, message):
    (tmp_path / "statistics").write_bytes(content)
    with pytest.raises(ModelFileError, match=f"statistics: .*{message}") as caught:
        load_statistics(tmp_path / "statistics")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("means", {"starting": MEANS | {"bits": True}}, "must have 'bits'"),
        ("means", {"starting": MEANS | {"bits": 0}}, "bits must be 1 to 8191, found 0"),
        ("means", {"starting": MEANS | {"bits": 2**40}}, "bits must be 1 to 8191, found"),
        ("means", {"starting": {"kind": "projection"}}, "tensor '(code_sums|starting_.*)'"),
        ("means", {"keep_codes": True}, "tensor 'row_"),
        ("means", {"starting": MEANS | {"seed": True}}, "must have a seed"),
        ("means", {"starting": MEANS | {"seed": -1}}, "must have a seed"),
        ("means", {"n_rows": 10**400}, "n_rows must be 0 to .* found 1000"),
        ("projection", {"n_rows": 11}, "n_rows must be 12 to .* found 11"),
        ("projection", {"starting": {"kind": ["random"]}}, "starting codes must be one of"),
        ("projection", {"starting": {"kind": "random", "seed": 1}}, "unknown tensor 'starting_"),
        ("projection", {"keep_codes": 1}, "'keep_codes' must be a bool"),
        ("projection", {"keep_codes": False}, "unknown tensor 'row_"),
    ],
)
def test_an_invalid_header_is_rejected(tmp_path, kind, changes, message):
    refused(tmp_path, with_header(golden(kind), **changes), message)


@pytest.mark.parametrize(
    ("kind", "name", "dtype", "values", "message"),
    [
        ("projection", "gram", "<f8", [np.nan], "'gram' must contain finite numbers"),
        ("projection", "starting_mapping", "<f8", [np.nan], "finite"),
        ("projection", "class_weights", "<f8", [-1.0], "'class_weights' must contain no negative"),
        ("projection", "row_labels", "<i4", [-1], "'row_labels' must contain no negative"),
        ("projection", "row_labels", "<i4", [4], "'row_labels' must hold 0 to 3"),
        ("projection", "row_codes", "u1", [0, 0x80], "unused bits after"),
        ("random", "classes", "<i8", [7], "ascending"),
    ],
)
def test_numbers_that_no_sums_can_have_are_refused(tmp_path, kind, name, dtype, values, message):
    refused(tmp_path, with_data(golden(kind), name, dtype, values), message)
