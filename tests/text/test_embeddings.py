"""Sentence embeddings by name, with a small model and with a faulty one."""

import os
import sys
import types

import model2vec
import numpy as np
import pytest
import tokenizers

from bitclass.text import SentenceEmbeddings, recorded_embeddings


@pytest.fixture(scope="module")
def static_model(tmp_path_factory):
    """A model2vec model of four words, saved in a folder."""
    words = {"[UNK]": 0, "book": 1, "table": 2, "weather": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = np.eye(4, 6, dtype=np.float32)
    folder = tmp_path_factory.mktemp("static")
    model2vec.StaticModel(vectors, tokenizer, config={}).save_pretrained(str(folder))
    return str(folder)


def test_a_folder_of_model2vec_gives_rows(static_model):
    embeddings = SentenceEmbeddings(f"model2vec:{static_model}")
    assert embeddings.n_features == 6
    rows = embeddings.rows(["book table", b"weather", "\udcff", b"\xff", ""])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], [0, 0.5, 0.5, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(rows[1], [0, 0, 0, 1, 0, 0], atol=1e-6)
    summary = {"extractor": embeddings.specification()}
    with pytest.raises(ValueError, match="is not cached, or beside the model file"):
        recorded_embeddings(summary)
    for given in ({"folder": os.path.dirname(static_model)}, {"allow_external": True}):
        again = recorded_embeddings(summary, **given)
        np.testing.assert_array_equal(again.rows(["book table"]), rows[:1])


def fake(monkeypatch, encode):
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = lambda name: types.SimpleNamespace(name=name, encode=encode)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return SentenceEmbeddings("sentence-transformers:all-MiniLM-L6-v2")


def test_sentence_transformers_by_name(monkeypatch):
    embeddings = fake(monkeypatch, lambda texts: np.array([[len(t), 1.0] for t in texts]))
    assert embeddings.rows(["ab", "abc"]).tolist() == [[2, 1], [3, 1]]
    with pytest.raises(TypeError, match="found int in text 1"):
        embeddings.rows(["a", 3])
    assert embeddings.specification() == {
        "kind": "sentence-transformers",
        "model": "all-MiniLM-L6-v2",
    }


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda texts: np.zeros((1, 2)), "must return 2 finite rows, found .* \\(1, 2\\)"),
        (lambda texts: np.zeros(2), "must return 2 finite rows"),
        (lambda texts: np.full((2, 2), np.nan), "must return 2 finite rows"),
        (lambda texts: 1 / 0, "cannot embed texts: division by zero"),
    ],
)
def test_a_model_that_fails_is_named(monkeypatch, encode, message):
    with pytest.raises(ValueError, match=f"all-MiniLM-L6-v2 {message}"):
        fake(monkeypatch, encode).rows(["a", "b"])


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match="pip install sentence-transformers"):
        SentenceEmbeddings("sentence-transformers:all-MiniLM-L6-v2").rows(["a"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SentenceEmbeddings("word2vec:a"), "expected model2vec:MODEL or sentence-"),
        (lambda: SentenceEmbeddings("model2vec:"), "unknown extractor"),
        (lambda: SentenceEmbeddings("model2vec:https://host/a/b"), "folder or name"),
        (lambda: SentenceEmbeddings(3), "must be a model with a method encode"),
        (lambda: recorded_embeddings({"extractor": {"kind": "model2vec"}}), "must name a model"),
    ],
)
def test_unknown_models_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("extractor", [None, {"kind": "cnn", "size": 64}])
def test_other_models_have_no_sentence_embeddings(extractor):
    assert recorded_embeddings({"extractor": extractor}) is None
