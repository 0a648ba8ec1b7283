"""BinaryCodeClassifier: conventions, weights, batches, errors that change nothing, files."""

import copy
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import bitclass
from bitclass import BinaryCodeClassifier, CodeWarning, ModelFileError
from bitclass import classifier as classifier_module
from bitclass.arrays import sample_rows
from bitclass.codes import pack, unpack
from bitclass.paper import PaperClassifier

from .packed_models import made, saved
from .problems import assert_same_model, clusters, make

METHODS = ("predict", "predict_proba", "decision_function", "encode")


@pytest.fixture(scope="module")
def fitted():
    """Rows, labels and an estimator with its sums; tests must not change it."""
    X, y = clusters(400, d=20, noise=1.0, dtype=np.float64)
    return X, y, make(keep_sums=True).fit(X, y)


# -- scikit-learn's conventions

# Weights in place of copies change which rows judge the model, and with them its calibration.
EXPECTED_FAILURES = {
    BinaryCodeClassifier: {
        "check_fit_score_takes_y": "partial_fit after fit needs keep_sums=True",
        "check_sample_weight_equivalence_on_dense_data": "rows are left out by row number",
        "check_sample_weight_equivalence_on_sparse_data": "rows are left out by row number",
    },
    PaperClassifier: {},
}
# Runs only where SCIPY_ARRAY_API is set, and then for estimators that take such arrays.
MAY_SKIP = {"check_array_api_input"}


# A check of class weights leaves two of three classes with hardly any weight, so they share a code.
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
@parametrize_with_checks(
    [
        BinaryCodeClassifier(n_bits=32),
        PaperClassifier(n_bits=32),
        PaperClassifier(n_bits=32, loss="hinge"),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator)],
)
def test_scikit_learn_conventions(estimator, check):
    name = getattr(check, "func", check).__name__
    try:
        check(estimator)
    except pytest.skip.Exception:
        assert name in MAY_SKIP
        raise


def test_copies_are_independent(fitted):
    X, y, classifier = fitted
    assert not hasattr(clone(classifier), "classes_")
    pickled = pickle.loads(pickle.dumps(classifier))
    assert not hasattr(pickled, "sums_"), "pickles hold the model alone"
    for copied in (pickled, copy.deepcopy(classifier), copy.copy(classifier)):
        assert_same_model(copied, classifier)
        np.testing.assert_array_equal(copied.predict_proba(X), classifier.predict_proba(X))
    copied = copy.copy(classifier)
    copied.partial_fit(X[:50], y[:50])
    assert (copied.sums_.n_rows, classifier.sums_.n_rows) == (450, 400)
    waiting = pickle.loads(pickle.dumps(copied))  # not yet solved, so the sums are needed
    assert_same_model(waiting.solve(), copied.solve())


# -- Shapes and kinds of input


@pytest.mark.parametrize(
    "classifier", [make(rescore=False, prior="uniform"), PaperClassifier(32, random_state=0)]
)
def test_the_model_equals_the_formulas(fitted, classifier):
    X, y, _ = fitted
    classifier.fit(X, y)
    F = X @ classifier.projection_ + classifier.intercept_
    clear = (np.abs(F) > 0.05).all(axis=1)  # int8 rounds
    assert clear.mean() > 0.2
    signs = np.where(F >= 0, 1, -1)[clear]
    np.testing.assert_array_equal(classifier.encode(X)[clear], pack(signs))
    scores = classifier.decision_function(X)
    inner = unpack(classifier.encode(X), 32).astype(int) @ classifier.weights_.T.astype(int)
    bias = classifier.packed().even_bias
    np.testing.assert_array_equal(scores, inner if bias is None else inner + bias)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[scores.argmax(axis=1)])
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    labels, distances, shares, _ = classifier.top_classes(X, 6, probabilities=True)
    np.testing.assert_array_equal(labels, np.argsort(-scores, axis=1, kind="stable"))
    np.testing.assert_array_equal(32 - 2 * distances, np.take_along_axis(inner, labels, axis=1))
    np.testing.assert_allclose(shares, np.take_along_axis(probabilities, labels, axis=1))
    assert classifier.score(X, y) == np.mean(classifier.predict(X) == y) > 0.95
    np.testing.assert_array_equal(classifier.packed().predict(X), classifier.predict(X))
    np.testing.assert_array_equal(classifier.packed().predict_proba(X), probabilities)


