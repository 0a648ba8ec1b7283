"""Training from a file, batch by batch, is training in memory."""

import numpy as np
import pytest
from running import problem, succeed

import bitclass as library
from bitclass import BinaryCodeClassifier
from bitclass.data import open_rows
from bitclass.streaming import batch_rows_for, fit_reader, spread_sample


def assert_same_model(path, classifier):
    model = library.load(path)
    np.testing.assert_array_equal(model.classes, classifier.classes_)
    np.testing.assert_array_equal(model.unpacked_weights(), classifier.weights_)
    np.testing.assert_array_equal(model.projection, classifier.projection_)
    np.testing.assert_array_equal(model.intercept, classifier.intercept_)


def test_hinge_by_the_command_is_partial_fit_over_the_same_batches(tmp_path):
    X, own = problem(150_000, 4)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    path = tmp_path / "m.safetensors"
    arguments = ("--model", path, "--bits", 32, "--loss", "hinge", "--seed", 3)
    succeed("fit", tmp_path / "train.npz", *arguments)
    reader = open_rows(tmp_path / "train.npz")
    step = batch_rows_for(reader)
    assert step < len(X) / 2, "one batch alone shows nothing"
    classifier = BinaryCodeClassifier(32, loss="hinge", random_state=3)
    classifier.begin(*spread_sample(reader))
    for start in range(0, len(X), step):
        classifier.partial_fit(X[start : start + step], own[start : start + step])
    assert_same_model(path, classifier)


@pytest.mark.parametrize("loss", ["exponential", "squared_hinge", "crammer_singer"])
def test_the_second_pass_makes_it_equal_to_fit(tmp_path, loss):
    X, own = problem(500, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    passes = []
    classifier = BinaryCodeClassifier(16, loss=loss, scale=0.5, random_state=3)
    fit_reader(
        classifier, open_rows(tmp_path / "train.npz"), progress=lambda name, _: passes.append(name)
    )
    whole = BinaryCodeClassifier(16, loss=loss, scale=0.5, random_state=3).fit(X, own)
    path = tmp_path / "m.safetensors"
    classifier.save(path)
    assert_same_model(path, whole)
    # The pass counts: without it the model is another one.
    without = BinaryCodeClassifier(16, loss=loss, scale=0.5, random_state=3)
    without.partial_fit(X, own).solve()
    if "second pass" in passes:
        assert not np.array_equal(without.projection_, whole.projection_)
    else:
        np.testing.assert_array_equal(without.projection_, whole.projection_)
    assert loss != "exponential" or "second pass" in passes


def test_random_codes_give_the_same_model_in_any_batches(tmp_path):
    X, own = problem(500, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    whole = BinaryCodeClassifier(16, loss="hinge", initial_codes="random", random_state=3)
    whole.fit(X, own)
    for batch_rows in (7, 64, 499):
        classifier = BinaryCodeClassifier(16, loss="hinge", initial_codes="random", random_state=3)
        fit_reader(classifier, open_rows(tmp_path / "train.npz"), batch_rows=batch_rows)
        np.testing.assert_array_equal(classifier.weights_, whole.weights_)
        np.testing.assert_allclose(classifier.projection_, whole.projection_, rtol=1e-3, atol=1e-5)


def test_rows_sorted_by_class_are_sampled_from_all_over_the_file(tmp_path):
    X, own = problem(40_000, 4)
    order = np.argsort(own, kind="stable")
    np.savez(tmp_path / "sorted.npz", X=X[order], y=own[order])
    sample, labels = spread_sample(open_rows(tmp_path / "sorted.npz"))
    assert len(sample) == len(labels) == 8192
    assert len(np.unique(labels)) > len(np.unique(own)) / 2
