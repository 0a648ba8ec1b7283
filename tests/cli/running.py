"""Run the command as a user does: in a new process, or in a fork of a prepared one."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

COMMAND = Path(sys.executable).with_name("bitclass")
PROGRESS = "bitclass: refining: epoch "
# Variables of the terminal that runs the tests.
OUTSIDE = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    return kept | more


# A line starts a run, with its arguments, folder, standard input, user id, the seconds after which
# it is killed, and modules to be imported for it and later ones.
FORKS = """
import contextlib, importlib, io, json, os, signal, sys, tempfile, time
import pyarrow.parquet
import bitclass.images, bitclass.text
from bitclass.cli import main
from bitclass.training import refine
refine._MIN_VISITS = 4000  # as in the tests themselves
for name in ("fit", "update", "predict", "evaluate", "inspect"):
    importlib.import_module(f"bitclass.cli.{name}")
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    sys.argv = ["bitclass", "inspect", "--help"]
    main()
#PREPARE
for line in sys.stdin:
    arguments, folder, given, user, kill_after, imports = json.loads(line)
    for name in imports:
        importlib.import_module(name)
    start = time.monotonic()
    with tempfile.TemporaryFile() as inp, tempfile.TemporaryFile() as out, \\
            tempfile.TemporaryFile() as err:
        inp.write(given.encode())
        inp.seek(0)
        child = os.fork()
        if child == 0:
            for number, file in enumerate((inp, out, err)):
                os.dup2(file.fileno(), number)
            sys.stdin = open(0, encoding="utf-8")
            signal.alarm(300)
            os.chdir(folder)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            sys.argv = ["bitclass", *arguments]
            code = 99
            try:
                main()
                code = 0
            except SystemExit as done:
                code = done.code or 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        if kill_after is not None:  # until it is waited for, its number is given to nobody else
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    print(json.dumps([code, *texts, time.monotonic() - start]), flush=True)
"""


class Forks:
    """Runs in forks of one process that has imported all, which takes longer than most runs.

    `prepare` is code that this process runs once; it may change what `main` is.
    """

    def __init__(self, prepare=""):
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORKS.replace("#PREPARE", prepare)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def run(self, *arguments, cwd=".", input="", user=None, kill_after=None, imports=()):
        given = [str(argument) for argument in arguments]
        line = json.dumps([given, os.path.abspath(cwd), input, user, kill_after, imports])
        with self._lock:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            *result, seconds = json.loads(self._process.stdout.readline())
        done = subprocess.CompletedProcess(given, *result)
        done.seconds = seconds
        return done

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait(300)
        self._process.stdout.close()


@functools.cache
def shared_forks():
    forks = Forks()
    atexit.register(forks.__exit__)
    return forks


def bitclass(*arguments, **options):
    """Run to the end with captured output; `input` is the standard input."""
    return shared_forks().run(*arguments, **options)


def in_forks(runs, folder, **options):
    """Run the command several times in a folder."""
    return [bitclass(*run, cwd=folder, **options) for run in runs]


def bitclass_process(*arguments, **options):
    """Run in a new process; options are those of `subprocess.run`."""
    given = {"input": "", "stdout": subprocess.PIPE} | options
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=300,
        env=environment(),
        **given,
    )


def succeed(*arguments, run=bitclass, **options):
    """Run and return the output; there must be no warnings, only progress."""
    done = run(*arguments, **options)
    warned = [line for line in done.stderr.splitlines() if not line.startswith(PROGRESS)]
    assert (done.returncode, warned) == (0, []), done.stderr
    return done.stdout


def problem(n=300, d=6, n_classes=4, seed=0, noise=1.0, dtype=np.float32):
    """Rows around one centre per class, and their class indices."""
    centres = 2.0 * np.random.default_rng(17).standard_normal((n_classes, d))
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    return (centres[y] + noise * rng.standard_normal((n, d))).astype(dtype), y


def assert_one_line(done, code, *words):
    """Assert that a run failed with this exit code, one line with these words, and no output."""
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stderr.startswith("bitclass: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith("\n")
    assert "Traceback" not in done.stderr
    for word in words:
        assert str(word) in done.stderr, done.stderr
    assert not done.stdout


def assert_refused(cases, folder, **options):
    """Assert that runs fail with their exit code and one line with these words, and write nothing.

    A case is the arguments, the exit code, or None for any but 0, and the words. Lines about images
    that were skipped may come before.
    """
    before, wrong = contents(folder), {}
    for name, (arguments, code, words) in cases.items():
        done = bitclass(*arguments, cwd=folder, **options)
        lines = done.stderr.splitlines(keepends=True)
        done.stderr = "".join(line for line in lines if "warning: skipped" not in line)
        try:
            assert_one_line(done, done.returncode or 2 if code is None else code, *words)
        except AssertionError as error:
            wrong[name] = error
    assert not wrong, wrong
    assert contents(folder) == before


def contents(folder):
    """Contents of all files below a folder."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
