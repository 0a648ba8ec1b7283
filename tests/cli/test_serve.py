"""Errors of `bitclass serve`: one line, and a code."""

import re
import socket
import subprocess

import numpy as np
import pytest

from .running import COMMAND, assert_refused, environment, problem

pytest.importorskip("starlette", reason="serving needs the extra serve")

from bitclass import BinaryCodeClassifier


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of models, and of rows that are no model."""
    folder = tmp_path_factory.mktemp("serve")
    X, y = problem(60, 6)
    np.savez(folder / "rows.npz", X=X, y=y)
    for name in ("model", "a b", "x=y"):
        BinaryCodeClassifier(16, refine=False).fit(X, y).save(folder / f"{name}.safetensors")
    return folder


def test_errors_are_one_line(place):
    model, other = place / "model.safetensors", place / "a b.safetensors"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        runs = {
            ("serve", place / "absent", "--port", 0): (1, "absent: No such file"),
            ("serve", place / "rows.npz", "--port", 0): (1, "rows.npz"),
            ("serve", model, f"model={other}"): (2, "model: two models have this name"),
            ("serve", other): (2, "NAME=MODEL"),
            ("serve", "x=y.safetensors"): (2, "found 'x=y'"),  # a file
            ("serve", f"/={model}"): (2, "found '/'"),
            ("serve", model, "--port", port): (2, "in use); take another --port"),
            ("serve", model, "--port", "x"): (2, "--port"),
            ("serve", model, "--host", "256.1.1.1"): (2, "--host 256.1.1.1"),
            ("serve", model, "--max-rows", "0"): (2, "--max-rows"),
        }
        cases = {run: (run, code, [words]) for run, (code, words) in runs.items()}
        assert_refused(cases, place)


def test_listening_to_the_network_warns_and_paths_may_have_an_equals_sign(place):
    process = subprocess.Popen(
        [COMMAND, "serve", "named=x=y.safetensors", "--host", "0.0.0.0", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place, env=environment(),
    )  # fmt: skip
    assert re.match(r"serving named at http://0\.0\.0\.0:\d+/", process.stdout.readline())
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert "--host 0.0.0.0: anyone who can reach this machine can use the models" in err
    assert process.returncode == 0
