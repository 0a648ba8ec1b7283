"""Estimators in files: they are restored with their parameters and attributes."""

import numpy as np
import pytest

import bitclass
from bitclass import BinaryCodeClassifier, ModelFileError
from packed_models import made, rows, saved


def hinge(margins):
    """Not the hinge loss, and never to be confused with it."""
    return margins**3


@pytest.mark.parametrize("loss", ["hinge", "exponential", hinge])
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_loaded_estimator_is_fitted(tmp_path, blobs, loss, precision):
    X, y = blobs
    path = tmp_path / "model.safetensors"
    classifier = BinaryCodeClassifier(
        24, loss=loss, precision=precision, random_state=3, class_weight={0: 2.0}, n_jobs=1
    ).fit(X, y)
    classifier.save(path)
    read = BinaryCodeClassifier.load(path)
    for name in ("classes_", "weights_", "projection_", "intercept_", "n_iter_", "n_features_in_"):
        np.testing.assert_array_equal(getattr(read, name), getattr(classifier, name))
    for method in ("predict", "predict_proba", "decision_function", "encode"):
        np.testing.assert_array_equal(getattr(read, method)(X), getattr(classifier, method)(X))
    assert read.score(X, y) == classifier.score(X, y)
    expected = classifier.get_params() | {"n_jobs": None}  # depends on the machine
    if callable(loss):
        expected["loss"] = "callable hinge"
        assert read.packed().summary["loss"] == "callable hinge"
    assert read.get_params() == expected
    history = classifier.objective_history_
    last = history[np.append(history["step"][1:] != history["step"][:-1], True)]
    np.testing.assert_array_equal(read.objective_history_, last)
    summary = bitclass.load(path).summary
    assert summary["n_rows"] == len(X)
    assert summary["bitclass"] == bitclass.__version__
    # A loaded model is saved again unchanged.
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_parameters_not_stored_in_the_file_are_refused_by_a_new_fit(tmp_path, blobs):
    X, y = blobs
    codes = np.where(np.random.default_rng(0).standard_normal((len(X), 24)) > 0, 1, -1)
    for parameters, message in [
        ({"loss": hinge}, "'loss' parameter .* Got 'callable hinge'"),
        ({"initial_codes": codes}, r"Got 'ndarray of shape \(400, 24\)'"),
        ({"random_state": np.random.RandomState(0)}, "RandomState"),
    ]:
        classifier = BinaryCodeClassifier(24, **parameters).fit(X, y)
        classifier.save(tmp_path / "model")
        read = BinaryCodeClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(read.predict(X), classifier.predict(X))
        with pytest.raises(ValueError, match=message):
            read.fit(X, y)


def test_feature_names_are_saved(tmp_path, blobs):
    pandas = pytest.importorskip("pandas")
    X, y = blobs
    frame = pandas.DataFrame(X, columns=[f"feature {i}" for i in range(20)])
    BinaryCodeClassifier(24, random_state=0).fit(frame, y).save(tmp_path / "model")
    read = BinaryCodeClassifier.load(tmp_path / "model")
    assert list(read.feature_names_in_) == list(frame.columns)
    read.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        read.predict(frame.rename(columns={"feature 0": "other"}))


@pytest.mark.parametrize(
    "summary",
    [
        {"parameters": {"alpha": {}}},
        {"parameters": {"alpha": {"pairs": [1]}}},
        {"n_rounds": "many"},
        {"n_rounds": 1, "history": 5},
        {"n_rounds": 1, "history": [[1, "W"]]},
        {"n_rounds": 1, "history": [[10**12, "W", {}]]},
    ],
)
def test_an_invalid_summary_prevents_only_the_estimator(tmp_path, summary):
    model = made(np.arange(3))
    model.summary = summary
    assert saved(tmp_path, model).summary == summary
    with pytest.raises(ModelFileError, match=r"model.safetensors: the summary's"):
        BinaryCodeClassifier.load(tmp_path / "model.safetensors")


def test_a_model_without_summary_becomes_an_estimator(tmp_path):
    model = made(np.array([3, 5, 8]), precision="float32")
    model.summary = {"parameters": {"from": "the future", "n_jobs": 10**9}}
    saved(tmp_path, model)
    read = BinaryCodeClassifier.load(tmp_path / "model.safetensors")
    assert read.get_params() == BinaryCodeClassifier(20, precision="float32").get_params()
    np.testing.assert_array_equal(read.predict(rows()), model.predict(rows()))
    assert len(read.objective_history_) == read.n_iter_ == 0
