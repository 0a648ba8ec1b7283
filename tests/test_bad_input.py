"""Bad input: the exception scikit-learn users expect; it names argument, value and what may be."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from bitclass import BinaryCodeClassifier

X = np.random.default_rng(0).standard_normal((20, 4))
Y = np.arange(20) % 3


def with_value(value):
    changed = X.copy()
    changed[7, 2] = value
    return changed


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bits": 0}, "n_bits must be an integer of at least 1 and at most 16383, found 0"),
        ({"n_bits": -3}, "n_bits must be an integer .* found -3"),
        ({"n_bits": 12.0}, "n_bits must be an integer .* found 12.0"),
        ({"n_bits": True}, "n_bits must be an integer .* found True"),
        ({"n_bits": "128"}, "n_bits must be an integer .* found '128'"),
        ({"n_bits": 40_000}, "n_bits must be an integer .* at most 16383, found 40000"),
        ({"loss": "hingle"}, r"loss must be a callable or one of \['crammer.*found 'hingle'"),
        ({"loss": lambda m: -m}, "must not decrease.*margin -256 to .* at margin -254"),
        ({"solver": "annealing"}, r"solver must be one of \['flip', 'mincut'\], found 'annealing'"),
        (
            {"solver": "mincut", "loss": np.tanh},
            "solver='mincut' needs a loss that is convex.*'tanh' is not",
        ),
        ({"scale": 0.0}, "scale must be a number from 1e-06 to 100, found 0.0"),
        ({"scale": np.nan}, "scale must be a number .* found nan"),
        ({"alpha": -1.0}, "alpha must be a number from 0 to 1.79769e.308 or 'auto', found -1.0"),
        ({"alpha": "gcv"}, "alpha must be a number .* or 'auto', found 'gcv'"),
        ({"alpha": None}, "alpha must be a number .* or 'auto', found None"),
        ({"alpha": True}, "alpha must be a number .* or 'auto', found True"),
        ({"alpha": np.nan}, "alpha must be a number .* or 'auto', found nan"),
        ({"refine": "yes"}, "refine must be True, False or 'auto', found 'yes'"),
        ({"refine": None}, "refine must be True, False or 'auto', found None"),
        ({"refine": 1}, "refine must be True, False or 'auto', found 1"),
        ({"refine": np.ones(2)}, "refine must be True, False or 'auto', found array"),
        ({"kernel": "poly"}, "kernel must be 'rbf' or None, found 'poly'"),
        ({"kernel": True}, "kernel must be 'rbf' or None, found True"),
        ({"kernel": np.ones(2)}, "kernel must be 'rbf' or None, found array"),
        ({"n_anchors": 0}, "n_anchors must be an integer of at least 1 or 'auto', found 0"),
        ({"n_anchors": 10.0}, "n_anchors must be an integer of at least 1 or 'auto', found 10.0"),
        (
            {"n_anchors": "many"},
            "n_anchors must be an integer of at least 1 or 'auto', found 'many'",
        ),
        ({"n_anchors": True}, "n_anchors must be an integer of at least 1 or 'auto', found True"),
        ({"gamma": 0.0}, "gamma must be a number from 1e-30 to 1e.30, 'scale' or .* found 0.0"),
        ({"gamma": -1}, "gamma must be a number .* found -1"),
        ({"gamma": np.nan}, "gamma must be a number .* found nan"),
        ({"gamma": np.inf}, "gamma must be a number .* found inf"),
        ({"gamma": "auto"}, "gamma must be a number .* 'scale' or 'median', found 'auto'"),
        ({"gamma": None}, "gamma must be a number .* found None"),
        ({"gamma": np.ones(2)}, "gamma must be a number .* found array"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, found 0"),
        ({"initial_codes": "lsh"}, "initial_codes must be one of .* found 'lsh'"),
        (
            {"initial_codes": np.ones((20, 64))},
            r"initial_codes must have shape .* = \(20, 128\), found \(20, 64\)",
        ),
        (
            {"initial_codes": np.zeros((20, 128))},
            "initial_codes must hold -1 and .1 only, found .*0.0.* in row 0",
        ),
        ({"initial_codes": None}, "initial_codes must be one of .*'projection'.* found None"),
        ({"class_weight": "even"}, "class_weight must be a dict, 'balanced' or None, found 'even'"),
        ({"class_weight": {0: -1.0}}, "class_weight must hold finite .* found -1.0 for class 0"),
        ({"alpha": np.inf}, "alpha must be a number .* found inf"),
        ({"random_state": "seed"}, "random_state must be .* found 'seed'"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"precision": "int4"}, "precision must be 'auto', 'int8' or 'float32', found 'int4'"),
        ({"precision": None}, "precision must be 'auto', 'int8' or 'float32', found None"),
        ({"precision": np.ones(2)}, "precision must be 'auto', 'int8' or .* found array"),
        ({"initial_codes": "mean"}, r"initial_codes must be one of \['means', .* found 'mean'"),
        ({"kernel": "rbf", "n_anchors": 21}, "n_anchors=21 anchors cannot be drawn from 20 rows"),
    ],
)
def test_parameters_are_checked_before_any_work(parameters, message, monkeypatch):
    def work(*_):
        raise AssertionError("work was begun")

    monkeypatch.setattr("bitclass.fitting.standardisation", work)
    with pytest.raises(ValueError, match=message):
        BinaryCodeClassifier(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (with_value(np.nan), Y, "NaN"),
        (with_value(np.inf), Y, "infinity"),
        (X, Y[:19], r"inconsistent numbers of samples: \[20, 19\]"),
        (X, np.zeros(20), r"at least 2 classes, found 1 class: 0\.0"),
        (X, np.full(20, "only"), "at least 2 classes, found 1 class: 'only'"),
        (X[0], Y, "Expected 2D array, got 1D array"),
        (X[:0], Y[:0], r"0 sample\(s\)"),
        (X, np.linspace(0, 1, 20), "continuous"),
        (X, np.where(Y == 0, np.nan, Y), "NaN"),
        (X.astype(complex), Y, "Complex data not supported"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_rows_are_checked(rows, labels, message, method):
    classifier = BinaryCodeClassifier(8)
    with pytest.raises(ValueError, match=message):
        getattr(classifier, method)(rows, labels).predict(X)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "encode"])
def test_predicting_before_fitting(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(BinaryCodeClassifier(), method)(X)


def test_attributes_do_not_exist_before_fitting():
    for name in ("weights_", "projection_", "objective_history_"):
        assert not hasattr(BinaryCodeClassifier(), name)


def test_another_number_of_features():
    classifier = BinaryCodeClassifier(8, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features, but .* is expecting 4"):
        classifier.predict(X[:, :3])
    with pytest.raises(ValueError, match="X has 5 features, but .* is expecting 4"):
        classifier.partial_fit(np.ones((4, 5)), [0, 1, 0, 1])


@pytest.mark.parametrize("k", [0, 4, -1, 1.5, "2", None])
def test_top_classes_names_the_range_of_k(k):
    classifier = BinaryCodeClassifier(8, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="k must be an integer from 1 to .* 3, found"):
        classifier.top_classes(X, k)


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="[Nn]egative"):
        BinaryCodeClassifier(8).fit(X, Y, sample_weight=-np.ones(20))


def test_balanced_weights_do_not_go_with_batches():
    classifier = BinaryCodeClassifier(8, class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight='balanced' needs all rows at once"):
        classifier.partial_fit(X, Y)


def test_a_refit_that_fails_leaves_no_model_of_other_rows():
    classifier = BinaryCodeClassifier(8, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="2 classes"):
        classifier.fit(np.ones((20, 5)), np.zeros(20))
    with pytest.raises(NotFittedError):
        classifier.predict(X)


def test_a_failed_fit_leaves_no_half_trained_estimator():
    classifier = BinaryCodeClassifier(8, loss="hinge")
    with pytest.raises(ValueError, match="2 classes"):
        classifier.fit(X, np.zeros(20))
    with pytest.raises(NotFittedError):
        classifier.predict(X)
