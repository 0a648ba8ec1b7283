"""What show_config tells, and the environment variables that change it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import bitclass
from bitclass._native import _kernels, get_config


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_portable_is_always_there_and_the_fastest_level_is_the_default():
    levels = _kernels.available_levels()
    assert levels[0] == "portable"
    if "BITCLASS_SIMD" not in os.environ:
        assert _kernels.current_level() == levels[-1]


@pytest.mark.parametrize("level", _kernels.available_levels())
def test_the_environment_chooses_level_and_threads(level):
    code = "import bitclass; bitclass.show_config()"
    done = run(code, BITCLASS_SIMD=level, BITCLASS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    lines = [line.split(":")[1].split()[0] for line in done.stdout.splitlines()]
    assert lines[:2] == [level, "1"]


@pytest.mark.parametrize("name", ["sse9", "AVX2 ", "neon,avx2"])
def test_an_unknown_level_is_an_error_that_names_the_variable(name):
    done = run("import bitclass; bitclass.show_config()", BITCLASS_SIMD=name)
    if name.strip() in _kernels.available_levels():
        pytest.skip("spelt right after all")
    assert done.returncode != 0
    assert "ValueError: BITCLASS_SIMD: " in done.stderr
    assert "portable" in done.stderr


KERNEL_CALLS = {
    "nearest": "index.nearest(codes)",
    "encode": "hash_function.encode(X)",
    "group_rows": "native.group_rows(labels, codes)",
}


@pytest.mark.parametrize("kernel", KERNEL_CALLS)
def test_a_process_with_sleeping_workers_ends_cleanly(kernel):
    code = (
        "import threading, time, numpy as np; from bitclass import _native as native\n"
        "native.set_num_threads(4)\n"
        "codes, labels = np.zeros((9000, 16), np.uint8), np.zeros(9000, np.intp)\n"
        "X = np.ones((9000, 64), np.float32)\n"
        "index = native.HammingIndex(codes[:100])\n"
        "hash_function = native.Projection(X[:64], np.zeros(64), precision='int8')\n"
        f"{KERNEL_CALLS[kernel]}\n"
        "def forever():\n"
        f"    while True: {KERNEL_CALLS[kernel]}\n"
        "for _ in range(4): threading.Thread(target=forever, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_show_config_prints_what_get_config_knows(capsys):
    assert bitclass.show_config() is None
    printed = capsys.readouterr().out
    config = get_config()
    assert set(config) == {"simd", "simd_available", "threads", "compiler", "numpy"}
    for value in config.values():
        for part in value if isinstance(value, list) else [value]:
            assert str(part) in printed
