"""The model of a cluster is that of one machine."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from clusters import HINGE, assert_same_model, fitted, lazy, on_one_machine, problem
from distributed import wait

from bitclass import BinaryCodeClassifier
from bitclass import dask as module
from bitclass.dask import DaskBinaryCodeClassifier
from bitclass.training import load_statistics, save_statistics

KERNEL = HINGE | {"kernel": "rbf", "n_anchors": 50}
ALL = {"linear": HINGE, "kernel": KERNEL}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "lazy") for name in ALL), ("linear", "persisted"), ("kernel", "sharing")],
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
    found = fitted(parameters, *rows)
    assert_same_model(found, on_one_machine(parameters, X, y, 450))
    # All rows fit into the sample, so the codes of `fit` are those of the cluster.
    whole = BinaryCodeClassifier(**parameters).fit(X, y)
    np.testing.assert_array_equal(found.weights_, whole.weights_)
    assert found.score(*rows) == pytest.approx(whole.score(X, y), abs=1e-3)


def test_rows_sorted_by_class_with_late_classes(client):
    X, y = problem()
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array([f"class {label}" for label in y[order]])
    assert_same_model(fitted(HINGE, *lazy(X, y, 310)), on_one_machine(HINGE, X, y, 310))


@pytest.mark.parametrize("refine", [False, True])
def test_weights_of_rows_and_classes(client, refine):
    X, y = problem()
    weights = np.random.default_rng(1).integers(1, 5, size=len(y)) / 4
    parameters = HINGE | {"class_weight": {0: 2.0, 1: 0.5}, "refine": refine}
    expected = on_one_machine(parameters, X, y, 450, weights)
    found = fitted(parameters, *lazy(X, y, 450), weights)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    np.testing.assert_allclose(found.projection_, expected.projection_, atol=1e-4)


def test_rows_of_weight_0_are_as_if_absent(client):
    """They would change the penalty, and whether there are enough rows to refine."""
    X, y = problem()
    weights = (np.arange(len(y)) % 5 == 0).astype(float)
    parameters = HINGE | {"refine": True, "class_weight": {3: 0.0}}
    counts = (weights > 0) & (y != 3)
    found = fitted(parameters, *lazy(X, y, 450), weights)
    # With weights of classes, which choose the method, but not of one that is absent.
    whole = BinaryCodeClassifier(**parameters | {"class_weight": {0: 1.0}})
    whole.fit(X[counts], y[counts])
    assert found.statistics_.n_rows == whole.statistics_.n_rows == counts.sum()
    assert found.refinement_["held_out_rows"] == whole.refinement_["held_out_rows"]
    assert found.alpha_ == pytest.approx(whole.alpha_)


def test_refinement_draws_the_same_rows_from_any_partitions(client, monkeypatch):
    X, y = problem()
    parameters = HINGE | {"refine": True}
    found = fitted(parameters, *lazy(X, y, 450))
    whole = BinaryCodeClassifier(**parameters).fit(X, y)
    # All rows were drawn: the refinement sees what it would see on one machine.
    assert found.refinement_["held_out_rows"] == whole.refinement_["held_out_rows"]
    assert found.score(*lazy(X, y, 450)) == pytest.approx(whole.score(X, y), abs=5e-3)
    # Now only a sixth of the rows.
    monkeypatch.setattr("bitclass.dask.SAMPLE_BYTES", X.nbytes // 6)
    drawn = []
    fit_batches = BinaryCodeClassifier.fit_batches

    def watched(self, batches, **options):
        drawn.append(np.concatenate([X for X, _, _ in batches(0)]))
        assert len(drawn[-1]) == options["n_rows"]
        return fit_batches(self, batches, **options)

    monkeypatch.setattr(BinaryCodeClassifier, "fit_batches", watched)
    few = [fitted(parameters, *lazy(X, y, rows)) for rows in (450, 700)]
    assert 400 < len(drawn[0]) < 600
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert all(one.refinement_ is not None and one.statistics_.n_rows == 3000 for one in few)


def test_sample_smaller_than_the_rows(client, monkeypatch):
    X, y = problem()
    monkeypatch.setattr("bitclass.dask.SAMPLE_ROWS", 500)
    seen = []
    start_statistics = module.start_statistics

    def watched(settings, X, labels, weights, codes):
        seen.append((X, labels))
        return start_statistics(settings, X, labels, weights, codes)

    monkeypatch.setattr(module, "start_statistics", watched)
    one, other = (fitted(HINGE, *lazy(X, y, 450)) for _ in range(2))
    assert 480 <= len(seen[0][1]) <= 510
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    # Every partition contributes in proportion to its size.
    numbers = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in seen[0][0]]
    assert np.bincount(np.array(numbers) // 450).min() > 40
    local = BinaryCodeClassifier(**HINGE).fit_batches(
        lambda row: [(X[row:], y[row:])], sample=seen[0]
    )
    assert_same_model(one, local)
    assert_same_model(other, local)


def frame_of(*parts):
    """A Dask frame of parts that may have other columns than the first."""
    return dd.from_delayed(list(map(dask.delayed, parts)), meta=parts[0], verify_meta=False)


def test_frames_are_matched_by_the_names_of_columns(client):
    X, y = problem(n=900)
    names = [f"f{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(label=[f"c{label}" for label in y])
    frame = dd.from_pandas(table, npartitions=4)
    found = fitted(HINGE, frame[names], frame["label"])
    whole = BinaryCodeClassifier(**HINGE).fit(table[names], table["label"].to_numpy())
    np.testing.assert_array_equal(found.weights_, whole.weights_)
    assert found.feature_names_in_.tolist() == names
    expected = whole.predict(table[names])
    # Columns in any order, including unknown ones.
    for columns in (names, ["label", *names[::-1]]):
        predicted = found.predict(frame[columns])
        assert isinstance(predicted, da.Array)
        np.testing.assert_array_equal(predicted.compute(), expected)
    with pytest.raises(ValueError, match=r"partition \d: X must have a column 'f3'"):
        found.predict(frame[names[:3] + names[4:]]).compute()
    # Partitions of one fit may also differ in their order.
    labels = dd.from_pandas(table["label"], npartitions=2)
    reordered = frame_of(table[:450][names], table[450:][["label", *names[::-1]]])
    assert_same_model(fitted(HINGE, reordered, labels), found)
    without = frame_of(table[:450][names], table[450:][names[:3] + names[4:]])
    with pytest.raises(ValueError, match=r"partition 1: X must have a column 'f3'"):
        fitted(HINGE, without, labels)
    found.fit(*lazy(X, y, 450))
    assert not hasattr(found, "feature_names_in_")


def test_sparse_rows_and_empty_partitions(client):
    X, y = problem(n=900)
    X[X < 0.7] = 0
    rows, labels = lazy(X, y, 300)
    rows = rows.map_blocks(scipy.sparse.csr_matrix, dtype=X.dtype)
    expected = on_one_machine(HINGE, scipy.sparse.csr_matrix(X), y, 300)
    assert_same_model(fitted(HINGE, rows, labels), expected)
    kept = np.arange(900) // 300 != 1
    names = [f"f{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(label=y, kept=kept)
    frame = dd.from_pandas(table, npartitions=3)
    frame = frame[frame["kept"]]
    rows = frame[names]
    found = fitted(HINGE, rows, frame["label"])
    assert_same_model(found, on_one_machine(HINGE, X[kept], y[kept], 300))
    codes = found.encode(rows)
    assert np.isnan(codes.shape[0])
    np.testing.assert_array_equal(codes.compute(), found.to_local().encode(table[names][kept]))


def test_predictions_are_lazy_and_those_of_the_local_model(client):
    X, y = problem(n=900)
    rows = lazy(X, y, 250)
    found = fitted(HINGE, *rows)
    local = found.to_local()
    assert type(local) is BinaryCodeClassifier
    for method in (
        "predict",
        "encode",
        "decision_function",
        "predict_proba",
        "predict_log_proba",
    ):
        answer = getattr(found, method)(rows[0])
        assert isinstance(answer, da.Array)
        assert answer.chunks[0] == rows[0].chunks[0]
        expected = getattr(local, method)(X)
        assert answer.dtype == expected.dtype
        np.testing.assert_array_equal(answer.compute(), expected)
    top = dask.compute(*found.top_classes(rows[0], k=3))
    for answer, expected in zip(top, local.top_classes(X, k=3), strict=True):
        np.testing.assert_array_equal(answer, expected)
    assert found.score(*rows) == local.score(X, y)


def test_learning_resumes_from_the_sums_of_a_cluster(client, tmp_path):
    X, y = problem()
    more_X, more_y = problem(n=4000, n_classes=9, seed=5)
    local = fitted(HINGE, *lazy(X, y, 450)).to_local()
    save_statistics(tmp_path / "sums.safetensors", local.statistics_, {})
    local.save(tmp_path / "model.safetensors")
    statistics, _ = load_statistics(tmp_path / "sums.safetensors")
    resumed = BinaryCodeClassifier.load(tmp_path / "model.safetensors", statistics=statistics)
    expected = on_one_machine(HINGE, X, y, 450)
    for one in (local, resumed, expected):
        one.partial_fit(more_X, more_y).solve()
    assert_same_model(local, expected)
    assert_same_model(resumed, expected)


def test_parameters_are_those_of_the_classifier():
    assert DaskBinaryCodeClassifier().get_params() == BinaryCodeClassifier().get_params()
