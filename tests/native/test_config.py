"""get_config, and the environment variables that change it."""

import os
import subprocess
import sys

import pytest

from bitclass._native import _kernels


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_portable_is_always_there_and_the_fastest_level_is_the_default():
    levels = _kernels.available_levels()
    assert levels[0] == "portable"
    if "BITCLASS_SIMD" not in os.environ:
        assert _kernels.current_level() == levels[-1]


def test_the_environment_chooses_level_and_threads():
    code = "import bitclass; c = bitclass.get_config(); print(c['simd'], c['threads'])"
    done = run(code, BITCLASS_SIMD="portable", BITCLASS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["portable", "1"]


@pytest.mark.parametrize("name", ["sse9", "neon,avx2"])
def test_an_unknown_level_is_an_error_that_names_the_variable(name):
    done = run("import bitclass._native", BITCLASS_SIMD=name)
    assert done.returncode != 0
    assert "ValueError: BITCLASS_SIMD: " in done.stderr
    assert "portable" in done.stderr


ENDING = """
import threading, time
import numpy as np
from bitclass import _native as native
native.set_num_threads(4)
codes = np.zeros((9000, 16), np.uint8)
index = native.HammingIndex(codes[:100])
def forever():
    while True:
        index.nearest(codes)
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""


def test_a_process_with_busy_workers_ends_cleanly():
    done = run(ENDING)
    assert (done.returncode, done.stderr) == (0, "")
