"""The model of a cluster is that of one machine."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from clusters import CLIPPED, HINGE, assert_same_model, by_partial_fit, fitted, lazy, problem
from distributed import wait

from bitclass import BinaryCodeClassifier
from bitclass.data import open_rows
from bitclass.distributed import DaskBinaryCodeClassifier, FeatureFiles
from bitclass.distributed.predicting import model_at_workers
from bitclass.streaming import fit_reader
from bitclass.training import load_statistics, save_statistics

EXPONENTIAL = HINGE | {"n_bits": 48, "loss": "exponential", "scale": 0.2}
# Rows start with codes of their own.
PROJECTED = HINGE | {"initial_codes": "projection"}
PROJECTED_EXPONENTIAL = EXPONENTIAL | {"initial_codes": "projection"}
ALL = [HINGE, PROJECTED, EXPONENTIAL, PROJECTED_EXPONENTIAL, CLIPPED]


def named(parameters):
    return f"{parameters['loss']}-{parameters.get('initial_codes', 'means')}"


@pytest.mark.parametrize("parameters", ALL, ids=named)
@pytest.mark.parametrize("in_memory", [True, False], ids=["persisted", "lazy"])
def test_arrays(client, parameters, in_memory):
    X, y = problem()
    rows = lazy(X, y, 450)
    if in_memory:
        rows = client.persist(rows)
        wait(rows)
    passes = set()
    found = fitted(parameters, *rows, progress=lambda name, done, total: passes.add(name))
    assert passes >= {"looking", "learning"}
    assert ("second pass" in passes) == (parameters is CLIPPED)
    assert_same_model(found, by_partial_fit(parameters, X, y, 450))
    # All rows fit into the sample, so the codes of `fit` are those of the cluster.
    whole = BinaryCodeClassifier(**parameters).fit(X, y)
    np.testing.assert_array_equal(found.weights_, whole.weights_)
    assert found.score(*rows) == pytest.approx(whole.score(X, y), abs=1e-3)


def test_rows_sorted_by_class_with_classes_that_come_late(client):
    X, y = problem()
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array([f"class {label}" for label in y[order]])
    for parameters in (HINGE, PROJECTED_EXPONENTIAL):
        found = fitted(parameters, *lazy(X, y, 310))
        assert_same_model(found, by_partial_fit(parameters, X, y, 310))


def test_weights_of_rows_and_classes(client):
    X, y = problem()
    weights = np.random.default_rng(1).integers(0, 4, size=len(y)) / 4
    for common in (HINGE, PROJECTED, CLIPPED):
        parameters = common | {"class_weight": {0: 2.0, 1: 0.5}}
        counts = weights > 0
        local = BinaryCodeClassifier(**parameters).begin(X[counts], y[counts])
        for start in range(0, len(y), 450):
            part = slice(start, start + 450)
            local.partial_fit(X[part], y[part], sample_weight=weights[part])
        rows = [(0, X[counts], y[counts], None)]
        local.solve(rows.__iter__)
        assert_same_model(fitted(parameters, *lazy(X, y, 450), weights), local)


def test_rows_of_weight_0_are_not_counted(client):
    """They would change the penalty, and whether there are rows enough to refine."""
    X, y = problem()
    weights = (np.arange(len(y)) % 5 == 0).astype(float)
    for common in (HINGE, EXPONENTIAL, CLIPPED):
        parameters = common | {"alpha": "auto"}
        found = fitted(parameters, *lazy(X, y, 450), weights)
        whole = BinaryCodeClassifier(**parameters).fit(X, y, sample_weight=weights)
        assert found.statistics_.n_rows == whole.statistics_.n_rows == 600
        assert found.alpha_ == whole.alpha_


def test_sample_smaller_than_the_rows(client, monkeypatch):
    X, y = problem()
    monkeypatch.setattr("bitclass.distributed.fitting._SAMPLE_ROWS", 500)
    seen = []
    begin = BinaryCodeClassifier.begin

    def watched(self, X, y):
        seen.append((X, y))
        return begin(self, X, y)

    monkeypatch.setattr(BinaryCodeClassifier, "begin", watched)
    found = fitted(PROJECTED, *lazy(X, y, 450))
    assert 490 <= len(seen[0][1]) <= 500
    local = BinaryCodeClassifier(**PROJECTED).begin(*seen[0])
    for start in range(0, len(y), 450):
        local.partial_fit(X[start : start + 450], y[start : start + 450])
    assert_same_model(found, local)
    assert_same_model(fitted(PROJECTED, *lazy(X, y, 450)), found)
    np.testing.assert_array_equal(seen[2][0], seen[0][0])


def test_frames_remember_the_names_of_features(client):
    X, y = problem(n=900)
    names = [f"f{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(label=[f"c{label}" for label in y])
    frame = dd.from_pandas(table, npartitions=4)
    found = fitted(HINGE, frame[names], frame["label"])
    whole = BinaryCodeClassifier(**HINGE).fit(table[names], table["label"].to_numpy())
    np.testing.assert_array_equal(found.weights_, whole.weights_)
    assert found.feature_names_in_.tolist() == names
    predicted = found.predict(frame[names])
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(predicted.compute(), found.to_local().predict(table[names]))
    with pytest.raises(ValueError, match="columns of the fit, f0 to f23"):
        found.predict(frame[names[::-1]])
    found.fit(*lazy(X, y, 450))
    assert not hasattr(found, "feature_names_in_")
    assert found.predict(frame[names[::-1]]).compute().shape == (900,)


def test_delayed_partitions_of_sparse_rows(client):
    X, y = problem(n=900)
    X[X < 0.7] = 0
    parts = [slice(start, start + 300) for start in range(0, 900, 300)]
    rows = [dask.delayed(scipy.sparse.csr_matrix(X[part])) for part in parts]
    found = fitted(CLIPPED, rows, [dask.delayed(y[part]) for part in parts])
    assert_same_model(found, by_partial_fit(CLIPPED, scipy.sparse.csr_matrix(X), y, 300))
    codes = found.encode(rows)
    assert np.isnan(codes.shape[0])
    np.testing.assert_array_equal(codes.compute(), found.to_local().encode(X))


@pytest.mark.parametrize("parameters", [HINGE, CLIPPED], ids=named)
def test_files_that_the_workers_read(client, tmp_path, monkeypatch, parameters):
    # Batches of 256 rows, so that there are lanes of several partitions of several batches.
    for name in ("bitclass.streaming", "bitclass.distributed.partitions"):
        monkeypatch.setattr(f"{name}.batch_rows_for", lambda reader: 256)
    monkeypatch.setattr("bitclass.distributed.partitions._PARTITIONS_A_WORKER", 2)
    X, y = problem()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    files = FeatureFiles([tmp_path / "X.npy"], labels_file=tmp_path / "y.npy")
    found = fitted(parameters, files)
    reader = open_rows(tmp_path / "X.npy", labels_file=tmp_path / "y.npy")
    assert_same_model(found, fit_reader(BinaryCodeClassifier(**parameters), reader))
    predicted = found.predict(FeatureFiles([tmp_path / "X.npy"], labels=False))
    assert len(predicted.chunks[0]) == 4
    np.testing.assert_array_equal(predicted.compute(), found.to_local().predict(X))


def test_predictions_are_lazy_and_those_of_the_local_model(client):
    X, y = problem(n=900)
    rows = lazy(X, y, 250)
    found = fitted(EXPONENTIAL, *rows)
    local = found.to_local()
    assert type(local) is BinaryCodeClassifier
    for method in ("predict", "encode", "decision_function", "predict_proba"):
        answer = getattr(found, method)(rows[0])
        assert isinstance(answer, da.Array)
        assert answer.chunks[0] == rows[0].chunks[0]
        expected = getattr(local, method)(X)
        assert answer.dtype == expected.dtype
        np.testing.assert_array_equal(answer.compute(), expected)
    labels, distances = found.top_classes(rows[0], k=3)
    for answer, expected in zip((labels, distances), local.top_classes(X, k=3), strict=True):
        np.testing.assert_array_equal(answer.compute(), expected)
    assert found.score(*rows) == local.score(X, y)


def test_the_model_is_sent_once(client):
    X, y = problem(n=900)
    rows = lazy(X, y, 250)
    found = fitted(HINGE, *rows)
    dask.compute(found.predict(rows[0]), found.encode(rows[0]))
    found.predict(rows[0]).compute()
    models = client.run_on_scheduler(
        lambda dask_scheduler: [k for k in dask_scheduler.tasks if "bitclass_model" in str(k)]
    )
    assert len(models) == 1


def test_a_model_that_the_cluster_forgot_is_sent_again(client):
    X, y = problem(n=900)
    rows = lazy(X, y, 250)
    found = fitted(HINGE, *rows)
    before = found.predict(rows[0]).compute()
    # As when the cluster is restarted.
    client.cancel(model_at_workers(client, found))
    np.testing.assert_array_equal(found.predict(rows[0]).compute(), before)


def test_learning_goes_on_from_the_sums_of_a_cluster(client, tmp_path):
    X, y = problem()
    # As many rows of each new class as of the others: those of few rows would get equal weights.
    more_X, more_y = problem(n=4000, n_classes=9, seed=5)
    for parameters in (HINGE, EXPONENTIAL | {"initial_codes": "random"}):
        local = fitted(parameters, *lazy(X, y, 450)).to_local()
        save_statistics(tmp_path / "sums.safetensors", local.statistics_)
        expected = BinaryCodeClassifier(**parameters).begin(X, y)
        for start in range(0, len(y), 450):
            expected.partial_fit(X[start : start + 450], y[start : start + 450])
        assert local.statistics_.n_rows == expected.statistics_.n_rows == len(y)
        read, _ = load_statistics(tmp_path / "sums.safetensors")
        resumed = BinaryCodeClassifier(**parameters).resume(read)
        for one in (local, resumed, expected):
            one.partial_fit(more_X, more_y)
        assert_same_model(local, expected)
        assert_same_model(resumed, expected)


def test_parameters_are_those_of_the_classifier():
    ours, theirs = DaskBinaryCodeClassifier(), BinaryCodeClassifier()
    assert ours.get_params() == theirs.get_params()