@pytest.mark.parametrize("n_bits", [1, 7, 64, 300])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_any_number_of_bits(fitted, n_bits):
    X, y, _ = fitted
    classifier = make(n_bits, refine=False).fit(X, y)
    assert classifier.weights_.shape == (6, n_bits)
    assert classifier.projection_.shape == (20, n_bits)
    assert classifier.encode(X).shape == (400, -(-n_bits // 8))
    assert n_bits < 64 or classifier.score(X, y) > 0.95


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "int64", "bool", ">f4", ">i4"])
def test_any_real_type_agrees_with_float64(fitted, dtype):
    X, y, _ = fitted
    X = np.clip(np.round(X * 4) + 100, 0, 255)
    X = X > 100 if dtype == "bool" else X
    expected = make(refine=False).fit(X.astype(np.float64), y)
    found = make(refine=False).fit(X.astype(dtype), y)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    np.testing.assert_allclose(found.projection_, expected.projection_, atol=2e-4)


@pytest.mark.parametrize(("container", "dtype"), [(csr_matrix, np.float32), (csr_array, int)])
def test_sparse_agrees_with_dense(fitted, container, dtype):
    X, y, _ = fitted
    X = np.where(np.abs(X) > 2, X, 0.0).astype(dtype)
    dense, sparse = make().fit(X, y), make().fit(container(X), y)
    assert_same_model(dense, sparse, atol=1e-6)
    np.testing.assert_array_equal(sparse.predict(container(X)), dense.predict(X))


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "UInt64", "boolean"])
def test_labels_of_pandas_stay_what_they_are(fitted, dtype):
    """They became floats, of which neighbouring large integers are one."""
    X, y, _ = fitted
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    labels = y > 0 if dtype == "boolean" else y + 2**53
    series = pandas.Series(labels).astype(dtype)
    for model in (make(refine=False).fit(X, series), make(refine=False).partial_fit(X, series)):
        assert model.classes_.tolist() == np.unique(labels).tolist()
        assert model.classes_.dtype.kind == series.dtype.kind


def peak_of(call):
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("weighted", [False, True])
def test_float32_rows_are_never_copied_as_a_whole(weighted):
    X = np.random.default_rng(0).standard_normal((40_000, 300)).astype(np.float32)
    y = np.arange(40_000) % 7
    weights = 1.0 + y if weighted else None
    with sklearn.config_context(working_memory=16):  # MiB: it bounds the sample of the rows
        peak = peak_of(lambda: make(16, refine=False).fit(X, y, sample_weight=weights).predict(X))
    assert peak < X.nbytes


# -- Small and degenerate problems


def test_one_row_per_class():
    X, _ = clusters(12)
    classifier = make().fit(X, np.arange(12))
    np.testing.assert_array_equal(classifier.predict(X), np.arange(12))
    assert (classifier.report_.n_rows, classifier.report_.n_judged) == (12, 0)
    assert classifier.report_.accuracy is None
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1.0)


@given(st.integers(0, 1000), st.integers(4, 40), st.integers(2, 5), st.integers(1, 4))
@settings(max_examples=15)
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_few_rows_of_few_features_give_a_model(seed, n, n_classes, d):
    rng = np.random.default_rng(seed)
    X, y = np.round(rng.standard_normal((n, d)), 1), np.arange(n) % n_classes
    classifier = make(16, refine=False).fit(X, y, sample_weight=rng.uniform(0.1, 5.0, n))
    assert set(classifier.predict(X)) <= set(range(n_classes))
    assert np.isfinite(classifier.predict_proba(X)).all()
    assert classifier.packed().temperature > 0


def test_constant_features_do_not_matter(fitted):
    X, y, _ = fitted
    constants = np.column_stack([X, np.full(400, 1e6 / 3), np.zeros(400)])
    classifier = make().fit(constants, y)
    assert not classifier.projection_[20:].any()
    assert np.mean(classifier.predict(constants) == make().fit(X, y).predict(X)) > 0.99
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CodeWarning)
        nothing = make(refine=False).fit(np.ones((40, 3)), np.arange(40) % 2)
        uneven = make(refine=False).fit(np.ones((100, 3)), np.arange(100) < 90)
    assert set(nothing.predict(np.ones((3, 3)))) <= {0, 1}
    assert uneven.predict(np.ones((3, 3))).all()


def test_a_prior_counts_if_all_judged_rows_are_right():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [150, 50])
    X = rng.standard_normal((200, 2)) + 4.0 * y[:, None] * [1, 0]
    between = np.column_stack([np.linspace(0, 4, 13), np.zeros(13)])
    found = make(refine=False, prior=[0.999, 0.001]).fit(X, y).predict(between)
    assert np.count_nonzero(found == 0) >= 9  # of a uniform prior 6


