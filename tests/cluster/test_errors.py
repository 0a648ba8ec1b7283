"""Errors name invalid partitions and missing clusters."""

import traceback
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from distributed import Client, KilledWorker, LocalCluster, wait

from bitclass.dask import ClusterError, DaskBinaryCodeClassifier, PartitionError, _results

from .clusters import QUIET, blocks, fitted, lazy, problem

pytestmark = pytest.mark.slow

PARAMETERS = {"n_bits": 16, "random_state": 0}


def partitions(n=3, rows=40, d=5):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((rows, d)).astype(np.float32) for _ in range(n)]
    return X, [np.arange(rows) % 3 for _ in range(n)], [np.ones(rows) for _ in range(n)]


def collections(X, y, weights):
    return blocks(X, 40, 5), blocks(y, 40), blocks(weights, 40)


def with_entry(values, index, value):
    changed = values.copy()
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("argument", "at", "spoil", "message"),
    [
        ("X", 2, lambda X: X[:, :4], r"X must have shape \(n, 5\), found \(\d+, 4\)"),
        ("X", 1, lambda X: with_entry(X, (3, 2), np.nan), "Input X contains NaN"),
        ("X", 0, lambda X: X.astype(str), "X must contain real numbers"),
        ("X", 1, np.ravel, "X must have 2 dimensions"),
        ("X", 1, lambda X: with_entry(X, (3, 2), 1e20), ".* squares .* row 3 has 1e.20"),
        ("y", 2, lambda y: np.array(["a", "b"] * 20), "y has labels of type .* text and numbers"),
        ("y", 1, lambda y: y[:-1], r"has 40 rows and labels of shape \(39,\)"),
        ("y", 0, lambda y: pd.DataFrame({"label": y}), r"has 40 rows and labels of shape .*40, 1"),
        ("y", 1, lambda y: np.where(y == 2, np.nan, y), "Input y contains NaN"),
        ("y", 2, lambda y: y + 0.25, "Unknown label type: continuous"),
        ("weights", 1, lambda weights: with_entry(weights, 7, -1.0), ".*[Nn]egative"),
        ("weights", 1, lambda weights: with_entry(weights, 7, np.nan), ".*NaN"),
        ("weights", 2, lambda weights: weights[:, None], r".* sample weights of shape .*40, 1"),
    ],
)
def test_bad_partitions_are_named(client, monkeypatch, argument, at, spoil, message):
    """Also if the partition is not in the sample."""
    X, y, weights = partitions()
    given = {"X": X, "y": y, "weights": weights}
    given[argument][at] = spoil(given[argument][at])
    for sample_partitions in (64, 1) if "squares" not in message else (1,):
        monkeypatch.setattr("bitclass.dask.SAMPLE_PARTITIONS", sample_partitions)
        with pytest.raises(PartitionError, match=f"partition {at}: {message}") as raised:
            fitted(PARAMETERS, *collections(**given))
        # Without the frames of Dask and of the worker.
        assert raised.value.__cause__ is None or raised.value.__suppress_context__
        assert "distributed/worker.py" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("error", [OSError("no such bucket"), MemoryError("3 GiB")])
def test_errors_of_a_loading_function_name_the_partition(client, error):
    def broken(block, block_info):
        if block_info[0]["chunk-location"][0] == 2:
            raise error
        return block

    X, y, _ = collections(*partitions())
    message = f"partition 2: {type(error).__name__}: {error}"
    with pytest.raises(PartitionError, match=message):
        fitted(PARAMETERS, X.map_blocks(broken, dtype=float), y)


def test_all_partitions_that_may_have_killed_a_worker_are_named(client):
    def load(is_killed):
        if is_killed:
            raise KilledWorker("load", SimpleNamespace(address="tcp://a"), 3)

    futures = [client.submit(load, is_killed, pure=False) for is_killed in (False, True, True)]
    wait(futures)
    with pytest.raises(ClusterError, match="^partition 1 or partition 2: 4 workers died"):
        _results(client, futures, [f"partition {index}" for index in range(3)])


