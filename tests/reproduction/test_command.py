"""``python -m reproduction`` as a user runs it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reproduction.__main__ import main

ROOT = Path(__file__).parents[2]
SMALL = ["run", "--quick", "--methods", "paper-hinge", "--datasets", "digits", "--seeds", "1"]


# Runs the command, whose second cell does not end: a program takes the place of the interpreter.
SECOND_CELL_HANGS = """
import sys
from reproduction import runner
from reproduction.__main__ import main

write_whole, program = runner.write_whole, sys.argv.pop(1)

def write_then_hang(path, text):
    write_whole(path, text)
    sys.executable = program

runner.write_whole = write_then_hang
main()
"""


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}


@pytest.mark.slow
def test_an_interrupted_run_is_resumed_and_a_second_one_only_reads(tmp_path, capsys):
    out, program, started = (tmp_path / name for name in ("out", "program", "started"))
    program.write_text(f"#!/bin/sh\ntouch '{started}'; exec sleep 600\n")
    program.chmod(0o755)
    command = [sys.executable, "-c", SECOND_CELL_HANGS, program, *SMALL, "--out", out]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while time.monotonic() < until and not started.exists():
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    assert run.wait(300) == 130
    before = times(out)
    assert len(before) == 1
    main([*SMALL, "--out", str(out)])
    after = times(out)
    assert len(after) == 3
    assert before.items() <= after.items()
    assert capsys.readouterr().out.endswith(f"3 done; report: {out / 'report.md'}\n")
    main([*SMALL, "--out", str(out)])
    assert times(out) == after
    (out / "report.md").unlink()
    main(["report", str(out)])
    assert (out / "report.md").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "svm"], ["--methods", "'svm'", "svm-ova", "paper-hinge"]),
        (["--datasets", "mnist"], ["--datasets", "'mnist'", "digits", "cifar10-paper"]),
        (["--datasets", "letters"], ["letters", "letter16.npz", "--data"]),
        (["--data", "none"], ["none: no such folder"]),
        (["--data", "empty"], ["empty/cifar10_gist512.npz", "GIST", "X_train"]),
        (["--out", "a_file", "--quick"], ["a_file"]),
        (["--time-limit", "0"], ["--time-limit"]),
        (["--seeds", "0"], ["--seeds"]),
        (["--datasets", "small-shape", "--methods", "paper-mincut"], ["leave nothing to run"]),
    ],
)
def test_errors_list_valid_arguments(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(["run", *arguments])
    text = f"{caught.value}{capsys.readouterr().err}"
    assert all(word in text for word in words), text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_file", "empty"]
