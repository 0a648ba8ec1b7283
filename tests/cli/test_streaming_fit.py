"""Training from a file, batch by batch, is training in memory."""

import numpy as np
import pytest
from running import problem, succeed

import bitclass as library
from bitclass import BinaryCodeClassifier
from bitclass.data import open_rows
from bitclass.streaming import Checkpoint, batch_rows_for, fit_reader, spread_sample


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
    arguments = ("--model", path, "--bits", 32, "--loss", "hinge", "--seed", 3, "--no-refine")
    succeed("fit", tmp_path / "train.npz", *arguments)
    reader = open_rows(tmp_path / "train.npz")
    step = batch_rows_for(reader)
    assert step < len(X) / 2, "one batch alone shows nothing"
    classifier = BinaryCodeClassifier(32, loss="hinge", refine=False, random_state=3)
    classifier.begin(*spread_sample(reader))
    for start in range(0, len(X), step):
        classifier.partial_fit(X[start : start + step], own[start : start + step])
    assert_same_model(path, classifier)


@pytest.mark.parametrize("loss", ["exponential", "squared_hinge", "crammer_singer"])
def test_the_second_pass_makes_it_equal_to_fit(tmp_path, loss):
    X, own = problem(500, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    passes = []
    plain = {"loss": loss, "scale": 0.5, "initial_codes": "projection", "refine": False}
    classifier = BinaryCodeClassifier(16, **plain, random_state=3)
    fit_reader(
        classifier, open_rows(tmp_path / "train.npz"), progress=lambda name, _: passes.append(name)
    )
    whole = BinaryCodeClassifier(16, **plain, random_state=3).fit(X, own)
    path = tmp_path / "m.safetensors"
    classifier.save(path)
    assert_same_model(path, whole)
    # The pass counts: without it the model is another one.
    without = BinaryCodeClassifier(16, **plain, random_state=3)
    without.partial_fit(X, own).solve()
    if "pass 2" in passes:
        assert not np.array_equal(without.projection_, whole.projection_)
    else:
        np.testing.assert_array_equal(without.projection_, whole.projection_)
    assert loss != "exponential" or "pass 2" in passes


def test_random_codes_give_the_same_model_in_any_batches(tmp_path):
    X, own = problem(500, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    plain = {"loss": "hinge", "initial_codes": "random", "refine": False, "random_state": 3}
    whole = BinaryCodeClassifier(16, **plain).fit(X, own)
    for batch_rows in (7, 64, 499):
        classifier = BinaryCodeClassifier(16, **plain)
        fit_reader(classifier, open_rows(tmp_path / "train.npz"), batch_rows=batch_rows)
        np.testing.assert_array_equal(classifier.weights_, whole.weights_)
        np.testing.assert_allclose(classifier.projection_, whole.projection_, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("codes", ["means", "projection"])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_refinement_of_a_file_is_that_of_fit(tmp_path, codes, loss, kernel):
    X, own = problem(900, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    given = {"initial_codes": codes, "loss": loss, "scale": 0.5, "kernel": kernel, "n_anchors": 50}
    classifier = BinaryCodeClassifier(16, **given, random_state=3)
    passes = []
    fit_reader(
        classifier, open_rows(tmp_path / "train.npz"), progress=lambda name, _: passes.append(name)
    )
    whole = BinaryCodeClassifier(16, **given, random_state=3).fit(X, own)
    assert classifier.refinement_ == whole.refinement_
    assert classifier.refinement_["epochs"] > 0
    np.testing.assert_array_equal(classifier.weights_, whole.weights_)
    np.testing.assert_array_equal(classifier.projection_, whole.projection_)
    assert classifier.packed().temperature == whole.packed().temperature
    # One pass to hold rows out, one for the rows that are learned from, one for rows' own codes.
    assert len(set(passes)) <= 4


@pytest.mark.parametrize("batch_rows", [50, 333])
def test_refinement_does_not_mind_the_batches(tmp_path, batch_rows):
    X, own = problem(900, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    whole = BinaryCodeClassifier(32, loss="hinge", random_state=3).fit(X, own)
    classifier = BinaryCodeClassifier(32, loss="hinge", random_state=3)
    fit_reader(classifier, open_rows(tmp_path / "train.npz"), batch_rows=batch_rows)
    found, expected = classifier.refinement_, whole.refinement_
    assert found["held_out_rows"] == expected["held_out_rows"]
    # Sums round by their batches, and refinement takes it from there.
    assert found["accuracy_before"] == pytest.approx(expected["accuracy_before"], abs=0.02)
    assert found["accuracy_after"] == pytest.approx(expected["accuracy_after"], abs=0.05)


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.parametrize("refine", [True, False])
def test_a_class_of_weight_0_is_as_if_absent(tmp_path, loss, refine):
    """Its rows are not summed, so that the rows after them have other numbers."""
    X, own = problem(900, 5, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    given = {"initial_codes": "random", "loss": loss, "scale": 0.5, "refine": refine}
    given |= {"class_weight": {int(own[0]): 0.0, int(own[0]) + 1: 2.0}, "random_state": 3}
    whole = BinaryCodeClassifier(16, **given).fit(X, own)
    for batch_rows in (None, 100):
        classifier = BinaryCodeClassifier(16, **given)
        fit_reader(classifier, open_rows(tmp_path / "train.npz"), batch_rows=batch_rows)
        np.testing.assert_array_equal(classifier.classes_, whole.classes_)
        if not refine:
            np.testing.assert_array_equal(classifier.weights_, whole.weights_)
            np.testing.assert_allclose(classifier.projection_, whole.projection_, atol=1e-3)
        else:
            assert classifier.refinement_["held_out_rows"] == whole.refinement_["held_out_rows"]
    with pytest.raises(
        ValueError, match="class_weight must not hold 0 where there is a checkpoint"
    ):
        fit_reader(
            classifier, open_rows(tmp_path / "train.npz"), checkpoint=Checkpoint(tmp_path / "c", {})
        )


def test_rows_sorted_by_class_are_sampled_from_all_over_the_file(tmp_path):
    X, own = problem(40_000, 4)
    order = np.argsort(own, kind="stable")
    np.savez(tmp_path / "sorted.npz", X=X[order], y=own[order])
    sample, labels = spread_sample(open_rows(tmp_path / "sorted.npz"))
    assert len(sample) == len(labels) == 8192
    assert len(np.unique(labels)) > len(np.unique(own)) / 2
