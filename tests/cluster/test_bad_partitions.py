"""Partitions that cannot be learned from, and clusters that are not there, are told as such."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from clusters import QUIET, fitted, lazy, problem
from distributed import Client, LocalCluster

from bitclass.distributed import (
    ClusterError,
    DaskBinaryCodeClassifier,
    FeatureFiles,
    PartitionError,
    PartitionMemoryError,
    connected,
)

HINGE = {"n_bits": 16, "loss": "hinge", "random_state": 0}


def delayed(parts):
    return [dask.delayed(part) for part in parts]


def partitions(n=3, rows=40, d=5):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((rows, d)).astype(np.float32) for _ in range(n)]
    return X, [np.arange(rows) % 3 for _ in range(n)]


def narrow(X, y):
    X[2] = X[2][:, :4]


def of_other_type(X, y):
    X[1] = X[1].astype(np.float64)


def empty(X, y):
    X[1], y[1] = X[1][:0], y[1][:0]


def of_text_labels(X, y):
    y[2] = np.array(["a", "b"] * 20)


def of_few_labels(X, y):
    y[1] = y[1][:-1]


def not_finite(X, y):
    X[1][3, 2] = np.nan


def not_numbers(X, y):
    X[0] = np.array([["a"] * 5] * 40)


def of_both_layouts(X, y):
    X[2] = scipy.sparse.csr_matrix(X[2])


def of_missing_labels(X, y):
    y[1] = np.where(y[1] == 2, np.nan, y[1])


def of_fractions(X, y):
    y[2] = y[2] + 0.25


def flat(X, y):
    X[1] = X[1].ravel()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (narrow, "partition 2: has 4 features, but partition 0 has 5"),
        (of_other_type, "partition 1: has features of type float64, but partition 0 has .*float32"),
        (empty, r"partition 1 \(.*\): is empty"),
        (of_text_labels, "partition 2: has labels that are text, but partition 0 .* numbers"),
        (of_few_labels, r"partition 1 \(.*\): has 40 rows and 39 labels"),
        (not_finite, r"partition 1 \(.*\): Input X contains NaN"),
        (not_numbers, r"partition 0 \(.*\): must have features that are numbers"),
        (of_both_layouts, "partition 2: has features that are sparse, but partition 0 .* dense"),
        (of_missing_labels, r"partition 1 \(.*\): Input y contains NaN"),
        (of_fractions, r"partition 2 \(.*\): Unknown label type: continuous"),
        (flat, r"partition 1 \(.*\): must have features of 2 axes"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_partition_that_does_not_fit_is_named(client, spoil, message):
    X, y = partitions()
    spoil(X, y)
    with pytest.raises(PartitionError, match=message):
        fitted(HINGE, delayed(X), delayed(y))


@pytest.mark.parametrize("weight", [-1.0, np.nan])
def test_weights_that_are_none_are_named(client, weight):
    X, y = partitions()
    weights = [np.ones(40) for _ in X]
    weights[1][7] = weight
    with pytest.raises(PartitionError, match=r"partition 1 \(.*\): must have weights that are fin"):
        fitted(HINGE, delayed(X), delayed(y), delayed(weights))


def test_a_frame_with_other_columns_is_named(client):
    X, y = partitions()
    frames = [pd.DataFrame(part, columns=list("abcde")) for part in X]
    frames[1] = frames[1][list("bacde")]
    with pytest.raises(PartitionError, match="partition 1: has features named b, a, c, ..., but"):
        fitted(HINGE, delayed(frames), delayed(y))


def test_what_a_loading_function_raises_is_raised_with_its_partition(client):
    def broken():
        raise OSError("no such bucket")

    X, y = partitions()
    with pytest.raises(OSError, match="no such bucket") as raised:
        fitted(HINGE, [*delayed(X[:2]), dask.delayed(broken)()], delayed(y))
    assert raised.value.__notes__ == ["This was met at partition 2 (of unknown size)."]


def test_no_memory_for_a_partition_is_told_with_its_size(client):
    def greedy(block):
        raise MemoryError("unable to allocate 3 GiB")

    X, y = lazy(*problem(n=400), 100)
    X = X.map_blocks(greedy, dtype=X.dtype, meta=np.empty((0, 0), X.dtype))
    with pytest.raises(PartitionMemoryError, match=r"partition \d \(100 rows, 0.0 MB\): no memory"):
        fitted(HINGE, X, y)


def test_collections_that_do_not_go_together(client):
    X, y = lazy(*problem(n=400), 100)
    with pytest.raises(ValueError, match="unknown size at partition 0 of axis 0: call X.compute"):
        fitted(HINGE, X[X[:, 0] > 0], y)
    with pytest.raises(ValueError, match=r"cut along the features.*X.rechunk\(\{1: -1\}\)"):
        fitted(HINGE, X.rechunk((100, 12)), y)
    with pytest.raises(PartitionError, match="y has 8 partitions, but X has 4"):
        fitted(HINGE, X, y.rechunk(50))
    with pytest.raises(PartitionError, match="y has 120 rows in partition 0, but X has 100"):
        fitted(HINGE, X, y.rechunk(((120, 80, 100, 100),)))
    with pytest.raises(ValueError, match="y must have one value for each of the 400 rows"):
        fitted(HINGE, X, np.zeros(399))
    with pytest.raises(ValueError, match="y must be given"):
        fitted(HINGE, X)
    with pytest.raises(TypeError, match="X must be a Dask array, .* found ndarray"):
        fitted(HINGE, np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(TypeError, match="X must hold delayed values or futures, found int at .* 1"):
        fitted(HINGE, [dask.delayed(1), 2], y)
    with pytest.raises(ValueError, match="X must have 2 axes, found 1"):
        fitted(HINGE, y, y)


def test_parameters_that_need_all_rows(client):
    X, y = lazy(*problem(n=400), 100)
    with pytest.raises(ValueError, match="class_weight='balanced' needs all rows at once"):
        fitted(HINGE | {"class_weight": "balanced"}, X, y)
    with pytest.raises(ValueError, match="initial_codes must be one of"):
        fitted(HINGE | {"initial_codes": np.ones((400, 16))}, X, y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        fitted(HINGE, X, da.zeros_like(y))


def test_files_that_are_not_there_or_have_no_labels(client, tmp_path):
    with pytest.raises(ValueError, match="absent.npy: there is no such file"):
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
    rows = [dask.delayed(np.zeros((2, 24))), dask.delayed(np.zeros((2, 3)))]
    with pytest.raises(PartitionError, match="partition 1 .*: X has 3 features"):
        found.predict(rows).compute()
    # Nothing to predict is no fault.
    frame = dd.from_pandas(pd.DataFrame(np.eye(24)), npartitions=2)
    assert found.predict(frame[frame[0] > 0]).compute().shape == (1,)


def test_predicting_frames_of_other_columns(client):
    X, y = partitions()
    frames = [pd.DataFrame(part, columns=list("abcde")) for part in X]
    found = fitted(HINGE, delayed(frames), delayed(y))
    right = found.score(delayed(frames), delayed(y))
    frames[1] = frames[1][list("bacde")]
    message = r"partition 1 .*: X must have the columns of the fit, a to e, .*; found b to e"
    with pytest.raises(PartitionError, match=message):
        found.predict(delayed(frames)).compute()
    with pytest.raises(PartitionError, match=message):
        found.score(client.scatter(frames), delayed(y))
    # Arrays have no names, and rows learned from arrays neither.
    assert found.score(delayed(X), delayed(y)) == right
    unnamed = fitted(HINGE, delayed(X), delayed(y))
    assert unnamed.predict(delayed(frames)).compute().shape == (120,)


def test_scores_need_one_label_and_one_weight_a_row(client):
    X, y = partitions()
    found = fitted(HINGE, delayed(X), delayed(y))
    labels = [pd.DataFrame({"label": y[0]}), *y[1:]]
    with pytest.raises(PartitionError, match=r"partition 0 .*: has 40 rows and labels of .*40, 1"):
        found.score(delayed(X), delayed(labels))
    weights = [np.ones(40), np.ones(40), np.ones((40, 1))]
    with pytest.raises(PartitionError, match=r"partition 2 .*: has 40 rows and weights of .*40, 1"):
        found.score(delayed(X), delayed(y), delayed(weights))


def test_without_a_cluster(monkeypatch):
    X, y = lazy(*problem(n=400), 100)
    monkeypatch.setattr("bitclass.distributed.cluster._CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("bitclass.distributed.cluster._WORKER_SECONDS", 0.5)

    def no_client():
        raise ValueError("No clients found")

    with monkeypatch.context() as patched:
        patched.setattr("distributed.default_client", no_client)
        with pytest.raises(ClusterError, match="no Dask client: make one before"):
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
        pytest.raises(ClusterError, match="has no workers, after"),
    ):
        fitted(HINGE, X, y)
