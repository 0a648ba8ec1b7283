"""Bad input: errors name the argument, what was found and what is expected, before any change."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from bitclass import BinaryCodeClassifier, CodeWarning
from bitclass.arrays import sample_rows
from bitclass.training import fit, regression
from problems import clusters

X = np.random.default_rng(0).standard_normal((20, 4))
Y = np.arange(20) % 3


def with_value(value, dtype=np.float64):
    changed = X.astype(dtype)
    changed[7, 2] = value
    return changed


def wrong(name, *values):
    return [
        ({name: value}, f"The '{name}' parameter of BinaryCodeClassifier must be")
        for value in values
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        *wrong("n_bits", 0, -3, 12.0, "128", 40_000),
        *wrong("loss", "hingle", 3),
        *wrong("solver", "annealing"),
        *wrong("scale", 0.0, np.nan, 1e3),
        *wrong("alpha", -1.0, "gcv", None, np.nan),
        *wrong("refine", "yes", None, np.ones(2)),
        *wrong("kernel", "poly", True, np.ones(2)),
        *wrong("n_anchors", 0, 10.0, "many"),
        *wrong("gamma", 0.0, -1, np.nan, np.inf, "auto", None, np.ones(2)),
        *wrong("max_iter", 0),
        *wrong("rescore", -1, 1.5, "x", None, [3]),
        ({"rescore": True}, "rescore must be 'auto', False or a number of classes, found True"),
        *wrong("initial_codes", "lsh", None),
        *wrong("class_weight", "even"),
        *wrong("random_state", "seed"),
        *wrong("n_jobs", 1.5, "2"),
        *wrong("precision", "int4", None, np.ones(2)),
        *wrong("max_time", 0, -1.0, "1h", np.nan),
        ({"n_jobs": 0}, "n_jobs: expected a positive or negative integer or None, found 0"),
        ({"n_jobs": 10**30}, "n_jobs: .*expected"),
        ({"loss": lambda m: -m}, "must not decrease.*margin -256 to .* at margin -254"),
        ({"solver": "mincut", "loss": np.tanh}, "needs a loss that is convex.*tanh' is not"),
        ({"initial_codes": np.ones((20, 64))}, r"shape .* = \(20, 128\), found \(20, 64\)"),
        ({"initial_codes": np.zeros((20, 128))}, "must contain -1 and .1 only, .*0.* in row 0"),
        ({"class_weight": {0: -1.0}}, "class_weight must contain finite .* found -1.0 for class 0"),
        ({"class_weight": {"0": 2.0}}, "class_weight must have labels of y .* found .0.; y has"),
        ({"kernel": "rbf", "n_anchors": 21}, "n_anchors=21 anchors cannot be drawn from 20 rows"),
    ],
)  # fmt: skip
def test_parameters_are_checked_before_any_work(parameters, message, monkeypatch):
    def work(*_):
        raise AssertionError("work was begun")

    monkeypatch.setattr(fit, "Statistics", work)
    with pytest.raises(ValueError, match=message):
        BinaryCodeClassifier(**parameters).fit(X, Y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        BinaryCodeClassifier().fit(X, np.zeros(20))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (Y[:19], r"groups must have shape \(n_samples,\) = \(20,\), found \(19,\)"),
        (np.ones((20, 1)), r"groups must have shape .* found \(20, 1\)"),
        (np.zeros(20), "groups must contain at least 2 groups, found 1"),
        (np.where(Y == 0, np.nan, Y), "groups must not contain NaN"),
        (np.array(["a", 1] * 10, dtype=object), "groups must contain labels of one type"),
    ],
)
def test_groups_are_checked_by_name(groups, message):
    with pytest.raises(ValueError, match=message):
        BinaryCodeClassifier(8).fit(X, Y, groups=groups)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (with_value(np.nan), Y, "NaN"),
        (with_value(np.inf), Y, "infinity"),
        (X, Y[:19], r"inconsistent numbers of samples: \[20, 19\]"),
        (X, np.zeros(20), r"at least 2 classes, found 1 class: 0\.0"),
        (X[0], Y, "Expected 2D array, got 1D array"),
        (X[:0], Y[:0], r"0 sample\(s\)"),
        (X, np.linspace(0, 1, 20), "continuous"),
        (X, ["a", "b"] * 9 + ["c", None], "y must be .* numbers or of text, found None in row 19"),
        (X, [None, *"ab"] * 6 + ["a", "b"], "y must be .*, found None in row 0"),
        (X, np.array(["a", "b"] * 9 + ["c", 3], dtype=object), "y must be .*, found 3 in row 19"),
        (X.astype(complex), Y, "Complex data not supported"),
        (1e10 + 3 * X, Y, "mean 1e.10 and standard deviation 2.* in feature 0: rescale"),
        (1e-300 * X, Y, "standard deviation .*e-300 in feature 0: rescale"),
        (1e-32 * X, Y, "deviation from 1e-30 to 1e.30 .* deviation .*e-3. in feature 0: rescale"),
        (1e100 * X, Y, "mean within 1e.30 and 1e.07 standard .* in feature 0: rescale"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_batches"])
def test_rows_are_checked(rows, labels, message, method):
    classifier = BinaryCodeClassifier(8)
    given = (lambda start: iter([(rows, labels)]),) if method == "fit_batches" else (rows, labels)
    with pytest.raises(ValueError, match=message):
        getattr(classifier, method)(*given).predict(X)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (1e300, "sample_weight, .* must be 0 or from 1e-30 to 1e.30, found 1e.300"),
        (1e-100, "found 1e-100: divide all weights by a constant"),
        (-1.0, "[Nn]egative"),
        (np.nan, "NaN"),
        (np.inf, "inf"),
    ],
)  # fmt: skip
def test_sample_weights_that_cannot_be_summed_are_refused(weight, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(BinaryCodeClassifier(8), method)(X, Y, sample_weight=np.full(20, weight))


def test_features_of_any_magnitude_within_float32_can_be_learned(blobs):
    X, y = blobs
    X = X * 10.0 ** np.linspace(-25, 25, 20)
    assert BinaryCodeClassifier(64, random_state=0).fit(X, y).score(X, y) > 0.95
    X = blobs[0] + 1e6  # float64 has enough digits for this offset
    assert BinaryCodeClassifier(64, random_state=0).fit(X, y).score(X, y) > 0.95


# -------------------------------------------------------------------------------------------------
# A failure changes nothing
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "form"),
    [("fit", np.asarray), ("fit_batches", np.float64), ("partial_fit", csr_array)],
)
def test_one_huge_value_is_named_and_leaves_the_estimator_unchanged(blobs, method, form):
    X, y = blobs
    classifier = BinaryCodeClassifier(16, random_state=0).fit(X, y)
    expected, before = classifier.predict(X), pickle.dumps(classifier)
    many, labels = np.tile(X, (30, 1)).astype(np.float32), np.tile(y, 30)
    outside = int(np.setdiff1d(np.arange(12_000), sample_rows(12_000, 10_000))[-1])
    many[outside, 3] = 1e20  # its square overflows float32, and it is not in the first sample
    given = (form(many), labels)
    if method == "fit_batches":
        given = (lambda start: iter([(form(many), labels)]),)
    with pytest.raises(ValueError, match=f"row {outside} has 1e.20 in feature 3"):
        getattr(classifier, method)(*given)
    assert pickle.dumps(classifier) == before
    assert classifier.statistics_.n_rows == 400
    assert np.isfinite(classifier.statistics_.gram).all()
    np.testing.assert_array_equal(classifier.predict(X), expected)
    classifier.partial_fit(X, y)


def test_a_fit_that_fails_keeps_the_model_and_its_names(blobs):
    pandas = pytest.importorskip("pandas")
    X, y = blobs
    frame = pandas.DataFrame(X, columns=[f"f{j}" for j in range(20)])
    classifier = BinaryCodeClassifier(8, random_state=0).fit(frame, y)
    before = pickle.dumps(classifier)
    other = pandas.DataFrame(X[:, :4], columns=list("abcd"))
    spoiled = other.copy()
    spoiled.iloc[3, 2] = np.nan
    for rows, labels in ((spoiled, y), (other, np.zeros(400)), (other, y[:-1])):
        with pytest.raises(ValueError):
            classifier.fit(rows, labels)
        assert pickle.dumps(classifier) == before
    assert classifier.feature_names_in_.tolist() == list(frame.columns)
    classifier.predict(frame)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_first_call_that_fails_leaves_an_estimator_that_is_not_fitted(method):
    classifier = BinaryCodeClassifier(8)
    with pytest.raises(ValueError, match="NaN"):
        getattr(classifier, method)(with_value(np.nan), Y)
    for name in METHODS:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(classifier, name)(X)
    for name in ("weights_", "projection_", "objective_history_", "classes_", "n_features_in_"):
        assert not hasattr(classifier, name)
    getattr(classifier, method)(X[:, :3], Y)


# -------------------------------------------------------------------------------------------------
# Prediction
# -------------------------------------------------------------------------------------------------

METHODS = ("predict", "predict_proba", "decision_function", "encode")


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_rows_that_are_not_finite_or_not_numbers_are_refused(precision, kernel):
    given = {"kernel": kernel, "n_anchors": 9}
    estimator = BinaryCodeClassifier(8, precision=precision, random_state=0, **given).fit(X, Y)
    model = estimator.packed()
    for predict in (
        *(getattr(estimator, name) for name in METHODS),
        *(getattr(model, name) for name in ("predict", "predict_proba", "scores", "encode")),
        lambda X: model.top_classes(X, 2),
    ):
        for dtype, value in ((np.float64, np.nan), (np.float32, np.inf), (np.float16, -np.inf)):
            with pytest.raises(ValueError, match=r"row 7, feature 2 is (NaN|infinity)"):
                predict(with_value(value, dtype))
        with pytest.raises(ValueError, match="row 7, feature 2 is infinity"):
            predict(csr_array(with_value(np.inf)))
        with pytest.raises(ValueError, match="[Cc]omplex"):
            predict(X.astype(complex))
        with pytest.raises(ValueError, match="numbers|numeric"):
            predict([["a", "b", "c", "d"]])


def test_a_deployed_model_takes_any_array_like():
    pandas = pytest.importorskip("pandas")
    model = BinaryCodeClassifier(16, random_state=0).fit(X, Y).packed()
    expected = model.predict(X)
    frame = pandas.DataFrame(X)
    for rows in (X.tolist(), frame, frame.astype(object), csr_array(X), np.asfortranarray(X)):
        np.testing.assert_array_equal(model.predict(rows), expected)
    np.testing.assert_array_equal(model.predict([[1, 2, 3, 4]]), model.predict([[1.0, 2, 3, 4]]))
    for rows in (X[0], X[:, :3], X[:, :3].tolist(), [[[1.0]]]):
        with pytest.raises(ValueError, match=r"X must have shape \(n, 4\)"):
            model.predict(rows)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_float64_values_beyond_float32_raise_or_are_predicted_correctly(precision):
    classifier = BinaryCodeClassifier(16, precision=precision, random_state=0).fit(X, Y)
    far = X.copy()
    far[3] *= 1e200
    signs = np.where(far @ classifier.projection_.astype(float) + classifier.intercept_ >= 0, 1, -1)
    expected = classifier.classes_[(signs @ classifier.weights_.T).argmax(axis=1)]
    for model in (classifier, classifier.packed()):
        try:
            found = model.predict(far)
        except ValueError as error:
            assert "row 3, feature 0 is -2.3" in str(error)  # noqa: PT017
        else:
            assert found[3] == expected[3]


@pytest.mark.parametrize("probabilities", [False, True])
def test_top_classes_names_the_range_of_k(probabilities):
    classifier = BinaryCodeClassifier(8, random_state=0).fit(X, Y)
    for k in (0, 4, -1, 1.5, "2", None, True, 2**31, 2**63, 10**30):
        for model in (classifier, classifier.packed()):
            with pytest.raises(ValueError, match="k must be an integer from 1 to .* 3, found"):
                model.top_classes(X, k, probabilities=probabilities)


@pytest.mark.parametrize("after", [{"n_bits": 64}, {"loss": "no such"}, {"kernel": "rbf"}])
def test_prediction_works_after_set_params(after):
    classifier = BinaryCodeClassifier(8, random_state=0).fit(X, Y)
    expected = classifier.predict_proba(X)
    waiting = BinaryCodeClassifier(8, random_state=0, refine=False).partial_fit(X, Y)
    np.testing.assert_array_equal(classifier.set_params(**after).predict_proba(X), expected)
    np.testing.assert_array_equal(waiting.set_params(**after).predict_proba(X), expected)
    assert classifier.weights_.shape == (3, 8)
    for each in (classifier, waiting):
        assert each.packed().summary["parameters"]["n_bits"] == 8


# -------------------------------------------------------------------------------------------------
# Many classes, and warnings
# -------------------------------------------------------------------------------------------------


def test_too_many_classes_for_a_loss_of_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(regression, "MAX_BQP_CLASSES", 2)
    given = {"n_bits": 8, "initial_codes": "means", "random_state": 0}
    message = "'exponential' compares all pairs .* at most 2 classes, found 3; use loss='hinge'"
    with pytest.raises(ValueError, match=message):
        BinaryCodeClassifier(loss="exponential", **given).fit(X, Y)
    BinaryCodeClassifier(loss="hinge", **given).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "category", "message"),
    [
        ({"n_bits": 3}, CodeWarning, "had the same weights as another class"),
        ({"n_bits": 32, "refine": True}, UserWarning, "refine=True: the model was not refined"),
        (
            {"n_bits": 32, "loss": "exponential", "scale": 0.05, "max_iter": 1,
             "initial_codes": "projection"},
            ConvergenceWarning,
            "increase max_iter",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["fit", "solve", "predict", "packed"])
def test_warnings_point_at_the_line_of_the_caller(parameters, category, message, way):
    rows, labels = np.random.default_rng(0).standard_normal((200, 3)), np.arange(200) % 8
    if "not refined" in message:
        rows, labels = rows[:10], np.arange(10)
    classifier = BinaryCodeClassifier(random_state=0, **parameters)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if way == "fit":
            classifier.fit(rows, labels)
        else:
            classifier.partial_fit(rows, labels)
            assert not told, "before anybody asked"
            getattr(classifier, way)(*([rows] if way == "predict" else []))
    ours = [each for each in told if message in str(each.message)]
    assert [(each.category, each.filename) for each in ours] == [(category, __file__)]


@pytest.mark.parametrize("refine", [False, True])
def test_too_few_bits_warn_with_and_without_refinement(refine):
    rows, labels = clusters(600)
    with pytest.warns(CodeWarning, match="n_bits=1 allows only 2 patterns"):
        classifier = BinaryCodeClassifier(1, refine=refine, random_state=0).fit(rows, labels)
    assert not refine or classifier.refinement_["taken"]
