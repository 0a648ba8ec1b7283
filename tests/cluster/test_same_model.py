"""The model of a cluster is that of one machine."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from distributed import wait

from bitclass import BinaryCodeClassifier
from bitclass.dask import DaskBinaryCodeClassifier

from .clusters import PARAMETERS, assert_same_model, blocks, fitted, lazy, on_one_machine, problem

pytestmark = pytest.mark.slow

REFINED = PARAMETERS | {"refine": True}
KERNEL = PARAMETERS | {"kernel": "rbf", "n_anchors": 50}
ALL = {"closed form": PARAMETERS, "refined": REFINED, "kernel": KERNEL}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "lazy") for name in ALL), ("closed form", "persisted"), ("kernel", "sharing")],
)
def test_arrays(client, name, kind):
    parameters = ALL[name]
    X, y = problem()
    rows = lazy(X, y, 450)
    if kind == "sharing":  # every partition needs something of all others
        rows = rows[0] + 0 * rows[0].sum(axis=0), rows[1]
    elif kind == "persisted":
        rows = client.persist(rows)
        wait(rows)
    found, whole = fitted(parameters, *rows), on_one_machine(parameters, X, y)
    if kind == "persisted":  # the workers may hold the rows in another order
        assert np.mean(found.weights_ == whole.weights_) > 0.95
    else:
        assert_same_model(found, whole)
    assert found.report_.n_judged == whole.report_.n_judged
    assert found.score(*rows) == pytest.approx(whole.score(X, y), abs=1e-3)


def test_more_rows_than_the_pool_holds(client):
    X, y = problem(n=12_000)
    for parameters in (PARAMETERS, REFINED):
        found, whole = fitted(parameters, *lazy(X, y, 1700)), on_one_machine(parameters, X, y)
        assert found.report_.n_judged == whole.report_.n_judged
        assert found.report_.n_rows == 12_000
        assert np.mean(found.weights_ == whole.weights_) > 0.95
        assert found.to_local().score(X, y) == pytest.approx(whole.score(X, y), abs=5e-3)


def test_rows_sorted_by_class_with_late_classes(client):
    X, y = problem()
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array([f"class {label}" for label in y[order]])
    assert_same_model(fitted(PARAMETERS, *lazy(X, y, 310)), on_one_machine(PARAMETERS, X, y))


@pytest.mark.parametrize("refine", [False, True])
def test_weights_of_rows_and_classes(client, refine):
    """Rows of weight 0 are as if absent."""
    X, y = problem()
    weights = np.random.default_rng(1).integers(0, 5, size=len(y)) / 4
    # Row numbers differ, and with them the rows that choose a penalty.
    parameters = PARAMETERS | {"alpha": 1.0, "refine": refine}
    parameters |= {"class_weight": {0: 2.0, 1: 0.5, 3: 0.0}}
    found = fitted(parameters, *lazy(X, y, 450), da.from_array(weights, chunks=450))
    assert 3 in found.classes_
    counts = (weights > 0) & (y != 3)
    expected = on_one_machine(
        parameters | {"class_weight": {0: 2.0, 1: 0.5}}, X[counts], y[counts], weights[counts]
    )
    assert found.report_.n_rows == expected.report_.n_rows == counts.sum()
    if not refine:
        known = np.isin(found.classes_, expected.classes_)
        assert np.mean(found.weights_[known] == expected.weights_) > 0.95
    assert found.to_local().score(X, y) == pytest.approx(expected.score(X, y), abs=0.01)


def test_the_same_rows_refine_for_any_partitions(client, monkeypatch):
    X, y = problem(n=9000)
    monkeypatch.setattr("bitclass.dask.SAMPLE_BYTES", X.nbytes // 6)
    seen = []
    learn = BinaryCodeClassifier._learn

    def watched(self, settings, collected, **options):
        seen.append(collected)
        return learn(self, settings, collected, **options)

    monkeypatch.setattr(BinaryCodeClassifier, "_learn", watched)
    for rows in (450, 1700):
        fitted(PARAMETERS | {"refine": True}, *lazy(X, y, rows))
    pools = [np.sort(collected.pool.keys) for collected in seen]
    np.testing.assert_array_equal(pools[0], pools[1])
    few, many = sorted((np.sort(collected.sample.keys) for collected in seen), key=len)
    assert 600 < len(few) <= len(many) <= 1500
    np.testing.assert_array_equal(few, many[: len(few)])


def test_wide_rows(client):
    """Sums over all pairs of 40,000 features would take 13 GB."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 3000)
    noise = scipy.sparse.random(3000, 40_000, 5e-4, "csr", np.float32, rng)
    X = (
        noise + scipy.sparse.csr_array((np.ones(3000), (np.arange(3000), y)), (3000, 40_000))
    ).tocsr()
    rows = blocks([X[start : start + 500] for start in range(0, 3000, 500)], 500, 40_000)
    labels = da.from_array(y, chunks=500)
    found, whole = fitted(REFINED, rows, labels), on_one_machine(REFINED, X, y)
    assert found.to_local().score(X, y) == pytest.approx(whole.score(X, y), abs=0.01)
    assert whole.score(X, y) > 0.9
    np.testing.assert_array_equal(found.predict(rows).compute(), found.to_local().predict(X))


