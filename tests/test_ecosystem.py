"""Compatibility with scikit-learn's tools."""

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bitclass import BinaryCodeClassifier

# The only check that may be skipped: bitclass computes with NumPy on the CPU and does not claim to
# take arrays of other libraries, so scikit-learn runs it only where SCIPY_ARRAY_API is set.
MAY_SKIP = {"check_array_api_input"}


# A check of class weights leaves two of three classes with hardly any weight, so they share a code.
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
@parametrize_with_checks(
    [
        BinaryCodeClassifier(n_bits=32),
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


# 2 bits cannot separate 10 digits, which causes a warning.
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_grid_search_over_a_pipeline(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), BinaryCodeClassifier(random_state=0))
    grid = {"binarycodeclassifier__n_bits": [2, 64]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X[:600], y[:600])
    assert search.best_params_ == {"binarycodeclassifier__n_bits": 64}
    assert search.score(X[600:], y[600:]) > 0.85


def test_calibrated_by_scikit_learn(digits):
    X, y = digits
    calibrated = CalibratedClassifierCV(BinaryCodeClassifier(64, random_state=0), cv=3)
    calibrated.fit(X[:1200], y[:1200])
    assert calibrated.score(X[1200:], y[1200:]) > 0.85
    np.testing.assert_allclose(calibrated.predict_proba(X[:5]).sum(axis=1), 1.0)
