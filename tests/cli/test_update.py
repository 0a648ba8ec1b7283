"""`bitclass update`: adds rows and classes and removes classes, without the original rows."""

import fcntl
import os
import shutil
import signal
import subprocess
from functools import partial

import numpy as np
import pytest

import bitclass as library
from bitclass import BinaryCodeClassifier

from .running import (
    COMMAND,
    assert_one_line,
    assert_refused,
    bitclass,
    contents,
    environment,
    problem,
    succeed,
)

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
OPTIONS = ("--bits", 40, "--no-refine")


def n_rows(path):
    return library.load(path).summary["report"]["n_rows"]


@pytest.fixture(scope="module")
def rows():
    X, y = problem(600, 8, n_classes=6, noise=2.0)
    return X, NAMES[y]


@pytest.fixture(scope="module")
def original(tmp_path_factory, rows):
    """A model of the first four classes, and more rows of these and two new ones."""
    tmp_path = tmp_path_factory.mktemp("update")
    X, y = rows
    first = np.isin(y, NAMES[:4]) & (np.arange(600) < 400)
    np.savez(tmp_path / "first.npz", X=X[first], y=y[first])
    np.savez(tmp_path / "more.npz", X=X[~first], y=y[~first])
    fit = ("fit", "first.npz", "--model", "m.safetensors", *OPTIONS, "--keep-sums")
    succeed(*fit, cwd=tmp_path)
    return tmp_path


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def test_more_rows_and_new_classes_then_one_removed(folder, rows):
    X, y = rows
    model = folder / "m.safetensors"
    before = library.load(model)
    told = succeed("update", "m.safetensors", "more.npz", cwd=folder)
    added = np.load(folder / "more.npz")["y"]
    assert f"added   more.npz: NumPy npz, {len(added)} x 8" in told
    assert "6 classes, 40 bits" in told
    after = library.load(model)
    np.testing.assert_array_equal(after.classes, NAMES)
    assert n_rows(model) == 600
    assert after.summary["parameters"] == before.summary["parameters"]
    whole = BinaryCodeClassifier(40, random_state=0, refine=False).fit(X, y)
    assert np.mean(after.predict(X) == y) > whole.score(X, y) - 0.03
    # The table of typical scores is one of all rows.
    assert np.mean(before.typicality(X) < 0.1) > 0.15
    assert np.mean(after.typicality(X) < 0.1) == pytest.approx(0.1, abs=0.05)

    succeed("update", "m.safetensors", "--remove", "cat", cwd=folder)
    assert n_rows(model) == np.sum(y != "cat")
    np.testing.assert_array_equal(library.load(model).classes, NAMES[NAMES != "cat"])

    # Classes are removed before rows are added: new rows of the class add it again.
    update = ("update", "m.safetensors", "more.npz", "--again", "--remove", "dog")
    succeed(*update, cwd=folder)
    assert n_rows(model) == np.sum((y != "cat") & (y != "dog")) + len(added)
    assert len(library.load(model).classes) == 6


def test_rows_are_added_once(folder):
    """Under another name, too: a batch is identified by its contents."""
    model = folder / "m.safetensors"
    shutil.copy(folder / "more.npz", folder / "copy.npz")
    succeed("update", "m.safetensors", "more.npz", cwd=folder)
    before = contents(folder)
    for name in ("more.npz", "copy.npz"):
        told = succeed("update", "m.safetensors", name, cwd=folder)
        assert f"skipped {name}: the model has these rows already (--again" in told
        assert contents(folder) == before
    n_before = n_rows(model)
    succeed("update", "m.safetensors", "more.npz", "--again", cwd=folder)
    assert n_rows(model) == n_before + len(np.load(folder / "more.npz")["y"])


def test_each_file_is_added_once(folder, rows):
    """Alone or with others, in any order, in a folder, and after `fit` read it."""
    X, y = rows
    (folder / "week").mkdir()
    days = ["week/monday.npz", "week/tuesday.npz", "week/wednesday.npz"]
    for i, name in enumerate(days):
        np.savez(folder / name, X=X[i::9] + 0.25, y=y[i::9])
    expected = [len(X[i::9]) for i in range(3)]
    update = ("update", "keep.safetensors")
    succeed("fit", *days[:1], "--model", update[1], "--keep-sums", "--no-refine", cwd=folder)
    for given, n in [
        (days[:1], 1), (days[:2], 2), (days[1::-1], 2), (["week"], 3), (days[2:], 3),
        ([*days, "--again", "--remove", str(y[0])], None),
    ]:  # fmt: skip
        told = succeed(*update, *given, cwd=folder)
        if n is not None:
            assert n_rows(folder / update[1]) == sum(expected[:n])
            assert "skipped week/" in told
    assert n_rows(folder / update[1]) > sum(expected)


