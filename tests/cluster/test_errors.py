"""Partitions that cannot be used, and clusters that are not there, are named in one error."""

import traceback

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from clusters import QUIET, delayed, fitted, lazy, problem
from distributed import Client, LocalCluster

from bitclass.distributed import (
    ClusterError,
    DaskBinaryCodeClassifier,
    FeatureFiles,
    PartitionError,
    connected,
)

HINGE = {"n_bits": 16, "random_state": 0}


def partitions(n=3, rows=40, d=5):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((rows, d)).astype(np.float32) for _ in range(n)]
    return X, [np.arange(rows) % 3 for _ in range(n)], [np.ones(rows) for _ in range(n)]


def narrow(X, y, weights):
    X[2] = X[2][:, :4]


def text_labels(X, y, weights):
    y[2] = np.array(["a", "b"] * 20)


def too_few_labels(X, y, weights):
    y[1] = y[1][:-1]


def nan(X, y, weights):
    X[1][3, 2] = np.nan


def text(X, y, weights):
    X[0] = np.array([["a"] * 5] * 40)


def missing_labels(X, y, weights):
    y[1] = np.where(y[1] == 2, np.nan, y[1])


def fractions(X, y, weights):
    y[2] = y[2] + 0.25


def flat(X, y, weights):
    X[1] = X[1].ravel()


def negative_weight(X, y, weights):
    weights[1][7] = -1.0


def nan_weight(X, y, weights):
    weights[1][7] = np.nan


def huge(X, y, weights):
    X[1][3, 2] = 1e20


def missing_column(X, y, weights):
    X[:] = [pd.DataFrame(part, columns=list("abcde")) for part in X]
    X[1] = X[1].drop(columns="b")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (narrow, r"partition 2: X must have shape \(n, 5\), found \(\d+, 4\)"),
        (text_labels, "partition 2: y has labels of type <U1, .* text and numbers"),
        (too_few_labels, "partition 1: has 40 rows and 39 labels"),
        (nan, "partition 1: Input X contains NaN"),
        (text, "partition 0: X must hold real numbers"),
        (missing_labels, "partition 1: Input y contains NaN"),
        (fractions, "partition 2: Unknown label type: continuous"),
        (flat, "partition 1: X must have 2 dimensions"),
        (negative_weight, "partition 1: .*[Nn]egative"),
        (nan_weight, "partition 1: .*NaN"),
        (missing_column, "partition 1: X must have a column 'b'"),
        (huge, "partition 1: .* squares .* row 3 has 1e.20"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_bad_partitions_are_named(client, monkeypatch, spoil, message):
    """Also where the sample misses what is wrong."""
    given = partitions()
    spoil(*given)
    for sample_rows in (10_000, 6) if spoil is not huge else (6,):
        monkeypatch.setattr("bitclass.distributed.fitting.SAMPLE_ROWS", sample_rows)
        with pytest.raises(PartitionError, match=message) as raised:
            fitted(HINGE, *map(delayed, given))
        # Without the frames of Dask and of the worker.
        assert raised.value.__cause__ is None or raised.value.__suppress_context__
        assert "distributed/worker.py" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("no such bucket"), "partition 2: OSError: no such bucket"),
        (MemoryError("3 GiB"), "partition 2: MemoryError: 3 GiB"),
    ],
)
def test_errors_of_a_loading_function_name_the_partition(client, error, message):
    def broken():
        raise error

    X, y, _ = partitions()
    with pytest.raises(PartitionError, match=message):
        fitted(HINGE, [*delayed(X[:2]), dask.delayed(broken)()], delayed(y))


def test_collections_that_do_not_go_together(client):
    X, y = lazy(*problem(n=400), 100)
    for rows, error, message in (
        ((X[X[:, 0] > 0], y), ValueError, r"unknown size: call X.compute_chunk_sizes\(\)"),
        ((X.rechunk((100, 12)), y), ValueError, r"along the features.*X.rechunk\(\{1: -1\}\)"),
        ((X, y.rechunk(50)), PartitionError, "y has 8 partitions, but X has 4"),
        ((X, y.rechunk(((120, 80, 100, 100),))), PartitionError, "0: y has 120 rows, but X has"),
        ((X, np.zeros(399)), ValueError, "y must have one value for each of the 400 rows"),
        ((X,), ValueError, "y must be given"),
        ((np.zeros((3, 2)), np.zeros(3)), TypeError, "X must be a Dask array, .* found ndarray"),
        (([dask.delayed(1), 2], y), TypeError, "delayed values or futures, found int at .* 1"),
        ((y, y), ValueError, "X must have 2 dimensions, found 1"),
        ((X, da.zeros_like(y)), ValueError, "at least 2 classes"),
        ((X, y, da.zeros(400, chunks=100)), ValueError, "rows of positive weight"),
    ):
        with pytest.raises(error, match=message):
            fitted(HINGE, *rows)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_weight": "balanced"}, "class_weight='balanced' needs all rows at once"),
        ({"initial_codes": np.ones((400, 16))}, "initial_codes must be one of"),
        (
            {"initial_codes": "projection", "loss": "exponential"},
            "initial_codes='projection' .* found loss='exponential'; use initial_codes='means'",
        ),
        ({"n_bits": 0}, "n_bits"),
    ],
)
def test_parameters_that_need_all_rows(client, parameters, message):
    with pytest.raises(ValueError, match=message):
        fitted(HINGE | parameters, *lazy(*problem(n=400), 100))


