"""Files of text models: the same after loading, and safe if altered."""

import subprocess
import sys

import numpy as np
import pytest

from bitclass import ModelFileError, load
from bitclass.storage import save

from ..altered_files import split, with_data, without_tensor
from ..text_models import fitted

TENSORS = ("text_ngrams", "text_columns", "text_idf")


def text_model(n_columns):
    texts, _, hasher, classifier = fitted(n_columns)
    return texts, classifier.packed().with_text(hasher.features_)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    texts, model = text_model(256)
    path = tmp_path_factory.mktemp("model") / "texts.safetensors"
    save(path, model)
    return texts, model, path


@pytest.mark.parametrize(
    ("n_columns", "projection"),
    [(256, "float32"), (256, "float16"), (256, "int8"), (2**18, "int8")],
)
def test_a_loaded_model_predicts_texts_as_before(tmp_path, n_columns, projection):
    texts, model = text_model(n_columns)
    path = tmp_path / "model.safetensors"
    save(path, model, projection=projection)
    again = load(path)
    assert again.text.char_ngrams == model.text.char_ngrams
    for a, b in zip(again.text.rows(texts), model.text.rows(texts), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (again.hash_function.columns is not None) == (n_columns > 256)
    agree = again.predict(texts) == model.predict(texts)
    assert agree.all() if projection != "float16" else agree.mean() > 0.99
    assert again.explain(texts[0])[0][0].strip() in texts[0]


def test_the_file_contains_only_the_columns_seen(problem, tmp_path):
    _, model, path = problem
    tensors = split(path.read_bytes())[0]
    for name in ("text_columns", "text_idf"):
        assert tensors[name]["shape"] == [len(model.text.columns)]
    *_, classifier = fitted(n_columns=256)
    classifier.save(tmp_path / "features.safetensors")
    assert not set(TENSORS) & set(split((tmp_path / "features.safetensors").read_bytes())[0])
    assert load(tmp_path / "features.safetensors").text is None


def test_predicting_a_loaded_model_imports_neither_scikit_learn_nor_scipy(problem):
    texts, model, path = problem
    code = (
        "import bitclass, sys; "
        f"found = bitclass.load({str(path)!r}).predict([{texts[0]!r}])[0]; "
        "assert not {'sklearn', 'scipy', 'pandas'} & set(sys.modules); print(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == model.predict(texts[:1])[0]


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
        ("text_columns", lambda v: v[::-1], "columns must be ascending"),
        ("text_columns", lambda v: np.where(v == v[-1], 256, v), "below 256"),
        ("text_idf", lambda v: -v, "idf must contain positive numbers"),
        ("text_idf", lambda v: v * np.nan, "'text_idf' must contain finite numbers"),
        ("text_idf", lambda v: np.full_like(v, 1e30), "idf must contain positive numbers"),
    ],
)
def test_invalid_values_are_refused(problem, tmp_path, name, change, message):
    path = tmp_path / "altered.safetensors"
    _, model, original = problem
    values = {"text_ngrams": None, "text_columns": model.text.columns, "text_idf": model.text.idf}
    dtype = {"text_ngrams": np.uint8, "text_columns": np.uint32, "text_idf": np.float32}[name]
    path.write_bytes(with_data(original.read_bytes(), name, dtype, change(values[name])))
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_every_truncation_and_many_flipped_bytes_are_errors_or_models(problem, tmp_path):
    raw = problem[2].read_bytes()
    path = tmp_path / "altered.safetensors"
    rng = np.random.default_rng(0)
    for _ in range(300):
        altered = bytearray(raw)
        altered[rng.integers(len(raw))] ^= 1 << rng.integers(8)
        path.write_bytes(altered[: rng.integers(len(raw))] if rng.random() < 0.3 else altered)
        try:
            labels = load(path).predict(["book a table", b"\xff"])
        except ModelFileError:
            continue
        assert len(labels) == 2
