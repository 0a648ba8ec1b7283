"""The estimator: shapes, labels, learning in batches, determinism, memory."""

import copy
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_info

from bitclass import BinaryCodeClassifier, CodeWarning
from bitclass.codes import pack, unpack
from bitclass.losses import LOSSES, tabulate
from bitclass.training import SOLVERS, alternate, hinge_weights
from brute_force import EVERY_LOSS, objective


def make(n_bits=32, **parameters):
    return BinaryCodeClassifier(n_bits, random_state=0, **parameters)


@pytest.mark.parametrize("loss", [*EVERY_LOSS, np.tanh])
@pytest.mark.parametrize("initial_codes", ["means", "random", "projection", "cca_itq"])
def test_every_loss_learns_from_every_start(blobs, loss, initial_codes):
    X, y = blobs
    classifier = make(64, loss=loss, scale=0.1, initial_codes=initial_codes).fit(X[:300], y[:300])
    assert classifier.score(X[300:], y[300:]) > 0.9


@pytest.mark.parametrize("n_bits", [1, 7, 64, 127, 128, 1000, 2048])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_any_number_of_bits(blobs, loss, n_bits):
    X, y = blobs
    classifier = make(n_bits, loss=loss).fit(X, y)
    assert classifier.weights_.shape == (6, n_bits)
    assert classifier.weights_.dtype == np.int8
    assert classifier.projection_.shape == (20, n_bits)
    assert classifier.encode(X).shape == (400, -(-n_bits // 8))
    assert np.isfinite(classifier.projection_).all()
    assert not np.isnan(classifier.objective_history_["log_objective"]).any()
    assert n_bits < 64 or classifier.score(X, y) > 0.95


def test_the_model_is_what_the_formulas_say(blobs):
    X, y = blobs
    classifier = make().fit(X, y)
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
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    best = probabilities.max(axis=1, keepdims=True)
    np.testing.assert_array_equal(probabilities == best, scores == scores.max(axis=1)[:, None])


def test_ties_go_to_the_lowest_class_index(blobs):
    X, y = blobs
    classifier = make(8, loss="hinge", initial_codes="random").fit(X, y)
    X = np.random.default_rng(1).standard_normal(X.shape)  # far from every class
    scores = classifier.decision_function(X)
    tied = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1
    assert tied.any()
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[scores.argmax(axis=1)])


def test_probabilities_are_not_absurd(blobs):
    """Confidence lies near accuracy: neither certain of all nor of nothing."""
    X, y = blobs
    noisy = X + 6.0 * np.random.default_rng(1).standard_normal(X.shape)
    classifier = make(64).fit(noisy[:200], y[:200])
    confidence = classifier.predict_proba(noisy[200:]).max(axis=1).mean()
    assert abs(confidence - classifier.score(noisy[200:], y[200:])) < 0.25


def test_two_classes_have_the_shapes_of_scikit_learn(blobs):
    X, y = blobs
    y = np.where(y > 2, "yes", "no")
    classifier = make().fit(X, y)
    assert classifier.weights_.shape == (2, 32)
    decision = classifier.decision_function(X)
    assert decision.shape == (400,)
    np.testing.assert_array_equal(classifier.predict(X), np.where(decision > 0, "yes", "no"))
    assert classifier.predict_proba(X).shape == (400, 2)


@pytest.mark.parametrize(
    "names",
    [list("abcdef"), [10, 20, 30, 40, 50, 60], [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]],
    ids=["text", "integers", "floats"],
)
def test_labels_of_any_kind(blobs, names):
    X, y = blobs
    names = np.array(names)
    classifier = make(64).fit(X, names[y])
    np.testing.assert_array_equal(classifier.classes_, names)
    assert classifier.predict(X).dtype == names.dtype
    assert classifier.score(X, names[y]) > 0.95


class TestKindsOfFeatures:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8, np.int16, np.int64, bool])
    def test_dtypes_agree_with_float64(self, blobs, dtype):
        X, y = blobs
        X = np.clip(np.round(X * 4) + 100, 0, 255)
        if dtype is bool:
            X = X > 100
        expected = make().fit(X.astype(np.float64), y)
        found = make().fit(X.astype(dtype), y)
        np.testing.assert_array_equal(found.weights_, expected.weights_)
        np.testing.assert_allclose(found.projection_, expected.projection_, atol=2e-4)
        agree = found.predict(X.astype(dtype)) == expected.predict(X.astype(np.float64))
        assert agree.mean() > 0.99

    @pytest.mark.parametrize("container", [csr_matrix, csr_array])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_sparse_agrees_with_dense(self, blobs, container, dtype):
        X, y = blobs
        X = np.where(np.abs(X) > 2, X, 0.0).astype(dtype)
        dense, sparse = make().fit(X, y), make().fit(container(X), y)
        np.testing.assert_array_equal(sparse.weights_, dense.weights_)
        np.testing.assert_allclose(sparse.projection_, dense.projection_, rtol=1e-6)
        np.testing.assert_array_equal(sparse.predict(container(X)), dense.predict(X))

    def test_sparse_input_is_never_densified_as_a_whole(self):
        rng = np.random.default_rng(0)
        n, d = 60_000, 300
        rows = np.repeat(np.arange(n), 3)
        X = csr_array(
            (rng.random(3 * n).astype(np.float32), (rows, rng.integers(0, d, 3 * n))), shape=(n, d)
        )
        y = rng.integers(0, 4, n)
        tracemalloc.start()
        make(16, loss="hinge", refine=False).fit(X, y).predict(X)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * n * d / 2

    def test_float32_input_is_never_copied_as_a_whole(self):
        X = np.random.default_rng(0).standard_normal((40_000, 500)).astype(np.float32)
        y = np.arange(40_000) % 7
        tracemalloc.start()
        make(16, loss="hinge", refine=False).fit(X, y).predict(X)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Half of a float32 copy would be 40 MB; blocks, sums and the sample stay below.
        assert peak < X.nbytes

    def test_pandas_and_polars_frames(self, blobs):
        X, y = blobs
        pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
        names = [f"f{j}" for j in range(20)]
        expected = make().fit(X, y)
        for frame in (pandas.DataFrame(X, columns=names), polars.DataFrame(X, schema=names)):
            classifier = make().fit(frame, y)
            np.testing.assert_array_equal(classifier.feature_names_in_, names)
            np.testing.assert_array_equal(classifier.predict(frame), expected.predict(X))
        series = pandas.Series(np.array(list("abcdef"))[y])
        assert make().fit(pandas.DataFrame(X, columns=names), series).classes_.tolist() == list(
            "abcdef"
        )

    def test_features_of_very_different_scales_do_not_matter(self, blobs):
        X, y = blobs
        scaled = X * np.exp(np.linspace(-8, 8, 20)) + 3.0
        np.testing.assert_array_equal(
            make().fit(scaled, y).predict(scaled), make().fit(X, y).predict(X)
        )


