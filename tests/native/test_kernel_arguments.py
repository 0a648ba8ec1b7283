"""The kernels reject arguments that would be accessed out of bounds, and name them."""

import numpy as np
import pytest

from bitclass._native import _kernels

from .training_problems import Problem, strided


def calls():
    """Valid arguments, by name and in order, of each kernel that takes arrays."""
    p = Problem(n=6, n_classes=3, n_bits=10, seed=1)
    packed = {"codes": p.codes, "weights": p.weights}
    rows = {"y": p.y, "row_weights": p.row_weights}
    X = np.zeros((6, 4), np.float32)
    scores = {"scores": np.zeros((6, 10), np.float32), "intercept": np.zeros(10, np.float32)}
    csr = {
        "indptr": np.arange(7),
        "indices": np.zeros(6, np.int32),
        "data": np.ones(6, np.float32),
    }
    step = {
        "gradients": np.ones((6, 10), np.float32),
        "size": 0.1,
        "projection": np.ones((4, 10), np.float32),
        "squares": np.zeros(4, np.float32),
        "counts": np.zeros(4, np.int32),
    }
    index = _kernels.HammingIndex(p.weights, None)
    int8 = {
        "weights": np.ones((4, 10), np.int8),
        "thresholds": np.zeros(10),
        "centre": np.zeros(4, np.float32),
        "inverse_scale": np.ones(4, np.float32),
        "steps": np.ones(10),
    }
    dense = _kernels.Int8Projection(*int8.values())
    sparse = {
        "places": np.array([0, -1, 1, 2], np.int32),
        "factors": np.ones(3, np.float32),
        "projection": np.ones((3, 10), np.int8),
        "steps": np.ones(10, np.float32),
        "intercept": np.zeros(10, np.float32),
    }
    wanted = {"n_candidates": 2, "k": 2}
    sums = {"tables": np.zeros((2, 21)), "sums": np.zeros((2, 2, 3, 3))}
    update = {"n_bits": 10, "values": np.zeros(41), "log_step": 0.0}
    by_class = {"labels": p.y, "row_weights": p.row_weights, "sums": np.zeros((3, 4))}
    floats = np.zeros((6, 10), np.float32)
    loss = {
        "weights": np.ones((3, 10), np.float32),
        "bias": np.zeros(3, np.float32),
        "log_shares": np.zeros(3, np.float32),
        "labels": p.y,
        "factors": np.ones(6, np.float32),
        "sharpness": (1.0, 1.0),
        "n_signs": 0,
    }
    moved = {
        name: np.zeros((4, 10), np.float32) for name in ("values", "means", "squares", "signs")
    }
    adam = {"left": X, "right": floats, "rate": 0.1, "decay": (0.9, 0.9), "tiny": 1e-9, **moved}
    scale = {"shift": np.zeros(4, np.float32), "factor": np.ones(4, np.float32)}
    found = {
        "standardise": (
            _kernels.standardise,
            {"X": X, "rows": np.arange(6), **scale, "out": np.zeros((6, 4), np.float32)},
        ),
        "product": (
            _kernels.product,
            {"a": X, "a_transposed": True, "b": floats, "b_transposed": False},
        ),
        "add_gram": (_kernels.add_gram, {"X": X, "gram": np.zeros((4, 4))}),
        "cholesky": (_kernels.cholesky, {"matrix": np.eye(4)}),
        "solve_triangular": (
            _kernels.solve_triangular,
            {"lower": np.eye(4), "b": np.ones((6, 4)), "transposed": False},
        ),
        "class_gradients": (_kernels.class_gradients, {"scores": floats.copy(), **loss}),
        "adam_step": (_kernels.adam_step, adam),
        "nearest": (index.nearest, {"codes": p.codes}),
        "top_k": (index.top_k, {"codes": p.codes, "k": 2}),
        "scores": (index.scores, {"codes": p.codes, "n_bits": 10}),
        "counts": (
            index.counts,
            {"codes": p.codes, "n_bits": 10, "lists": np.tile([0, 2], (6, 1)), "width": 3},
        ),
        "int8 encode": (dense.encode, {"X": X}),
        "int8 nearest": (dense.nearest, {"index": index, "X": X}),
        "int8 rescored": (dense.rescored, {"index": index, "X": X, **wanted}),
        "rescore": (_kernels.rescore, {"index": index, **scores, **wanted}),
        "sparse_scores": (_kernels.sparse_scores, {**csr, "projection": step["projection"]}),
        "sparse_step": (_kernels.sparse_step, {**csr, **step}),
        "sparse scores": (_kernels.SparseProjection(*sparse.values()).scores, csr),
        "pair_sums": (_kernels.pair_sums, {**packed, "bit": 0, **rows, **sums}),
        "update_codes": (_kernels.update_codes, {**packed, **rows, **update}),
        "class_sums": (_kernels.class_sums, {"X": X, **by_class}),
    }
    called = {name: (call, {**given, "n_threads": 1}) for name, (call, given) in found.items()}
    called["pack_signs"] = _kernels.pack_signs, scores
    called["SparseProjection"] = _kernels.SparseProjection, sparse
    called["Int8Projection"] = _kernels.Int8Projection, int8
    called["HammingIndex"] = (
        _kernels.HammingIndex,
        {
            "weights": p.weights,
            "bias": np.zeros(len(p.weights), np.float32),
        },
    )
    return called


