"""Learning batch by batch: the same as at once, with classes that may come at any time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass import BinaryCodeClassifier


def make(n_bits=32, **parameters):
    return BinaryCodeClassifier(n_bits, random_state=0, **parameters)


class TestPartialFit:
    @given(st.integers(0, 1000), st.lists(st.integers(1, 399), max_size=4, unique=True))
    @settings(max_examples=15, deadline=None)
    def test_any_split_gives_the_hinge_model_of_all_rows(self, blobs_static, seed, cuts):
        X, y = blobs_static
        order = np.random.default_rng(seed).permutation(len(y))
        X, y = X[order], y[order]
        whole = make(loss="hinge", initial_codes="random").fit(X, y)
        parts = make(loss="hinge", initial_codes="random")
        for rows in np.split(np.arange(len(y)), sorted(cuts)):
            parts.partial_fit(X[rows], y[rows])
        np.testing.assert_array_equal(parts.weights_, whole.weights_)
        np.testing.assert_allclose(parts.projection_, whole.projection_, atol=1e-6)
        np.testing.assert_array_equal(parts.predict(X), whole.predict(X))

    def test_the_same_starting_projection_gives_the_same_model(self, blobs):
        """The first batch sets the projection up; batches in any later split change nothing."""
        X, y = blobs
        start = np.arange(100)
        models = []
        for cuts in ([], [150], [150, 160, 390]):
            classifier = make(loss="hinge", initial_codes="projection")
            classifier.partial_fit(X[start], y[start])
            for rows in np.split(np.arange(100, 400), [c - 100 for c in cuts]):
                classifier.partial_fit(X[rows], y[rows])
            models.append(classifier)
        for other in models[1:]:
            np.testing.assert_array_equal(other.weights_, models[0].weights_)
            np.testing.assert_allclose(other.projection_, models[0].projection_, atol=1e-6)

    def test_with_the_same_projection_it_equals_fit(self, blobs, monkeypatch):
        """What standardises the features is all that fit and the first batch may differ in."""
        X, y = blobs
        fixed = np.zeros(20), np.full(20, 3.0)
        monkeypatch.setattr("bitclass.fitting.standardisation", lambda X, weights: fixed)
        whole = make(loss="hinge", initial_codes="projection").fit(X, y)
        parts = make(loss="hinge", initial_codes="projection")
        for rows in np.split(np.arange(400), [3, 50, 51, 200]):
            parts.partial_fit(X[rows], y[rows])
        np.testing.assert_array_equal(parts.weights_, whole.weights_)
        np.testing.assert_allclose(parts.projection_, whole.projection_, atol=1e-6)

    def test_parameters_changed_before_the_solution_are_refused_by_name(self, blobs):
        X, y = blobs
        for before, after, message in (
            ({}, {"n_bits": 16}, "n_bits=16 differs from the 32 bits"),
            (
                {"loss": "hinge", "initial_codes": "projection"},
                {"loss": "exponential"},
                "needs other sums",
            ),
            ({}, {"initial_codes": "random"}, "differs from the 'means' codes"),
        ):
            classifier = make(**before).partial_fit(X, y).set_params(**after)
            with pytest.raises(ValueError, match=message):
                classifier.predict(X)

    def test_labels_that_do_not_fit_change_nothing(self, blobs):
        X, y = blobs
        classifier = make(loss="hinge").partial_fit(X, y)
        with pytest.raises(ValueError, match="text and numbers"):
            classifier.partial_fit(X, np.array(list("abcdef"))[y], classes=[7, 8])
        assert classifier.weights_.shape == (6, 32)
        with pytest.raises(ValueError, match="NaN"):
            classifier.partial_fit(X, y, classes=[7.0, np.nan])

    def test_class_weights_may_name_classes_that_are_not_in_the_batch(self, blobs):
        X, y = blobs
        weights = {0: 2.0, 5: 3.0}
        online = make(loss="hinge", class_weight=weights, initial_codes="random")
        for part in (y < 3, y >= 3):
            online.partial_fit(X[part], y[part])
        by_hand = make(loss="hinge", initial_codes="random").fit(
            X, y, sample_weight=np.array([2.0, 1, 1, 1, 1, 3.0])[y]
        )
        np.testing.assert_array_equal(online.weights_, by_hand.weights_)

    def test_it_solves_only_when_asked(self, blobs, monkeypatch):
        X, y = blobs
        import bitclass.fitting as module

        calls = []
        learn = module.learn
        monkeypatch.setattr(module, "learn", lambda *a: calls.append(1) or learn(*a))
        classifier = make()
        for rows in np.array_split(np.arange(400), 5):
            classifier.partial_fit(X[rows], y[rows])
        assert calls == []
        classifier.predict(X)
        classifier.decision_function(X)
        assert calls == [1]
        classifier.partial_fit(X, y)
        assert classifier.weights_.shape == (6, 32)
        assert calls == [1, 1]

    def test_a_batch_may_bring_new_classes(self, blobs):
        X, y = blobs
        names = np.array(["m", "c", "z", "a", "q", "b"])
        classifier = make(64, loss="hinge")
        first = np.isin(y, [0, 1])
        classifier.partial_fit(X[first], names[y[first]])
        assert classifier.classes_.tolist() == ["c", "m"]
        assert classifier.score(X[first], names[y[first]]) > 0.95
        classifier.partial_fit(X[~first], names[y[~first]])
        assert classifier.classes_.tolist() == sorted(names)
        assert classifier.score(X, names[y]) > 0.95

    @pytest.mark.parametrize("n_bits", [8, 16, 64])
    def test_announced_classes_have_a_place_and_are_not_predicted(self, blobs, n_bits):
        X, y = blobs
        X = X + 3.0 * np.random.default_rng(0).standard_normal(X.shape)
        alone = make(n_bits).partial_fit(X, y + 500)
        classifier = make(n_bits).partial_fit(X, y + 500, classes=np.arange(1000))
        assert classifier.classes_.tolist() == list(range(1000))
        np.testing.assert_array_equal(classifier.predict(X), alone.predict(X))
        scores = classifier.decision_function(X)
        assert scores.shape == (400, 1000)
        np.testing.assert_array_equal(scores[:, 500:506], alone.decision_function(X))
        assert np.all(scores[:, :500] == -n_bits)
        probabilities = classifier.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        assert not probabilities[:, :500].any()
        assert np.all(classifier.weights_[500:506] != 0)
        assert not classifier.weights_[:500].any()
        with pytest.raises(ValueError, match="number of classes, 6, found 7"):
            classifier.top_classes(X, k=7)

    def test_it_goes_on_from_fit(self, blobs):
        X, y = blobs
        classifier = make(loss="hinge", initial_codes="random").fit(X[:200], y[:200])
        classifier.partial_fit(X[200:], y[200:])
        whole = make(loss="hinge", initial_codes="random").fit(X, y)
        np.testing.assert_array_equal(classifier.weights_, whole.weights_)

    def test_the_exponential_loss_learns_in_batches_as_well(self, blobs):
        X, y = blobs
        classifier = make(64)
        for rows in np.array_split(np.arange(300), 4):
            classifier.partial_fit(X[rows], y[rows])
        assert classifier.score(X[300:], y[300:]) > 0.95

    def test_one_class_so_far_is_an_error_only_when_asked(self, blobs):
        X, y = blobs
        classifier = make(loss="hinge").partial_fit(X[y == 0], y[y == 0])
        with pytest.raises(ValueError, match="at least 2 classes, found 1 class: 0"):
            classifier.predict(X)
        classifier.partial_fit(X[y == 1], y[y == 1])
        assert set(classifier.predict(X)) == {0, 1}

    def test_what_does_not_fit_the_batches_before_is_refused(self, blobs):
        X, y = blobs
        classifier = make(loss="hinge", initial_codes="projection").partial_fit(X, y)
        with pytest.raises(ValueError, match="n_bits=16 differs from the 32 bits"):
            classifier.set_params(n_bits=16).partial_fit(X, y)
        with pytest.raises(ValueError, match="needs other sums"):
            classifier.set_params(n_bits=32, loss="exponential").partial_fit(X, y)
        with pytest.raises(ValueError, match="partial_fit, found an array of shape"):
            make(initial_codes=np.ones((400, 32))).partial_fit(X, y)


@pytest.fixture(scope="session")
def blobs_static():
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.standard_normal((6, 20))
    labels = rng.integers(0, 6, size=400)
    return centres[labels] + rng.standard_normal((400, 20)), labels
