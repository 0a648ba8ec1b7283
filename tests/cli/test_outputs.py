"""An output never replaces an input, through any link, for any command."""

import os

import numpy as np
from running import assert_refused, in_forks, problem

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


def test_an_output_over_an_input_is_refused(tmp_path):
    X, y = problem(60, 6)
    for name in ("train.npz", "d.statistics.npz", "data.npz"):
        np.savez(tmp_path / name, X=X, y=y)
    (tmp_path / "d.statistics.npz").rename(tmp_path / "d.statistics.safetensors")
    (tmp_path / "data.npz").rename(tmp_path / "data.png")
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    for name in ("progress", "shards", "saved"):
        (tmp_path / name).mkdir()
    np.savez(tmp_path / "shards" / "a.npz", X=X, y=y)
    np.savez(tmp_path / "saved" / "s.npz", X=X, y=y)
    (tmp_path / "saved" / "s.npz").rename(tmp_path / "saved" / "statistics.safetensors")
    (tmp_path / "symbolic.npz").symlink_to("train.npz")
    os.link(tmp_path / "train.npz", tmp_path / "hard.npz")
    (fitted,) = in_forks([(*FIT, "--model", "m.safetensors", "--keep-statistics")], tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    for name in ("m.npy", "m.png"):
        os.link(tmp_path / "m.safetensors", tmp_path / name)
    (tmp_path / "link").symlink_to("m.safetensors")
    cases = {name: (arguments, 2, [option]) for name, (arguments, option) in CASES.items()}
    assert_refused(cases, tmp_path)


def test_the_output_of_an_earlier_run_is_replaced(tmp_path):
    X, y = problem(60, 6)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    runs = [(*FIT, "--model", "m"), (*FIT, "--model", "m"),
            ("predict", "m", "train.npz", "--out", "p.csv"),
            ("predict", "m", "train.npz", "--out", "p.csv")]  # fmt: skip
    assert [done.returncode for done in in_forks(runs, tmp_path)] == [0] * 4
