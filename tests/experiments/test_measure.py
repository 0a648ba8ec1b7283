"""The one objective: splits, what is chosen on what, and synthetic rows."""

from dataclasses import replace

import numpy as np
import pytest

from bitclass.experiments import Cell, Outcome
from bitclass.experiments.cells import read_outcome, write_outcome
from bitclass.experiments.datasets import DATA_SETS, Split
from bitclass.experiments.measure import measure
from bitclass.experiments.synthetic import draw


@pytest.fixture
def folder(tmp_path):
    """Files in the place of the real ones: 120 rows of each of ten classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 120)
    X = (3 * rng.standard_normal((10, 8))[y] + rng.standard_normal((1200, 8))).astype(np.float16)
    X[:, 0] = np.arange(1200)  # tells rows apart
    order = rng.permutation(1200)
    X, y = X[order], y[order]
    np.savez(
        tmp_path / "cifar10_gist512.npz",
        X_train=X[:1000],
        y_train=y[:1000],
        X_test=X[1000:],
        y_test=y[1000:],
    )
    return tmp_path


def test_the_papers_split_takes_a_hundred_rows_of_each_class_from_both_parts(folder):
    split = DATA_SETS["cifar10-paper"].load(folder, 0)
    assert split.X.shape == (200, 8)
    np.testing.assert_array_equal(np.bincount(split.y_test), np.full(10, 100))
    together = np.concatenate([split.X, split.X_test])[:, 0]
    assert len(np.unique(together.round(4))) == 1200
    other = DATA_SETS["cifar10-paper"].load(folder, 1)
    assert not np.array_equal(split.y, other.y) or not np.array_equal(split.X, other.X)
    again = DATA_SETS["cifar10-paper"].load(folder, 0)
    np.testing.assert_array_equal(split.X, again.X)


def test_features_are_standardised_by_the_rows_to_learn_from(folder):
    split = DATA_SETS["cifar10"].load(folder, 0)
    assert split.X.dtype == split.X_test.dtype == np.float32
    assert split.X.shape == (1000, 8)
    np.testing.assert_allclose(split.X.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(split.X.std(axis=0), 1, rtol=1e-3)
    with np.load(folder / "cifar10_gist512.npz") as arrays:
        X, X_test = (arrays[name].astype(np.float64) for name in ("X_train", "X_test"))
    expected = (X_test - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(split.X_test, expected, atol=1e-3)


@pytest.mark.parametrize("method", ["multi-svm", "cca-itq", "ours-exponential", "ours-rbf"])
def test_test_rows_choose_nothing(monkeypatch, method):
    data = DATA_SETS["digits"]
    split = data.load(None, 0)
    rng = np.random.default_rng(0)
    spoiled = Split(split.X, split.y, 100 * rng.random(split.X_test.shape), split.y_test)
    n_bits = 0 if method == "multi-svm" else 32
    found = []
    for given in (split, replace(spoiled, X_test=spoiled.X_test.astype(np.float32))):
        monkeypatch.setitem(
            DATA_SETS, "digits", replace(data, load=lambda folder, seed, given=given: given)
        )
        found.append(measure(Cell(method, "digits", n_bits, 0), None))
    assert found[0]["accuracy"] > 0.8 > found[1]["accuracy"]
    for name in ("C", "n_rounds", "history", "model_bytes"):
        assert found[0].get(name) == found[1].get(name)


def test_the_score_is_the_share_of_test_rows_that_are_right(monkeypatch):
    data = DATA_SETS["digits"]
    split = data.load(None, 0)
    wrong = np.array(split.y_test)
    wrong[: len(wrong) // 2] = 99  # no method can be right on these
    changed = replace(split, y_test=wrong)
    monkeypatch.setitem(DATA_SETS, "digits", replace(data, load=lambda folder, seed: changed))
    accuracy = measure(Cell("ova-svm", "digits", 0, 0), None)["accuracy"]
    assert 0.4 < accuracy < 0.51


def test_the_papers_method_keeps_a_history_that_falls():
    values = measure(Cell("ours-exponential", "digits", 32, 0), None)
    for step in ("W", "B"):
        assert len(values["history"][step]) == 32 * values["n_rounds"]
        assert np.all(np.diff(values["history"][step][:32]) <= 1e-9)
    assert values["history"]["W"][0] > values["history"]["W"][31]
    assert values["train_seconds"] > 0
    assert values["test_seconds"] > 0
    assert values["model_bytes"] > 32 * 64 * 4


@pytest.mark.parametrize("method", ["ova-svm", "lsh", "ours-hinge"])
def test_a_model_of_many_classes_is_made_up_and_not_trained(monkeypatch, method):
    data = DATA_SETS["imagenet21841-model"]
    # More classes than rows are drawn to predict.
    small = replace(data, load=lambda folder, seed: Split(*draw(0, 40, 2600, seed)), n_classes=2600)
    monkeypatch.setitem(DATA_SETS, "imagenet21841-model", small)
    n_bits = 0 if method == "ova-svm" else 24
    values = measure(Cell(method, "imagenet21841-model", n_bits, 0), None)
    assert (values["n_rows"], values["n_features"], values["n_classes"]) == (0, 40, 2600)
    assert values["accuracy"] is None
    least = {"ova-svm": 8 * 40 * 2600, "lsh": 4 * 40 * 24 + 8 * 24 * 2600, "ours-hinge": 2600 * 3}
    assert least[method] <= values["model_bytes"] <= least[method] + 26_000


def test_the_large_model_has_as_many_classes_as_its_title():
    data = DATA_SETS["imagenet21841-model"]
    assert f"{data.n_classes:,} classes" in data.title


def test_synthetic_class_means_lie_in_few_dimensions_of_falling_size():
    X, y, X_test, y_test = draw(6000, 200, 100, seed=3)
    assert X.shape == (6000, 200)
    assert X_test.shape == (6000, 200)
    assert np.ptp(np.bincount(y)) <= 1
    assert len(y_test) == len(X_test)
    means = np.array([X[y == c].mean(axis=0) for c in range(100)])
    values = np.linalg.svd(means - means.mean(axis=0), compute_uv=False)
    assert values[0] > 3 * values[30] > 3 * 2 * values[70]
    # Of synthetic rows no accuracy is told.
    assert DATA_SETS["small-shape"].synthetic


def test_synthetic_rows_are_standardised_as_all_others():
    split = DATA_SETS["small-shape"].load(None, 0)
    np.testing.assert_allclose(split.X.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(split.X.std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(split.X_test.std(axis=0), 1, atol=0.2)


def test_synthetic_rows_are_drawn_in_the_memory_that_they_take():
    import tracemalloc

    tracemalloc.start()
    X, *_ = draw(20_000, 256, 10, seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * X.nbytes


def test_an_objective_of_zero_can_be_kept(tmp_path):
    """Its logarithm is no number that JSON has, and a cell that cannot be read is run again."""
    cell = Cell("ours-squared-hinge", "digits", 128, 0)
    values = measure(cell, None)
    assert None in values["history"]["W"] + values["history"]["B"]
    outcome = Outcome("done", 60.0, values)
    write_outcome(tmp_path / "cell", cell, outcome)
    assert read_outcome(tmp_path / "cell", cell) == outcome
