"""Wide rows: learned without a dense copy, in memory, in batches and by partial_fit."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from sklearn.datasets import dump_svmlight_file

import bitclass
from bitclass import BinaryCodeClassifier
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.text import NgramHasher
from bitclass.training import save_statistics, wide
from cli.running import bitclass as run

from .altered_files import with_data, without_tensor
from .format_reader import Reader

N_FEATURES = 20_000


def problem(n=1500, n_classes=10, n_words=12, seed=0, n_features=N_FEATURES):
    """Rows of words: each class prefers some of them, and most are noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    own = np.random.default_rng(99).integers(0, n_features // 2, (n_classes, 15))
    topical = own[y[:, None], rng.integers(0, 15, (n, n_words // 2))]
    noise = rng.integers(0, n_features // 2, (n, n_words - n_words // 2))
    columns = np.hstack([topical, noise]).ravel().astype(np.int32)
    rows = np.repeat(np.arange(n, dtype=np.int32), n_words)
    X = scipy.sparse.csr_array(
        (np.ones(n * n_words, dtype=np.float32), (rows, columns)), shape=(n, n_features)
    )
    X.sum_duplicates()
    return X, np.array([f"class {label}" for label in y])


def make(n_bits=64, **parameters):
    return BinaryCodeClassifier(n_bits, random_state=0, **parameters)


def in_batches(X, y, size):
    return lambda start: ((X[i : i + size], y[i : i + size]) for i in range(start, len(y), size))


@pytest.fixture(scope="module")
def fitted():
    return make().fit(*problem())


@pytest.fixture
def by_means(monkeypatch):
    """Make few classes be learned like many."""
    monkeypatch.setattr(wide, "_MAX_LEARNED_CLASSES", 5)
    monkeypatch.setattr(wide, "_CLASSES_PER_STEP", 8)


@pytest.fixture(params=["weights", "means"])
def either_way(request):
    """Learn with the methods for few and for many classes."""
    if request.param == "means":
        request.getfixturevalue("by_means")
    return request.param


def test_wide_rows_are_learned_and_unseen_columns_use_no_memory(fitted):
    X, y = problem(seed=1)
    assert fitted.score(X, y) > 0.9
    hash_function = fitted.packed().hash_function
    assert hash_function.n_features == N_FEATURES
    occur = np.diff(problem()[0].tocsc().indptr)
    assert_array_equal(hash_function.columns, np.flatnonzero(occur >= 2))
    assert fitted.refinement_["columns"] == len(hash_function.projection)
    # Dense rows give the same predictions as sparse ones.
    rows = X[:50].toarray()
    assert_array_equal(fitted.predict(rows), fitted.predict(X[:50]))
    assert_array_equal(fitted.encode(rows.astype(np.float64)), fitted.encode(X[:50]))
    # Probabilities are calibrated on held-out rows.
    found = fitted.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert abs(found.max(axis=1).mean() - fitted.score(X, y)) < 0.1
    assert fitted.packed().temperature != 1.0


def test_memory_stays_far_below_one_dense_copy(capsys):
    X, y = problem(n=2000, n_features=1 << 20)
    make(32, verbose=1).fit(X, y)  # caches and imports
    assert "wide rows: 1048576 features" in capsys.readouterr().out
    tracemalloc.start()
    make(32).fit(X, y).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A few numbers per column are kept; a dense copy would have 8 GB.
    assert peak < 150e6


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("projection", [None, "float32", "float16", "int8"])
def test_a_loaded_model_predicts_the_same_and_the_file_follows_the_format(
    tmp_path, fitted, precision, projection
):
    X, y = problem()
    classifier = fitted if precision == "int8" else make(precision=precision).fit(X, y)
    path = tmp_path / "model.safetensors"
    classifier.save(path, projection=projection)
    model = bitclass.load(path)
    agree = np.mean(model.predict(X) == classifier.predict(X))
    exact = projection in (None, "float32") or (projection, precision) == ("int8", "int8")
    assert agree == 1.0 if exact else agree > 0.99
    assert model.n_features == N_FEATURES
    if projection is None and precision == "int8":
        assert path.stat().st_size < len(model.hash_function.columns) * (64 + 8) + 20_000
    assert_array_equal(BinaryCodeClassifier.load(path).predict(X), model.predict(X))
    bits = np.unpackbits(model.encode(X[:60]), axis=1, bitorder="little")
    values = Reader(path).values(X[:60].toarray().astype(np.float64))
    clear = np.abs(values) > 1e-4
    assert clear.mean() > 0.99
    assert_array_equal(bits[clear], (values >= 0)[clear])


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda content: without_tensor(content, "n_columns"), "n_columns"),
        (lambda content: with_data(content, "n_columns", "<i8", [1]), "n_columns"),
        (lambda content: with_data(content, "n_columns", "<i8", [1 << 40]), "n_columns"),
        (lambda content: with_data(content, "columns", "<i4", np.arange(9)[::-1]), "columns"),
        (lambda content: with_data(content, "columns", "<i4", 30_000 + np.arange(9)), "columns"),
    ],
)
def test_damaged_columns_in_a_file_are_refused_by_name(tmp_path, damage, named):
    hash_function = HashFunction(
        np.ones((9, 8), dtype=np.float32),
        np.zeros(8),
        columns=np.arange(9, dtype=np.int32),
        n_features=N_FEATURES,
    )
    model = PackedModel(np.arange(2), np.array([[0], [255]], dtype=np.uint8), hash_function)
    path = tmp_path / "model.safetensors"
    bitclass.storage.save(path, model)
    bitclass.load(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(bitclass.storage.ModelFileError, match=named):
        bitclass.load(path)


def test_svmlight_files_are_learned_by_the_command_line(tmp_path):
    X, y = problem(n=600)
    numbers = np.unique(y, return_inverse=True)[1]
    dump_svmlight_file(X, numbers, str(tmp_path / "rows.svm"), zero_based=True)
    done = run("fit", tmp_path / "rows.svm", "--model", tmp_path / "model", "--bits", 64)
    assert done.returncode == 0, done.stderr
    found = bitclass.load(tmp_path / "model")
    assert found.hash_function.columns is not None
    test = X[:, : found.n_features]
    assert np.mean(found.predict(test).astype(int) == numbers) > 0.9


def test_batches_give_the_model_of_fit(fitted):
    found = make().fit_batches(in_batches(*problem(), 400))
    assert_array_equal(found.projection_, fitted.projection_)
    assert_array_equal(found.weights_, fitted.weights_)
    assert found.packed().temperature == fitted.packed().temperature


def test_rows_larger_than_memory_are_sampled_in_each_epoch(either_way, monkeypatch):
    X, y = problem(n=3000)
    sizes = []
    drawn = wide._Pool._sample

    def counted(self, is_held_out):
        sample = drawn(self, is_held_out)
        sizes.append(sample.X.shape[0])
        return sample

    monkeypatch.setattr(wide._Pool, "_sample", counted)
    settings_of = bitclass.classifier.settings_of
    monkeypatch.setattr(
        bitclass.classifier,
        "settings_of",
        lambda parameters: replace(settings_of(parameters), max_bytes=2 * 12 * X.nnz),
    )
    classifier = make().fit_batches(in_batches(X, y, 500))
    assert len(sizes) > 3
    assert max(sizes) < 0.75 * len(y)
    assert classifier.score(*problem(seed=1)) > (0.9 if either_way == "weights" else 0.8)


def test_weights_of_many_classes_are_their_mean_scores(by_means):
    X, y = problem()
    classifier = make().fit(X, y)
    assert classifier.score(*problem(seed=1)) > 0.85
    state = classifier.statistics_
    scores = state.scores(X)
    for label, weights in zip(classifier.classes_, classifier.weights_, strict=True):
        mean = scores[y == label].mean(axis=0)
        clear = np.abs(mean) > 1e-4
        assert_array_equal(weights[clear], np.where(mean >= 0, 1, -1)[clear])


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_by_means_is_that_of_the_loss(weighted, monkeypatch):
    """By finite differences of the loss with tanh in place of every sign."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.2, 3.0, 10) if weighted else np.ones(10)
    lengths, sharp = np.array([3, 1, 2, 4]), (np.float32(0.3), np.float32(0.4))
    F = rng.standard_normal((10, 5)).astype(np.float32)
    own = np.repeat(np.arange(4), lengths)

    def loss(F):
        total, n = 0.0, 0
        means = np.array([np.average(F[own == c], 0, weight[own == c]) for c in range(4)])
        for i in range(10):
            mine = own == own[i]
            if mine.sum() == 1:
                continue
            n += 1
            against = means.copy()
            mine[i] = False
            against[own[i]] = np.average(F[mine], 0, weight[mine])
            for factor in sharp:
                logits = float(factor) * (np.tanh(against) @ np.tanh(F[i]))
                total -= 0.5 * weight[i] * (logits[own[i]] - np.log(np.exp(logits).sum()))
        return total / n

    monkeypatch.setattr(wide, "signs", np.tanh)
    value, gradient = wide._gradient_by_means(F, lengths, sharp, weight)
    assert value == pytest.approx(loss(F.astype(np.float64)), rel=1e-4)
    for at in np.ndindex(F.shape):
        step = np.zeros(F.shape)
        step[at] = 1e-5
        slope = (loss(F + step) - loss(F - step)) / 2e-5
        assert gradient[at] == pytest.approx(slope, abs=1e-4)


def test_duplicate_entries_are_summed():
    X, y = problem(n=600)
    halves = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr
    twice = scipy.sparse.csr_array(halves, shape=X.shape)
    found = [make().fit(rows, y).partial_fit(rows[:50], y[:50]).solve() for rows in (X, twice)]
    assert_array_equal(found[1].projection_, found[0].projection_)
    assert twice.nnz == 2 * X.nnz, "a copy was changed"


def test_later_batches_update_the_model_and_add_classes_and_columns():
    X, y = problem(n=1500)
    first = y != "class 9"
    classifier = make().partial_fit(X[:700][first[:700]], y[:700][first[:700]])
    before = classifier.packed()
    assert "class 9" not in before.classes
    test, labels = problem(seed=1)
    few, is_new = np.flatnonzero(~first)[:30], labels == "class 9"
    classifier.partial_fit(X[few], y[few])
    assert np.mean(classifier.predict(test[is_new]) == "class 9") > 0.9
    classifier.partial_fit(X[700:], y[700:])
    assert classifier.score(test, labels) > np.mean(before.predict(test) == labels)
    assert len(classifier.packed().hash_function.columns) > len(before.hash_function.columns)
    classifier.remove_classes(["class 0"])
    assert "class 0" not in classifier.predict(test)


def long_texts(seed, n=600, n_classes=10, n_words=200):
    """Texts of frequent words and a few words specific to each class."""
    words = np.array([f"{i * 7919 % 99991:05d}"[::-1] for i in range(3000)])
    rng, shares = np.random.default_rng(seed), 1.0 / np.arange(1, 3001)
    y = rng.integers(0, n_classes, n)
    chosen = rng.choice(3000, (n, n_words), p=shares / shares.sum())
    own = np.random.default_rng(99).integers(0, 3000, (n_classes, 25))
    chosen[:, :20] = own[y[:, None], rng.integers(0, 25, (n, 20))]
    return [" ".join(words[row]) for row in chosen], y


def test_long_texts_are_learned():
    """Steps in hundreds of columns that all rows share once made all codes the same."""
    (texts, y), (test, y_test) = long_texts(0), long_texts(1)
    hasher = NgramHasher().fit(texts)
    classifier = make().fit(hasher.transform(texts), y)
    assert classifier.score(hasher.transform(test), y_test) > 0.9


@pytest.mark.parametrize("n_batches", [2, 8, 40])
def test_batches_sorted_by_class_are_learned_nearly_as_well_as_all_rows(n_batches):
    X, y = problem(n=2400, n_classes=40, n_features=6000)
    order = np.argsort(y, kind="stable")
    classifier = make()
    for rows in np.array_split(order, n_batches):
        classifier.partial_fit(X[rows], y[rows])
    test = problem(n_classes=40, n_features=6000, seed=1)
    assert classifier.score(*test) > make().fit(X, y).score(*test) - 0.04


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, np.asarray], ids=["sparse", "dense"])
def test_rows_to_replay_are_a_bounded_sample_of_all_rows(form):
    X, y = problem(n=900, n_features=9000)
    all_rows = X.toarray()
    X = form(X if form is scipy.sparse.csr_array else all_rows)
    classifier = make().partial_fit(X[:300], y[:300])
    state = classifier.statistics_
    state._max_bytes = 100 * (X[:1].nbytes if form is np.asarray else 12 * 8 + 32)
    for start in range(300, 900, 100):
        classifier.partial_fit(X[start : start + 100], y[start : start + 100])
    kept = state._reservoir
    assert 90 <= len(kept.y) <= 110
    classifier.remove_classes(["class 3"])
    kept = state._reservoir
    rows = kept.X if form is np.asarray else kept.X.toarray()
    found = [np.flatnonzero((all_rows == row).all(axis=1))[0] for row in rows]
    assert_array_equal(state.classes[kept.y], y[found])
    assert np.min(found) < 300 < 600 < np.max(found)
    assert "class 3" not in y[found]


def test_batches_are_learned_without_rows_to_replay():
    X, y = problem(n=900)
    is_new = y == "class 9"
    classifier = make().partial_fit(X[:450][~is_new[:450]], y[:450][~is_new[:450]])
    state = classifier.statistics_
    state._max_bytes = 0
    for rows in (slice(450, 600), slice(600, 900)):
        classifier.partial_fit(X[rows], y[rows])
        assert len(state._reservoir.y) == 0
    assert classifier.score(*problem(seed=1)) > 0.9


def test_sparse_and_dense_batches_can_follow_each_other():
    X, y = problem(n=900, n_features=9000)
    classifier = make().partial_fit(X[:300], y[:300])
    classifier.partial_fit(X[300:600].toarray(), y[300:600]).partial_fit(X[600:], y[600:])
    assert classifier.score(*problem(seed=1, n_features=9000)) > 0.9


def test_later_batches_add_to_the_means_of_many_classes(by_means):
    X, y = problem(n=1500)
    classifier = make().partial_fit(X[:60], y[:60])
    test, labels = problem(seed=1)
    before = classifier.score(test, labels)
    projection = classifier.statistics_.projection.copy()
    columns = classifier.statistics_.columns.kept.copy()
    classifier.partial_fit(X[60:], y[60:])
    state = classifier.statistics_
    assert_array_equal(state.projection[np.searchsorted(state.columns.kept, columns)], projection)
    assert classifier.score(test, labels) > before


def test_a_batch_that_fails_changes_nothing(monkeypatch):
    X, y = problem()
    classifier = make().partial_fit(X[:700], y[:700])
    before, model = classifier.statistics_.n_rows, classifier.packed()
    monkeypatch.setattr(wide.WideState, "learn", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        classifier.partial_fit(X[700:], y[700:])
    assert classifier.statistics_.n_rows == before
    assert_array_equal(classifier.predict(X), model.predict(X))
    X = X[700:].copy()
    X.data[5] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        classifier.partial_fit(X, y[700:])
    assert classifier.statistics_.n_rows == before


@pytest.mark.parametrize(("kind", "n"), [("weights", 600), ("means", 600), ("dense", 150)])
def test_mislabelled_rows_of_negligible_weight_have_little_effect(kind, n, request):
    if kind == "means":
        request.getfixturevalue("by_means")
    form = scipy.sparse.csr_array.toarray if kind == "dense" else scipy.sparse.csr_array
    n_features = 9000 if kind == "dense" else N_FEATURES
    X, y = problem(n=n, n_features=n_features)
    X_wrong, y_wrong = problem(n=3000, seed=2, n_features=n_features)
    y_wrong = np.unique(y)[np.random.default_rng(0).integers(0, 10, 3000)]
    # Realistic ones: they also have columns that no other row has, and larger values.
    X_wrong.data *= 3.0
    X_all, y_all = scipy.sparse.vstack([X, X_wrong], "csr"), np.concatenate([y, y_wrong])
    order = np.random.default_rng(1).permutation(len(y_all))
    weight = np.where(np.arange(len(y_all)) < n, 1.0, 1e-6)[order]
    test, labels = problem(seed=1, n_features=n_features)
    alone = make().fit(form(X), y)
    found = make().fit(form(X_all[order]), y_all[order], weight)
    assert found.score(form(test), labels) > alone.score(form(test), labels) - 0.03
    if kind != "dense":
        assert np.isin(found.packed().hash_function.columns, X.indices).all()
    # Later batches of negligible weight have hardly any effect.
    before = found.predict(form(test))
    found.partial_fit(form(X_wrong), y_wrong, sample_weight=np.full(3000, 1e-6))
    assert np.mean(found.predict(form(test)) == before) > 0.97


def test_a_row_of_weight_20_is_similar_to_a_row_repeated_20_times(either_way):
    X, y = problem(n=1000)
    # Every second row has a wrong label, the same for each class; weights show which are correct.
    classes, own = np.unique(y, return_inverse=True)
    is_right = np.arange(1000) % 2 == 0
    y = np.where(is_right, y, classes[(own + 1) % 10])
    weight = np.where(is_right, 20, 1)
    test, labels = problem(seed=1)
    once = make().fit(X, y, weight)
    repeated = make().fit(X[np.repeat(np.arange(1000), weight)], np.repeat(y, weight))
    assert once.score(test, labels) > repeated.score(test, labels) - 0.05
    assert np.mean(make().fit(X, y).predict(test) == labels) < once.score(test, labels) - 0.1


def test_text_and_numbers_are_not_mixed_in_labels_of_wide_rows():
    X, names = problem(n=50)
    numbers = np.arange(50) % 5
    found = make().fit(X, names)
    with pytest.raises(ValueError, match="text and numbers cannot be mixed"):
        found.partial_fit(X, numbers)
    np.testing.assert_array_equal(found.classes_, np.unique(names))
    with pytest.raises(ValueError, match="text and numbers cannot be mixed"):
        make().fit_batches(lambda start: iter([(X, names), (X, numbers)]))


def test_operations_unsupported_for_wide_rows_raise_clear_errors(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    X, y = problem(n=50)
    for again in (BinaryCodeClassifier.load(path), pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(ValueError, match="text or other wide rows .* keep the estimator in"):
            again.partial_fit(X, y)
    with pytest.raises(TypeError, match="wide rows are learned without sums"):
        save_statistics(tmp_path / "sums", fitted.statistics_)
    with pytest.raises(ValueError, match="groups must be None for rows with 20,000 features"):
        make().fit(X, y, groups=np.arange(50) % 5)
    with pytest.raises(ValueError, match="n_bits=32"):
        make().partial_fit(X, y).set_params(n_bits=32).partial_fit(X, y)
    for parameters, named in (
        ({"loss": "exponential"}, "loss='exponential'"),
        ({"initial_codes": "random"}, "initial_codes"),
        ({"kernel": "rbf"}, "kernel='rbf'"),
    ):
        with pytest.raises(ValueError, match=named):
            make(**parameters).fit(X, y)


def test_a_small_later_batch_is_learned_from(fitted):
    X, y = problem(n=100, seed=3)
    classifier = make().fit(*problem())
    classifier.partial_fit(X, y)
    state = classifier.statistics_
    places = np.searchsorted(state.columns.kept, fitted.packed().hash_function.columns)
    before = fitted.statistics_.projection
    moved = np.abs(state.projection[places] - before).max()
    assert 0 < moved < np.abs(before).max()


def test_the_scale_of_a_column_does_not_matter():
    X, y = problem()
    test, _ = problem(seed=1)
    factors = 10.0 ** np.random.default_rng(0).uniform(-4, 4, N_FEATURES)
    scaled, scaled_test = X.multiply(factors).tocsr(), test.multiply(factors).tocsr()
    found = make().fit(scaled, y).predict(scaled_test)
    assert np.mean(found == make().fit(X, y).predict(test)) > 0.97


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_wide_dense_rows_are_standardised(form):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 500)
    offsets, sizes = rng.uniform(-100, 100, 9000), 10.0 ** rng.uniform(-2, 2, 9000)
    centres = 0.2 * rng.standard_normal((5, 9000))
    X = offsets + sizes * (centres[y] + rng.standard_normal((500, 9000)))
    X = X.astype(np.float32)
    classifier = make(16).fit(form(X[:350]), y[:350])
    assert classifier.refinement_["columns"] == 9000
    assert classifier.packed().hash_function.columns is None  # dense rows are encoded as such
    assert classifier.score(form(X[350:]), y[350:]) > 0.9


def test_rows_without_any_entry_and_columns_without_any_row():
    X = scipy.sparse.csr_array((40, 5000), dtype=np.float32)
    assert len(make(16).fit(X, np.arange(40) % 4).predict(X)) == 40
