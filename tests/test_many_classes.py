"""More classes than the alternation can compare in pairs: the closed forms, and a warning."""

import warnings

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier, learning


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 8)
    return (rng.standard_normal((30, 10))[y] + 0.3 * rng.standard_normal((240, 10))), y


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize("initial_codes", ["means", "projection"])
def test_above_the_limit_weights_are_those_of_the_closed_forms(
    rows, monkeypatch, loss, initial_codes
):
    monkeypatch.setattr(learning, "_MOST_CLASSES_OF_PROGRAMS", 29)
    settings = {"n_bits": 32, "initial_codes": initial_codes, "random_state": 0}
    with pytest.warns(UserWarning, match="30 classes: .* more than 29; .* loss='hinge'") as told:
        classifier = BinaryCodeClassifier(loss=loss, **settings).fit(*rows)
    assert told[0].filename == __file__
    expected = BinaryCodeClassifier(loss="hinge", **settings).fit(*rows)
    np.testing.assert_array_equal(classifier.weights_, expected.weights_)
    np.testing.assert_array_equal(classifier.projection_, expected.projection_)
    np.testing.assert_array_equal(classifier.objective_history_, expected.objective_history_)


def test_up_to_the_limit_there_is_nothing_to_tell(rows, monkeypatch):
    monkeypatch.setattr(learning, "_MOST_CLASSES_OF_PROGRAMS", 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = BinaryCodeClassifier(n_bits=32, random_state=0).fit(*rows)
    assert len(classifier.objective_history_) == 2 * 32 * classifier.n_iter_


def test_a_warning_of_many_classes_is_for_those_who_asked_for_another_loss(rows, monkeypatch):
    monkeypatch.setattr(learning, "_MOST_CLASSES_OF_PROGRAMS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BinaryCodeClassifier(n_bits=32, loss="hinge", random_state=0).fit(*rows)