def test_mismatched_collections(client):
    X, y = lazy(*problem(n=400), 100)
    for rows, error, message in (
        ((X[X[:, 0] > 0], y), ValueError, r"unknown size; call X.compute_chunk_sizes\(\)"),
        ((X.rechunk((100, 12)), y), ValueError, r"along the features.*X.rechunk\(\{1: -1\}\)"),
        ((X, y.rechunk(50)), PartitionError, "y has 8 partitions, but X has 4"),
        (
            (X, y.rechunk(((120, 80, 100, 100),))),
            PartitionError,
            r"partition [01]: has 100 rows and labels of shape \((120|80),\)",  # the first to fail
        ),
        ((X, np.zeros(400)), TypeError, "y must be a Dask array .* found ndarray"),
        ((X, None), ValueError, "y is required"),
        ((np.zeros((3, 2)), np.zeros(3)), TypeError, "X must be a Dask array .* found ndarray"),
        (([dask.delayed(1)], y), TypeError, "X must be a Dask array .* found list"),
        ((y, y), ValueError, "X must have 2 dimensions, found 1"),
        ((X, da.zeros_like(y)), ValueError, "at least 2 classes"),
        ((X, y, da.zeros(400, chunks=100)), ValueError, "rows with positive weight"),
    ):
        with pytest.raises(error, match=message):
            fitted(PARAMETERS, *rows)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_weight": "balanced"}, "class_weight='balanced' needs all rows at once"),
        ({"n_bits": 0}, "n_bits"),
    ],
)
def test_parameters_that_need_all_rows(client, parameters, message):
    with pytest.raises(ValueError, match=message):
        fitted(PARAMETERS | parameters, *lazy(*problem(n=400), 100))


def test_a_failed_fit_leaves_the_estimator_unchanged(client):
    X, y = lazy(*problem(n=400), 100)
    found = fitted(PARAMETERS, X, y)
    before = found.predict(X).compute()
    with pytest.raises(PartitionError):
        found.fit(X * np.nan, y)
    np.testing.assert_array_equal(found.predict(X).compute(), before)


def test_predicting_other_rows(client):
    X, y = lazy(*problem(n=400), 100)
    found = fitted(PARAMETERS, X, y)
    with pytest.raises(ValueError, match="X has 23 features, but the model takes 24"):
        found.predict(X[:, :23])
    with pytest.raises(ValueError, match="k must be an integer from 1 to .* 7, found 8"):
        found.top_classes(X, 8)
    rows = blocks([np.zeros((2, 24)), np.zeros((2, 3))], 2, 24)
    with pytest.raises(PartitionError, match=r"partition 1: X must have shape \(n, 24\)"):
        found.predict(rows).compute()
    # Empty partitions are fine.
    frame = dd.from_pandas(pd.DataFrame(np.eye(24)), npartitions=2)
    assert found.predict(frame[frame[0] > 0]).compute().shape == (1,)


def test_mixed_layouts_and_types_are_fine(client):
    X, y, weights = partitions()
    expected = fitted(PARAMETERS, *collections(X, y, weights))
    mixed = [X[0].astype(np.float64), scipy.sparse.csr_matrix(X[1]), X[2]]
    found = fitted(PARAMETERS, *collections(mixed, y, weights))
    # Rows of other types are rounded differently, so the models are equal in what they answer.
    rows = np.concatenate(X)
    agreement = found.to_local().predict(rows) == expected.to_local().predict(rows)
    assert agreement.mean() > 0.95


def test_without_a_cluster(monkeypatch):
    X, y = lazy(*problem(n=400), 100)
    monkeypatch.setattr("bitclass.dask.WORKER_SECONDS", 0.5)

    def no_client():
        raise ValueError("No clients found")

    with monkeypatch.context() as patched:
        patched.setattr("distributed.default_client", no_client)
        with pytest.raises(ClusterError, match="no Dask client: create one"):
            DaskBinaryCodeClassifier(**PARAMETERS).fit(X, y)
    with (
        LocalCluster(n_workers=0, processes=False, **QUIET) as empty,
        Client(empty) as client,
        client.as_current(),
        pytest.raises(ClusterError, match="has no workers after"),
    ):
        fitted(PARAMETERS, X, y)
