"""`PackedModel.n_probe`: exact by default, and what remains exact when it is set."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from .packed_models import made, rows, saved


def model_of(n_classes, rescore):
    model = made(np.arange(n_classes) + 100, n_bits=64)
    model.rescore = rescore
    return model


@pytest.mark.parametrize("rescore", [0, 16])
def test_few_probes_miss_some_classes_and_all_probes_none(rescore):
    model, X = model_of(5000, rescore), rows(n=300)
    exact = model.predict(X)
    assert model.n_probe is None
    model.n_probe = 10**6
    assert_array_equal(model.predict(X), exact)
    model.n_probe = 4
    found = model.predict(X)
    assert 0.1 < np.mean(found == exact) < 1.0
    assert_array_equal([model.predict(row[None])[0] for row in X[:50]], found[:50])
    assert_array_equal(model.top_classes(X, 1)[0][:, 0], found)
    model.n_probe = None
    assert_array_equal(model.predict(X), exact)


@pytest.mark.parametrize("rescore", [0, 16])
def test_scores_and_lists_longer_than_the_short_list_stay_exact(rescore):
    model, X = model_of(3000, rescore), rows(n=40)
    scores, listed = model.scores(X), model.top_classes(X, 20)[0]
    model.n_probe = 2
    assert_array_equal(model.scores(X), scores)
    if rescore:
        assert_array_equal(model.top_classes(X, 20)[0], listed)
    for k in (1, 5, 16, 20, 3000):
        best = model.top_classes(X, k)[0]
        assert all(len(set(row)) == k for row in best.tolist())


def test_probabilities_of_approximate_results_are_exact():
    model, X = model_of(2000, 16), rows(n=20)
    dense = model.predict_proba(X)
    model.n_probe = 2
    labels, _, probabilities, _ = model.top_classes(X, 3, probabilities=True)
    assert_array_equal(probabilities, np.take_along_axis(dense, labels - 100, axis=1))


def test_n_probe_is_copied_but_not_saved(tmp_path):
    model, X = model_of(2000, 16), rows(n=50)
    model.n_probe = 3
    assert_array_equal(copy.deepcopy(model).predict(X), model.predict(X))
    assert saved(tmp_path, model).n_probe is None


@pytest.mark.parametrize("n_probe", [0, -1, 2.5, True, "all"])
def test_an_invalid_number_of_clusters_raises_an_error(n_probe):
    model = model_of(10, 0)
    with pytest.raises(ValueError, match="n_probe must be None or a positive integer"):
        model.n_probe = n_probe
    assert model.n_probe is None