def test_features_of_any_magnitude_within_float32_can_be_learned(fitted):
    X, y, _ = fitted
    scaled = X * 10.0 ** np.linspace(-25, 25, 20)
    assert make().fit(scaled, y).score(scaled, y) > 0.95
    moved = X + 1e6  # float64 has enough digits for this offset
    assert make().fit(moved, y).score(moved, y) > 0.95


# -- Weights and priors


@pytest.mark.parametrize("weight", [1e-30, 0.25, 4.0, 1e30])
def test_equal_weights_are_no_weights_whatever_their_size(fitted, weight):
    X, y, _ = fitted
    plain, weighted = make(16).fit(X, y), make(16).fit(X, y, sample_weight=np.full(400, weight))
    assert np.mean(plain.predict(X) == weighted.predict(X)) > 0.99
    assert plain.report_.alpha == weighted.report_.alpha
    if weight in (0.25, 4.0):  # powers of 2 do not even change the rounding
        assert_same_model(plain, weighted, atol=1e-5)


@pytest.mark.parametrize("given", ["balanced", {0: 5.0, 2: 0.2}])
def test_class_weights_equal_sample_weights(fitted, given):
    X, y, _ = fitted
    rows = np.concatenate([np.flatnonzero(y != 0), np.flatnonzero(y == 0)[:9]])
    X, y = X[rows], y[rows]
    if given == "balanced":
        weights = (len(y) / np.bincount(y) / 6)[y]
    else:
        weights = np.array([given.get(label, 1.0) for label in y.tolist()])
    one, other = make(class_weight=given).fit(X, y), make().fit(X, y, sample_weight=weights)
    assert_same_model(one, other)
    assert one.report_ == other.report_


def test_weights_and_priors_move_the_predictions():
    X, y = clusters(900, n_classes=3, noise=6.0)
    test, _ = clusters(900, n_classes=3, noise=6.0)

    def share(**parameters):
        weights = parameters.pop("weights", None)
        classifier = make(**parameters).fit(X, y, sample_weight=weights)
        return np.mean(classifier.predict(test) == 1)

    heavy = np.where(y == 1, 20.0, 1.0)
    plain = share()
    assert share(weights=heavy) > plain + 0.2
    assert share(class_weight={1: 20.0}) > plain + 0.2
    assert share(prior=[0.05, 0.9, 0.05]) > plain + 0.2
    assert share(prior=[0.495, 0.01, 0.495]) < plain - 0.1
    # Weighted rows where classes are even in the end.
    assert abs(share(weights=heavy, prior="uniform") - plain) < 0.25


def test_a_class_without_weight_is_known_but_not_predicted(fitted):
    X, y, _ = fitted
    classifier = make(refine=False).fit(X, y, sample_weight=(y != 3).astype(float))
    assert classifier.classes_.tolist() == list(range(6))
    assert 3 not in classifier.predict(X)
    assert classifier.predict_proba(X)[:, 3].max() == 0.0
    assert not classifier.weights_[3].any()