def frame_of(*parts):
    """A Dask frame of parts that may have other columns than the first."""
    return dd.from_delayed(list(map(dask.delayed, parts)), meta=parts[0], verify_meta=False)


def test_frames_are_matched_by_the_names_of_columns(client):
    X, y = problem(n=900)
    names = [f"f{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(label=[f"c{label}" for label in y])
    frame = dd.from_pandas(table, npartitions=4)
    found = fitted(PARAMETERS, frame[names], frame["label"])
    whole = BinaryCodeClassifier(**PARAMETERS).fit(table[names], table["label"].to_numpy())
    assert found.feature_names_in_.tolist() == names
    expected = found.to_local().predict(table[names])
    # Partitions of frames are summed in another order.
    assert np.mean(expected == whole.predict(table[names])) > 0.95
    # Columns in any order, including unknown ones.
    for columns in (names, ["label", *names[::-1]]):
        predicted = found.predict(frame[columns])
        assert isinstance(predicted, da.Array)
        np.testing.assert_array_equal(predicted.compute(), expected)
    assert found.packed().feature_names == tuple(names), (
        "predictions select columns, and forget them"
    )
    with pytest.raises(ValueError, match=r"partition \d: X must have a column 'f3'"):
        found.predict(frame[names[:3] + names[4:]]).compute()
    # Partitions of one fit may also differ in their order.
    labels = dd.from_pandas(table["label"], npartitions=2)
    reordered = frame_of(table[:450][names], table[450:][["label", *names[::-1]]])
    again = fitted(PARAMETERS, reordered, labels).to_local()
    assert np.mean(again.predict(table[names]) == expected) > 0.95
    without = frame_of(table[:450][names], table[450:][names[:3] + names[4:]])
    with pytest.raises(ValueError, match=r"partition 1: X must have a column 'f3'"):
        fitted(PARAMETERS, without, labels)
    found.fit(*lazy(X, y, 450))
    assert not hasattr(found, "feature_names_in_")


def test_sparse_rows_and_empty_partitions(client):
    X, y = problem(n=1800)
    X[X < 0.7] = 0
    rows, labels = lazy(X, y, 600)
    rows = rows.map_blocks(scipy.sparse.csr_matrix, dtype=X.dtype)
    assert_same_model(
        fitted(PARAMETERS, rows, labels), on_one_machine(PARAMETERS, scipy.sparse.csr_matrix(X), y)
    )
    kept = np.arange(1800) // 600 != 1
    names = [f"f{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(label=y, kept=kept)
    frame = dd.from_pandas(table, npartitions=3)
    frame = frame[frame["kept"]]
    rows = frame[names]
    found = fitted(PARAMETERS, rows, frame["label"])
    assert found.report_.n_rows == 1200
    whole = on_one_machine(PARAMETERS, table[names][kept], y[kept])
    expected = whole.score(table[names][kept], y[kept])
    assert found.to_local().score(table[names][kept], y[kept]) == pytest.approx(expected, abs=0.01)
    codes = found.encode(rows)
    assert np.isnan(codes.shape[0])
    np.testing.assert_array_equal(codes.compute(), found.to_local().encode(table[names][kept]))


def test_predictions_are_lazy_and_those_of_the_local_model(client):
    X, y = problem(n=900)
    rows = lazy(X, y, 250)
    found = fitted(PARAMETERS, *rows)
    local = found.to_local()
    assert type(local) is BinaryCodeClassifier
    for method in (
        "predict",
        "encode",
        "decision_function",
        "predict_proba",
        "predict_log_proba",
        "typicality",
    ):
        answer = getattr(found, method)(rows[0])
        assert isinstance(answer, da.Array)
        assert answer.chunks[0] == rows[0].chunks[0]
        expected = getattr(local, method)(X)
        assert answer.dtype == expected.dtype
        np.testing.assert_array_equal(answer.compute(), expected)
    top = found.top_classes(rows[0], k=3, probabilities=True)
    assert top.typicality is None
    for answer, expected in zip(
        top[:3], local.top_classes(X, k=3, probabilities=True), strict=False
    ):
        np.testing.assert_array_equal(answer.compute(), expected)
    assert found.score(*rows) == local.score(X, y)
    found.set_params(reject=0.3, unknown_label=-1)
    rejecting = found.predict(rows[0])
    np.testing.assert_array_equal(rejecting.compute(), found.to_local().predict(X))
    assert (rejecting.compute() == -1).any()
    np.testing.assert_array_equal(
        found.predict(rows[0], reject=0).compute(), found.to_local().predict(X, reject=0)
    )


def test_learning_continues_from_the_sums_of_a_cluster(client):
    X, y = problem()
    more_X, more_y = problem(n=4000, n_classes=9, seed=5)
    parameters = PARAMETERS | {"keep_sums": True}
    models = [fitted(parameters, *lazy(X, y, 450)).to_local(), on_one_machine(parameters, X, y)]
    for model in models:
        model.partial_fit(more_X, more_y).solve()
    assert_same_model(*models)


def test_parameters_are_those_of_the_classifier():
    assert DaskBinaryCodeClassifier().get_params() == BinaryCodeClassifier().get_params()
