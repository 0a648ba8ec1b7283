"""TextClassifier: one object from texts to labels, to a file, and on from there."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict

import bitclass
from bitclass import BinaryCodeClassifier, ModelFileError, TextClassifier
from bitclass.text import csr_rows, fit_ngrams

from ..text_models import fitted, sentences


@pytest.fixture(scope="module")
def problem():
    return fitted(keep_sums=True)


def test_it_is_the_classifier_of_features_on_the_rows_of_its_n_grams(problem):
    texts, labels, classifier = problem
    X = csr_rows(fit_ngrams([texts]), texts)
    other = BinaryCodeClassifier(64, random_state=0).fit(X, labels)
    np.testing.assert_array_equal(classifier.weights_, other.weights_)
    np.testing.assert_array_equal(classifier.projection_, other.projection_)
    assert classifier.report_ == other.report_
    assert classifier.score(texts, labels) > 0.95


def test_every_method_takes_texts_and_agrees_with_the_packed_model(problem):
    texts, _, classifier = problem
    model = classifier.packed()
    for name in ("predict", "predict_proba", "predict_log_proba", "typicality", "encode"):
        expected = getattr(model, name)(texts)
        np.testing.assert_array_equal(getattr(classifier, name)(texts), expected)
        as_bytes = np.array([text.encode() for text in texts], dtype=object)
        np.testing.assert_array_equal(getattr(classifier, name)(as_bytes), expected)
    np.testing.assert_array_equal(classifier.decision_function(texts), model.scores(texts))
    found = classifier.top_classes(texts, 2, probabilities=True)
    np.testing.assert_array_equal(found.labels[:, 0], model.predict(texts))
    assert classifier.explain(texts[0]) == model.explain(texts[0])


def test_a_grid_search_chooses_n_grams_and_clones_are_unfitted(problem):
    texts, labels, classifier = problem
    grid = {"word_ngrams": [None, (1, 1)], "n_bits": [16]}
    search = GridSearchCV(TextClassifier(random_state=0, refine=False), grid, cv=2)
    assert search.fit(texts, labels).best_score_ > 0.5
    assert not hasattr(clone(classifier), "classes_")
    assert clone(classifier).get_params() == classifier.get_params()
    found = cross_val_predict(clone(classifier), np.array(texts), labels, cv=2)
    assert (found == labels).mean() > 0.5


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", "put it into a list"),
        (["", "?", "!", "a"], "n-grams that occur in at least min_df"),
        (np.ones((4, 3)), "list or column of texts"),
        (["too", "few", "of", "of", "them"], "inconsistent numbers of samples"),
    ],
)
def test_an_error_leaves_the_estimator_as_it_was(problem, X, message):
    texts, _, classifier = problem
    classifier = clone(classifier).fit(texts[:54], sentences()[1][:54])
    before = classifier.predict(texts)
    with pytest.raises(ValueError, match=message):
        classifier.fit(X, ["a", "b", "a", "b"])
    np.testing.assert_array_equal(classifier.predict(texts), before)
    with pytest.raises(ValueError, match="needs an embedding"):
        TextClassifier(kernel="rbf").fit(texts, sentences()[1])
    with pytest.raises(ValueError, match="char_ngrams must be"):
        TextClassifier(char_ngrams=(0, 2)).fit(texts, sentences()[1])


@pytest.mark.parametrize("X", [[1, 2], [None], [float("nan")], np.ones(2)])
def test_items_that_are_no_texts_are_named_with_their_position(problem, X):
    classifier = problem[2]
    for model in (classifier, classifier.packed()):
        with pytest.raises(TypeError, match=r"expected str or bytes, found \w+ in text 0"):
            model.predict(X)
        with pytest.raises(TypeError, match="in text 1"):
            model.predict(["a text", X[0]])


def test_texts_for_a_classifier_of_rows_are_refused(problem, tmp_path):
    problem[2].save(tmp_path / "m.safetensors")
    classifier = BinaryCodeClassifier.load(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"found texts: use TextClassifier.*TextClassifier\.load"):
        classifier.predict(["a text"])


def test_a_saved_model_goes_on_learning(problem, tmp_path):
    texts, labels, classifier = problem
    path = tmp_path / "model.safetensors"
    classifier.save(path, sums=True)
    again = TextClassifier.load(path)
    assert again.get_params() == classifier.get_params()
    np.testing.assert_array_equal(again.predict_proba(texts), classifier.predict_proba(texts))
    songs = ["sing a song for rome", "sing songs for two", "please sing", "sing to me"] * 3
    again.partial_fit(songs, ["sing"] * 12).save(path, sums=True)
    assert bitclass.load(path).predict(["sing something", texts[0]]).tolist() == ["sing", labels[0]]
    # As if the file had never been: document frequencies, too, are those of the first batch.
    whole = clone(classifier).partial_fit(texts, labels).partial_fit(songs, ["sing"] * 12)
    loaded = TextClassifier.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(texts), whole.predict_proba(texts))
    with pytest.raises(TypeError, match="found int in text 0"):
        loaded.partial_fit([3], ["sing"])
    assert loaded.remove_classes(["sing"]).predict(songs[:1])[0] != "sing"


def test_without_sums_a_loaded_model_predicts_but_does_not_learn(problem, tmp_path):
    texts, labels, classifier = problem
    classifier.save(tmp_path / "model.safetensors")
    again = TextClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(texts), classifier.predict(texts))
    with pytest.raises(ValueError, match="sums over earlier rows were not kept"):
        again.partial_fit(texts, labels)
    BinaryCodeClassifier(16).fit(np.eye(8), np.arange(8) % 4).save(tmp_path / "features")
    with pytest.raises(ModelFileError, match="features: the model was not fitted on texts"):
        TextClassifier.load(tmp_path / "features")


class Words:
    """A sentence encoder: random vectors of words, averaged."""

    def encode(self, texts):
        seeds = [[sum(map(ord, word)) for word in text.split()] or [0] for text in texts]
        vectors = [
            np.mean([np.random.default_rng(s).standard_normal(24) for s in each], axis=0)
            for each in seeds
        ]
        return np.array(vectors, np.float32)


def test_an_encoder_in_memory_replaces_the_n_grams(tmp_path):
    texts, labels = sentences()
    classifier = TextClassifier(64, embedding=Words(), random_state=0, keep_sums=True)
    classifier.fit(texts, labels)
    assert classifier.score(texts, labels) > 0.95
    assert classifier.packed().predict(texts[:1])[0] == labels[0]
    classifier.partial_fit(["sing sing", "sing it"] * 4, ["sing"] * 8)
    assert classifier.predict(["sing"])[0] == "sing"
    with pytest.raises(ValueError, match="if its embedding is given by name"):
        classifier.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="explain needs a model of texts"):
        classifier.explain("sing")
    with pytest.raises(ValueError, match="embedding must be a model with a method encode"):
        TextClassifier(embedding=3).fit(texts, labels)


def test_an_encoder_given_by_its_folder_is_found_beside_the_model_file(tmp_path, monkeypatch):
    """The folder is looked for where the file is, and nowhere else."""
    texts, labels = sentences()
    (tmp_path / "encoder").mkdir()
    module = SimpleNamespace(StaticModel=SimpleNamespace(from_pretrained=lambda name: Words()))
    monkeypatch.setitem(__import__("sys").modules, "model2vec", module)
    name = f"model2vec:{tmp_path / 'encoder'}"
    classifier = TextClassifier(64, embedding=name, random_state=0).fit(texts, labels)
    classifier.save(tmp_path / "model.safetensors", sums=False)
    expected = classifier.predict_proba(texts)
    for again in (bitclass.load, TextClassifier.load):
        model = again(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(model.predict_proba(texts), expected)
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "model.safetensors", tmp_path / "elsewhere" / "model.safetensors")
    with pytest.raises(ValueError, match="not cached, or beside the model file"):
        bitclass.load(tmp_path / "elsewhere" / "model.safetensors").predict(texts)
