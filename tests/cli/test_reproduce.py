"""`bitclass reproduce` as a person runs it."""

import json
import signal
import subprocess
import time

from running import COMMAND, assert_one_line, environment, in_forks, succeed

SMALL = ["reproduce", "--quick", "--methods", "ours-hinge", "--datasets", "digits", "--seeds", "1"]


def test_a_report_is_written_and_a_second_run_only_reads(tmp_path):
    text = succeed(*SMALL, "--out", "r", cwd=tmp_path)
    assert text.endswith("cells done; report: r/report.html\n")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "r" / "cells").iterdir()}
    assert len(kept) == 3
    succeed(*SMALL, "--out", "r", cwd=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    content = json.loads((tmp_path / "r" / "results.json").read_text())
    assert len(content["cells"]) == 3
    assert (tmp_path / "r" / "accuracy.csv").exists()


def stopped(folder, how):
    """Begin a run and stop it once its first cell is done; the files of those that are."""
    run = subprocess.Popen(
        [COMMAND, *SMALL],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    cells = folder / "reproduction" / "cells"
    until = time.monotonic() + 100
    while time.monotonic() < until and not any(cells.glob("*.json")):
        time.sleep(0.02)
    run.send_signal(how)
    answer, complaints = run.communicate(timeout=60)
    assert (answer, complaints) == ("", "")
    assert run.returncode == (130 if how == signal.SIGINT else -how)
    assert not list(cells.glob("*.tmp"))
    return {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}


def test_an_interrupted_run_goes_on(tmp_path):
    before = stopped(tmp_path, signal.SIGINT)
    assert before
    succeed(*SMALL, cwd=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list((tmp_path / "reproduction" / "cells").glob("*.json"))) == 3


def test_what_was_done_outlives_a_run_that_is_killed(tmp_path):
    assert stopped(tmp_path, signal.SIGKILL)


def test_wrong_arguments_are_one_line_that_says_what_there_is(tmp_path):
    (tmp_path / "a_file").touch()
    (tmp_path / "empty").mkdir()
    cases = [
        (("--methods", "svm"), ["--methods", "'svm'", "ova-svm", "ours-hinge"]),
        (("--datasets", "mnist"), ["--datasets", "'mnist'", "digits", "cifar10-paper"]),
        (("--methods", " , "), ["--methods", "names nothing"]),
        (("--datasets", "letters"), ["letters", "letter16.npz", "--data"]),
        (("--data", "none"), ["none: no such folder"]),
        (("--data", "empty"), ["empty/cifar10_gist512.npz", "GIST-512", "X_train"]),
        (("--data", "empty", "--quick"), ["empty/letter16.npz", "numpy.savez"]),
        (("--out", "a_file", "--quick"), ["a_file"]),
        (("--time-limit", "0"), ["--time-limit"]),
        (("--seeds", "0"), ["--seeds"]),
        (
            ("--datasets", "imagenet21841-model", "--methods", "sdh"),
            ["--methods and --datasets leave nothing to run"],
        ),
    ]
    runs = in_forks([("reproduce", *arguments) for arguments, _ in cases], tmp_path)
    for (_, words), ran in zip(cases, runs, strict=True):
        assert_one_line(ran, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_file", "empty"]
