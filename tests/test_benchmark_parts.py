"""Parts that the benchmarks share: measures, splits of rows, results that are kept."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from cells import Cells
from measures import calibration_error
from pages import fill

from real_data import Rows


def test_calibration_error_is_the_distance_of_told_from_true_shares_by_rows() -> None:
    probabilities = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55])
    right = np.array([True, True, True, False, True, False])
    # Two bins: 4 rows told 0.95 and true 0.75, 2 rows told 0.55 and true 0.5.
    expected = (4 * 0.2 + 2 * 0.05) / 6
    assert calibration_error(probabilities, right) == pytest.approx(expected)


def test_calibration_error_of_certain_and_right_predictions_is_0() -> None:
    assert calibration_error(np.ones(3), np.ones(3, dtype=bool)) == 0.0
    assert calibration_error(np.ones(3), np.zeros(3, dtype=bool)) == 1.0


def _rows() -> Rows:
    y = np.repeat([0, 1], [300, 500])
    X = np.arange(800, dtype=np.float32)[:, None]
    return Rows(X[::2], y[::2], X[1::2], y[1::2])


def test_rows_held_out_are_training_rows_that_are_not_learned_from() -> None:
    rows = _rows()
    split = rows.held_out(seed=3)
    assert set(split.X_test[:, 0]) | set(split.X[:, 0]) == set(rows.X[:, 0])
    assert not set(split.X_test[:, 0]) & set(split.X[:, 0])
    assert np.bincount(split.y_test).tolist() == [30, 50]


def test_paper_draw_takes_100_rows_of_each_class_from_both_parts() -> None:
    rows = _rows()
    split = rows.paper_draw(draw=0)
    assert np.bincount(split.y_test).tolist() == [100, 100]
    assert not set(split.X_test[:, 0]) & set(split.X[:, 0])
    assert len(split.y) == 600
    assert set(split.X_test[:, 0]) & set(rows.X[:, 0])
    assert set(split.X_test[:, 0]) & set(rows.X_test[:, 0])
    assert not np.array_equal(split.X_test, rows.paper_draw(draw=1).X_test)


def test_results_are_kept_as_they_come_and_not_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "cells.json"
    first = Cells(path)
    first.get("a", lambda: {"accuracy": 0.5})
    with pytest.raises(KeyboardInterrupt):
        first.get("b", _interrupted)
    again = Cells(path)
    assert again.values == {"a": {"accuracy": 0.5}}
    assert again.get("a", _interrupted) == {"accuracy": 0.5}


def _interrupted() -> dict[str, float]:
    raise KeyboardInterrupt


def test_a_table_takes_the_place_of_the_one_before_and_of_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x: begin -->\nold\n<!-- x: end -->\nbelow\n")
    fill(page, "x", "new\n")
    fill(page, "x", "newer\n\n")
    assert page.read_text() == "above\n<!-- x: begin -->\nnewer\n<!-- x: end -->\nbelow\n"
    with pytest.raises(ValueError, match="y: begin"):
        fill(page, "y", "")
    assert "newer" in page.read_text()
