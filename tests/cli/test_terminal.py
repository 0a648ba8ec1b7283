"""Progress is shown in a terminal."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import numpy as np

from bitclass import TextClassifier
from bitclass.cli.console import progress_bars
from bitclass.report import Epoch

from ..text_models import sentences
from .running import COMMAND, bitclass, environment, problem


def in_terminal(*arguments, **options):
    """Run in a terminal of 80 columns; returns the exit code and the output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    process = subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color"),
        **options,
    )
    os.close(theirs)
    shown = bytearray()
    with contextlib.suppress(OSError):  # when the other end is closed
        while part := os.read(ours, 1 << 16):
            shown += part
    os.close(ours)
    return process.wait(300), shown.decode()


def test_the_progress_of_a_fit_is_shown(tmp_path):
    X, y = problem(150_000, 4)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    code, shown = in_terminal("fit", "train.npz", "--model", "m.safetensors", cwd=tmp_path)
    assert code == 0, shown
    assert re.search(r"\x1b\[(1;)?3\d", shown), "no colours"
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert re.search(r"pass 1 ━+.* 150,000 rows \d:\d\d:\d\d left 0:00:00", plain)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain) if "━" in line) <= 80
    assert "on 150,000 rows" in plain


def test_texts_that_are_typed_are_answered_by_a_table(tmp_path):
    """And by CSV, as before, if the answer is read by a program."""
    texts, labels = sentences()
    TextClassifier(64, random_state=0).fit(texts, labels).save(tmp_path / "m.safetensors")
    asked = ["predict", "m.safetensors", "will it rain", "日本語", "--top", "2"]
    asked += ["--probabilities", "--reject", "0.001", "--typicality"]
    code, shown = in_terminal(*asked, cwd=tmp_path)
    assert code == 0, shown
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [row[:2] for row in cells[::2]] == [["will it rain", "weather"], ["日本語", "-"]]
    assert {row[2] for row in cells} <= set(labels)
    assert cells[1][:2] == cells[3][:2] == ["", ""]
    assert cells[3][-1] == ""
    assert all(len(row[4]) < 10 for row in cells)  # digits of a probability
    assert cells[2][-1] == "0.0"
    assert "predicting" not in shown
    printed = bitclass(*asked, cwd=tmp_path).stdout
    assert printed.startswith("typicality,label,label_1,distance,probability,label_2")


def test_an_error_in_a_terminal_is_one_line(tmp_path):
    code, shown = in_terminal("fit", "none.npz", "--model", "m.safetensors", cwd=tmp_path)
    assert code == 1
    assert shown.startswith("bitclass: ")
    assert shown.count("\n") == 1


def test_epochs_of_refinement_are_lines_in_a_pipe_and_a_bar_in_a_terminal(capsys, monkeypatch):
    expected = "epoch 3 of 20, accuracy 94.12%"
    with progress_bars() as progress:
        progress("learning", 10, 20)
        progress.epoch(Epoch(3, 20, 0.9412, 0.5))
    assert capsys.readouterr().err == f"bitclass: refining: {expected}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bars() as progress:
        progress.epoch(Epoch(3, 20, 0.9412, 0.5))
    shown = capsys.readouterr().err
    assert expected in shown
    assert "bitclass: refining" not in shown