def test_a_fit_that_fails_leaves_the_estimator_as_it_was(client):
    X, y = lazy(*problem(n=400), 100)
    found = fitted(HINGE, X, y)
    before = found.predict(X).compute()
    with pytest.raises(PartitionError):
        found.fit(X * np.nan, y)
    np.testing.assert_array_equal(found.predict(X).compute(), before)


def test_files_that_are_not_there_or_have_no_labels(client, tmp_path):
    pytest.importorskip("bitclass.io")
    with pytest.raises(ValueError, match=r"absent.npy: no such file"):
        fitted(HINGE, [tmp_path / "absent.npy"])
    np.save(tmp_path / "X.npy", np.zeros((5, 2)))
    with pytest.raises(ValueError, match="no labels found"):
        fitted(HINGE, FeatureFiles([tmp_path / "X.npy"]))
    with pytest.raises(ValueError, match="y and sample_weight must be None"):
        fitted(HINGE, [tmp_path / "X.npy"], np.zeros(5))


def test_predicting_other_rows(client):
    X, y = lazy(*problem(n=400), 100)
    found = fitted(HINGE, X, y)
    with pytest.raises(ValueError, match="X has 23 features, but the model takes 24"):
        found.predict(X[:, :23])
    with pytest.raises(ValueError, match="k must be an integer from 1 to .* 7, found 8"):
        found.top_classes(X, 8)
    rows = delayed([np.zeros((2, 24)), np.zeros((2, 3))])
    with pytest.raises(PartitionError, match=r"partition 1: X must have shape \(n, 24\)"):
        found.predict(rows).compute()
    # Empty partitions are fine.
    frame = dd.from_pandas(pd.DataFrame(np.eye(24)), npartitions=2)
    assert found.predict(frame[frame[0] > 0]).compute().shape == (1,)


def test_scores_need_one_label_and_one_weight_per_row(client):
    X, y, weights = partitions()
    found = fitted(HINGE, delayed(X), delayed(y))
    labels = [pd.DataFrame({"label": y[0]}), *y[1:]]
    with pytest.raises(PartitionError, match=r"partition 0: has 40 rows and labels of .*40, 1"):
        found.score(delayed(X), delayed(labels))
    weights[2] = np.ones((40, 1))
    with pytest.raises(PartitionError, match=r"partition 2: .* sample weights of shape .*40, 1"):
        found.score(delayed(X), delayed(y), delayed(weights))


def test_mixed_layouts_and_types_are_fine(client):
    X, y, _ = partitions()
    expected = fitted(HINGE, delayed(X), delayed(y))
    mixed = [X[0].astype(np.float64), scipy.sparse.csr_matrix(X[1]), X[2]]
    found = fitted(HINGE, delayed(mixed), delayed(y))
    np.testing.assert_array_equal(found.weights_, expected.weights_)


def test_without_a_cluster(monkeypatch):
    X, y = lazy(*problem(n=400), 100)
    monkeypatch.setattr("bitclass.distributed.cluster.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("bitclass.distributed.cluster.WORKER_SECONDS", 0.5)

    def no_client():
        raise ValueError("No clients found")

    with monkeypatch.context() as patched:
        patched.setattr("distributed.default_client", no_client)
        with pytest.raises(ClusterError, match="no Dask client: create one"):
            DaskBinaryCodeClassifier(**HINGE).fit(X, y)
    with (
        pytest.raises(ClusterError, match="no Dask scheduler can be reached at tcp://127.0.0.1:9"),
        connected("tcp://127.0.0.1:9"),
    ):
        pass
    with (
        LocalCluster(n_workers=0, processes=False, **QUIET) as empty,
        Client(empty) as client,
        client.as_current(),
        pytest.raises(ClusterError, match="has no workers after"),
    ):
        fitted(HINGE, X, y)