ARRAYS = [
    (kernel, name)
    for kernel, (_, arguments) in calls().items()
    for name, value in arguments.items()
    if isinstance(value, np.ndarray)
]
# Axes that may have a different length: rows, classes without rows, longer codes.
FREE = {
    **dict.fromkeys(
        [(k, "codes") for k in ("nearest", "top_k", "scores")]
        + [(k, "X") for k in ("int8 encode", "int8 nearest", "int8 rescored")]
        + [(k, "scores") for k in ("pack_signs", "rescore")]
        + [("update_codes", "weights"), ("class_sums", "sums")]
        + [("SparseProjection", "places")],
        (0,),
    ),
    ("HammingIndex", "weights"): (-1,),
    ("product", "a"): (-1,),
    ("product", "b"): (-1,),
    ("standardise", "X"): (0,),
    ("counts", "lists"): (1,),
    ("add_gram", "X"): (0,),
    ("solve_triangular", "b"): (0,),
    ("sparse_scores", "projection"): (0, -1),
}


@pytest.mark.parametrize(("kernel", "name"), ARRAYS)
def test_arrays_of_the_wrong_type_shape_or_layout_are_rejected(kernel, name):
    call, arguments = calls()[kernel]
    call(*arguments.values())
    good = arguments[name]
    for wrong in (good.astype(np.complex64), good[..., None], strided(good), "text"):
        with pytest.raises(TypeError, match=f"{name}: expected"):
            call(*(arguments | {name: wrong}).values())
    for axis in {0, good.ndim - 1}:
        if axis in [free % good.ndim for free in FREE.get((kernel, name), ())]:
            continue
        with pytest.raises(ValueError, match="expected"):
            call(*(arguments | {name: np.concatenate([good, good], axis)}).values())


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("pair_sums", "sums"),
        ("class_sums", "sums"),
        ("add_gram", "gram"),
        ("standardise", "out"),
        ("cholesky", "matrix"),
        ("solve_triangular", "b"),
        ("class_gradients", "scores"),
        *(("adam_step", name) for name in ("values", "means", "squares", "signs")),
        *(("sparse_step", name) for name in ("projection", "squares", "counts")),
    ],
)
def test_arrays_modified_in_place_must_be_writable(kernel, name):
    call, arguments = calls()[kernel]
    arguments[name].flags.writeable = False
    with pytest.raises(TypeError, match=f"{name}: .*read-only"):
        call(*arguments.values())


def labels(*of_rows):
    return np.array(of_rows, dtype=np.intp)


ONES = np.full((6, 2), 255, dtype=np.uint8)


@pytest.mark.parametrize(
    ("kernel", "name", "value", "message"),
    [
        ("sparse_scores", "indptr", np.array([0, 1, 2, 3, 4, 5, 7]), "expected"),
        ("sparse_scores", "indptr", np.array([0, -1, 2, 3, 4, 5, 6]), "expected"),
        ("sparse_scores", "indptr", np.array([-1, 1, 2, 3, 4, 5, 6]), "expected"),
        ("sparse_scores", "indptr", np.array([], dtype=np.int64), "expected"),
        ("sparse_scores", "indices", np.full(6, 4, np.int32), "expected"),
        ("sparse scores", "indices", np.full(6, -1, np.int32), "expected"),
        ("SparseProjection", "places", np.array([0, 3, 1, 2], np.int32), "expected"),
        ("SparseProjection", "places", np.array([0, -2, 1, 2], np.int32), "expected"),
        ("top_k", "k", 4, "expected"),
        ("counts", "width", 0, "expected"),
        ("counts", "lists", np.tile([0, 1, 2], (6, 1)), "expected fewer"),
        ("counts", "lists", np.full((6, 1), 3), ".*found 3"),
        ("counts", "lists", np.full((6, 1), -1), ".*found -1"),
        ("standardise", "rows", np.array([0, 1, 2, 3, 4, 6]), ".*found 6"),
        ("standardise", "rows", np.array([0, 1, 2, 3, 4, -1]), ".*found -1"),
        ("rescore", "k", 3, "expected"),
        ("rescore", "n_candidates", 4, "expected"),
        ("int8 rescored", "k", 0, "expected"),
        ("pair_sums", "y", labels(0, 0, 1, 2, 1, 2), "expected ascending"),
        ("pair_sums", "y", labels(-1, 0, 1, 1, 1, 2), ".*found -1"),
        ("pair_sums", "y", labels(0, 0, 0, 0, 0, 3), ".*found 3"),
        ("pair_sums", "tables", np.zeros((2, 20)), "expected length 21"),
        ("pair_sums", "bit", 10, "expected an index below 10"),
        ("pair_sums", "codes", ONES, ".*zeros"),
        ("update_codes", "n_bits", 0, "expected"),
        ("update_codes", "n_bits", 8192, ".*1 to 8191"),
        ("update_codes", "log_step", np.nan, ".*found nan"),
        ("update_codes", "log_step", -0.1, "expected"),
        ("update_codes", "log_step", 1000.1, ".*from 0 to 1000"),
        ("update_codes", "y", labels(0, 0, 0, 0, 0, 3), ".*found 3"),
        ("update_codes", "weights", ONES[:3], ".*zeros"),
        ("class_gradients", "labels", labels(0, 0, 0, 0, 0, -1), ".*found -1"),
        ("class_sums", "labels", labels(0, 0, 0, 0, 0, 3), ".*found 3"),
    ],
)
def test_invalid_contents_are_rejected(kernel, name, value, message):
    call, arguments = calls()[kernel]
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        call(*(arguments | {name: value}).values())


def test_numpy_integers_are_accepted_as_counts():
    for kernel, name, value in (("update_codes", "n_bits", 10), ("pair_sums", "bit", 3)):
        call, arguments = calls()[kernel]
        call(*(arguments | {name: np.int64(value)}).values())
