"""`bitclass serve` with arguments that cannot be served."""

import socket

import numpy as np
import pytest
from running import assert_refused, problem

from bitclass import BinaryCodeClassifier

pytest.importorskip("starlette", reason="serving needs bitclass[serve]")


def test_what_cannot_be_served_is_one_line(tmp_path):
    X, y = problem(60, 6)
    for name in ("m.safetensors", "a b.safetensors"):
        BinaryCodeClassifier(16, refine=False).fit(X, y).save(tmp_path / name)
    np.save(tmp_path / "rows.npy", X)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        runs = {
            ("serve",): (2, "MODEL"),
            ("serve", "absent"): (1, "absent: No such file"),
            ("serve", "rows.npy"): (1, "rows.npy"),
            ("serve", "m.safetensors", "m.safetensors"): (2, "m: two models have this name"),
            ("serve", "m.safetensors", "m=m.safetensors"): (2, "m: two models have this name"),
            ("serve", "a b.safetensors"): (2, "write NAME=MODEL"),
            ("serve", "/=m.safetensors"): (2, "found '/'"),
            ("serve", "m.safetensors", "--port", port): (2, "cannot listen"),
            ("serve", "m.safetensors", "--port", "x"): (2, "--port"),
            ("serve", "m.safetensors", "--host", "256.1.1.1"): (2, "--host 256.1.1.1"),
            ("serve", "m.safetensors", "--max-rows", "0"): (2, "--max-rows"),
            ("serve", "m.safetensors", "--max-body", "0"): (2, "--max-body"),
            ("serve", "m.safetensors", "--workers", "0"): (2, "--workers"),
        }
        cases = {run: (run, code, [words]) for run, (code, words) in runs.items()}
        assert_refused(cases, tmp_path, imports=["bitclass.serving"])
