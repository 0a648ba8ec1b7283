"""`bitclass update`: more rows, new classes, classes forgotten, without the rows of before."""

import json
import shutil

import numpy as np
import pytest
from running import assert_one_line, bitclass, problem, succeed

import bitclass as library
from bitclass import BinaryCodeClassifier

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
OPTIONS = ("--loss", "hinge", "--initial-codes", "random", "--bits", 40, "--seed", 2)


def hinge(X, y):
    options = {"loss": "hinge", "initial_codes": "random", "random_state": 2}
    return BinaryCodeClassifier(40, **options).fit(X, y)


@pytest.fixture(scope="module")
def rows():
    X, own = problem(600, 8, n_classes=6, noise=2.0)
    return X, NAMES[own]


@pytest.fixture(scope="module")
def original(tmp_path_factory, rows):
    """A model of the first four classes, and more rows of these and two new ones."""
    tmp_path = tmp_path_factory.mktemp("update")
    X, y = rows
    first = np.isin(y, NAMES[:4]) & (np.arange(600) < 400)
    np.savez(tmp_path / "first.npz", X=X[first], y=y[first])
    np.savez(tmp_path / "more.npz", X=X[~first], y=y[~first])
    fit = ("fit", "first.npz", "--model", "m.safetensors", *OPTIONS, "--keep-statistics")
    succeed(*fit, cwd=tmp_path)
    return tmp_path


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_more_rows_and_new_classes_then_one_forgotten(folder, rows):
    X, y = rows
    before = library.load(folder / "m.safetensors")
    told = json.loads(succeed("update", "m.safetensors", "more.npz", "--json", cwd=folder))
    assert (told["rows"], told["classes"]) == (600, 6)
    model, whole = library.load(folder / "m.safetensors"), hinge(X, y)
    np.testing.assert_array_equal(model.classes, NAMES)
    np.testing.assert_array_equal(model.unpacked_weights(), whole.weights_)
    np.testing.assert_allclose(model.projection, whole.projection_, rtol=1e-3, atol=1e-5)
    assert model.summary["n_rows"] == 600
    for name in ("loss", "parameters"):
        assert model.summary[name] == before.summary[name]

    told = json.loads(succeed("update", "m.safetensors", "--remove", "cat", "--json", cwd=folder))
    stays = y != "cat"
    assert (told["rows"], told["classes"]) == (stays.sum(), 5)
    model, whole = library.load(folder / "m.safetensors"), hinge(X[stays], y[stays])
    np.testing.assert_array_equal(model.classes, NAMES[NAMES != "cat"])
    np.testing.assert_array_equal(model.unpacked_weights(), whole.weights_)
    agreement = np.mean(model.predict(X[stays]) == whole.predict(X[stays]))
    assert agreement > 0.95, "the hash function is not that of the rows left"

    # What cannot be done changes nothing.
    before = contents(folder)
    done = bitclass("update", "m.safetensors", "--remove", "cat", cwd=folder)
    assert_one_line(done, "'cat'", "ant, bee, dog, eel, fox")
    every = [part for name in model.classes[1:] for part in ("--remove", name)]
    assert_one_line(bitclass("update", "m.safetensors", *every, cwd=folder), "class")
    assert contents(folder) == before


def test_rows_of_another_width_or_kind_change_nothing(folder, rows):
    X, y = rows
    np.savez(folder / "narrow.npz", X=X[:, :5], y=y)
    np.savez(folder / "numbers.npz", X=X, y=np.arange(600) % 3)
    before = contents(folder)
    assert_one_line(bitclass("update", "m.safetensors", "narrow.npz", cwd=folder), 5, 8)
    assert_one_line(bitclass("update", "m.safetensors", "numbers.npz", cwd=folder), "labels")
    assert_one_line(bitclass("update", "m.safetensors", cwd=folder), "--remove")
    assert contents(folder) == before


def test_a_model_without_statistics_is_left_alone(folder):
    (folder / "m.statistics.safetensors").unlink()
    before = contents(folder)
    done = bitclass("update", "m.safetensors", "more.npz", cwd=folder)
    assert_one_line(done, "m.statistics.safetensors", "--keep-statistics")
    assert contents(folder) == before


def test_the_exponential_loss_learns_more_too(folder, rows):
    X, y = rows
    fit = ("fit", "first.npz", "--model", "e.safetensors", "--bits", 40, "--scale", 0.2)
    succeed(*fit, "--keep-statistics", cwd=folder)
    update = ("update", "e.safetensors", "more.npz", "--remove", "dog", "--json")
    told = json.loads(succeed(*update, cwd=folder))
    # Forgotten first, then learned: rows of the class that are new bring it back.
    first = np.load(folder / "first.npz")
    assert told["rows"] == 600 - np.sum(first["y"] == "dog")
    model = library.load(folder / "e.safetensors")
    np.testing.assert_array_equal(model.classes, NAMES)
    assert np.mean(model.predict(X) == y) > 0.7
