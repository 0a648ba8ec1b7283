"""``python -m reproduction`` as a user runs it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reproduction.__main__ import main

ROOT = Path(__file__).parents[2]
SMALL = ["run", "--quick", "--methods", "paper-hinge", "--datasets", "digits", "--seeds", "1"]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}


def test_an_interrupted_run_is_resumed_and_a_second_one_only_reads(tmp_path, capsys):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "reproduction", *SMALL, "--out", str(out)]
    run = subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 100
    while time.monotonic() < until and not times(out):
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    before = times(out)
    assert before
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
