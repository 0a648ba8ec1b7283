"""Rows of no known class: `reject` and `unknown_label`, of every kind of model."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import bitclass
from bitclass import BinaryCodeClassifier, TextClassifier

from .problems import clusters, make

N_KNOWN = 12  # classes; those that follow are open


def dense(n_classes=16, n_each=250, seed=0):
    rng = np.random.default_rng(seed)
    centres = 2.0 * np.random.default_rng(1).standard_normal((n_classes, 16))
    y = np.repeat(np.arange(n_classes), n_each)
    return (centres[y] + rng.standard_normal((len(y), 16))).astype(np.float32), y


def texts(n_each=100, seed=0):
    """Seven words, half of them from the ten words of a class, the others from ninety of all."""
    rng = np.random.default_rng(seed)
    letters = np.random.default_rng(1).integers(97, 123, size=(250, 6), dtype=np.uint8)
    words = [row.tobytes().decode() for row in letters]
    y = np.repeat(np.arange(16), n_each)
    common = rng.integers(160, 250, size=(len(y), 7))
    own = 10 * y[:, None] + rng.integers(10, size=common.shape)
    chosen = np.where(rng.random(common.shape) < 0.5, own, common)
    return np.array([" ".join(words[word] for word in row) for row in chosen], dtype=object), y


def word_counts(seed=0):
    X, y = texts(seed=seed)
    words = np.unique(" ".join(texts()[0]).split())
    columns = [17 * np.searchsorted(words, text.split()) for text in X]
    rows = np.repeat(np.arange(len(X)), 7)
    counts = (np.ones(len(rows), np.float32), (rows, np.concatenate(columns)))
    return sp.csr_matrix(counts, shape=(len(X), 5000)), y


def many_classes(seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).standard_normal((1500, 40))
    y = np.repeat(np.arange(1500), 3)
    X = centres[y] + 0.6 * rng.standard_normal((len(y), 40))
    return X.astype(np.float32), np.where(y < 1200, y % 1200, y)


PROBLEMS = {
    "dense": (dense, {}),
    "kernel": (dense, {"kernel": "rbf", "n_anchors": 200}),
    "wide": (word_counts, {}),
    "text": (texts, {}),
    "many classes": (many_classes, {"refine": False}),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_kind_of_model_rejects_what_was_asked_of_known_rows_and_most_others(kind, tmp_path):
    rows, parameters = PROBLEMS[kind]
    make_one = TextClassifier if kind == "text" else BinaryCodeClassifier
    n_known = 1200 if kind == "many classes" else N_KNOWN
    (X, y), (X_new, y_new) = rows(), rows(seed=5)
    train, is_open = np.flatnonzero(y < n_known), y_new >= n_known
    classifier = make_one(128, reject=0.1, unknown_label=-1, random_state=0, **parameters)
    classifier.fit(X[train], y[train])
    found = classifier.predict(X_new)
    typicality = classifier.typicality(X_new)
    np.testing.assert_array_equal(found == -1, typicality < 0.1)
    np.testing.assert_array_equal(classifier.predict(X_new, reject=0.3) == -1, typicality < 0.3)
    assert (classifier.predict(X_new, reject=0) != -1).all()
    assert np.mean(found[~is_open] == -1) == pytest.approx(0.1, abs=0.05)
    assert np.mean(found[is_open] == -1) > 0.5
    classifier.save(tmp_path / "m")
    np.testing.assert_array_equal(bitclass.load(tmp_path / "m").predict(X_new), found)


def test_few_rows_reject_what_was_asked_on_average():
    """Forty-eight rows judge a model: a single one is off by chance, several are not."""
    rejected = []
    for seed in range(8):
        (X, y), (X_new, y_new) = dense(n_each=4, seed=seed), dense(n_each=30, seed=100 + seed)
        train, is_open = y < N_KNOWN, y_new >= N_KNOWN
        classifier = BinaryCodeClassifier(128, reject=0.1, unknown_label=-1, random_state=seed)
        found = classifier.fit(X[train], y[train]).predict(X_new) == -1
        rejected.append((np.mean(found[~is_open]), np.mean(found[is_open])))
    known, unknown = np.mean(rejected, axis=0)
    assert known == pytest.approx(0.1, abs=0.04)
    assert unknown > 0.6


def test_one_row_per_class_tells_nothing_about_others():
    X, y = dense(n_each=1)
    classifier = make(reject=0.1).fit(X, y)
    with pytest.raises(ValueError, match="fit it on two rows of each class, or more"):
        classifier.predict(X)
    assert classifier.set_params(reject=0).score(X, y) > 0.9


@pytest.mark.parametrize("rescore", [0, 4])
def test_texts_and_sparse_rows_without_known_features_are_of_no_class(rescore):
    X, y = texts()
    model = TextClassifier(64, rescore=rescore, refine=False, random_state=0).fit(X, y).packed()
    new = ["", "  ", "!", "\u65e5\u672c\u8a9e", X[0], X[500]]
    expected = [None, None, None, None, y[0], y[500]]
    assert model.predict(new, reject=1e-9).tolist() == expected
    assert (model.typicality(new) > 0).tolist() == [False] * 4 + [True] * 2
    found = model.top_classes(new, 1, typicality=True)
    np.testing.assert_array_equal(found.typicality, model.typicality(new))
    assert model.predict(new)[:4].tolist() == found.labels[:4, 0].tolist()  # without `reject`
    X, y = word_counts()
    model = make(rescore=rescore, refine=False).fit(X, y).packed()
    unseen = sp.csr_matrix(([1.0], ([1], [4999])), shape=(2, 5000))
    assert model.predict(sp.vstack([unseen, X[:1]]), reject=1e-9).tolist() == [None, None, y[0]]


@pytest.mark.parametrize(
    ("names", "unknown"), [(None, -1), ("abcdefgh", "none of these"), (None, None)]
)
def test_untypical_rows_get_the_unknown_label_in_memory_in_files_and_in_pickles(
    tmp_path, names, unknown
):
    X, y = clusters(1600)
    y = y if names is None else np.array(list(names))[y]
    usual = make().fit(X, y)
    classifier = make(reject=0.1, unknown_label=unknown).fit(X, y)
    X_new = np.concatenate(
        [X[::7], 3.0 * np.random.default_rng(0).standard_normal((50, X.shape[1]))]
    )
    untypical = usual.typicality(X_new) < 0.1
    expected = usual.predict(X_new).astype(object)
    expected[untypical] = unknown
    assert 0 < np.count_nonzero(untypical) < len(X_new)
    classifier.save(tmp_path / "m")
    copies = (classifier, bitclass.load(tmp_path / "m"), BinaryCodeClassifier.load(tmp_path / "m"),
              pickle.loads(pickle.dumps(classifier)), classifier.packed())  # fmt: skip
    for each in copies:
        np.testing.assert_array_equal(each.predict(X_new), expected)
        assert each.score(X_new, usual.predict(X_new)) == pytest.approx(np.mean(~untypical))
    # Parameters of prediction: they may be changed after training.
    np.testing.assert_array_equal(
        classifier.set_params(reject=0.0).predict(X_new), usual.predict(X_new)
    )
    classifier.set_params(reject=1.0).save(tmp_path / "m")
    assert bitclass.load(tmp_path / "m").reject == 1.0


def test_each_call_rejects_by_its_own_share_and_label():
    X, y = dense()
    model = make(refine=False).fit(X, y).packed()
    typicality = model.typicality(X)
    exact = float(np.sort(typicality)[len(X) // 5])  # the share of a row is not below itself
    for share, label in ((0.1, -1), (0.1, None), (exact, None), (exact, 99), (0.1, -1), (1, 99)):
        found = model.predict(X, reject=share, unknown_label=label)
        assert found.dtype == (object if label is None else y.dtype)
        np.testing.assert_array_equal(found == label, typicality < share)
        few = model.predict(X[:5], reject=share, unknown_label=label)  # fewer rows than classes
        assert few.dtype == found.dtype
        np.testing.assert_array_equal(few, found[:5])
    for wrong in (1.5, -0.1, "0.1", float("nan")):
        with pytest.raises(ValueError, match="reject must be a number from 0 to 1"):
            model.predict(X, reject=wrong)


def test_the_table_is_rebuilt_with_later_batches():
    X, y = dense()
    first, rejected = y < N_KNOWN, []
    for seed in range(5):  # of a single model, the share has a standard deviation of 0.03
        classifier = make(keep_sums=True, reject=0.1, unknown_label=-1, random_state=seed)
        classifier.fit(X[first], y[first])
        assert np.mean(classifier.predict(X[~first]) == -1) > 0.5
        classifier.partial_fit(X[~first], y[~first])
        rejected.append(np.mean(classifier.predict(X) == -1))
    assert np.mean(rejected) == pytest.approx(0.1, abs=0.05)
