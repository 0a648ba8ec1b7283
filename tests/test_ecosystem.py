"""bitclass among the tools of scikit-learn users."""

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bitclass import BinaryCodeClassifier

# The only check that may be skipped: bitclass computes with NumPy on the CPU and does not claim to
# take arrays of other libraries, so scikit-learn runs it only where SCIPY_ARRAY_API is set.
MAY_SKIP = {"check_array_api_input"}


# A check of class weights leaves two of three classes next to no weight, so that they share a code.
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
@parametrize_with_checks(
    [
        BinaryCodeClassifier(n_bits=32),
        BinaryCodeClassifier(n_bits=32, loss="exponential", initial_codes="projection"),
        BinaryCodeClassifier(n_bits=32, loss="logistic", initial_codes="random"),
        BinaryCodeClassifier(
            n_bits=32, loss="exponential", initial_codes="cca_itq", solver="mincut"
        ),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    name = getattr(check, "func", check).__name__
    try:
        check(estimator)
    except pytest.skip.Exception:
        assert name in MAY_SKIP
        raise


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def test_in_a_pipeline_and_cross_validated(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), BinaryCodeClassifier(64, random_state=0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85


# 2 bits cannot tell 10 digits apart, and the warning says so.
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_grid_search_over_its_parameters(digits):
    X, y = digits
    grid = {"n_bits": [2, 64], "loss": ["hinge", "exponential"], "alpha": [1e-2, 1.0]}
    search = GridSearchCV(BinaryCodeClassifier(random_state=0), grid, cv=3).fit(X[:600], y[:600])
    assert search.best_params_["n_bits"] == 64


def test_calibrated_by_scikit_learn(digits):
    X, y = digits
    calibrated = CalibratedClassifierCV(BinaryCodeClassifier(64, random_state=0), cv=3)
    calibrated.fit(X[:1200], y[:1200])
    assert calibrated.score(X[1200:], y[1200:]) > 0.85
    np.testing.assert_allclose(calibrated.predict_proba(X[:5]).sum(axis=1), 1.0)


def test_inside_one_vs_rest(digits):
    X, y = digits
    wrapped = OneVsRestClassifier(BinaryCodeClassifier(32, random_state=0)).fit(X[:500], y[:500])
    assert wrapped.score(X[:500], y[:500]) > 0.8


def test_sample_weight_is_routed(digits):
    X, y = digits
    weights = np.ones(len(y))
    weights[y == 3] = 0.0
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = BinaryCodeClassifier(64, random_state=0).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, classifier).fit(X, y, sample_weight=weights)
        search = GridSearchCV(classifier.set_score_request(sample_weight=True), {"alpha": [1e-2]})
        search.fit(X, y, sample_weight=weights)
    assert 3 not in pipeline.predict(X)
    assert 3 not in search.predict(X)


def test_features_are_checked_by_name(digits):
    pandas = pytest.importorskip("pandas")
    X, y = digits
    frame = pandas.DataFrame(X, columns=[f"pixel{j}" for j in range(64)])
    classifier = BinaryCodeClassifier(32, random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame.rename(columns={"pixel0": "other"}))