def test_a_failed_update_changes_nothing(folder, rows):
    X, y = rows
    np.savez(folder / "narrow.npz", X=X[:, :5], y=y)
    X = X.copy()
    X[7, 3] = 1e20  # the square of which no sum can hold
    np.savez(folder / "large.npz", X=X, y=y)
    shutil.copy(folder / "m.safetensors", folder / "alone.safetensors")
    update = ("update", "m.safetensors")
    every = [part for name in NAMES[1:4] for part in ("--remove", name)]
    cases = {
        "class that is not there": ((*update, "--remove", "fox"), 2, ["fox", "ant, bee, cat"]),
        "all classes but one": ((*update, *every), 1, ["class"]),
        "another width": ((*update, "narrow.npz"), 1, [5, 8]),
        "squares that overflow": ((*update, "large.npz"), 1, []),
        "nothing to do": (update, 2, ["--remove"]),
        "no sums": (
            ("update", "alone.safetensors", "more.npz"), 2,
            ["alone.sums.safetensors", "--keep-sums"],
        ),
    }  # fmt: skip
    assert_refused(cases, folder)


BEFORE_SUMS, AFTER_SUMS, BEFORE_MODEL, AFTER_MODEL = range(4)


def die_at(moment):
    """Kill this process before or after it replaces one of its files: the sums, then the model."""
    replace, moments = os.replace, iter(range(100))

    def die_if_due():
        if next(moments) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace_or_die(*paths):
        die_if_due()
        replace(*paths)
        die_if_due()

    os.replace = replace_or_die


def run(arguments, folder, killed_at=None):
    """Run the command in a folder; it may be killed at one of the moments above."""
    prepare = None if killed_at is None else partial(die_at, killed_at)
    done = bitclass(*arguments, cwd=folder, prepare=prepare)
    assert killed_at is None or done.returncode == -signal.SIGKILL, done.stderr
    return done


MOMENTS = [BEFORE_SUMS, AFTER_SUMS, BEFORE_MODEL, AFTER_MODEL]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_update_can_be_repeated(folder, tmp_path, moment):
    """Each row counts once, whenever the process is killed."""
    command = ("update", "m.safetensors", "more.npz")
    undisturbed = shutil.copytree(folder, tmp_path / "undisturbed")
    assert run(command, undisturbed).returncode == 0
    before = {path: path.read_bytes() for path in folder.glob("m.*")}
    run(command, folder, killed_at=moment)
    sums, model = folder / "m.sums.safetensors", folder / "m.safetensors"
    changed = [path.read_bytes() != before[path] for path in (sums, model)]
    assert changed == [moment != BEFORE_SUMS, moment == AFTER_MODEL], "killed at another moment"
    if changed == [True, False]:  # again, before the run that completes it writes anything
        run(command, folder, killed_at=0)
    done = run(command, folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("interrupted" in done.stdout) == (changed == [True, False])
    left = {path: data for path, data in contents(folder).items() if path.suffix != ".tmp"}
    assert left == contents(undisturbed)


def test_another_update_after_a_killed_one_counts_both(folder, rows):
    X, y = rows
    model = folder / "m.safetensors"
    np.savez(folder / "others.npz", X=X[:50], y=y[:50])
    run(("update", "m.safetensors", "more.npz"), folder, killed_at=AFTER_SUMS)
    done = run(("update", "m.safetensors", "others.npz"), folder)
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stdout
    assert n_rows(model) == 650

    # An update killed at its very end is complete.
    run(("update", "m.safetensors", "--remove", "cat"), folder, killed_at=AFTER_MODEL)
    assert_one_line(run(("update", "m.safetensors"), folder), 2, "--remove")
    n_before = n_rows(model)

    # Without arguments, only the killed update is completed; its files may no longer exist.
    np.savez(folder / "last.npz", X=X[:30], y=y[:30])
    run(("update", "m.safetensors", "last.npz"), folder, killed_at=AFTER_SUMS)
    (folder / "last.npz").unlink()
    run(("update", "m.safetensors"), folder)
    assert n_rows(model) == n_before + 30


@pytest.mark.slow
def test_concurrent_updates_wait_for_each_other_and_lose_no_rows(folder, rows):
    X, y = rows
    n_before = n_rows(folder / "m.safetensors")
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        running = []
        for number in range(3):
            part = slice(100 * number, 100 * number + 100)
            np.savez(folder / f"{number}.npz", X=X[part], y=y[part])
            running.append(
                subprocess.Popen(
                    [COMMAND, "update", "m.safetensors", f"{number}.npz"],
                    cwd=folder,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment(),
                )
            )
        for process in running:
            assert "waiting for another process" in process.stderr.readline()
    finally:
        os.close(held)
    for process in running:
        process.communicate(timeout=300)
        assert process.returncode == 0
    assert n_rows(folder / "m.safetensors") == n_before + 300


@pytest.mark.slow
def test_a_model_fitted_again_without_sums_does_not_keep_those_of_the_first(folder):
    assert run(("fit", "more.npz", "--model", "m.safetensors", *OPTIONS), folder).returncode == 0
    done = run(("update", "m.safetensors", "more.npz"), folder)
    assert_one_line(done, 2, "m.sums.safetensors", "no such file", "--keep-sums")


def test_sums_of_another_model_are_refused(folder):
    other = ("fit", "more.npz", "--model", "other.safetensors", "--keep-sums", *OPTIONS)
    assert run(other, folder).returncode == 0
    (folder / "other.sums.safetensors").replace(folder / "m.sums.safetensors")
    before = contents(folder)
    done = run(("update", "m.safetensors", "more.npz"), folder)
    assert_one_line(
        done, 1, "m.sums.safetensors", "does not belong to m.safetensors", "--keep-sums"
    )
    assert contents(folder) == before
