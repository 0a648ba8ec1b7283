"""Runs the command as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

COMMAND = Path(sys.executable).with_name("bitclass")
PROGRESS = "bitclass: refining: epoch "
# Variables of the terminal that runs the tests.
OUTSIDE = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    return kept | more


def bitclass(*arguments, **options):
    """Run to the end, in pipes; `input` is what standard input gives."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        input=options.pop("input", ""),
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        timeout=120,
        env=environment(),
        **options,
    )


def succeed(*arguments, **options):
    """Run, and return what was printed; there must be no warning, only progress."""
    done = bitclass(*arguments, **options)
    warned = [line for line in done.stderr.splitlines() if not line.startswith(PROGRESS)]
    assert (done.returncode, warned) == (0, []), done.stderr
    return done.stdout


def all_at_once(work):
    """Results of functions that mostly wait for processes, in order."""
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        return [future.result() for future in [pool.submit(each) for each in work]]


# Runs are forks of one process that has imported all modules, which takes longer than most runs.
# A line starts one, with its arguments, its folder and its user id.
FORKS = """
import importlib, json, os, sys, tempfile
import pyarrow.parquet
from bitclass.cli import main
for name in ("fit", "update", "predict", "evaluate", "inspect"):
    importlib.import_module(f"bitclass.cli.{name}")
#PREPARE
for line in sys.stdin:
    arguments, folder, user = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.chdir(folder)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            sys.argv = ["bitclass", *arguments]
            code = 99
            try:
                main()
            except SystemExit as done:
                code = done.code or 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    print(json.dumps([code, *texts]), flush=True)
"""


def in_forks(runs, folder, user=None, prepare=""):
    """Run the command several times, as `bitclass` does, in a tenth of the time.

    `prepare` is code that is run once before all; it may change what `main` is.
    """
    lines = [json.dumps([[str(a) for a in run], str(folder), user]) + "\n" for run in runs]
    done = subprocess.run(
        [sys.executable, "-c", FORKS.replace("#PREPARE", prepare)],
        input="".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=environment(),
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [subprocess.CompletedProcess(run, *a) for run, a in zip(runs, answers, strict=True)]


def problem(n=300, d=6, n_classes=4, seed=0, noise=1.0, dtype=np.float32):
    """Rows around a centre for each class, and their classes' numbers."""
    centres = 2.0 * np.random.default_rng(17).standard_normal((n_classes, d))
    rng = np.random.default_rng(seed)
    own = rng.permutation(np.arange(n) % n_classes)
    return (centres[own] + noise * rng.standard_normal((n, d))).astype(dtype), own


def assert_one_line(done, code, *words):
    """The run failed with the exit code and one line that has the words, and printed nothing."""
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stderr.startswith("bitclass: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith("\n")
    assert "Traceback" not in done.stderr
    for word in words:
        assert str(word) in done.stderr, done.stderr
    assert not done.stdout


def contents(folder):
    """All files below a folder with their bytes."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
