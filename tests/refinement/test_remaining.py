"""Rows held out have no part in what refinement starts from, nor in the weights it refits."""

import numpy as np
import pytest
from refinement_problems import blobs, in_batches, make, statistics_of

from bitclass import refining
from bitclass.drawing import Drawing
from bitclass.learning import learn
from bitclass.remaining import Remaining
from bitclass.training import hinge_weights, make_distinct
from bitclass.validation import check_parameters

ALPHA = 0.01


def instances(n_classes, rows_a_class, noise, seed=0, d=40):
    """Classes of few rows each, for learning and for testing."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, d))
    y = np.repeat(np.arange(n_classes), rows_a_class + 4)
    X = (centres[y] + noise * rng.standard_normal((len(y), d))).astype(np.float32)
    is_test = np.arange(len(y)) % (rows_a_class + 4) < 4
    return X[~is_test], y[~is_test], X[is_test], y[is_test]


def parts(X, y, weights=None, **parameters):
    """What remains of all rows, and a mask of the rows that remain."""
    statistics = statistics_of(X, y, weights, **parameters)
    drawing = Drawing(statistics, statistics.classes, len(y), 3, 1 << 30)
    held_out = drawing.held_out(in_batches(X, y, weights, ()))
    remains = np.ones(len(y), dtype=bool)
    remains[held_out.numbers.astype(np.intp)] = False
    assert 0 < np.count_nonzero(~remains) < len(y) / 2
    return Remaining(statistics, held_out, statistics.classes, ALPHA), remains, statistics


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("initial_codes", ["means", "projection", "cca_itq", "random"])
def test_weights_and_hash_function_are_those_of_the_rows_that_remain(
    initial_codes, uneven, weighted
):
    X, y = blobs(1200, n_classes=60)
    if uneven:
        kept = np.random.default_rng(1).random(1200) < 1.0 / (1 + y / 10)
        X, y = X[kept], y[kept]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    remaining, remains, statistics = parts(X, y, weights, initial_codes=initial_codes)
    settings = check_parameters(make(alpha=ALPHA, initial_codes=initial_codes).get_params())[0]
    # In the same units, which are those of the first rows that came.
    rest = statistics.without_rows()
    rest.add(X[remains], y[remains], None if weights is None else weights[remains])
    expected, given = learn(rest, settings).model, learn(statistics, settings).model

    weights_given = given.unpacked_weights()
    found = remaining.weights(weights_given)
    agreement = np.mean(found == hinge_weights(rest.starting_sums()))
    assert agreement > 0.999, "but for signs of sums that are 0 within rounding"
    if initial_codes != "random":
        assert np.mean(found == weights_given) < 0.995, "rows held out made no difference"
    hash_function = remaining.hash_function(expected.unpacked_weights())
    np.testing.assert_allclose(hash_function.projection, expected.projection, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(hash_function.intercept, expected.intercept, rtol=1e-3, atol=1e-4)


def test_weights_learned_from_codes_that_were_given_stay():
    X, y = blobs(600)
    codes = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), size=(600, 32))
    remaining, _, _ = parts(X, y, initial_codes=codes)
    weights = codes[:6]
    assert remaining.weights(weights) is weights


@pytest.mark.parametrize("offset", [0.0, 3000.0])
def test_refitted_weights_are_what_the_hash_function_makes_of_class_means(offset, monkeypatch):
    X, y = blobs(900, dtype=np.float64)
    X += offset
    remaining, remains, _ = parts(X, y)
    weights = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), size=(6, 32))
    start = remaining.hash_function(weights)
    means = np.stack([X[remains & (y == c)].mean(axis=0) for c in range(6)])
    scores = means @ start.projection.astype(float) + start.intercept
    expected = np.where(scores >= 0, 1, -1)
    clear = np.abs(scores) > 1e-3
    assert clear.mean() > 0.9
    for size in (1 << 14, 4):
        monkeypatch.setattr("bitclass.remaining._CLASSES_A_BLOCK", size)
        found = remaining.refitted_weights(start)
        np.testing.assert_array_equal(found[clear], expected[clear])


@pytest.mark.parametrize("limit", [2048, 50])
@pytest.mark.parametrize("initial_codes", ["means", "projection"])
def test_classes_of_few_rows_are_refined_for_the_better(initial_codes, limit, monkeypatch):
    """Judged with codes that know the rows held out, no refinement would be taken."""
    monkeypatch.setattr(refining, "_CLASSES_AT_ONCE", limit)
    X, y, X_test, y_test = instances(300, rows_a_class=5, noise=0.8)
    refined = make(64, initial_codes=initial_codes).fit(X, y)
    plain = make(64, refine=False, initial_codes=initial_codes).fit(X, y)
    assert refined.refinement_["taken"]
    assert refined.score(X_test, y_test) > plain.score(X_test, y_test) + 0.03
    assert abs(refined.refinement_["accuracy_before"] - plain.score(X_test, y_test)) < 0.1

    monkeypatch.setattr(refining, "_FEW_ROWS", 0)
    knowing = make(64, initial_codes=initial_codes).fit(X, y).refinement_
    assert knowing["accuracy_before"] > plain.score(X_test, y_test) + 0.1


def test_weights_of_very_many_classes_follow_from_the_projection(monkeypatch):
    monkeypatch.setattr(refining, "_CLASSES_AT_ONCE", 50)
    X, y, _, _ = instances(200, rows_a_class=30, noise=0.5)
    model = make(64).fit(X, y)
    assert model.refinement_["taken"]
    means = np.stack([X[y == c].mean(axis=0) for c in range(200)]).astype(float)
    scores = means @ model.projection_.astype(float) + model.intercept_
    expected = make_distinct(np.where(scores >= 0, 1, -1).astype(np.int8), scores, list(range(200)))
    assert np.mean(model.weights_ == expected) > 0.98, "but for the rows held out"
