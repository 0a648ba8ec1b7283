"""Cells in processes of their own: limits, faults, what is kept and what is run again."""

import json
import signal
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from bitclass.data import DataFileError
from bitclass.experiments import METHODS, Cell, Outcome, cells, full_plan, plan_cells, run_cells
from bitclass.experiments.cells import cell_key, read_outcome, write_outcome
from bitclass.experiments.datasets import DATA_SETS, check_files
from bitclass.experiments.methods import Method, settings_of
from bitclass.experiments.plan import quick_plan

HINGE = Cell("ours-hinge", "digits", 16, 0)


def program(path, text):
    """A program to take the place of the interpreter that runs a cell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def nothing_runs(monkeypatch):
    """From here on, starting a process is an error."""
    return lambda: monkeypatch.setattr(sys, "executable", "/nonexistent/python")


def test_a_finished_cell_is_not_run_again(tmp_path, nothing_runs):
    first = run_cells([HINGE], None, tmp_path, 120)
    assert first[HINGE].status == "done"
    assert first[HINGE].values["accuracy"] > 0.5
    nothing_runs()
    assert run_cells([HINGE], None, tmp_path, 120) == first
    with pytest.raises(FileNotFoundError):
        run_cells([replace(HINGE, seed=1)], None, tmp_path, 120)


def test_a_cell_that_passes_its_limit_is_ended_and_shown(tmp_path, monkeypatch, nothing_runs):
    started = []

    class Watched(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    monkeypatch.setattr(sys, "executable", program(tmp_path / "slow", "sleep 600"))
    outcome = run_cells([HINGE], None, tmp_path, 0.2)[HINGE]
    assert (outcome.status, outcome.limit) == ("timeout", 0.2)
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    nothing_runs()
    # It stands for limits as small, and is tried again with a larger one.
    assert run_cells([HINGE], None, tmp_path, 0.1)[HINGE].status == "timeout"
    with pytest.raises(FileNotFoundError):
        run_cells([HINGE], None, tmp_path, 0.3)


def test_other_seeds_of_a_cell_that_passed_the_limit_are_not_tried(tmp_path, nothing_runs):
    write_outcome(
        tmp_path / f"{cell_key(HINGE, 'digits')}.json", HINGE, Outcome("timeout", 60.0, {}, "")
    )
    nothing_runs()
    again = replace(HINGE, seed=1)
    found = run_cells([HINGE, again], None, tmp_path, 60.0)
    assert found[again].status == "timeout"
    assert "not tried" in found[again].reason
    # Longer codes need not take longer: LibLinear finds short ones harder.
    for other in (replace(HINGE, n_bits=32), replace(HINGE, method="lsh")):
        with pytest.raises(FileNotFoundError):
            run_cells([HINGE, other], None, tmp_path, 60.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("kill -KILL $$", "out of memory"),
        ("echo something is wrong >&2; exit 1", "something is wrong"),
        ("exit 3", "exit code 3"),
        ("echo '{\"half'", "exit code 0"),
    ],
)
def test_a_cell_that_dies_is_told_and_tried_again(tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr(sys, "executable", program(tmp_path / "broken", text))
    outcome = run_cells([HINGE], None, tmp_path, 30)[HINGE]
    assert outcome.status == "failed"
    assert reason in outcome.reason
    answer = program(tmp_path / "good", "echo '{\"accuracy\": 0.5}'")
    monkeypatch.setattr(sys, "executable", answer)
    assert run_cells([HINGE], None, tmp_path, 30)[HINGE].values == {"accuracy": 0.5}


def test_a_failed_cell_does_not_lose_the_others(tmp_path):
    (tmp_path / "letter16.npz").write_bytes(b"PK\x03\x04 this is no archive")
    cells = [Cell("ours-hinge", "letters", 16, 0), HINGE]
    found = run_cells(cells, tmp_path, tmp_path, 120)
    assert [outcome.status for outcome in found.values()] == ["failed", "done"]
    assert "letter16.npz" in found[cells[0]].reason


def test_a_file_that_is_not_what_it_should_be_is_no_result(tmp_path):
    path = tmp_path / "cell.json"
    good = Outcome("done", 60.0, {"accuracy": 0.5})
    write_outcome(path, HINGE, good)
    assert read_outcome(path, HINGE) == good
    assert read_outcome(path, replace(HINGE, seed=1)) is None
    whole = path.read_bytes()
    for wrong in (
        whole[: len(whole) // 2],
        b"",
        b"[]",
        b"\xff\xfe",
        whole.replace(b'"format": ', b'"format": 99'),
        whole.replace(b'"limit": 60.0', b'"limit": NaN'),
        whole.replace(b'"status"', b'"state"'),
    ):
        assert wrong != whole
        path.write_bytes(wrong)
        assert read_outcome(path, HINGE) is None
    assert read_outcome(tmp_path / "none.json", HINGE) is None


def test_other_settings_other_data_or_another_format_are_another_result(monkeypatch):
    key = cell_key(HINGE, "digits")
    assert key == cell_key(HINGE, "digits")
    assert key != cell_key(HINGE, "other digits")
    assert key != cell_key(replace(HINGE, n_bits=17), "digits")
    monkeypatch.setattr(cells, "_FORMAT", 99)
    assert key != cell_key(HINGE, "digits")
    monkeypatch.undo()
    build = METHODS["ours-hinge-default"].build
    changed = Method("ours-hinge", "", "ours", build)
    monkeypatch.setitem(METHODS, "ours-hinge", changed)
    assert key != cell_key(HINGE, "digits")


def test_no_two_methods_are_the_same():
    settings = {settings_of(method.build(128, 0)) for method in METHODS.values()}
    assert len(settings) == len(METHODS)


def test_the_plans_have_every_table_and_figure(tmp_path):
    full = plan_cells(full_plan(tmp_path))
    assert len(set(full)) == len(full)
    table = {(cell.method, cell.data) for cell in full if cell.n_bits in (0, 128)}
    for data in ("cifar10-paper", "cifar10", "tinyimagenet100", "caltech101", "clinc150"):
        assert {(method, data) for method in METHODS} <= table
    unscaled = {cell.method for cell in full if cell.data == "cifar10-unscaled"}
    assert unscaled == {"ova-svm", "multi-svm"}
    for method, every in (("sdh", 2), ("ours-hinge", 1)):
        found = {cell.n_bits for cell in full if (cell.method, cell.data) == (method, "clinc150")}
        assert found == {16, 32, 64, 128, 256, 512, 1024} - ({32, 512} if every == 2 else set())
    # All of the first seed come first, so that a run that is stopped has a bit of everything.
    assert [cell.seed for cell in full] == sorted(cell.seed for cell in full)
    assert all(cell.seed == 0 for cell in full if DATA_SETS[cell.data].synthetic)
    for plan in (full_plan(None), quick_plan(None)):
        assert all(DATA_SETS[cell.data].file is None for cell in plan_cells(plan))
    assert {cell.data for cell in plan_cells(full_plan(tmp_path), datasets=["letters"])} == {
        "letters"
    }


def test_a_missing_file_is_named_with_what_it_holds(tmp_path):
    with pytest.raises(DataFileError, match=r"clinc150_minilm384\.npz.*--data"):
        check_files(["clinc150"], None)
    with pytest.raises(DataFileError, match=r"no such folder"):
        check_files(["clinc150"], tmp_path / "none")
    with pytest.raises(DataFileError, match=r"sentence embeddings.*X_train, y_train, X_test"):
        check_files(["clinc150"], tmp_path)
    np.savez(tmp_path / "clinc150_minilm384.npz", X_train=np.eye(2))
    check_files(["clinc150", "digits"], tmp_path)


def test_results_are_json_that_others_can_read(tmp_path):
    write_outcome(tmp_path / "c.json", HINGE, Outcome("done", 60.0, {"accuracy": 0.5}))
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["cell"] == {"method": "ours-hinge", "data": "digits", "n_bits": 16, "seed": 0}
