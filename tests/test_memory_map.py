"""Memory-mapped models."""

import mmap

import numpy as np
import pytest

import bitclass
from bitclass import ModelFileError
from bitclass.storage import PROJECTION_TYPES, save

from .packed_models import made, rows


def base(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize("labels", [np.arange(9), np.array(list("abcdefghi"))])
@pytest.mark.parametrize("projection", PROJECTION_TYPES)
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_mapped_model_predicts_as_a_loaded_one(tmp_path, labels, projection, precision):
    path = tmp_path / "model.safetensors"
    save(path, made(labels, precision=precision), projection=projection)
    loaded, mapped = bitclass.load(path), bitclass.load(path, memory_map=True)
    X = rows()
    assert np.array_equal(mapped.predict(X), loaded.predict(X))
    assert np.array_equal(mapped.predict_proba(X), loaded.predict_proba(X))
    assert isinstance(base(mapped.weights), mmap.mmap)
    assert not isinstance(base(loaded.weights), mmap.mmap)
    if projection == "float32":
        assert isinstance(base(mapped.hash_function.projection), mmap.mmap)


def test_saving_over_a_mapped_file_leaves_the_model_unchanged(tmp_path):
    path = tmp_path / "model.safetensors"
    save(path, made(np.arange(9)))
    mapped = bitclass.load(path, memory_map=True)
    before = mapped.predict(rows())
    save(path, made(np.arange(100, 109), seed=5))
    assert np.array_equal(mapped.predict(rows()), before)
    assert np.array_equal(mapped.weights, made(np.arange(9)).weights)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save(path, made(np.arange(9)))
    whole = path.read_bytes()
    for length in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            bitclass.load(path, memory_map=True)
