"""The training kernels refuse what they cannot compute, and say which argument is at fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_problems import Problem

from bitclass import _native as native

Arguments = dict[str, Any]


def good_arguments() -> dict[str, Arguments]:
    """Arguments by name for each kernel, n = 6, C = 3, r = 10."""
    p = Problem(n=6, n_classes=3, n_bits=10, seed=1)
    rows = {"own": p.own, "row_weights": p.row_weights}
    codes = {"codes": p.codes, "weights": p.weights}
    sums = {"tables": np.zeros((2, 21)), "sums": np.zeros((2, 2, 3, 3))}
    return {
        "half_margins": {**codes, "own": p.own},
        "pair_sums": {**codes, "bit": 9, **rows, **sums},
        "flip_bits": {"H": np.zeros((3, 3)), "g": np.zeros(3), "w": p.weight_bits},
        "update_codes": {**codes, **rows, "n_bits": 10, "values": np.zeros(41), "log_step": 0.0},
        "group_rows": {"labels": p.own, "codes": p.codes},
        "class_sums": {
            "X": np.zeros((6, 4), dtype=np.float32),
            "labels": p.own,
            "row_weights": p.row_weights,
            "sums": np.zeros((3, 4)),
        },
    }


@pytest.mark.parametrize(
    ("kernel", "name", "value", "message"),
    [
        ("half_margins", "own", [0, 0, 0, 0, 0, 3], r"own: .*\[0, 3\), found 3"),
        ("pair_sums", "own", [0, 0, 1, 2, 1, 2], "own: expected ascending"),
        ("pair_sums", "own", [-1, 0, 1, 1, 1, 2], "own: .*found -1"),
        ("pair_sums", "tables", np.zeros((2, 20)), "tables: expected length 21"),
        ("pair_sums", "bit", 10, "bit: "),
        ("pair_sums", "codes", np.full((6, 2), 255, dtype=np.uint8), "codes: .*zeros"),
        ("pair_sums", "own", [0, 0, 0, 0, 0, 3], "own: "),
        ("flip_bits", "w", np.zeros(3, dtype=np.int8), "w: "),
        ("update_codes", "n_bits", 0, "n_bits: "),
        ("update_codes", "n_bits", 8192, "n_bits: .*1 to 8191"),
        ("update_codes", "n_bits", 17, "codes: "),
        ("update_codes", "log_step", np.nan, "log_step: .*found nan"),
        ("update_codes", "log_step", np.inf, "log_step: .*found inf"),
        ("update_codes", "log_step", -0.1, "log_step: "),
        ("update_codes", "log_step", 1000.1, "log_step: .*from 0 to 1000"),
        ("update_codes", "log_step", 1e300, "log_step: "),
        ("update_codes", "own", [0, 0, 0, 0, 0, 3], "own: "),
        ("update_codes", "weights", np.full((3, 2), 255, dtype=np.uint8), "weights: .*zeros"),
        ("class_sums", "labels", [0, 0, 0, 0, 0, 3], "labels: "),
    ],
)
def test_wrong_contents_are_refused(kernel: str, name: str, value: Any, message: str) -> None:
    if isinstance(value, list):
        value = np.array(value, dtype=np.intp)
    with pytest.raises(ValueError, match=message):
        getattr(native, kernel)(**{**good_arguments()[kernel], name: value})


def test_numpy_integers_serve_as_counts() -> None:
    arguments = good_arguments()
    native.update_codes(**{**arguments["update_codes"], "n_bits": np.int64(10)})
    native.pair_sums(**{**arguments["pair_sums"], "bit": np.int32(3)})


@pytest.mark.parametrize(
    ("Z", "gram", "error"),
    [
        (np.zeros((3, 2), dtype=np.int64), np.zeros((2, 2)), TypeError),
        (np.zeros(3), np.zeros((2, 2)), TypeError),
        (np.zeros((3, 2)), np.zeros((3, 3)), ValueError),
        (np.zeros((3, 2)), np.zeros((2, 3)), ValueError),
        (np.zeros((3, 2)), np.zeros((2, 2), dtype=np.float32), TypeError),
    ],
)
def test_gram_refuses(Z: Any, gram: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"Z: |gram: "):
        native.add_gram([Z], gram)