class TestWeights:
    @pytest.mark.parametrize("loss", ["hinge", "exponential"])
    def test_a_weight_is_a_number_of_copies(self, blobs, loss):
        X, y = blobs
        weights = np.random.default_rng(0).integers(0, 4, len(y))
        plain = {"loss": loss, "refine": False}  # refinement draws rows by their numbers
        weighted = make(**plain).fit(X, y, sample_weight=weights)
        repeated = make(**plain).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
        np.testing.assert_array_equal(weighted.weights_, repeated.weights_)
        np.testing.assert_allclose(weighted.projection_, repeated.projection_, atol=1e-5)

    def test_balanced_classes_count_alike(self, blobs):
        X, y = blobs
        rare = np.concatenate([np.flatnonzero(y != 0), np.flatnonzero(y == 0)[:5]])
        balanced = make(loss="hinge", class_weight="balanced").fit(X[rare], y[rare])
        counts = np.bincount(y[rare])
        by_hand = make(loss="hinge").fit(
            X[rare], y[rare], sample_weight=len(rare) / (6 * counts[y[rare]])
        )
        np.testing.assert_array_equal(balanced.weights_, by_hand.weights_)

    def test_balancing_takes_sample_weights_into_account(self, blobs):
        X, y = blobs
        copies = np.random.default_rng(0).integers(1, 4, len(y))
        balanced = make(loss="hinge", class_weight="balanced", refine=False)
        weighted = balanced.fit(X, y, sample_weight=copies).weights_
        repeated = balanced.fit(np.repeat(X, copies, axis=0), np.repeat(y, copies)).weights_
        np.testing.assert_array_equal(weighted, repeated)

    @pytest.mark.parametrize("unit", [1e-90, 1e60])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_unit_of_the_weights_does_not_matter(self, blobs, unit, dtype):
        X, y = blobs
        X = X.astype(dtype)
        classifier = make(64).fit(X, y, sample_weight=np.full(len(y), unit))
        assert np.mean(classifier.predict(X) == make(64).fit(X, y).predict(X)) > 0.99

    def test_positive_weights_do_not_copy_the_features(self):
        X = np.random.default_rng(0).standard_normal((40_000, 500)).astype(np.float32)
        y = np.arange(40_000) % 7
        tracemalloc.start()
        make(16, loss="hinge", refine=False).fit(X, y, sample_weight=1.0 + y)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < X.nbytes

    def test_a_class_without_weight_is_known_but_not_predicted(self, blobs):
        X, y = blobs
        classifier = make(64).fit(X, y, sample_weight=(y != 3).astype(float))
        assert 3 in classifier.classes_
        assert 3 not in classifier.predict(X)


