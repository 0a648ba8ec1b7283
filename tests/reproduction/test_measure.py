"""Datasets, and the function that measures every method."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction.datasets import DATASETS, Split, check_files, has_files, synthetic_rows
from reproduction.measure import measure
from reproduction.plan import Cell


@pytest.fixture
def folder(tmp_path):
    """A substitute for the real file: 120 rows of each of ten classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 120)
    X = (3 * rng.standard_normal((10, 8))[y] + rng.standard_normal((1200, 8))).astype(np.float16)
    X[:, 0] = np.arange(1200)  # tells rows apart
    order = rng.permutation(1200)
    train, test = order[:1000], order[1000:]
    arrays = {"X_train": X[train], "y_train": y[train], "X_test": X[test], "y_test": y[test]}
    np.savez(tmp_path / "cifar10_gist512.npz", **arrays)
    return tmp_path


def test_the_papers_split_takes_a_hundred_rows_per_class_from_both_parts(folder):
    split, again, other = (DATASETS["cifar10-paper"].load(folder, seed) for seed in (0, 0, 1))
    assert split.X.shape == (200, 8)
    np.testing.assert_array_equal(np.bincount(split.y_test), np.full(10, 100))
    assert len(np.unique(np.concatenate([split.X, split.X_test])[:, 0].round(4))) == 1200
    np.testing.assert_array_equal(split.X, again.X)
    assert not np.array_equal(split.X, other.X)


def test_features_are_standardised_by_the_training_rows(folder):
    split = DATASETS["cifar10"].load(folder, 0)
    assert split.X.dtype == split.X_test.dtype == np.float32
    with np.load(folder / "cifar10_gist512.npz") as arrays:
        X, X_test = (arrays[name].astype(np.float64) for name in ("X_train", "X_test"))
    for found, rows in ((split.X, X), (split.X_test, X_test)):
        np.testing.assert_allclose(found, (rows - X.mean(axis=0)) / X.std(axis=0), atol=1e-3)
    assert DATASETS["cifar10-unscaled"].load(folder, 0).X[:, 0].max() > 1000


def test_a_missing_or_damaged_file_is_named_with_its_content(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"clinc150_minilm384\.npz.*--data"):
        check_files(["clinc150"], None)
    with pytest.raises(FileNotFoundError, match=r"no such folder"):
        check_files(["clinc150"], tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"sentence embeddings.*X_train, y_train, X_test"):
        check_files(["clinc150"], tmp_path)
    np.savez(tmp_path / "clinc150_minilm384.npz", X_train=np.eye(2))
    check_files(["clinc150", "digits"], tmp_path)
    assert not has_files("sun42", tmp_path)
    (tmp_path / "letter16.npz").write_bytes(b"PK\x03\x04 this is no archive")
    for name, file in (("clinc150", "clinc150_minilm384"), ("letters", "letter16")):
        with pytest.raises(ValueError, match=rf"{file}\.npz: cannot be read"):
            DATASETS[name].load(tmp_path, 0)


@pytest.mark.parametrize("method", ["svm-multi", "cca-itq", "paper-exponential"])
def test_test_rows_are_not_used_for_choices(monkeypatch, method):
    data = DATASETS["digits"]
    split = data.load(None, 0)
    noise = np.random.default_rng(0).random(split.X_test.shape).astype(np.float32)
    half_wrong = np.where(np.arange(len(split.y_test)) % 2, split.y_test, 99)
    found = []
    for given in (
        split,
        replace(split, X_test=100 * noise),
        replace(split, y_test=half_wrong),
    ):
        changed = replace(data, load=lambda folder, seed, given=given: given)
        monkeypatch.setitem(DATASETS, "digits", changed)
        found.append(measure(Cell(method, "digits", 0 if "svm" in method else 32, 0), None))
    assert found[0]["accuracy"] > 0.8 > found[1]["accuracy"]
    assert found[2]["accuracy"] == pytest.approx(found[0]["accuracy"] / 2, abs=0.05)
    for name in ("C", "n_rounds", "history", "model_bytes"):
        assert found[0].get(name) == found[1].get(name)


def test_the_papers_method_has_an_objective_that_falls():
    values = measure(Cell("paper-exponential", "digits", 32, 0), None)
    assert values["n_updates"] == 64 * values["n_rounds"] - 1
    assert values["n_rises"] == 0
    assert values["first_objective"] == values["history"]["W"][-1] < values["history"]["W"][0]
    assert len(values["history"]["B"]) == 32
    assert values["model_bytes"] > 32 * 64 * 4
    assert values["train_seconds"] > 0 < values["test_seconds"]


def test_synthetic_class_means_lie_in_few_dimensions():
    split: Split = synthetic_rows(None, 3, n=6000, d=200, n_classes=100)
    assert split.X.shape == split.X_test.shape == (6000, 200)
    assert np.ptp(np.bincount(split.y)) <= 1
    means = np.array([split.X[split.y == c].mean(axis=0) for c in range(100)])
    values = np.linalg.svd(means - means.mean(axis=0), compute_uv=False)
    assert values[0] > 3 * values[30] > 3 * 2 * values[70]
    np.testing.assert_allclose(split.X.std(axis=0), 1, atol=1e-4)