def test_groups_are_never_on_both_sides(fitted):
    X, y = clusters(900)
    groups = np.array([f"source {g}" for g in np.arange(900) // 45])
    report = make().fit(X, y, groups=groups).report_
    assert report.n_judged % 45 == 0
    assert 0 < report.n_judged < 450


# -- Batches


def in_batches(X, y, *weights, size=100):
    def batches():
        for first in range(0, len(y), size):
            part = slice(first, first + size)
            yield X[part], y[part], *(each[part] for each in weights)

    return batches


@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted", "kernel"])
@pytest.mark.parametrize("method", ["fit_batches", "partial_fit"])
def test_a_single_batch_equals_fit(kind, method):
    X, y = clusters(600)
    X = csr_array(X) if kind == "sparse" else X
    weights = [np.random.default_rng(0).uniform(0.5, 2.0, 600)] if kind == "weighted" else []
    kernel = {"kernel": "rbf", "n_anchors": 50} if kind == "kernel" else {}
    given = {"refine": False, **kernel}
    whole, found = make(**given).fit(X, y, *weights), make(**given)
    if method == "fit_batches":
        found.fit_batches(in_batches(X, y, *weights, size=600))
    else:
        found.partial_fit(X, y, sample_weight=weights[0] if weights else None).solve()
    assert_same_model(found, whole)


def test_batches_with_the_same_units_give_the_same_refined_model():
    X, y = clusters(1200, dtype=np.float64)
    found = []
    for cuts in ([600], [600, 700, 1111]):
        parts = make()
        for rows in np.split(np.arange(1200), cuts):
            parts.partial_fit(X[rows], y[rows])
        found.append(parts.solve())
    assert_same_model(*found, atol=1e-6)
    assert found[0].report_ == found[1].report_


def test_fit_batches_reads_batches_once_and_takes_weights():
    X, y = clusters(600)
    weights = np.where(y == 1, 0.0, 1.0)
    calls = []

    def batches():
        calls.append(1)
        return in_batches(X, y, weights)()

    classifier = make().fit_batches(batches, feature_names=[f"f{j}" for j in range(12)])
    assert calls == [1]
    assert classifier.packed().feature_names == tuple(f"f{j}" for j in range(12))
    assert 1 in classifier.classes_
    assert 1 not in classifier.predict(X)
    assert not hasattr(classifier.fit_batches(in_batches(X, y)()), "feature_names_in_")
    kernel = make(kernel="rbf", n_anchors=9)
    with pytest.raises(ValueError, match="must be a callable that returns a new iterator"):
        kernel.fit_batches(in_batches(X, y)())


def test_partial_fit_needs_the_sums(fitted, tmp_path):
    X, y, kept = fitted
    classifier = make(refine=False).fit(X, y)
    assert not hasattr(classifier, "sums_")
    for call in (lambda: classifier.partial_fit(X, y), lambda: classifier.remove_classes([1])):
        with pytest.raises(ValueError, match=r"keep_sums=True, save with sums=True \(a pickle"):
            call()
    with pytest.raises(AttributeError, match="keep_sums=True"):
        classifier.save(tmp_path / "model", sums=True)
    assert kept.sums_.n_rows == 400
    continued = copy.copy(kept).partial_fit(X[:7], y[:7])
    assert continued.solve().report_.n_rows == 407


def test_new_classes_in_later_batches(fitted):
    X, y, _ = fitted
    names = np.array(["m", "c", "z", "a", "q", "b"])[y]
    classifier, so_far = make(refine=False), np.zeros(400, dtype=bool)
    for number, new in enumerate(([0], [1], [2, 3, 4, 5])):
        is_new = np.isin(y, new)
        so_far |= is_new
        classifier.partial_fit(X[is_new], names[is_new])
        assert classifier.classes_.tolist() == sorted(set(names[so_far]))
        if number == 0:  # an error only when it is asked to predict
            with pytest.raises(ValueError, match="at least 2 classes, found 1 class: 'm'"):
                classifier.predict(X)
        else:
            assert classifier.score(X[so_far], names[so_far]) > 0.95


def test_expected_classes_are_listed_but_not_predicted(fitted):
    X, y, _ = fitted
    alone = make(refine=False).partial_fit(X, y + 50)
    classifier = make(refine=False).partial_fit(X, y + 50, classes=np.arange(100))
    assert classifier.classes_.tolist() == list(range(100))
    np.testing.assert_array_equal(classifier.predict(X), alone.predict(X))
    scores, known = classifier.decision_function(X), slice(50, 56)
    np.testing.assert_array_equal(scores[:, known], alone.decision_function(X))
    assert scores[:, :50].max() < scores[:, known].min()
    assert np.flatnonzero(classifier.weights_.any(axis=1)).tolist() == list(range(50, 56))
    with pytest.raises(ValueError, match="number of classes, 6, found 7"):
        classifier.top_classes(X, k=7)


def test_removed_classes_are_gone_and_may_come_again(fitted):
    X, y, kept = fitted
    classifier = copy.copy(kept).remove_classes([1, 4])
    assert classifier.classes_.tolist() == [0, 2, 3, 5]
    assert not np.isin(classifier.predict(X), [1, 4]).any()
    stay = ~np.isin(y, [1, 4])
    assert classifier.score(X[stay], y[stay]) > 0.95
    with pytest.raises(ValueError, match="known classes, found 4"):
        classifier.remove_classes([4])
    with pytest.raises(ValueError, match=r"leave at least 2 classes with samples, found \[0\]"):
        classifier.remove_classes([2, 3, 5])
    classifier.partial_fit(X[~stay], y[~stay])
    assert classifier.score(X, y) > 0.95


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"class_weight": "balanced"}, "class_weight='balanced' needs all rows at once"),
        ({}, {"kernel": "rbf", "n_anchors": 9}, "kernel='rbf' differs from the kernel of"),
        ({"kernel": "rbf", "n_anchors": 9}, {"kernel": None}, "kernel=None differs from the"),
        ({"kernel": "rbf", "n_anchors": 9}, {"n_anchors": 8}, "n_anchors=8 differs from the 9"),
    ],
)
def test_parameters_incompatible_with_earlier_batches_raise(fitted, before, after, message):
    X, y, _ = fitted
    classifier = make(refine=False, **before).partial_fit(X, y)
    expected = classifier.predict(X)
    with pytest.raises(ValueError, match=message):
        classifier.set_params(**after).partial_fit(X, y)
    assert classifier.sums_.n_rows == 400
    np.testing.assert_array_equal(classifier.predict(X), expected)


