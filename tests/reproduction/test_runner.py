"""Cells in separate processes: limits, failures, stored and repeated results."""

import json
import stat
import sys
from dataclasses import replace

import pytest

from reproduction import runner
from reproduction.datasets import DATASETS
from reproduction.methods import METHODS, settings_text
from reproduction.plan import Cell, full_plan, plan_cells, quick_plan
from reproduction.runner import run_cells

HINGE = Cell("paper-hinge", "digits", 16, 0)


def program(path, text):
    """A program that replaces the interpreter that runs a cell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def nothing_runs(monkeypatch):
    """Make starting a process an error."""
    return lambda: monkeypatch.setattr(sys, "executable", "/nonexistent/python")


def test_a_finished_cell_is_not_run_again(tmp_path, nothing_runs, monkeypatch):
    first = run_cells([HINGE], None, tmp_path, 120)
    assert first[HINGE]["status"] == "done"
    assert first[HINGE]["accuracy"] > 0.5
    nothing_runs()
    assert run_cells([HINGE], None, tmp_path, 120) == first
    with pytest.raises(FileNotFoundError):
        run_cells([replace(HINGE, seed=1)], None, tmp_path, 120)
    monkeypatch.setattr(runner, "fingerprint", lambda name, folder: "other data")
    with pytest.raises(FileNotFoundError):
        run_cells([HINGE], None, tmp_path, 120)


def test_results_depend_on_settings():
    texts = {settings_text(METHODS[name].build(16, 0)) for name in METHODS}
    assert len(texts) == len(METHODS)
    assert all("random_state" in text for text in texts)


def test_a_process_is_ended_after_its_cpu_time(tmp_path):
    cell = Cell("paper-exponential", "digits", 8191, 0)
    outcome = run_cells([cell], None, tmp_path, 1.0)[cell]
    assert (outcome["status"], outcome["reason"]) == ("timeout", "not done within 1 s")


def test_a_cell_that_times_out_is_reported_and_kept(tmp_path, monkeypatch, nothing_runs):
    slow = program(tmp_path / "slow", "echo begun 1; kill -XCPU $$")
    monkeypatch.setattr(sys, "executable", slow)
    outcome = run_cells([HINGE], None, tmp_path, 3.0)[HINGE]
    assert (outcome["status"], outcome["limit"], outcome["learned_for"]) == ("timeout", 3.0, 2.0)
    nothing_runs()
    # The timeout is kept for smaller limits, and tried again with a larger one.
    found = run_cells([HINGE, replace(HINGE, seed=1)], None, tmp_path, 2.0)
    assert [one["status"] for one in found.values()] == ["timeout", "timeout"]
    assert "another seed" in found[replace(HINGE, seed=1)]["reason"]
    for cells in ([HINGE], [HINGE, replace(HINGE, n_bits=32)]):
        with pytest.raises(FileNotFoundError):
            run_cells(cells, None, tmp_path, 4.0 if len(cells) == 1 else 2.0)


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
def test_a_cell_that_crashes_is_reported_and_tried_again(tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr(sys, "executable", program(tmp_path / "broken", text))
    outcome = run_cells([HINGE], None, tmp_path, 30)[HINGE]
    assert outcome["status"] == "failed"
    assert reason in outcome["reason"]
    answer = program(tmp_path / "good", "echo '{\"accuracy\": 0.5}'")
    monkeypatch.setattr(sys, "executable", answer)
    assert run_cells([HINGE], None, tmp_path, 30)[HINGE]["accuracy"] == 0.5


@pytest.mark.parametrize("content", ["{", "[]", '{"outcome": {"status": "done"}}'])
def test_a_damaged_result_is_measured_again(tmp_path, monkeypatch, content):
    answer = program(tmp_path / "good", "echo '{\"accuracy\": 0.5}'")
    monkeypatch.setattr(sys, "executable", answer)
    run_cells([HINGE], None, tmp_path, 30)
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["outcome"]["accuracy"] == 0.5
    path.write_text(content)
    assert run_cells([HINGE], None, tmp_path, 30)[HINGE]["accuracy"] == 0.5


def test_cells_run_at_the_same_time_and_keep_their_order(tmp_path, monkeypatch):
    """Each of two cells waits for the other to have started."""
    cells = [HINGE, replace(HINGE, n_bits=32)]
    wait = f"touch '{tmp_path}/'$$; while [ $(ls '{tmp_path}' | grep -c '^[0-9]*$') -lt 2 ]; do "
    together = program(tmp_path / "together", wait + "sleep 0.05; done; echo '{\"accuracy\": 0.5}'")
    monkeypatch.setattr(sys, "executable", together)
    found = run_cells(cells, None, tmp_path, 60, n_jobs=2)
    assert list(found) == cells
    assert [outcome["status"] for outcome in found.values()] == ["done", "done"]


def test_the_plans_have_every_table_and_figure(tmp_path):
    full = plan_cells(full_plan(tmp_path))
    assert len(set(full)) == len(full)
    table = {(cell.method, cell.data) for cell in full if cell.n_bits in (0, 128)}
    for data in ("cifar10-paper", "tinyimagenet100", "caltech101", "clinc150", "letters"):
        assert {(method, data) for method in METHODS} <= table
    methods = {
        data: {cell.method for cell in full if cell.data == data}
        for data in ("cifar10-unscaled", "imagenet1000-shape")
    }
    assert methods["cifar10-unscaled"] == {"svm-ova", "svm-multi"}
    assert methods["imagenet1000-shape"] == {"paper-exponential", "paper-hinge", "bitclass"}
    large = {cell.method for cell in full if cell.data == "imagenet100-shape"}
    assert len(large & {"svm-ova", "svm-multi"}) == 1  # for lack of memory
    lengths = {16, 32, 64, 128, 256, 512}
    for method, expected in (("sdh", {16, 64, 128, 256}), ("paper-hinge", lengths)):
        found = {cell.n_bits for cell in full if (cell.method, cell.data) == (method, "clinc150")}
        assert found == expected
    # An SVM on a published split needs one seed.
    seeds = {
        data: {cell.seed for cell in full if (cell.method, cell.data) == ("svm-ova", data)}
        for data in ("clinc150", "cifar10-paper")
    }
    assert seeds == {"clinc150": {0}, "cifar10-paper": {0, 1}}
    # All cells of the first seed come first, so that an interrupted run has some of everything.
    assert [cell.seed for cell in full] == sorted(cell.seed for cell in full)
    assert all(cell.seed == 0 for cell in full if DATASETS[cell.data].synthetic)
    for plan in (full_plan(None), quick_plan(None)):
        assert all(DATASETS[cell.data].file is None for cell in plan_cells(plan))
    assert "sun42" not in {cell.data for cell in full}
    (tmp_path / "sun42_features.npz").touch()
    assert "sun42" in {cell.data for cell in plan_cells(full_plan(tmp_path))}
