"""A few rows more: training continues from the present model of wide rows."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from bitclass import BinaryCodeClassifier

# Words of texts: each sets 8 columns, so that columns are far from independent.
WORDS = np.random.default_rng(100).integers(4000, size=(500, 8))


def words_of(label):
    """The words that a class prefers; classes share them."""
    return np.random.default_rng(200 + label).choice(500, 12, replace=False)


def rows_of(labels, seed):
    """Each row has 3 words of its class and 4 others."""
    rng = np.random.default_rng(seed)
    X = np.zeros((len(labels), 4000), np.float32)
    for row, label in zip(X, labels, strict=True):
        chosen = [*rng.choice(words_of(label), 3), *rng.integers(500, size=4)]
        row[WORDS[chosen].ravel()] = 1
    return sp.csr_array(X)


@pytest.fixture
def small_limits(monkeypatch):
    """Refinement is accepted, and the model is that of the first part, with few rows already."""
    monkeypatch.setattr("bitclass.training.fit.is_better", lambda *_: True)
    monkeypatch.setattr("bitclass.training.fit.spans", lambda *_: [])  # as with many rows
    monkeypatch.setattr("bitclass.training.resume._MIN_ROWS", 1000)
    monkeypatch.setattr("bitclass.training.fit._MIN_ROWS_OF_ONE_MODEL", 1000)
    monkeypatch.setattr("bitclass.training.compact._MIN_ROWS_TO_PRUNE", 1000)


@pytest.fixture
def fitted(small_limits):
    labels = np.arange(1500) % 15
    classifier = BinaryCodeClassifier(32, random_state=0, keep_sums=True)
    return classifier.fit(rows_of(labels, 0), labels)


def add(classifier, label, n=10, seed=1):
    labels = np.full(n, label)
    return classifier.partial_fit(rows_of(labels, seed), labels).solve()


def test_new_classes_are_learned_as_well_as_from_all_rows(fitted, monkeypatch):
    old, new = np.arange(300) % 15, np.full(100, 20)
    columns = np.unique(WORDS[words_of(20)])
    assert not np.isin(columns, fitted.packed().hash_function.columns).all()
    anew = copy.deepcopy(fitted)
    add(fitted, 20)
    assert (fitted.report_.n_added, fitted.report_.n_rows) == (10, 1510)
    assert np.isin(columns, fitted.packed().hash_function.columns).mean() > 0.95
    monkeypatch.setattr("bitclass.training.resume._MAX_ADDED", 0)
    assert add(anew, 20).report_.n_added == 0
    for labels in (old, new):
        X = rows_of(labels, 2)
        assert fitted.score(X, labels) >= anew.score(X, labels) - 0.02
    assert fitted.score(rows_of(new, 2), new) > 0.3


def test_rows_of_known_classes_are_added_to_the_count(fitted):
    add(add(fitted, 20), 3, n=20, seed=4)
    assert (fitted.report_.n_added, fitted.report_.n_rows) == (30, 1530)


def test_training_begins_anew_where_there_is_more_to_learn(fitted):
    assert add(fitted, 20).report_.n_added == 10
    assert add(fitted, 21, n=80).report_.n_added == 0  # more than 5 %
    assert add(fitted, 22, n=5).report_.n_added == 5
    assert fitted.remove_classes([22]).solve().report_.n_added == 0
    assert add(fitted.set_params(n_bits=40), 23).report_.n_added == 0
    assert fitted.packed().n_bits == 40


def test_a_loaded_model_continues_as_it_would_have_in_memory(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors", sums=True)
    again = BinaryCodeClassifier.load(tmp_path / "model.safetensors")
    X = rows_of(np.arange(16), 5)
    np.testing.assert_array_equal(add(again, 20).predict_proba(X), add(fitted, 20).predict_proba(X))
    assert again.report_ == fitted.report_
    assert again.report_.n_added == 10