def test_reading_never_trains_and_predicting_trains_once(fitted, monkeypatch):
    X, y, _ = fitted
    calls, fit_model = [], classifier_module.fit_model
    monkeypatch.setattr(
        classifier_module, "fit_model", lambda *given: calls.append(1) or fit_model(*given)
    )
    classifier = make(refine=False)
    for rows in np.array_split(np.arange(400), 5):
        classifier.partial_fit(X[rows], y[rows])
    assert not hasattr(classifier, "projection_")
    with pytest.raises(AttributeError, match="call solve first"):
        _ = classifier.weights_
    assert classifier.classes_.tolist() == list(range(6))
    assert calls == []
    classifier.predict(X)
    classifier.decision_function(X)
    classifier.solve()
    assert calls == [1]
    assert not hasattr(classifier.partial_fit(X, y), "weights_")
    classifier.solve()
    assert calls == [1, 1]


# -- Bad input

X20 = np.random.default_rng(0).standard_normal((20, 4))
Y20 = np.arange(20) % 3


def with_value(value, dtype=np.float64):
    changed = X20.astype(dtype)
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
        *wrong("alpha", -1.0, "gcv", None, np.nan),
        *wrong("refine", "yes", None, np.ones(2)),
        *wrong("kernel", "poly", True, np.ones(2)),
        *wrong("n_anchors", 0, 10.0, "many"),
        *wrong("gamma", 0.0, -1, np.nan, np.inf, "auto", None, np.ones(2)),
        *wrong("rescore", -1, 1.5, "x", None, [3]),
        ({"rescore": True}, "rescore must be 'auto', False or a number of classes, found True"),
        *wrong("class_weight", "even"),
        *wrong("prior", "even"),
        *wrong("keep_sums", "yes", None),
        *wrong("random_state", "seed"),
        *wrong("n_jobs", 1.5, "2"),
        *wrong("max_time", 0, -1.0, "1h", np.nan),
        ({"n_jobs": 0}, "n_jobs: expected a positive or negative integer or None, found 0"),
        ({"n_jobs": 10**30}, "n_jobs: .*expected"),
        ({"class_weight": {0: -1.0}}, "class_weight must contain finite .* found -1.0 for class 0"),
        ({"class_weight": {"0": 2.0}}, "class_weight must have labels of y .* found .0.; y has"),
        ({"kernel": "rbf", "n_anchors": 21}, "n_anchors=21 anchors cannot be drawn from 20 rows"),
    ],
)  # fmt: skip
def test_parameters_are_checked_before_any_work(parameters, message, monkeypatch):
    monkeypatch.setattr(classifier_module, "Collected", None)
    with pytest.raises(ValueError, match=message):
        BinaryCodeClassifier(**parameters).fit(X20, Y20)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": [1, 1]}, r"one share for each of the 3 classes, found an array of shape \(2,\)"),
        ({"prior": [1, 1, 0]}, "positive finite numbers only"),
        ({"prior": [1, 1, np.nan]}, "positive finite|NaN"),
        (
            {"reject": 0.1, "unknown_label": "none"},
            "unknown_label must .* of the type of",
        ),
    ],
)
def test_parameters_of_the_classes_are_checked(parameters, message):
    with pytest.raises(ValueError, match=message):
        make(8, **parameters).fit(X20, Y20)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (with_value(np.nan), Y20, "NaN"),
        (with_value(np.inf), Y20, "infinity"),
        (X20, Y20[:19], r"inconsistent numbers of samples: \[20, 19\]"),
        (X20, np.zeros(20), r"at least 2 classes, found 1 class: 0\.0"),
        (X20[0], Y20, "Expected 2D array, got 1D array"),
        (X20[:0], Y20[:0], r"0 sample\(s\)"),
        (X20, np.linspace(0, 1, 20), "continuous"),
        (X20, np.array(Y20, "datetime64[D]"), r"y must contain integers.*datetime64\[D\]; convert"),
        (X20, ["a", "b"] * 9 + ["c", None], "y must be .* numbers or of text, found None in row"),
        (X20, np.array(["a"] * 19 + [3], dtype=object), "y must be .*, found 3 in row 19"),
        (X20, np.array(["a", np.nan] * 10, dtype=object), "y must not .* missing values, .* row 1"),
        (["a text"] * 20, Y20, "found texts: use TextClassifier"),
        (X20.astype(complex), Y20, "Complex data not supported"),
        (1e10 + 3 * X20, Y20, "mean 1e.10 and standard deviation 2.* in feature 0: rescale"),
        (1e-300 * X20, Y20, "standard deviation .*e-300 in feature 0: rescale"),
        (1e100 * X20, Y20, "mean within 1e.30 and 1e.07 standard .* in feature 0: rescale"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_batches"])
def test_rows_are_checked(rows, labels, message, method):
    given = ([(rows, labels)],) if method == "fit_batches" else (rows, labels)
    with pytest.raises(ValueError, match=message):
        getattr(make(8), method)(*given).predict(X20)


def weights_of(value):
    return {"sample_weight": np.full(20, value)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (weights_of(1e300), "sample_weight, .* must be 0 or from 1e-30 to 1e.30, found 1e.300"),
        (weights_of(1e-100), "found 1e-100: divide all weights by a constant"),
        (weights_of(-1.0), "[Nn]egative"),
        (weights_of(np.nan), "NaN"),
        (weights_of(np.inf), "inf"),
        (weights_of(0.0), "at least 2 classes|positive somewhere|zero"),
        ({"groups": Y20[:19]}, r"groups must have shape \(n_samples,\) = \(20,\), found \(19,\)"),
        ({"groups": np.zeros(20)}, "groups must contain at least 2 groups, found 1"),
        ({"groups": np.where(Y20 == 0, np.nan, Y20)}, "groups must not contain NaN"),
        ({"groups": np.array(["a", 1] * 10, dtype=object)}, "groups must .* labels of one type"),
        ({"classes": [7.0, np.nan]}, "classes must not contain NaN"),
        ({"classes": list("ab")}, "text and numbers"),
    ],
)
def test_other_arguments_are_checked(given, message):
    (name,) = given
    methods = {"groups": ["fit"], "classes": ["partial_fit"]}.get(name, ["fit", "partial_fit"])
    for method in methods:
        with pytest.raises(ValueError, match=message):
            getattr(make(8), method)(X20, Y20, **given)


