"""The estimator: shapes, labels, kinds of features, weights, determinism, memory."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_info

from bitclass import CodeWarning
from bitclass.codes import pack, unpack
from bitclass.losses import tabulate
from bitclass.training.alternation import Groups, alternate, hinge_weights
from bitclass.training.bqp import SOLVERS
from bitclass.training.starting_codes import STARTING_CODES
from brute_force import EVERY_LOSS, objective
from problems import make


@pytest.mark.parametrize("loss", [*EVERY_LOSS, np.tanh])
@pytest.mark.parametrize("initial_codes", STARTING_CODES)
def test_every_loss_learns_from_every_start_and_the_seed_decides(blobs, loss, initial_codes):
    X, y = blobs
    given = {"loss": loss, "scale": 0.1, "initial_codes": initial_codes}
    one, same, other = (
        make(64, random_state=seed, **given).fit(X[:300], y[:300]) for seed in (0, 0, 1)
    )
    assert one.score(X[300:], y[300:]) > 0.9
    np.testing.assert_array_equal(one.weights_, same.weights_)
    assert not np.array_equal(one.weights_, other.weights_)


@pytest.mark.parametrize("n_bits", [1, 7, 64, 127, 2048])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_any_number_of_bits(blobs, loss, n_bits):
    X, y = blobs
    classifier = make(n_bits, loss=loss).fit(X, y)
    assert classifier.weights_.shape == (6, n_bits)
    assert classifier.projection_.shape == (20, n_bits)
    assert classifier.encode(X).shape == (400, -(-n_bits // 8))
    assert np.isfinite(classifier.projection_).all()
    assert not np.isnan(classifier.objective_history_["log_objective"]).any()
    assert n_bits < 64 or classifier.score(X, y) > 0.95


def test_the_model_equals_the_formulas(blobs):
    X, y = blobs
    classifier = make(rescore=False, precision="float32").fit(X, y)
    signs = np.where(X @ classifier.projection_ + classifier.intercept_ >= 0, 1, -1)
    np.testing.assert_array_equal(classifier.encode(X), pack(signs))
    scores = signs @ classifier.weights_.T.astype(int)
    np.testing.assert_array_equal(classifier.decision_function(X), scores)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[scores.argmax(axis=1)])
    labels, distances = classifier.top_classes(X, k=6)
    order = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(labels, classifier.classes_[order])
    np.testing.assert_array_equal(distances, (32 - np.take_along_axis(scores, order, axis=1)) // 2)
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    best = probabilities.max(axis=1, keepdims=True)
    np.testing.assert_array_equal(probabilities == best, scores == scores.max(axis=1)[:, None])


# -------------------------------------------------------------------------------------------------
# Types of features
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float32", "uint8", "int16", "int64", "bool", ">f4", ">f8", "longdouble", ">i4"],
)
def test_any_real_type_agrees_with_float64(blobs, dtype):
    X, y = blobs
    X = np.clip(np.round(X * 4) + 100, 0, 255)
    if dtype == "bool":
        X = X > 100
    expected, found = make().fit(X.astype(np.float64), y), make().fit(X.astype(dtype), y)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    np.testing.assert_allclose(found.projection_, expected.projection_, atol=2e-4)
    agree = found.predict(X.astype(dtype)) == expected.predict(X.astype(np.float64))
    assert agree.mean() > 0.99


@pytest.mark.parametrize(
    ("container", "dtype"), [(csr_matrix, np.float32), (csr_array, np.float64), (csr_array, int)]
)
def test_sparse_agrees_with_dense(blobs, container, dtype):
    X, y = blobs
    X = np.where(np.abs(X) > 2, X, 0.0).astype(dtype)
    dense, sparse = make().fit(X, y), make().fit(container(X), y)
    np.testing.assert_array_equal(sparse.weights_, dense.weights_)
    np.testing.assert_allclose(sparse.projection_, dense.projection_, rtol=1e-6)
    np.testing.assert_array_equal(sparse.predict(container(X)), dense.predict(X))


def test_pandas_and_polars_frames(blobs):
    X, y = blobs
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    names = [f"f{j}" for j in range(20)]
    expected = make().fit(X, y)
    for frame in (pandas.DataFrame(X, columns=names), polars.DataFrame(X, schema=names)):
        classifier = make().fit(frame, y)
        np.testing.assert_array_equal(classifier.feature_names_in_, names)
        np.testing.assert_array_equal(classifier.predict(frame), expected.predict(X))
        # A deployed model selects columns by name.
        model = classifier.packed()
        np.testing.assert_array_equal(model.predict(frame[names[::-1]]), expected.predict(X))
        with pytest.raises(ValueError, match="X must have a column 'f3'"):
            model.predict(frame[[name for name in names if name != "f3"]])
    series = pandas.Series(np.array(list("abcdef"))[y])
    assert make().fit(frame, series).classes_.tolist() == list("abcdef")


def peak_of(call):
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("weighted", [False, True])
def test_float32_input_is_never_copied_as_a_whole(weighted):
    X = np.random.default_rng(0).standard_normal((40_000, 500)).astype(np.float32)
    y = np.arange(40_000) % 7
    weights = 1.0 + y if weighted else None
    peak = peak_of(lambda: make(16, refine=False).fit(X, y, sample_weight=weights).predict(X))
    assert peak < X.nbytes


def test_sparse_input_is_never_densified_as_a_whole():
    rng = np.random.default_rng(0)
    n, d = 120_000, 300
    places = np.repeat(np.arange(n), 3), rng.integers(0, d, 3 * n)
    X = csr_array((rng.random(3 * n).astype(np.float32), places), shape=(n, d))
    y = rng.integers(0, 4, n)
    assert peak_of(lambda: make(16, refine=False).fit(X, y).predict(X)) < 4 * n * d / 2


@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_prediction_never_allocates_all_scores():
    n_classes = 5000
    X = np.random.default_rng(0).standard_normal((n_classes, 16)).astype(np.float32)
    X, y = np.repeat(X, 2, axis=0), np.repeat(np.arange(n_classes), 2)
    classifier = make(64, refine=False).fit(X, y)
    for predict in (classifier.predict, lambda X: classifier.top_classes(X, k=5)):
        assert peak_of(lambda: predict(X)) < len(X) * n_classes  # one byte per score  # noqa: B023


# -------------------------------------------------------------------------------------------------
# Weights of rows and classes
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_a_weight_equals_that_many_copies(blobs, loss, class_weight):
    X, y = blobs
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    # Refinement samples rows by their row numbers.
    given = {"loss": loss, "refine": False, "class_weight": class_weight}
    weighted = make(**given).fit(X, y, sample_weight=weights)
    repeated = make(**given).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_array_equal(weighted.weights_, repeated.weights_)
    np.testing.assert_allclose(weighted.projection_, repeated.projection_, atol=1e-5)


def test_balanced_class_weights_equalise_classes(blobs):
    X, y = blobs
    rare = np.concatenate([np.flatnonzero(y != 0), np.flatnonzero(y == 0)[:5]])
    balanced = make(class_weight="balanced").fit(X[rare], y[rare])
    weights = len(rare) / (6 * np.bincount(y[rare])[y[rare]])
    by_hand = make().fit(X[rare], y[rare], sample_weight=weights)
    np.testing.assert_array_equal(balanced.weights_, by_hand.weights_)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaling_all_weights_has_no_effect(blobs, unit, dtype):
    X, y = blobs
    X = X.astype(dtype)
    classifier = make(64).fit(X, y, sample_weight=np.full(len(y), unit))
    assert np.mean(classifier.predict(X) == make(64).fit(X, y).predict(X)) > 0.99


def test_a_class_without_weight_is_known_but_not_predicted(blobs):
    X, y = blobs
    classifier = make(64).fit(X, y, sample_weight=(y != 3).astype(float))
    assert 3 in classifier.classes_
    assert 3 not in classifier.predict(X)


# -------------------------------------------------------------------------------------------------
# Codes and regression
# -------------------------------------------------------------------------------------------------


def test_codes_given_as_an_array_follow_their_rows(blobs):
    X, y = blobs
    codewords = unpack(np.random.default_rng(0).integers(0, 256, (6, 4), np.uint8), 32)
    classifier = make(initial_codes=codewords[y]).fit(X, y)
    centred = 6 * np.bincount(y)[:, None] * codewords - codewords[y].sum(axis=0)
    np.testing.assert_array_equal(classifier.weights_, np.where(centred >= 0, 1, -1))
    codes = unpack(np.random.default_rng(0).integers(0, 256, (400, 4), np.uint8), 32)
    keep = np.arange(400) % 3 > 0
    dropped = make(initial_codes=codes).fit(X, y, sample_weight=keep)
    apart = make(initial_codes=codes[keep]).fit(X[keep], y[keep])
    np.testing.assert_array_equal(dropped.weights_, apart.weights_)


def regression(X, codes, alpha):
    """Ridge regression on standardised rows, as a projection of untransformed rows."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return Ridge(alpha=alpha * len(X)).fit(Z, codes).coef_.T / X.std(axis=0)[:, None]


