"""partial_fit: same model as fit, batches added whole or not at all, refinement preserved."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass import BinaryCodeClassifier
from bitclass import classifier as classifier_module
from bitclass.training import fit_model, load_statistics, save_statistics, statistics
from bitclass.training.refinement import extend
from problems import assert_same_model, clusters, make


@given(st.integers(0, 1000), st.lists(st.integers(1, 399), max_size=4, unique=True))
@settings(max_examples=5)
@pytest.mark.parametrize("initial_codes", ["discriminant", "means", "random"])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_any_split_gives_the_model_of_all_rows(loss, initial_codes, seed, cuts):
    X, y = clusters(400, noise=0.7, dtype=np.float64)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = X[order], y[order]
    whole = make(loss=loss, initial_codes=initial_codes, refine=False).fit(X, y)
    parts = make(loss=loss, initial_codes=initial_codes)
    for rows in np.split(np.arange(len(y)), sorted(cuts)):
        parts.partial_fit(X[rows], y[rows])
    assert_same_model(parts.solve(), whole, atol=1e-5)


@pytest.mark.parametrize("initial_codes", ["projection", "cca_itq"])
def test_codes_per_row_are_computed_from_the_first_batch_only(blobs, initial_codes):
    X, y = blobs
    models = [make(initial_codes=initial_codes) for _ in range(2)]
    for model, cuts in zip(models, ([100], [100, 150, 160, 390]), strict=True):
        for rows in np.split(np.arange(400), cuts):
            model.partial_fit(X[rows], y[rows])
        assert model.score(X, y) > 0.95
    assert_same_model(*models, atol=1e-5)


def test_class_weights_may_name_classes_that_are_not_in_the_batch(blobs):
    X, y = blobs
    found = make(class_weight={0: 2.0, 5: 3.0})
    for part in (y < 3, y >= 3):
        found.partial_fit(X[part], y[part])
    whole = make(refine=False, class_weight=found.class_weight).fit(X, y)
    # Except for means at a threshold, because the first batch sets the units of the sums.
    assert np.mean(found.solve().weights_ == whole.weights_) > 0.98


def test_a_batch_may_contain_new_classes(blobs):
    X, y = blobs
    names = np.array(["m", "c", "z", "a", "q", "b"])[y]
    classifier, so_far = make(64), np.zeros(len(y), dtype=bool)
    for number, new in enumerate(([0], [1], [2, 3, 4, 5])):
        is_new = np.isin(y, new)
        so_far |= is_new
        classifier.partial_fit(X[is_new], names[is_new])
        assert classifier.classes_.tolist() == sorted(set(names[so_far]))
        if number == 0:  # an error only when it is called
            with pytest.raises(ValueError, match="at least 2 classes, found 1 class: 'm'"):
                classifier.predict(X)
        else:
            assert classifier.score(X[so_far], names[so_far]) > 0.95


def test_labels_keep_the_type_of_the_first_batch():
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    classifier = make(16).partial_fit(X, y).partial_fit(X, y.astype(float))
    assert classifier.predict(X[:2]).dtype == y.dtype


@pytest.mark.parametrize("n_bits", [8, 64])
def test_expected_classes_are_listed_but_not_predicted(blobs, n_bits):
    X, y = blobs
    X = X + 3.0 * np.random.default_rng(0).standard_normal(X.shape)
    alone = make(n_bits).partial_fit(X, y + 500)
    classifier = make(n_bits).partial_fit(X, y + 500, classes=np.arange(1000))
    assert classifier.classes_.tolist() == list(range(1000))
    np.testing.assert_array_equal(classifier.predict(X), alone.predict(X))
    scores, known = classifier.decision_function(X), slice(500, 506)
    np.testing.assert_array_equal(scores[:, known], alone.decision_function(X))
    assert scores[:, :500].max() < scores[:, known].min()
    np.testing.assert_allclose(classifier.predict_proba(X)[:, known].sum(axis=1), 1.0)
    assert np.flatnonzero(classifier.weights_.any(axis=1)).tolist() == list(range(500, 506))
    with pytest.raises(ValueError, match="number of classes, 6, found 7"):
        classifier.top_classes(X, k=7)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"n_bits": 16}, "n_bits=16 differs from the 32 bits"),
        ({"initial_codes": "projection"}, {"loss": "exponential"}, "needs different sums"),
        ({}, {"initial_codes": "random"}, "differs from the 'discriminant' codes"),
        ({}, {"initial_codes": np.ones((400, 32))}, "when training in batches, found an array"),
        ({}, {"class_weight": "balanced"}, "class_weight='balanced' needs all rows at once"),
        ({}, {"kernel": "rbf", "n_anchors": 9}, "kernel='rbf' differs from the kernel of"),
        ({"kernel": "rbf", "n_anchors": 9}, {"kernel": None}, "kernel=None differs from the"),
        ({"kernel": "rbf", "n_anchors": 9}, {"n_anchors": 8}, "n_anchors=8 differs from the 9"),
    ],
)
def test_parameters_incompatible_with_earlier_batches_raise(blobs, before, after, message):
    X, y = blobs
    classifier = make(**before).partial_fit(X, y)
    expected, sums = classifier.predict(X), classifier.statistics_
    with pytest.raises(ValueError, match=message):
        classifier.set_params(**after).partial_fit(X, y)
    assert classifier.statistics_.n_rows == 400
    np.testing.assert_array_equal(classifier.predict(X), expected)
    # Nor can these continue from the sums of such batches.
    with pytest.raises(ValueError, match=message):
        make(**(before | after)).fit_batches(lambda start: iter([(X, y)]), statistics=sums)


def test_labels_incompatible_with_earlier_batches_raise(blobs):
    X, y = blobs
    classifier = make().partial_fit(X, y)
    for labels, classes, message in (
        (np.array(list("abcdef"))[y], list("abcdefg"), "text and numbers"),
        (y, [7.0, np.nan], "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.partial_fit(X, labels, classes=classes)
        assert classifier.classes_.tolist() == list(range(6))
        assert classifier.statistics_.n_rows == 400


# -------------------------------------------------------------------------------------------------
# Refined models
# -------------------------------------------------------------------------------------------------


def hard(n_classes=30, per_class=60, seed=0):
    """Rows of overlapping classes, on which refinement gains several points of accuracy."""
    centres = 2.0 * np.random.default_rng(1).standard_normal((40, 16))
    rng = np.random.default_rng(seed)
    y = np.tile(np.arange(n_classes), per_class)
    return (centres[y] + 2.0 * rng.standard_normal((len(y), 16))).astype(np.float32), y


@pytest.fixture(scope="module")
def refined_bytes():
    X, y = hard()
    classifier = make(64).fit(X, y)
    assert classifier.refinement_["taken"]
    assert not classifier.refinement_["weights_follow_means"]
    # Everything, including the sums.
    state = dict(classifier.__dict__)
    return pickle.dumps(state)


@pytest.fixture
def refined(refined_bytes):
    classifier = make(64)
    classifier.__dict__.update(pickle.loads(refined_bytes))
    return classifier


def test_more_rows_do_not_discard_the_refinement(refined):
    X_test, y_test = hard(seed=9)
    plain = make(64, refine=False).fit(*hard()).score(X_test, y_test)
    before = refined.score(X_test, y_test)
    assert before > plain + 0.01, "otherwise this would show nothing"
    report, projection, weights = refined.refinement_, refined.projection_, refined.weights_
    rescore, temperature = refined.packed().rescore, refined.packed().temperature
    X, y = hard(seed=2)
    refined.partial_fit(X[:1], y[:1])
    assert refined.score(X_test, y_test) == before
    assert refined.refinement_ == report
    refined.partial_fit(X[1:18], y[1:18])  # 1 % more
    assert refined.score(X_test, y_test) > before - 0.003
    np.testing.assert_array_equal(refined.projection_, projection)
    np.testing.assert_array_equal(refined.weights_, weights)
    assert refined.statistics_.n_rows == len(hard()[1]) + 18
    assert (refined.packed().rescore, refined.packed().temperature) == (rescore, temperature)


def test_a_changed_short_list_takes_effect_with_the_next_rows(refined):
    X, y = hard(seed=2)
    assert refined.packed().rescore == 16
    for rescore, expected in ((False, 0), ("auto", 0), (5, 5)):
        refined.set_params(rescore=rescore).partial_fit(X[:1], y[:1])
        assert refined.packed().rescore == expected


@pytest.mark.parametrize("extended", [True, False])
def test_new_classes_get_weights_from_their_means_and_others_keep_theirs(
    refined, monkeypatch, extended
):
    if not extended:
        monkeypatch.setattr(extend, "_MAX_CLASSES", 32)
    weights, projection = refined.weights_, refined.projection_
    X_test, y_test = hard(n_classes=33, seed=4)
    old, before = y_test < 30, refined.predict(X_test)
    X, y = hard(n_classes=33, seed=3)
    refined.partial_fit(X[y >= 30], y[y >= 30]).solve()
    np.testing.assert_array_equal(refined.weights_[:30], weights)
    # The hash function learns to separate them, unless there are very many classes.
    assert np.array_equal(refined.projection_, projection) != extended
    means = np.array([X[y == c].mean(axis=0) for c in (30, 31, 32)])
    scores = means @ refined.projection_.astype(float) + refined.intercept_
    clear = np.abs(scores) > 1e-4
    np.testing.assert_array_equal((refined.weights_[30:] > 0)[clear], (scores >= 0)[clear])
    after = refined.predict(X_test)
    assert np.mean(after[~old] == y_test[~old]) > 0.6
    lost = np.mean(before[old] == y_test[old]) - np.mean(after[old] == y_test[old])
    assert lost < 0.06, "what new classes take from the others"


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, 0.0), (0.3, 0.3), (None, 1 / 60)])
def test_new_classes_are_learned_with_the_penalty_of_the_refinement(
    refined, monkeypatch, alpha, expected
):
    given = []
    monkeypatch.setattr(extend, "extend", lambda *arguments: given.append(arguments[4]))
    monkeypatch.setattr(extend, "default_alpha", lambda sums: 1 / 60)
    refined.refinement_["alpha"] = alpha
    with pytest.warns(UserWarning, match="fitted to the sums instead"):
        refined.partial_fit(hard(seed=3)[0][:5], np.full(5, 30)).solve()
    assert given == [expected]


@pytest.mark.parametrize(
    ("follow", "n_rows", "moves"),
    [(False, 60, False), (False, 200, True), (True, 3, False), (True, 20, True)],
)
def test_weights_of_a_class_of_60_rows_follow_its_mean_once_it_has_grown(
    refined, follow, n_rows, moves
):
    """Sooner if the codes of means were as good as the learned weights."""
    refined.refinement_["weights_follow_means"] = follow
    weights, others = refined.weights_, np.arange(30) != 4
    X = hard(n_classes=1, per_class=n_rows, seed=5)[0] + 9.0
    refined.partial_fit(X, np.full(n_rows, 4)).solve()
    np.testing.assert_array_equal(refined.weights_[others], weights[others])
    assert np.array_equal(refined.weights_[4], weights[4]) != moves


def test_removed_classes_are_gone_and_all_others_are_unchanged(refined):
    X, y = hard(seed=6)
    weights, stays = refined.weights_, ~np.isin(np.arange(30), [3, 17])
    refined.remove_classes([3, 17])
    assert not np.isin(refined.predict(X), [3, 17]).any()
    assert refined.classes_.tolist() == np.flatnonzero(stays).tolist()
    np.testing.assert_array_equal(refined.weights_, weights[stays])
    assert refined.refinement_["taken"]
    with pytest.raises(ValueError, match="known classes"):
        refined.remove_classes([3])
    # They may be added again.
    refined.partial_fit(X[y == 3], y[y == 3])
    assert refined.score(X[y == 3], y[y == 3]) > 0.5
    before = refined.predict(X)
    for gone, left in ((refined.classes_, r"\[\]"), (refined.classes_[1:], r"\[0\]")):
        with pytest.raises(ValueError, match=f"labels must leave at least 2 .*, found {left}$"):
            refined.remove_classes(gone)
        np.testing.assert_array_equal(refined.predict(X), before)


def test_similar_new_classes_are_separated(refined):
    weights = refined.weights_
    X = np.tile(hard()[0][:1], (10, 1))
    refined.partial_fit(X, np.repeat([50, 51], 5)).solve()  # without a warning: there are many bits
    assert len(np.unique(refined.weights_, axis=0)) == 32
    np.testing.assert_array_equal(refined.weights_[:30], weights)


# -------------------------------------------------------------------------------------------------
# All or nothing
# -------------------------------------------------------------------------------------------------


def test_a_batch_that_fails_halfway_counts_once_when_it_is_repeated(blobs, monkeypatch):
    X, y = blobs
    whole = make().partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:]).solve()
    found = make().partial_fit(X[:200], y[:200])
    with monkeypatch.context() as patched:
        patched.setattr(statistics, "add_gram", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            found.partial_fit(X[200:], y[200:])
    assert_same_model(found.partial_fit(X[200:], y[200:]).solve(), whole)


def test_reading_never_trains_and_predicting_trains_once(blobs, monkeypatch):
    X, y = blobs
    calls = []
    monkeypatch.setattr(
        classifier_module, "fit_model", lambda *given: calls.append(1) or fit_model(*given)
    )
    classifier = make()
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


# -------------------------------------------------------------------------------------------------
# The sums, kept or not
# -------------------------------------------------------------------------------------------------


def test_a_pickle_holds_the_model_and_not_the_sums(blobs):
    X, y = blobs
    X = np.hstack([X] * 10)  # so that the sums are much larger than the model
    classifier = make(8).fit(X, y)
    pickled = pickle.dumps(classifier)
    assert len(pickled) < classifier.statistics_.gram.nbytes / 4
    read = pickle.loads(pickled)
    np.testing.assert_array_equal(read.predict(X), classifier.predict(X))
    assert read.packed().summary == classifier.packed().summary != {}
    assert not hasattr(read, "statistics_")
    for call in (lambda: read.partial_fit(X, y), lambda: read.remove_classes([1])):
        with pytest.raises(ValueError, match=r"save_statistics.*load\(path, statistics=...\)"):
            call()
    np.testing.assert_array_equal(read.predict(X), classifier.predict(X))
    read.fit(X, y).partial_fit(X, y)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_copy_is_updated_independently(blobs, method, copied):
    X, y = blobs
    classifier = getattr(make(refine=False), method)(X[:200], y[:200])
    other = copied(classifier).partial_fit(X[200:], y[200:])
    assert_same_model(other.solve(), make(refine=False).fit(X, y), atol=1e-5)
    assert classifier.statistics_.n_rows == 200
    assert_same_model(classifier.solve(), make(refine=False).fit(X[:200], y[:200]))


def test_a_pickle_of_an_unsolved_model_includes_the_sums(blobs):
    X, y = blobs
    classifier = make().partial_fit(X, y)
    assert_same_model(pickle.loads(pickle.dumps(classifier)).solve(), classifier.solve())


@pytest.mark.parametrize("refine", [False, True])
def test_a_model_file_and_its_statistics_continue_as_if_never_saved(tmp_path, refine):
    X, y = hard()
    X_more, y_more = hard(n_classes=32, seed=7)
    classifier = make(64, refine=refine).fit(X, y)
    classifier.save(tmp_path / "model")
    save_statistics(tmp_path / "statistics", classifier.statistics_)
    sums, _ = load_statistics(tmp_path / "statistics")
    when_refined = classifier.statistics_.class_weights_when_refined
    np.testing.assert_array_equal(sums.class_weights_when_refined, when_refined)
    read = BinaryCodeClassifier.load(tmp_path / "model", statistics=sums)
    assert_same_model(read.solve(), classifier)
    for each in (classifier, read):
        each.partial_fit(X_more, y_more).solve()
    assert_same_model(read, classifier)
    assert read.refinement_ == classifier.refinement_
    if not refine:
        whole = np.vstack([X, X_more]), np.concatenate([y, y_more])
        assert_same_model(classifier, make(64, refine=False).fit(*whole), atol=1e-5)
    # Sums newer than the model, as after a crash between saving the two files, update the model.
    ahead = BinaryCodeClassifier.load(tmp_path / "model", statistics=read.statistics_)
    assert_same_model(ahead.solve(), classifier)


def test_statistics_of_another_model_are_rejected(tmp_path, blobs):
    X, y = blobs
    make().fit(X, y).save(tmp_path / "model")
    other = make(16).fit(X, y).statistics_
    with pytest.raises(ValueError, match="32 differs from the 16 bits"):
        BinaryCodeClassifier.load(tmp_path / "model", statistics=other)
    for others in ((X[:, :5], y), (X, y + 100)):
        other = make().fit(*others).statistics_
        with pytest.raises(ValueError, match="statistics must be those of the model"):
            BinaryCodeClassifier.load(tmp_path / "model", statistics=other)


def test_golden_files_of_a_refined_model_continue_forever():
    golden = Path(__file__).parent / "golden"
    sums, _ = load_statistics(golden / "statistics_refined.safetensors")
    assert np.array_equal(sums.class_weights_when_refined, np.full(5, 120.0))
    sums.class_weights_when_refined[:] = 0.0  # files of version 0.1 do not store it
    read = BinaryCodeClassifier.load(golden / "refined.safetensors", statistics=sums)
    weights, X = read.solve().weights_, np.load(golden / "rows.npy")
    assert "".join(read.predict(X)) == "cebbbbbbbabdebea"
    assert np.array_equal(sums.class_weights_when_refined, np.full(5, 120.0))
    read.partial_fit(X, np.full(16, "new")).solve()
    assert read.classes_.tolist() == ["a", "b", "c", "d", "e", "new"]
    np.testing.assert_array_equal(read.weights_[:5], weights)