@pytest.mark.parametrize("method", ["fit", "fit_batches", "partial_fit"])
def test_one_huge_value_is_named_and_leaves_the_estimator_unchanged(fitted, method):
    X, y, kept = fitted
    classifier = copy.copy(kept)
    expected, before = classifier.predict(X), pickle.dumps(classifier)
    sums = classifier.sums_.all_sums()
    many, labels = np.tile(X, (30, 1)).astype(np.float32), np.tile(y, 30)
    outside = int(np.setdiff1d(np.arange(12_000), sample_rows(12_000, 10_000))[-1])
    many[outside, 3] = 1e20  # its square overflows float32, and it is not in the first sample
    given = ([(many, labels)],) if method == "fit_batches" else (many, labels)
    with pytest.raises(ValueError, match=f"row {outside} has 1e.20 in feature 3"):
        getattr(classifier, method)(*given)
    assert pickle.dumps(classifier) == before
    assert classifier.sums_.n_rows == 400
    np.testing.assert_array_equal(classifier.sums_.all_sums().gram, sums.gram)
    np.testing.assert_array_equal(classifier.predict(X), expected)
    classifier.partial_fit(X, y)


def test_large_integers_are_not_mixed_with_floats(fitted):
    X, y, _ = fitted
    classifier = make(refine=False).partial_fit(X, y + 2**60)
    with pytest.raises(ValueError, match="beyond 2..53 cannot be mixed with floats"):
        classifier.partial_fit(X, y.astype(float))
    assert classifier.sums_.n_rows == 400
    assert classifier.solve().classes_.tolist() == [2**60 + c for c in range(6)]
    # Equal numbers are the same label: the first type stays.
    classifier = make(refine=False).partial_fit(X, y).partial_fit(X, y.astype(float))
    assert classifier.predict(X[:2]).dtype == y.dtype