@pytest.mark.parametrize("n_bits", [12, 3])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_the_hash_function_regresses_the_codes_of_the_samples_themselves(n_bits):
    """After the B-step a sample's code may differ from that of its class, and X'B must use it.

    Unless the class had the same weights as another and got new ones, which its samples follow.
    """
    X = np.random.default_rng(0).standard_normal((60, 6))
    y = np.arange(60) % 5
    given = {"loss": "exponential", "scale": 0.5, "initial_codes": "projection"}
    classifier = make(n_bits, alpha=0.1, **given).fit(X, y)
    sums = classifier.statistics_.code_sums
    found = alternate(
        Groups.of_samples(*classifier.statistics_.kept_rows()),
        hinge_weights(sums),
        tabulate("exponential", n_bits, 0.5),
        SOLVERS["flip"],
        10,
        lambda line: None,
    )
    codes = unpack(found.groups.codes[found.groups.inverse], n_bits)
    of_classes = unpack(found.groups.most_frequent_codes(), n_bits)
    assert np.any(codes != of_classes[y]) == (n_bits == 12)
    moved = np.any(classifier.weights_ != found.weights, axis=1)
    assert moved.any() == (n_bits == 3)
    codes[moved[y]] = classifier.weights_[y][moved[y]]
    np.testing.assert_allclose(classifier.projection_, regression(X, codes, 0.1), atol=1e-5)


