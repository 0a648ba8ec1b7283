"""The kernels refuse what they would read or write out of bounds, and outputs that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from training_problems import Problem, strided

from bitclass._native import _kernels

Call = tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]


def calls() -> dict[str, Call]:
    """Each kernel that writes: good arguments, and the names of those it writes."""
    p = Problem(n=6, n_classes=3, n_bits=10, seed=1)
    packed = {"codes": p.codes, "weights": p.weights}
    rows = {"own": p.own, "row_weights": p.row_weights}
    half = np.zeros((6, 3), np.int16)
    sums = {"tables": np.zeros((1, 21)), "sums": np.zeros((2, 1, 3, 3))}
    X = np.zeros((6, 4), np.float32)
    codes = np.zeros((6, 2), np.uint8)
    found = {"indices": np.zeros(6, np.int64), "distances": np.zeros(6, np.int32)}
    several = {"indices": np.zeros((6, 2), np.int64), "distances": np.zeros((6, 2), np.int32)}
    rescored = {
        "scale": np.ones(10, np.float32),
        "n_candidates": 2,
        "scores": np.zeros((6, 2), np.int32),
        **several,
    }
    index = _kernels.HammingIndex(p.weights)
    projection = _kernels.Int8Projection(
        np.ones((4, 10), np.int8), np.zeros(10), None, None, np.ones(10)
    )
    all_calls: dict[str, Call] = {
        "half_margins": (
            _kernels.half_margins,
            {**packed, "own": p.own, "half": half},
            ("half",),
        ),
        "pair_sums": (
            _kernels.pair_sums,
            {**packed, "bit": 0, **rows, **sums},
            ("sums",),
        ),
        "flip_bits": (
            _kernels.flip_bits,
            {"H": np.zeros((3, 3)), "g": np.zeros(3), "w": p.weight_bits},
            ("w",),
        ),
        "update_codes": (
            _kernels.update_codes,
            {
                **packed,
                **rows,
                "n_bits": 10,
                "values": np.zeros(41),
                "log_step": 0.0,
                "new_codes": codes,
                "log_decreases": np.zeros(10),
            },
            ("new_codes", "log_decreases"),
        ),
        "group_rows": (
            _kernels.group_rows,
            {
                "labels": p.own,
                "codes": p.codes,
                "first": np.zeros(6, np.intp),
                "inverse": np.zeros(6, np.intp),
            },
            ("first", "inverse"),
        ),
        "nearest": (index.nearest, {"codes": p.codes, **found}, tuple(found)),
        "top_k": (index.top_k, {"codes": p.codes, **several}, tuple(found)),
        "encode": (projection.encode, {"X": X, "codes": codes}, ("codes",)),
        "predict": (projection.predict, {"index": index, "X": X, **found}, tuple(found)),
        "predict_rescored": (
            projection.predict_rescored,
            {"index": index, "X": X, **rescored},
            ("indices", "scores", "distances"),
        ),
        "scores": (
            index.scores,
            {"codes": p.codes, "n_bits": 10, "scores": np.zeros((6, 3), np.int32)},
            ("scores",),
        ),
        "widen": (
            _kernels.widen,
            {"X": X.astype(np.float16), "wide": np.zeros((6, 4), np.float32)},
            ("wide",),
        ),
    }
    for dtype in (np.float32, np.float64):
        name = np.dtype(dtype).name
        all_calls[f"class_sums_{name}"] = (
            getattr(_kernels, f"class_sums_{name}"),
            {
                "X": X.astype(dtype),
                "labels": p.own,
                "row_weights": p.row_weights,
                "sums": np.zeros((3, 4)),
            },
            ("sums",),
        )
        all_calls[f"pack_signs_{name}"] = (
            getattr(_kernels, f"pack_signs_{name}"),
            {"scores": np.zeros((6, 10), dtype), "intercept": np.zeros(10, dtype), "codes": codes},
            ("codes",),
        )
        all_calls[f"rescore_{name}"] = (
            getattr(_kernels, f"rescore_{name}"),
            {
                "index": index,
                "values": np.zeros((6, 10), dtype),
                "intercept": np.zeros(10, dtype),
                **rescored,
            },
            ("indices", "scores", "distances"),
        )
    for _, arguments, _ in all_calls.values():
        arguments["n_threads"] = 1
    return all_calls


ARRAYS = [
    (kernel, name)
    for kernel, (_, arguments, _) in calls().items()
    for name, value in arguments.items()
    if isinstance(value, np.ndarray)
]
# Where an axis may be longer: classes that no row is of, and longer codes.
LONGER = {
    ("update_codes", "weights"): 0,
    ("class_sums_float32", "sums"): 0,
    ("class_sums_float64", "sums"): 0,
    ("group_rows", "codes"): -1,
}


@pytest.mark.parametrize(("kernel", "name"), ARRAYS)
def test_arrays_of_another_type_shape_or_layout_are_refused(kernel: str, name: str) -> None:
    call, arguments, outputs = calls()[kernel]
    call(**arguments)
    good = arguments[name]
    fixed = good.copy()
    fixed.flags.writeable = False
    for wrong in (good.astype(np.complex64), good[..., None], strided(good)):
        with pytest.raises((TypeError, ValueError), match=f"{name}: expected"):
            call(**{**arguments, name: wrong})
    if name in outputs:
        with pytest.raises(ValueError, match=f"{name}: .*read-only"):
            call(**{**arguments, name: fixed})
    longer = {axis: np.concatenate([good, good], axis) for axis in (0, -1)}
    longer.pop(LONGER.get((kernel, name)), None)
    for wrong in (good[:0], good[:-1], *longer.values()):
        with pytest.raises(ValueError, match="expected"):
            call(**{**arguments, name: wrong})


@pytest.mark.parametrize("kernel", calls())
def test_at_least_one_thread_is_asked_for(kernel: str) -> None:
    call, arguments, _ = calls()[kernel]
    with pytest.raises(ValueError, match="n_threads"):
        call(**{**arguments, "n_threads": 0})


PAIRS = [
    (kernel, written, other)
    for kernel, (_, arguments, outputs) in calls().items()
    for written in outputs
    for other, value in arguments.items()
    if other != written and isinstance(value, np.ndarray)
]


def in_memory(memory: np.ndarray, array: np.ndarray) -> np.ndarray:
    """A copy of an array at the beginning of some memory."""
    view = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


@pytest.mark.parametrize(("kernel", "written", "other"), PAIRS)
def test_an_output_may_not_overlap_another_argument(kernel: str, written: str, other: str) -> None:
    call, arguments, outputs = calls()[kernel]
    memory = np.zeros(1024, np.uint8)
    arguments[written] = in_memory(memory, arguments[written])
    arguments[other] = in_memory(memory, arguments[other])
    with pytest.raises(
        ValueError, match=r": expected memory of its own, found an overlap"
    ) as error:
        call(**arguments)
    assert str(error.value).split(":")[0] in outputs
    assert {written, other} <= set(str(error.value).replace(":", " ").split())


@pytest.mark.parametrize("kernel", calls())
def test_neighbours_in_memory_are_no_overlap(kernel: str) -> None:
    call, arguments, _ = calls()[kernel]
    memory, at = np.zeros(8192, np.uint8), 0
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            at += -at % value.itemsize
            arguments[name] = in_memory(memory[at:], value)
            at += value.nbytes
    call(**arguments)


def test_features_read_backwards_may_not_overlap_their_codes() -> None:
    projection = _kernels.Int8Projection(
        np.ones((4, 10), np.int8), np.zeros(10), None, None, np.ones(10)
    )
    memory = np.zeros((7, 4), np.float32)
    codes = memory.view(np.uint8).reshape(-1)[:12].reshape(6, 2)
    projection.encode(memory[:0:-1], codes, 1)  # all but the first row, which the codes take
    with pytest.raises(ValueError, match="codes: .* overlap with X"):
        projection.encode(memory[5::-1], codes, 1)


def test_class_indices_under_the_output_do_not_lead_astray() -> None:
    n, n_classes = 2048, 32
    memory = np.zeros(n * n_classes, np.int16)
    codes = np.full((n, 2), 255, np.uint8)
    weights = np.zeros((n_classes, 2), np.uint8)
    own, half = memory.view(np.intp)[:n], memory.reshape(n, n_classes)
    with pytest.raises(ValueError, match="half: .* overlap with own"):
        _kernels.half_margins(codes, weights, own, half, 1)