@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_batches"])
def test_an_interrupted_call_leaves_the_model_and_its_names(fitted, method, monkeypatch):
    pandas = pytest.importorskip("pandas")
    X, y, _ = fitted
    frame = pandas.DataFrame(X, columns=[f"f{j}" for j in range(20)])
    classifier = make(8, keep_sums=True, refine=False).fit(frame, y)
    before = pickle.dumps(classifier)
    other = pandas.DataFrame(X[:, :4], columns=list("abcd"))
    rows = frame if method == "partial_fit" else other
    given = ([(rows, y)],) if method == "fit_batches" else (rows, y)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bitclass.training.sums.Collected.add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            getattr(classifier, method)(*given)
    assert pickle.dumps(classifier) == before
    assert classifier.feature_names_in_.tolist() == list(frame.columns)
    assert classifier.sums_.n_rows == 400


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_first_call_that_fails_leaves_an_estimator_that_is_not_fitted(method):
    classifier = make(refine=False)
    with pytest.raises(ValueError, match="NaN"):
        getattr(classifier, method)(with_value(np.nan), Y20)
    for name in METHODS:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(classifier, name)(X20)
    for name in ("weights_", "projection_", "report_", "classes_", "n_features_in_", "sums_"):
        assert not hasattr(classifier, name)
    getattr(classifier, method)(X20[:, :3], Y20)


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_rows_that_are_not_finite_or_not_numbers_are_refused(kernel):
    estimator = make(kernel=kernel, n_anchors=9, refine=False).fit(X20, Y20)
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
            predict(X20.astype(complex))
        with pytest.raises(ValueError, match="numbers|numeric"):
            predict([["a", "b", "c", "d"]])


@pytest.mark.parametrize("dtype", ["string", "category", "float64", "Int64"])
def test_missing_labels_of_pandas_are_named_with_their_row(dtype):
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(["1", "2", None, "4"] * 5, dtype="string").astype(dtype)
    with pytest.raises(ValueError, match="y must not contain missing values, found one in row 2"):
        make(8).fit(X20, labels)


def test_a_deployed_model_takes_any_array_like():
    pandas = pytest.importorskip("pandas")
    model = make(16, refine=False).fit(X20, Y20).packed()
    expected = model.predict(X20)
    frame = pandas.DataFrame(X20)
    for rows in (X20.tolist(), frame, frame.astype(object), csr_array(X20), np.asfortranarray(X20)):
        np.testing.assert_array_equal(model.predict(rows), expected)
    for rows in (X20[0], X20[:, :3], X20[:, :3].tolist(), [[[1.0]]]):
        with pytest.raises(ValueError, match=r"X must have shape \(n, 4\)"):
            model.predict(rows)


def test_top_classes_names_the_range_of_k():
    classifier = make(refine=False).fit(X20, Y20)
    for k in (0, 4, -1, 1.5, "2", None, True, 2**31, 10**30):
        for model in (classifier, classifier.packed()):
            with pytest.raises(ValueError, match="k must be an integer from 1 to .* 3, found"):
                model.top_classes(X20, k)


@pytest.mark.parametrize("after", [{"n_bits": 64}, {"alpha": "no such"}, {"kernel": "rbf"}])
def test_prediction_works_after_set_params(after):
    classifier = make(refine=False).fit(X20, Y20)
    expected = classifier.predict_proba(X20)
    waiting = make(refine=False).partial_fit(X20, Y20)
    for each in (classifier, waiting):
        np.testing.assert_array_equal(each.set_params(**after).predict_proba(X20), expected)
        assert each.weights_.shape == (3, 32)
        assert each.packed().summary["parameters"]["n_bits"] == 32