def test_classes_with_equal_weights_are_made_distinct_before_the_regression():
    X, y = np.random.default_rng(0).standard_normal((200, 3)), np.arange(200) % 8
    with pytest.warns(CodeWarning, match="had the same weights as another class"):
        classifier = make(4, alpha=0.1, initial_codes="means").fit(X, y)
    assert len(np.unique(classifier.weights_, axis=0)) == 8
    expected = regression(X, classifier.weights_[y], 0.1)
    np.testing.assert_allclose(classifier.projection_, expected, atol=1e-5)


def test_the_history_of_the_hinge_loss_is_correct(blobs):
    X, y = blobs
    classifier = make(16, initial_codes="projection").fit(X, y)
    codes = unpack(classifier.statistics_.starting.row_codes(X, np.arange(400)), 16)
    lowest = 2 * 16 * len(y) * 5
    after_w = objective(codes, classifier.weights_, y, "hinge") + lowest
    after_b = objective(classifier.weights_[y], classifier.weights_, y, "hinge") + lowest
    history = classifier.objective_history_
    assert history["step"].tolist() == ["W", "B"]
    np.testing.assert_allclose(history["log_objective"], np.log([after_w, after_b]))


# -------------------------------------------------------------------------------------------------
# Verbosity and threads
# -------------------------------------------------------------------------------------------------


def test_verbose_prints_each_round(blobs, capsys):
    X, y = blobs
    make(loss="exponential", verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[BinaryCodeClassifier] round 1: log objective")
    assert "hash function" in lines[-1]
    make().fit(X, y)
    assert capsys.readouterr().out == ""


def blas_threads():
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {pool["filepath"]: pool["num_threads"] for pool in pools}


def test_training_in_several_threads_does_not_leave_blas_limited(blobs):
    X, y = blobs
    before = blas_threads()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: make(n_jobs=1).fit(X, y), range(8)))
    assert blas_threads() == before