class TestStartingCodes:
    def test_given_codes_are_used(self, blobs):
        X, y = blobs
        codewords = unpack(np.random.default_rng(0).integers(0, 256, (6, 4), np.uint8), 32)
        classifier = make(loss="hinge", initial_codes=codewords[y]).fit(X, y)
        centred = 6 * np.bincount(y)[:, None] * codewords - codewords[y].sum(axis=0)
        np.testing.assert_array_equal(classifier.weights_, np.where(centred >= 0, 1, -1))

    def test_given_codes_follow_their_rows_when_weights_drop_some(self, blobs):
        X, y = blobs
        codes = unpack(np.random.default_rng(0).integers(0, 256, (400, 4), np.uint8), 32)
        keep = np.arange(400) % 3 > 0
        dropped = make(loss="hinge", initial_codes=codes).fit(X, y, sample_weight=keep)
        apart = make(loss="hinge", initial_codes=codes[keep]).fit(X[keep], y[keep])
        np.testing.assert_array_equal(dropped.weights_, apart.weights_)

    @pytest.mark.parametrize("initial_codes", ["means", "random", "projection", "cca_itq"])
    def test_the_seed_decides(self, blobs, initial_codes):
        X, y = blobs
        one, same, other = (
            BinaryCodeClassifier(64, initial_codes=initial_codes, random_state=s).fit(X, y).weights_
            for s in (0, 0, 1)
        )
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_the_hash_function_regresses_the_codes_of_the_samples_themselves():
    """After the B-step a sample's code may differ from its class's; X'B must know."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    y = np.arange(60) % 5
    classifier = make(12, scale=0.5, alpha=0.1, initial_codes="projection").fit(X, y)
    statistics = classifier._knowledge.statistics
    table = tabulate(LOSSES["exponential"], 12, 0.5)
    start = hinge_weights(statistics.code_sums)
    found = alternate(
        statistics.groups(statistics.starting_sums()),
        start,
        table,
        SOLVERS["flip"],
        10,
        1 << 30,
        lambda line: None,
    )
    codes = unpack(found.groups.codes[found.groups.inverse], 12)
    assert np.any(codes != unpack(found.groups.most_frequent_codes(), 12)[y])
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = Ridge(alpha=0.1 * 60).fit(Z, codes).coef_.T / X.std(axis=0)[:, None]
    np.testing.assert_allclose(classifier.projection_, expected, atol=1e-5)


def test_after_a_repair_codes_and_regression_follow_the_new_weights():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 3)), np.arange(200) % 8
    for loss in ("hinge", "exponential"):
        with pytest.warns(CodeWarning):
            classifier = BinaryCodeClassifier(
                4, loss=loss, alpha=0.1, random_state=0, scale=0.05
            ).fit(X, y)
        weights = classifier.weights_
        if loss == "hinge":
            Z = (X - X.mean(axis=0)) / X.std(axis=0)
            expected = Ridge(alpha=0.1 * 200).fit(Z, weights[y]).coef_.T / X.std(axis=0)[:, None]
            np.testing.assert_allclose(classifier.projection_, expected, atol=1e-5)


def test_the_history_of_the_hinge_loss_is_true(blobs):
    X, y = blobs
    classifier = make(16, loss="hinge", initial_codes="projection").fit(X, y)
    codes = unpack(classifier._knowledge.statistics.starting.codes(X, np.arange(6), y, 0), 16)
    lowest = 2 * 16 * len(y) * 5
    after_w = objective(codes, classifier.weights_, y, "hinge") + lowest
    after_b = objective(classifier.weights_[y], classifier.weights_, y, "hinge") + lowest
    history = classifier.objective_history_
    assert history["step"].tolist() == ["W", "B"]
    np.testing.assert_allclose(history["log_objective"], np.log([after_w, after_b]))


def test_similar_classes_are_told_apart_and_warned_of():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = np.arange(200) % 8
    with pytest.warns(CodeWarning, match="had the weights of another class") as told:
        classifier = BinaryCodeClassifier(3, loss="hinge", random_state=0).fit(X, y)
    assert told[0].filename == __file__, "a warning should show the line that called for it"
    assert len(np.unique(classifier.weights_, axis=0)) == 8


def test_fitted_estimators_can_be_pickled_copied_and_cloned(blobs):
    X, y = blobs
    classifier = make(loss="logistic").fit(X, y)
    expected = classifier.predict(X)
    for other in (pickle.loads(pickle.dumps(classifier)), copy.deepcopy(classifier)):
        np.testing.assert_array_equal(other.predict(X), expected)
        other.partial_fit(X, y)
    assert not hasattr(clone(classifier), "classes_")


def test_verbose_tells_of_each_round(blobs, capsys):
    X, y = blobs
    make(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[BinaryCodeClassifier] round 1: log objective")
    assert "hash function" in lines[-1]
    make().fit(X, y)
    assert capsys.readouterr().out == ""


def test_an_alternation_cut_short_is_warned_of(blobs):
    X, y = blobs
    with pytest.warns(ConvergenceWarning, match="raise max_iter") as told:
        make(max_iter=1, scale=0.05, initial_codes="projection").fit(X, y)
    assert told[0].filename == __file__


def test_predicting_never_holds_all_scores():
    rng = np.random.default_rng(0)
    n_classes = 5000
    X = np.repeat(rng.standard_normal((n_classes, 16)).astype(np.float32), 2, axis=0)
    y = np.repeat(np.arange(n_classes), 2)
    classifier = make(64, loss="hinge", refine=False).fit(X, y)
    tracemalloc.start()
    classifier.predict(X)
    classifier.top_classes(X, k=5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(X) * n_classes  # one byte a score would be this much


def blas_threads():
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {pool["filepath"]: pool["num_threads"] for pool in pools}


def test_trainings_at_once_do_not_leave_the_blas_limited(blobs):
    X, y = blobs
    before = blas_threads()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: make(n_jobs=1).fit(X, y), range(12)))
    assert blas_threads() == before


@pytest.mark.parametrize("dtype", [">f4", ">f8", "longdouble", ">i4", "float16"])
def test_any_real_type_can_be_predicted_as_well_as_learned(blobs, dtype):
    X, y = blobs
    X = np.round(X * 8)
    classifier = make(64).fit(X.astype(dtype), y)
    np.testing.assert_array_equal(classifier.predict(X.astype(dtype)), classifier.predict(X))