@pytest.mark.parametrize("way", ["fit", "solve", "predict", "packed"])
def test_warnings_point_at_the_line_of_the_caller(way):
    rows, labels = clusters(200, d=3, n_classes=8, noise=0.5)
    classifier = make(3, refine=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if way == "fit":
            classifier.fit(rows, labels)
        else:
            classifier.partial_fit(rows, labels)
            assert not told, "before anybody asked"
            getattr(classifier, way)(*([rows] if way == "predict" else []))
    ours = [each for each in told if "same weights as another class" in str(each.message)]
    assert {(each.category, each.filename) for each in ours} == {(CodeWarning, __file__)}


# -- Determinism, threads, progress


def test_the_seed_and_nothing_else_decides(fitted):
    X, y, _ = fitted
    one, same, other = (make(random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert_same_model(one, same)
    assert not np.array_equal(one.weights_, other.weights_)


def test_verbose_prints_and_the_callback_stops(capsys):
    X, y = clusters(1200)
    make(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[BinaryCodeClassifier] epoch 1 of ")
    assert "closed form" in lines[-1]
    seen = []
    report = make().fit(X, y, callback=lambda epoch: seen.append(epoch) or len(seen) == 2).report_
    assert capsys.readouterr().out == ""
    assert report.stopped == "callback"
    assert report.epochs == tuple(seen)
    assert [epoch.epoch for epoch in seen] == [1, 2]
    assert make(max_time=1e-9).fit(X, y).report_.epochs == ()


# -- Files


def test_a_loaded_estimator_is_fitted(tmp_path, fitted):
    X, y, _ = fitted
    path = tmp_path / "model.safetensors"
    given = {"class_weight": {0: 2.0}, "prior": [1, 2, 1, 1, 1, 1], "n_jobs": 1, "verbose": 0}
    classifier = make(24, random_state=3, **given).fit(X, y)
    classifier.save(path)
    read = BinaryCodeClassifier.load(path)
    assert_same_model(read, classifier)
    assert read.report_ == classifier.report_
    assert read.n_features_in_ == 20
    for method in METHODS:
        np.testing.assert_array_equal(getattr(read, method)(X), getattr(classifier, method)(X))
    np.testing.assert_array_equal(read.typicality(X), classifier.typicality(X))
    assert read.get_params() == classifier.get_params() | {"n_jobs": None}
    assert bitclass.load(path).summary["bitclass"] == bitclass.__version__
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert_same_model(read.fit(X, y), classifier)


def test_training_continues_from_files(tmp_path, fitted):
    X, y, kept = fitted
    path = tmp_path / "model.safetensors"
    classifier = copy.copy(kept)
    classifier.save(path, sums=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "model.safetensors",
        "model.sums.safetensors",
    ]
    read = BinaryCodeClassifier.load(path)
    assert_same_model(read, classifier)
    more, labels = clusters(50, d=20, n_classes=7, noise=1.0, seed=0, dtype=np.float64)
    for each in (read, classifier):
        each.partial_fit(more, labels).solve()
    assert_same_model(read, classifier)
    other = make(refine=False, keep_sums=True).fit(X[:, :5], y)
    other.save(tmp_path / "other.safetensors", sums=True)
    (tmp_path / "other.sums.safetensors").rename(tmp_path / "model.sums.safetensors")
    with pytest.raises(ModelFileError, match="sums over 5 features, but the model has 20"):
        BinaryCodeClassifier.load(path)


def test_parameters_that_are_not_stored_are_refused_by_a_new_fit(tmp_path, fitted):
    X, y, _ = fitted
    classifier = make(24, random_state=np.random.RandomState(0), refine=False).fit(X, y)
    classifier.save(tmp_path / "model")
    read = BinaryCodeClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(read.predict(X), classifier.predict(X))
    with pytest.raises(ValueError, match="RandomState"):
        read.fit(X, y)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_of_data_frames_are_matched_by_name_and_named_in_errors(library, fitted, tmp_path):
    X, y, _ = fitted
    frames = pytest.importorskip(library)
    make_frame = frames.table if library == "pyarrow" else frames.DataFrame
    columns = {f"f{j}": X[:, j].astype(float) for j in range(20)}
    frame = make_frame(columns)
    classifier = make(24, refine=False, keep_sums=True).fit(frame, y)
    np.testing.assert_array_equal(classifier.feature_names_in_, list(columns))
    expected = make(24, refine=False).fit(X, y).predict(X)
    classifier.save(tmp_path / "model")
    read = BinaryCodeClassifier.load(tmp_path / "model")
    # By position, accuracy would fall to chance.
    turned = make_frame({"more": columns["f0"]} | dict(reversed(columns.items())))
    fewer = make_frame({name: column for name, column in columns.items() if name != "f3"})
    for each in (classifier, classifier.packed(), read):
        np.testing.assert_array_equal(each.predict(frame), expected)
        np.testing.assert_array_equal(each.predict(turned), expected)
        with pytest.raises(ValueError, match="X must have a column 'f3'"):
            each.predict(fewer)
    twice = make(24, refine=False).partial_fit(frame, y).partial_fit(turned, y)
    assert twice.score(frame, y) > 0.9 * classifier.score(frame, y)
    for value in (np.nan, -np.inf, "two"):
        spoiled = columns["f7"].tolist()
        spoiled[3] = value
        wrong = make_frame(columns | {"f7": np.array(spoiled)})
        for work in (
            lambda wrong: make(24).fit(wrong, y),
            lambda wrong: classifier.partial_fit(wrong, y),
            classifier.predict,
            classifier.packed().predict,
        ):
            with pytest.raises(ValueError, match="column 'f7' has .* in row"):
                work(wrong)


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ({"parameters": {"alpha": {}}}, "summary's"),
        ({"parameters": {"alpha": {"pairs": [1]}}}, "summary's"),
        ({"parameters": {}}, "was not fitted by BinaryCodeClassifier"),
    ],
)
def test_an_invalid_summary_prevents_only_the_estimator(tmp_path, summary, message):
    model = made(np.arange(3))
    model.summary = summary
    assert saved(tmp_path, model).summary == summary
    with pytest.raises(ModelFileError, match=f"model.safetensors: .*{message}"):
        BinaryCodeClassifier.load(tmp_path / "model.safetensors")
