"""Errors are one line with exit code 2 (arguments) or 1 (data); no partial files are written."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .running import (
    COMMAND,
    assert_one_line,
    assert_refused,
    bitclass_process,
    contents,
    environment,
    in_forks,
    problem,
)

FIT = ("--model", "new.safetensors")
PREDICT = ("predict", "m.safetensors")


def _files(folder):
    """Write valid and invalid files, and links to them."""
    X, y = problem(60, 6)
    np.savez(folder / "good.npz", X=X, y=y)
    np.savez(folder / "narrow.npz", X=X[:, :4], y=y)
    np.savez(folder / "one_class.npz", X=X, y=np.zeros(60, int))
    np.savez(folder / "unlabelled.npz", X=X)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    np.savetxt(folder / "good.csv", X, delimiter=",")
    columns = {f"f{j}": X[:, j] for j in range(6)}
    pq.write_table(pa.table(columns | {"label": y}), folder / "columns.parquet")
    spoiled = X.copy()
    spoiled[41, 2] = np.nan
    np.savez(folder / "nan.npz", X=spoiled, y=y)
    (folder / "no_model.safetensors").write_bytes(b"this is no model" * 100)
    (folder / "saved").mkdir()
    shutil.copy(folder / "good.npz", folder / "saved/a.npz")
    (folder / "symbolic.npz").symlink_to("good.npz")
    os.link(folder / "good.npz", folder / "hard.npz")


# Arguments, exit code, and words in the error. If outputs are refused, the rows are invalid too,
# which would be reported if they were read first.
CASES = {
    "missing file": (("fit", "none.npz", *FIT), 1, ["none.npz", "no such file"]),
    "missing model": (("predict", "none.safetensors", "good.npz"), 1, ["none.safetensors"]),
    "no labels": (("fit", "unlabelled.npz", *FIT), 2, ["unlabelled.npz", "--labels"]),
    "not a number": (("fit", "nan.npz", *FIT), 1, ["nan.npz", "row 41", "2"]),
    "not a number at predict": (
        (*PREDICT, "nan.npz", "--out", "new.csv"), 1, ["nan.npz", "row 41"],
    ),
    "folder that is not there": (
        ("fit", "nan.npz", "--model", "nowhere/m.safetensors"), 1, ["nowhere", "No such folder"],
    ),
    "model that is a folder": (("fit", "nan.npz", "--model", "saved"), 1, ["saved", "directory"]),
    "no bits": (("fit", "nan.npz", "--bits", 0, *FIT), 2, ["--bits", "1"]),
    "prior in words": (("fit", "nan.npz", "--prior", "much", *FIT), 2, ["--prior", "much"]),
    "half a name": (("fit", "nan.npz", "--bit", 3, *FIT), 2, ["--bits", "bitclass fit --help"]),
    "no model": (("fit", "nan.npz"), 2, ["--model", "bitclass fit --help"]),
    "bits in words": (("fit", "nan.npz", "--bits", "many", *FIT), 2, ["--bits"]),
    "unknown format": ((*PREDICT, "nan.npz", "--format", "xml"), 1, ["format='xml'", "csv"]),
    "missing labels": (("fit", "X.npy", "--labels", "no.npy", *FIT), 2, ["--labels no.npy"]),
    "one class": (("fit", "one_class.npz", *FIT), 1, ["class"]),
    "wrong width at predict": ((*PREDICT, "narrow.npz"), 1, ["narrow.npz", 4, 6]),
    "not a model": (("predict", "no_model.safetensors", "good.npz"), 1, ["no_model.safetensors"]),
    "top too large": ((*PREDICT, "good.npz", "--top", 5, "--out", "new.csv"), 2, ["--top 5", 4]),
    "unknown extension": (
        (*PREDICT, "nan.npz", "--out", "new.xlsx"), 2, ["new.xlsx", ".csv", ".jsonl"],
    ),
    "json in csv": ((*PREDICT, "nan.npz", "--json", "--out", "new.csv"), 2, [".jsonl"]),
    "identifier of arrays": ((*PREDICT, "good.npz", "--id", "key"), 1, ["good.npz", "'key'"]),
    "identifier called like the output": (
        ("predict", "named.safetensors", "columns.parquet", "--id", "label"), 2, ["--id label"],
    ),
    "model that is a device": (("fit", "nan.npz", "--model", "/dev/null"), 1, ["/dev/null"]),
    "name that could command the terminal": (
        ("fit", "red\x1b[31m.npz", *FIT), 1, [r"red\x1b[31m.npz"],
    ),
    "unknown command": (("train", "good.npz"), 2, ["'train'", "Did you mean 'fit'?"]),
    # An output never replaces an input, through any link.
    "model over data": (("fit", "good.npz", "--model", "good.npz"), 2, ["--model"]),
    "model over labels": (
        ("fit", "X.npy", "--labels", "y.npy", "--model", "y.npy"), 2, ["--model"],
    ),
    "model over the target of a link": (
        ("fit", "good.npz", "--model", "symbolic.npz"), 2, ["--model"],
    ),
    "model over a hard link": (("fit", "good.npz", "--model", "hard.npz"), 2, ["--model"]),
    "model over a file of a folder": (("fit", "saved", "--model", "saved/a.npz"), 2, ["--model"]),
    "model over the sums of another": (
        ("fit", "good.npz", "--model", "m.sums.safetensors"), 2, [".sums.safetensors"],
    ),
    "predictions over data": ((*PREDICT, "good.csv", "--out", "good.csv"), 2, ["--out"]),
    "predictions over the model": (("predict", "m.csv", "X.npy", "--out", "m.csv"), 2, ["--out"]),
    "ONNX over the model": (("export", "m.csv", "--out", "m.safetensors"), 2, ["--out"]),
    "wrong rows over data": (
        ("evaluate", "m.safetensors", "good.csv", "--errors", "good.csv"), 2, ["--errors"],
    ),
    "figure of another format": (
        ("evaluate", "m.safetensors", "good.npz", "--figure", "f.gif"), 2, ["--figure", ".png"],
    ),
    "share above 1": ((*PREDICT, "good.npz", "--reject", 5), 2, ["--reject"]),
    "update from its own sums": (
        ("update", "m.safetensors", "m.sums.safetensors"), 2, ["sums"],
    ),
    "update from its own model": (
        ("update", "m.safetensors", "m.csv"), 2, ["model"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    _files(folder)
    fit = ("--bits", 16, "--no-refine", "--keep-sums", "--model")
    fits = [("fit", "good.npz", *fit, "m.safetensors"),
            ("fit", "good.npz", *fit, "m.safetensors"),  # that of an earlier run is replaced
            ("fit", "columns.parquet", *fit, "named.safetensors")]  # fmt: skip
    for done in in_forks(fits, folder):
        assert (done.returncode, done.stderr) == (0, "")
    os.link(folder / "m.safetensors", folder / "m.csv")
    return folder


def test_bad_input_is_one_line_and_nothing_is_written(folder):
    assert_refused(CASES, folder)
    arguments, code, words = CASES["missing file"]
    assert_one_line(bitclass_process(*arguments, cwd=folder), code, *words)


def test_no_permission(folder):
    # The superuser has all permissions, so another user runs it, in a world-readable folder.
    other = 65534 if os.geteuid() == 0 else None
    work = {
        "secret.npz": ("fit", "secret.npz", *FIT),
        "new.safetensors": ("fit", "good.npz", *FIT),
        "new.csv": (*PREDICT, "good.npz", "--out", "new.csv"),
    }
    with tempfile.TemporaryDirectory() as place:
        for name, mode in (("good.npz", 0o644), ("m.safetensors", 0o644), ("secret.npz", 0)):
            shutil.copy(folder / name.replace("secret", "good"), Path(place, name))
            os.chmod(Path(place, name), mode)
        before = set(os.listdir(place))
        os.chmod(place, 0o555)
        try:
            done = in_forks(list(work.values()), place, user=other)
        finally:
            os.chmod(place, 0o755)
        assert set(os.listdir(place)) == before
    for name, outcome in zip(work, done, strict=True):
        # The argument itself cannot be read, or a file cannot be written.
        assert_one_line(outcome, 2 if name == "secret.npz" else 1, name)
        assert re.search("ermission|not readable", outcome.stderr), outcome.stderr


@pytest.mark.slow
def test_a_limit_on_the_size_of_files(tmp_path):
    """The model takes about 2 MB."""
    X, y = problem(80, 1200)
    np.savez(tmp_path / "wide.npz", X=X, y=y)
    (tmp_path / "m").write_bytes(b"the model of before")
    before = contents(tmp_path)
    done = bitclass_process(
        *("fit", "wide.npz", "--model", "m", "--bits", 512),
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert done.returncode == 1
    assert re.search("^bitclass: .*m: .*too large", done.stderr, re.MULTILINE)
    assert contents(tmp_path) == before


def test_an_unknown_instruction_set_is_one_line(folder):
    done = subprocess.run(
        [COMMAND, *PREDICT, "good.npz"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(BITCLASS_SIMD="foo"),
    )
    assert_one_line(done, 1, "BITCLASS_SIMD", "foo")


def test_unexpected_errors_are_one_line():
    code = (
        "import sys; sys.argv = ['bitclass', 'inspect', 'm'];"
        "import bitclass.cli.inspect as module; module.load = lambda path: 1 / 0;"
        "from bitclass.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert_one_line(done, 1, "internal error, ZeroDivisionError", "BITCLASS_TRACEBACK=1")


def test_a_command_without_arguments_shows_its_help():
    for name in ("fit", "predict", "serve"):
        done = bitclass_process(name)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Usage: bitclass {name}" in done.stdout
        assert "--help" in done.stdout
        assert "<bool>" not in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_output_on_a_full_device(folder):
    with open("/dev/full", "w") as full:
        done = bitclass_process(*PREDICT, "good.npz", cwd=folder, stdout=full)
    assert_one_line(done, 1, "No space left")


def heed_interrupts():
    """Restore the default handler, which shells disable for background commands."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def has_read(process, path):
    """Whether a process has ended, or a file in its memory."""
    maps = Path(f"/proc/{process.pid}/maps")
    return process.poll() is not None or str(path) in maps.read_text()


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc here")
def test_an_interrupt_ends_a_run_quietly(tmp_path):
    n, d = 4_000_000, 16
    with open(tmp_path / "X.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * n * d)  # a sparse file
    np.save(tmp_path / "y.npy", np.tile(np.arange(4, dtype=np.int8), n // 4))
    process = subprocess.Popen(
        [COMMAND, "fit", "X.npy", "--labels", "y.npy", *FIT, "--bits", "256"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=heed_interrupts,
    )
    while not has_read(process, tmp_path / "X.npy"):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, complained = process.communicate(timeout=300)
    assert (process.returncode, printed, complained) == (130, "", "")
    assert sorted(os.listdir(tmp_path)) == ["X.npy", "y.npy"]


# Imported by Python at startup: sends an interrupt when a given module is imported.
INTERRUPTING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.slow
def test_an_interrupt_while_the_command_is_imported_ends_it_quietly(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)

    def run(module):
        return subprocess.run(
            [COMMAND, "fit", "--help"],
            capture_output=True,
            text=True,
            timeout=300,
            env=environment(PYTHONPATH=str(tmp_path), INTERRUPT_AT=module),
            preexec_fn=heed_interrupts,
        )

    for module in ("typer", "bitclass.cli.saving"):
        done = run(module)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert run("none").returncode == 0, "no interrupt, and yet it ended"


def test_closed_standard_streams(folder):
    done = bitclass_process(*PREDICT, "good.npz", cwd=folder, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")
    done = bitclass_process(*PREDICT, "none.npz", cwd=folder, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (1, "")
    # Otherwise the next file opened would receive what is written to standard error.
    done = bitclass_process(
        *PREDICT, "good.npz", "--out", "p.csv", cwd=folder, preexec_fn=lambda: os.closerange(0, 3)
    )
    assert done.returncode == 0
    assert (folder / "p.csv").read_text().startswith("label\n")
    (folder / "p.csv").unlink()
