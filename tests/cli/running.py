"""Run the command as a user does: in a new process, or in a fork of a prepared one."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

COMMAND = Path(sys.executable).with_name("bitclass")
PROGRESS = "bitclass: refining: epoch "
# Variables of the terminal that runs the tests.
OUTSIDE = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
# Runs are forks of a process that has imported all, which takes longer than most of them.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pyarrow.parquet", "bitclass.images", "bitclass.text", "bitclass.serving", __name__]
    + [f"bitclass.cli.{name}" for name in ("app", "fit", "update", "predict", "evaluate")]
)


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    return kept | more


def _run_main(arguments, folder, streams, user, prepare):
    """Run the command in this process, with files as its standard streams."""
    for number, name in enumerate(streams):
        os.dup2(os.open(name, os.O_RDWR), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8")  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    for name in OUTSIDE:
        os.environ.pop(name, None)
    from bitclass.cli import main
    from bitclass.training import refine

    refine._MIN_VISITS = 4000  # as in the tests themselves
    os.chdir(folder)
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    if prepare is not None:
        prepare()
    sys.argv = ["bitclass", *arguments]
    main()


def bitclass(*arguments, cwd=".", input="", user=None, prepare=None):
    """Run to the end with captured output; `input` is the standard input.

    `prepare` is called in the process of the run, before the command.
    """
    given = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as place:
        streams = [Path(place, name) for name in ("in", "out", "err")]
        for path, text in zip(streams, (input, "", ""), strict=True):
            path.write_text(text, encoding="utf-8")
        process = FORKS.Process(target=_run_main, args=(given, str(cwd), streams, user, prepare))
        process.start()
        process.join(300)
        output = (path.read_text(encoding="utf-8") for path in streams[1:])
        return subprocess.CompletedProcess(given, process.exitcode, *output)


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
