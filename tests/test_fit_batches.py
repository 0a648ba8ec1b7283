"""`fit_batches`: the model of `fit`, resumed at any row, and errors change nothing."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

from bitclass.training import load_statistics, save_statistics
from problems import assert_same_model, clusters, make


def in_batches(X, y, *weights, size=100):
    def batches(start):
        for first in range(start, len(y), size):
            part = slice(first, first + size)
            yield X[part], y[part], *(each[part] for each in weights)

    return batches


KINDS = {
    "default": {},
    "exponential": {"loss": "exponential", "initial_codes": "projection", "scale": 0.1},
    "class weights": {"class_weight": {0: 0.5, 1: 3.0}},
    "kernel": {"kernel": "rbf", "n_anchors": 50},
    "not refined": {"refine": False},
    "means": {"initial_codes": "means"},
}


@pytest.mark.parametrize(
    ("kind", "sparse"), [*((kind, False) for kind in KINDS), ("default", True), ("kernel", True)]
)
def test_batches_give_the_model_of_a_single_batch(kind, sparse):
    """A single batch equals `fit`; with several, sums differ only in rounding."""
    X, y = clusters()
    X = csr_array(X) if sparse else X
    given = {"alpha": 0.01} | KINDS[kind]
    whole = make(**given).fit(X, y)
    assert_same_model(make(**given).fit_batches(in_batches(X, y, size=900)), whole)
    parts = make(**given).fit_batches(in_batches(X, y), sample=(X, y))
    assert np.mean(parts.predict(X) == whole.predict(X)) > 0.97
    assert (parts.refinement_ is None) == (kind == "not refined")


@pytest.mark.parametrize("of_classes", [False, True])
def test_weights_count_in_refinement_as_in_fit(of_classes):
    X, y = clusters(n_classes=2, noise=6.0)
    shares = []
    for weight in (0.05, 1.0, 20.0):
        given = {"refine": True, "class_weight": {1: weight} if of_classes else None}
        weights = [] if of_classes else [np.where(y == 1, weight, 1.0)]
        whole = make(**given).fit(X, y, *weights)
        parts = make(**given).fit_batches(in_batches(X, y, *weights), sample=(X, y))
        assert parts.refinement_["accuracy_before"] == whole.refinement_["accuracy_before"]
        shares.append(np.mean(parts.predict(X) == 1))
    assert shares[0] < 0.1 < shares[1] < 0.9 < shares[2], "or the weights would be ignored"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumed_from_saved_statistics_gives_the_same_model(tmp_path, kind):
    X, y = clusters()
    whole = make(**KINDS[kind]).fit_batches(in_batches(X, y), sample=(X[::2], y[::2]))

    def stop(statistics):
        save_statistics(tmp_path / "statistics", statistics)
        if statistics.n_rows == 500:
            raise KeyboardInterrupt

    classifier = make(**KINDS[kind])
    with pytest.raises(KeyboardInterrupt):
        classifier.fit_batches(in_batches(X, y), sample=(X[::2], y[::2]), on_batch=stop)
    assert not hasattr(classifier, "classes_")
    statistics, _ = load_statistics(tmp_path / "statistics")
    seen = []
    classifier.fit_batches(
        in_batches(X, y), statistics=statistics, on_batch=lambda each: seen.append(each.n_rows)
    )
    assert seen == [600, 700, 800, 900]
    assert_same_model(classifier, whole)
    classifier.partial_fit(X, y)
    assert classifier.statistics_.n_rows == 1800


def test_feature_names_are_set_and_reset():
    X, y = clusters(n=200)
    names = [f"f{j}" for j in range(12)]
    classifier = make().fit_batches(in_batches(X, y), feature_names=names)
    assert classifier.feature_names_in_.tolist() == names
    assert classifier.packed().feature_names == tuple(names)
    assert not hasattr(classifier.fit_batches(in_batches(X, y)), "feature_names_in_")


def broken(X, y):
    X = X.copy()
    X[850] = np.nan
    return in_batches(X, y)


def only_once(X, y):
    rows = iter([(X, y)])
    return lambda start: rows


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (broken, "NaN"),
        (lambda X, y: in_batches(X, np.zeros(900)), "at least 2 classes"),
        (lambda X, y: in_batches(X, y, -np.ones(900)), "[Nn]egative"),
        (lambda X, y: lambda start: iter([(X, y), (X[:, :3], y)]), "3 features, but .* 12"),
        (only_once, "each time it is called"),
    ],
    ids=["NaN late", "one class", "negative weight", "fewer features", "rows only once"],
)
def test_a_failure_leaves_the_estimator_unchanged(batches, message):
    X, y = clusters()
    classifier = make(refine=True).fit(X[:300, :7], y[:300])
    before, expected = pickle.dumps(classifier), classifier.predict(X[:, :7])
    with pytest.raises(ValueError, match=message):
        classifier.fit_batches(batches(X, y), sample=(X, y))
    assert pickle.dumps(classifier) == before
    np.testing.assert_array_equal(classifier.predict(X[:, :7]), expected)
    with pytest.raises(ValueError, match="batches must yield at least one batch"):
        classifier.fit_batches(lambda start: iter(()))
