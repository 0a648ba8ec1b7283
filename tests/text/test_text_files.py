"""Files of text models: the same after loading, and safe if altered."""

import os

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier, ModelFileError, load
from bitclass.storage import save

from ..altered_files import split, with_data, without_tensor
from ..text_models import fitted

TENSORS = ("text_ngrams", "text_idf")


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    texts, _, classifier = fitted()
    model = classifier.packed()
    path = tmp_path_factory.mktemp("model") / "texts.safetensors"
    save(path, model)
    return texts, model, path


@pytest.mark.parametrize("projection", ["float32", "int8", "int4", "1bit", None])
def test_a_loaded_model_predicts_texts_as_before(problem, tmp_path, projection):
    texts, model, _ = problem
    path = tmp_path / "model.safetensors"
    save(path, model, projection=projection)
    again = load(path)
    assert again.text.char_ngrams == model.text.char_ngrams
    for a, b in zip(again.text.rows(texts), model.text.rows(texts), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.explain(texts[0])[0][0].strip() in texts[0]
    agree = again.predict(texts) == model.predict(texts)
    assert agree.mean() > 0.95 if projection == "1bit" else agree.all()
    if projection in ("int4", None):  # exact, as the model was fitted in four bits
        assert again.hash_function.entry_bits == 4
        np.testing.assert_array_equal(again.scores(texts), model.scores(texts))
        np.testing.assert_array_equal(
            again.hash_function.projection, model.hash_function.projection
        )


def test_fewer_bits_take_less_space_and_features_alone_cannot_have_them(problem, tmp_path):
    _, model, _ = problem
    sizes = []
    for projection in ("int8", "int4", "1bit"):
        save(tmp_path / projection, model, projection=projection)
        sizes.append(os.path.getsize(tmp_path / projection))
        save(tmp_path / "again", load(tmp_path / projection))
        if projection != "int8":  # the smallest exact type is the default, also after loading
            assert os.path.getsize(tmp_path / "again") == sizes[-1]
    entries = model.hash_function.projection.size
    assert sizes[0] - sizes[1] == pytest.approx(entries / 2, rel=0.02)
    assert sizes[0] - sizes[2] == pytest.approx(entries * 7 / 8, rel=0.02)
    dense = BinaryCodeClassifier(16).fit(np.eye(8), np.arange(8) % 4)
    with pytest.raises(ValueError, match="'int4': 4 bits per entry need a projection of wide"):
        dense.save(tmp_path / "dense", projection="int4")


def test_the_file_contains_only_the_columns_kept(problem, tmp_path):
    _, model, path = problem
    tensors = split(path.read_bytes())[0]
    np.testing.assert_array_equal(model.text.columns, model.hash_function.columns)
    for name in ("columns", "text_idf"):
        assert tensors[name]["shape"] == [len(model.text.columns)]
    classifier = BinaryCodeClassifier(16).fit(np.eye(8), np.arange(8) % 4)
    classifier.save(tmp_path / "features.safetensors")
    assert not set(TENSORS) & set(split((tmp_path / "features.safetensors").read_bytes())[0])
    assert load(tmp_path / "features.safetensors").text is None


@pytest.mark.parametrize("name", TENSORS)
def test_a_file_without_one_of_its_tensors_is_refused(problem, tmp_path, name):
    path = tmp_path / "altered.safetensors"
    path.write_bytes(without_tensor(problem[2].read_bytes(), name))
    with pytest.raises(ModelFileError, match=f"'{name}' is missing, which"):
        load(path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("text_ngrams", lambda v: [0, 4, 1, 2], "char_ngrams must be"),
        ("text_ngrams", lambda v: [1, 4, 1, 200], "word_ngrams must be"),
        ("text_ngrams", lambda v: [0, 0, 0, 0], "must not both be None"),
        ("text_idf", lambda v: -v, "idf must contain positive numbers"),
        ("text_idf", lambda v: v * np.nan, "'text_idf' must contain finite numbers"),
        ("text_idf", lambda v: v * 0, "idf must contain positive numbers"),
        ("columns", lambda v: v[::-1], "columns: expected .* ascending"),
        ("projection", lambda v: v * 0, "must contain numbers from -7 to 7"),
    ],
)
def test_invalid_values_are_refused(problem, tmp_path, name, change, message):
    path = tmp_path / "altered.safetensors"
    _, model, original = problem
    values = {
        "text_ngrams": None,
        "text_idf": model.text.idf,
        "columns": model.hash_function.columns,
        "projection": np.ones(model.hash_function.projection.size // 2),
    }
    dtype = {"text_idf": np.float16, "columns": np.int32}.get(name, np.uint8)
    path.write_bytes(with_data(original.read_bytes(), name, dtype, change(values[name])))
    with pytest.raises(ModelFileError, match=message):
        load(path)
