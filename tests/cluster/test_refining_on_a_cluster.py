"""Refinement on the client, on rows that are drawn from the partitions by their numbers."""

import os
import random
import signal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from clusters import (
    CLIPPED,
    HINGE,
    all_running,
    assert_same_model,
    by_partial_fit,
    fitted,
    lazy,
    mortal_cluster,
    problem,
    slow_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass import BinaryCodeClassifier
from bitclass.data import open_rows
from bitclass.distributed import FeatureFiles, PartitionError
from bitclass.distributed.errors import SumsMoved
from bitclass.distributed.looking import drawn_rows
from bitclass.distributed.partitions import held_rows
from bitclass.streaming import fit_reader

REFINED = {"n_bits": 32, "loss": "hinge", "random_state": 3}


def hard_problem(n=3600, d=24, n_classes=20, seed=0):
    """Classes of several clusters each, of which sums over rows know too little."""
    X, clusters = problem(n, d, 3 * n_classes, seed)
    return X, clusters % n_classes


def drawn(lengths, make=np.asarray, share=0.3, weights=None, class_weight=None):
    """Rows drawn from rows that hold their own numbers, cut into partitions of these lengths."""
    n = sum(lengths)
    X, y = np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 3
    learner = BinaryCodeClassifier(class_weight=class_weight)
    learner.n_features_in_ = 2
    found = []
    start = 0
    for length in lengths:
        part = slice(start, start + length)
        own = None if weights is None else weights[part]
        parts = (make(X[part]), y[part], own)
        found += drawn_rows("a partition", held_rows, start, share, 0, learner, *parts)
        start += length
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.sampled_from([0.0, 0.3, 1.0]))
def test_rows_are_drawn_by_their_numbers_whatever_the_partitions(lengths, share):
    found = drawn(lengths, share=share)
    rows = np.concatenate([X for X, _, _ in found])
    (whole,) = drawn([sum(lengths)], share=share)
    np.testing.assert_array_equal(rows, whole[0])
    np.testing.assert_array_equal(np.concatenate([y for _, y, _ in found]), rows[:, 0] // 2 % 3)
    assert all(weights is None for _, _, weights in found)
    if share in (0.0, 1.0):
        assert len(rows) == share * sum(lengths)


@pytest.mark.parametrize("make", [pd.DataFrame, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_drawn_rows_are_what_they_were(make):
    for (X, labels, _), (expected, expected_labels, _) in zip(
        drawn([50, 70], make), drawn([50, 70]), strict=True
    ):
        dense = X.toarray() if scipy.sparse.issparse(X) else X
        assert scipy.sparse.issparse(X) == (make is not pd.DataFrame)
        np.testing.assert_array_equal(dense, expected)
        np.testing.assert_array_equal(labels, expected_labels)


def test_drawn_rows_have_their_weights_and_those_of_weight_0_do_not_come():
    weights = (np.arange(90) % 4) / 4
    ((X, labels, found),) = drawn([90], share=1.0, weights=weights, class_weight={1: 2.0, 2: 0.0})
    rows = np.flatnonzero((weights > 0) & (np.arange(90) % 3 < 2))
    np.testing.assert_array_equal(X[:, 0] // 2, rows)
    np.testing.assert_array_equal(labels, rows % 3)
    np.testing.assert_array_equal(found, weights[rows] * np.where(rows % 3 == 1, 2.0, 1.0))


def test_rows_that_changed_since_they_were_summed_are_named():
    with pytest.raises(PartitionError, match="a partition: X has 1 features"):
        drawn([10], make=lambda X: X[:, :1])


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_refinement_is_that_of_one_machine_where_all_rows_are_drawn(client, loss):
    X, y = hard_problem()
    test_X, test_y = X[3000:], y[3000:]
    X, y = X[:3000], y[:3000]
    parameters = REFINED | {"loss": loss}
    passes = []
    found = fitted(parameters, *lazy(X, y, 450), progress=lambda *told: passes.append(told))
    assert [told for told in passes if told[0] == "drawing rows"][-1] == (
        "drawing rows",
        3000,
        3000,
    )
    local = BinaryCodeClassifier(**parameters).fit(X, y)
    assert found.refinement_["taken"]
    assert found.refinement_["held_out_rows"] == local.refinement_["held_out_rows"]
    score = found.to_local().score(test_X, test_y)
    assert score == pytest.approx(local.score(test_X, test_y), abs=0.02)
    unrefined = by_partial_fit(parameters | {"refine": False}, X, y, 450)
    assert score > unrefined.score(test_X, test_y) + 0.02


def test_refine_false_draws_nothing(client):
    passes = set()
    X, y = lazy(*problem(), 450)
    found = fitted(HINGE, X, y, progress=lambda name, done, total: passes.add(name))
    assert passes == {"looking", "learning"}
    assert found.refinement_ is None


def test_refinement_on_part_of_the_rows(client, monkeypatch):
    X, y = hard_problem()
    monkeypatch.setattr("bitclass.distributed.fitting._SAMPLE_BYTES", X.nbytes // 3)
    seen = []
    solve = BinaryCodeClassifier.solve

    def watched(self, replay, *, n_rows):
        seen.append((n_rows, sum(X.nbytes for _, X, _, _ in replay())))
        return solve(self, replay, n_rows=n_rows)

    monkeypatch.setattr(BinaryCodeClassifier, "solve", watched)
    found = fitted(REFINED, *lazy(X, y, 450))
    assert abs(seen[0][0] - len(y) / 3) < 5 * np.sqrt(len(y) / 3)
    assert seen[0][1] < 1.2 * X.nbytes / 3
    assert found.refinement_["taken"]
    # Which partitions the rows were in does not matter for the draw.
    fitted(REFINED, *lazy(X, y, 200))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("kind", ["frame", "sparse"])
def test_refinement_on_other_rows_than_arrays(client, kind):
    X, y = hard_problem(n=1500)
    labels = np.array([f"class {label}" for label in y], dtype=object)
    X[X < 0] = 0
    if kind == "frame":
        names = [f"f{j}" for j in range(X.shape[1])]
        frame = dd.from_pandas(pd.DataFrame(X, columns=names).assign(y=labels), npartitions=4)
        found = fitted(REFINED, frame[names], frame["y"])
    else:
        parts = [slice(start, start + 500) for start in range(0, 1500, 500)]
        rows = [dask.delayed(scipy.sparse.csr_matrix(X[part])) for part in parts]
        found = fitted(REFINED, rows, [dask.delayed(labels[part]) for part in parts])
    local = BinaryCodeClassifier(**REFINED).fit(X, labels)
    assert found.refinement_["taken"]
    assert found.refinement_["held_out_rows"] == local.refinement_["held_out_rows"]
    assert found.refinement_["accuracy_before"] == local.refinement_["accuracy_before"]


def test_refinement_counts_weights_as_the_sums_do(client):
    """Held-out rows are taken out of the sums, with the weights that they had there."""
    X, y = hard_problem()
    weights = np.random.default_rng(1).integers(1, 9, size=len(y)) * 1000.0
    parameters = REFINED | {"class_weight": {0: 3.0, 1: 0.5}}
    found = fitted(parameters, *lazy(X, y, 450), weights)
    local = BinaryCodeClassifier(**parameters).fit(X, y, weights)
    for name in ("taken", "held_out_rows", "accuracy_before"):
        assert found.refinement_[name] == local.refinement_[name]
    # Rows of weight 0 could be anything.
    weights[::3] = 0
    X[::3], y[::3] = 1e3, 99
    found = fitted(parameters, *lazy(X, y, 450), weights)
    assert found.refinement_["taken"]
    counts = weights > 0
    local = BinaryCodeClassifier(**parameters).fit(X[counts], y[counts], weights[counts])
    scores = [one.score(X[counts], y[counts]) for one in (found.to_local(), local)]
    assert scores[0] == pytest.approx(scores[1], abs=0.03)


def test_refinement_on_files(client, tmp_path):
    X, y = hard_problem()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    found = fitted(REFINED, FeatureFiles([tmp_path / "X.npy"], labels_file=tmp_path / "y.npy"))
    reader = open_rows(tmp_path / "X.npy", labels_file=tmp_path / "y.npy")
    local = fit_reader(BinaryCodeClassifier(**REFINED), reader)
    assert found.refinement_["taken"]
    assert found.refinement_["held_out_rows"] == local.refinement_["held_out_rows"]
    assert found.to_local().score(X, y) == pytest.approx(local.score(X, y), abs=0.02)


@pytest.mark.parametrize("parameters", [HINGE, CLIPPED], ids=lambda parameters: parameters["loss"])
def test_a_kernel_and_its_refinement(client, parameters):
    X, y = hard_problem()
    parameters = parameters | {"kernel": "rbf", "n_anchors": 100}
    passes = set()
    rows = lazy(X, y, 450)
    found = fitted(parameters, *rows, progress=lambda name, done, total: passes.add(name))
    assert ("second pass" in passes) == (parameters["loss"] != "hinge")
    local = by_partial_fit(parameters, X, y, 450)
    np.testing.assert_array_equal(found.weights_, local.weights_)
    assert found.score(*rows) == pytest.approx(local.score(X, y), abs=0.005)
    refined = fitted(parameters | {"refine": True}, *rows)
    assert refined.refinement_["taken"]
    expected = BinaryCodeClassifier(**(parameters | {"refine": True})).fit(X, y)
    assert refined.score(*rows) == pytest.approx(expected.score(X, y), abs=0.02)


def test_rows_are_drawn_again_when_sums_are_made_anew(client, monkeypatch):
    X, y = hard_problem(n=1500)
    solve = BinaryCodeClassifier.solve
    seen = []

    def moved_once(self, replay, *, n_rows):
        seen.append([labels for _, _, labels, _ in replay()])
        if len(seen) == 1:
            raise SumsMoved("gone")
        return solve(self, replay, n_rows=n_rows)

    monkeypatch.setattr(BinaryCodeClassifier, "solve", moved_once)
    found = fitted(REFINED, *lazy(X, y, 450))
    np.testing.assert_array_equal(np.concatenate(seen[1]), y)
    np.testing.assert_array_equal(np.concatenate(seen[0]), y)
    assert found.refinement_["taken"]


@pytest.fixture(scope="module")
def mortal():
    with mortal_cluster() as client:
        yield client


@pytest.mark.faults
@pytest.mark.parametrize("n_killed", [1, 2])
def test_workers_killed_while_rows_are_drawn_change_nothing(mortal, n_killed):
    X, y = hard_problem()
    all_running(mortal, 2)
    killed = []

    def progress(name, done, total):
        if name == "drawing rows" and not killed:
            assert done < total
            processes = sorted(mortal.run(os.getpid).values())
            killed.extend(random.Random(n_killed).sample(processes, n_killed))
            for process in killed:
                os.kill(process, signal.SIGKILL)

    with mortal.as_current():
        expected = fitted(REFINED, *lazy(X, y, 200))
        found = fitted(REFINED, *slow_rows(X, y, 200), progress=progress)
    assert len(killed) == n_killed
    assert_same_model(found, expected)
    assert found.refinement_ == expected.refinement_
    assert found.refinement_["taken"]
