"""Errors of `bitclass serve`; the service itself is tested in tests/serving."""

import socket

import numpy as np
import pytest
from running import assert_refused, problem

pytest.importorskip("starlette", reason="serving needs bitclass[serve]")

from bitclass import BinaryCodeClassifier


def test_serving_errors_are_one_line(tmp_path):
    X, y = problem(60, 6)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    fitted = BinaryCodeClassifier(16, refine=False).fit(X, y)
    for name in ("model", "a b"):
        fitted.save(tmp_path / f"{name}.safetensors")
    model, other = "model.safetensors", "a b.safetensors"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        runs = {
            ("serve", "absent"): (1, "absent: No such file"),
            ("serve", "rows.npz"): (1, "rows.npz"),
            ("serve", model, f"model={other}"): (2, "model: two models have this name"),
            ("serve", other): (2, "NAME=MODEL"),
            ("serve", f"/={model}"): (2, "found '/'"),
            ("serve", model, "--port", port): (2, "cannot listen"),
            ("serve", model, "--port", "x"): (2, "--port"),
            ("serve", model, "--host", "256.1.1.1"): (2, "--host 256.1.1.1"),
            ("serve", model, "--max-rows", "0"): (2, "--max-rows"),
        }
        cases = {run: (run, code, [words]) for run, (code, words) in runs.items()}
        assert_refused(cases, tmp_path, imports=["bitclass.serving"])
