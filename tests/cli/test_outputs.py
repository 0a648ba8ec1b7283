"""An output never replaces an input, through any link, for any command."""

import os

import numpy as np
import pytest
from running import assert_one_line, contents, in_forks, problem

FIT = ("fit", "train.npz", "--bits", 16, "--no-refine")
# The command, and the option that its line must name.
CASES = {
    "model over data": (("fit", "train.npz", "--model", "train.npz"), "--model"),
    "model over labels": (
        ("fit", "X.npy", "--labels-file", "y.npy", "--model", "y.npy"),
        "--model",
    ),
    "model over a symbolic link's target": (
        ("fit", "train.npz", "--model", "symbolic.npz"),
        "--model",
    ),
    "data through a symbolic link": (("fit", "symbolic.npz", "--model", "train.npz"), "--model"),
    "model over a hard link": (("fit", "train.npz", "--model", "hard.npz"), "--model"),
    "model over a file of a folder": (("fit", "shards", "--model", "shards/a.npz"), "--model"),
    "statistics over data": (
        ("fit", "d.statistics.safetensors", "--format", "npz", "--keep-statistics", "--model", "d"),
        "statistics",
    ),
    "model over the statistics of another": (
        (*FIT, "--model", "m.statistics.safetensors"),
        "statistics file",
    ),
    "model in the checkpoint folder": (
        (*FIT, "--model", "progress/m.safetensors", "--checkpoint", "progress"),
        "--checkpoint",
    ),
    "checkpoint over data": (
        ("fit", "saved/statistics.safetensors", "--format", "npz", "--checkpoint", "saved",
         "--model", "new"),
        "--checkpoint",
    ),
    "checkpoint over data, given as a folder": (
        ("fit", "saved", "--format", "npz", "--checkpoint", "saved", "--model", "new"),
        "--checkpoint",
    ),
    "predictions over data": (("predict", "m.safetensors", "X.npy", "--out", "X.npy"), "--out"),
    "predictions over the model": (("predict", "m.npy", "X.npy", "--out", "m.npy"), "--out"),
    "figure over data": (
        ("evaluate", "m.safetensors", "data.png", "--format", "npz", "--plot", "data.png"),
        "--plot",
    ),
    "figure over the model": (("inspect", "m.png", "--plot", "m.png"), "--plot"),
    "update from its own statistics": (
        ("update", "m.safetensors", "m.statistics.safetensors", "--format", "npz"),
        "statistics",
    ),
    "update from its own model": (("update", "m.safetensors", "link", "--format", "npz"), "model"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    X, y = problem(60, 6)
    for name in ("train.npz", "d.statistics.npz", "data.npz"):
        np.savez(folder / name, X=X, y=y)
    (folder / "d.statistics.npz").rename(folder / "d.statistics.safetensors")
    (folder / "data.npz").rename(folder / "data.png")
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    for name in ("progress", "shards", "saved"):
        (folder / name).mkdir()
    np.savez(folder / "shards" / "a.npz", X=X, y=y)
    np.savez(folder / "saved" / "s.npz", X=X, y=y)
    (folder / "saved" / "s.npz").rename(folder / "saved" / "statistics.safetensors")
    (folder / "symbolic.npz").symlink_to("train.npz")
    os.link(folder / "train.npz", folder / "hard.npz")
    (fitted,) = in_forks([(*FIT, "--model", "m.safetensors", "--keep-statistics")], folder)
    assert fitted.returncode == 0, fitted.stderr
    for name in ("m.npy", "m.png"):
        os.link(folder / "m.safetensors", folder / name)
    (folder / "link").symlink_to("m.safetensors")
    before = contents(folder)
    done = in_forks([arguments for arguments, _ in CASES.values()], folder)
    return dict(zip(CASES, done, strict=True)), before, contents(folder)


@pytest.mark.parametrize("case", CASES)
def test_an_output_over_an_input_is_refused(outcomes, case):
    assert_one_line(outcomes[0][case], 2, CASES[case][1])


def test_nothing_was_written(outcomes):
    _, before, after = outcomes
    assert after == before


def test_the_output_of_an_earlier_run_is_replaced(tmp_path):
    X, y = problem(60, 6)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    runs = [(*FIT, "--model", "m"), (*FIT, "--model", "m"),
            ("predict", "m", "train.npz", "--out", "p.csv"),
            ("predict", "m", "train.npz", "--out", "p.csv")]  # fmt: skip
    assert [done.returncode for done in in_forks(runs, tmp_path)] == [0] * 4
