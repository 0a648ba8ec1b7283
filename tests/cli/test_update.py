"""`bitclass update`: adds rows and classes and removes classes, without the original rows."""

import fcntl
import json
import shutil
import subprocess

import numpy as np
import pytest
from running import (
    COMMAND,
    Forks,
    assert_one_line,
    assert_refused,
    contents,
    environment,
    problem,
    succeed,
)

import bitclass as library
from bitclass import BinaryCodeClassifier
from bitclass.storage import read_header

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
OPTIONS = ("--loss", "hinge", "--initial-codes", "random", "--bits", 40, "--seed", 2, "--no-refine")


def hinge(X, y):
    options = {"loss": "hinge", "initial_codes": "random", "random_state": 2, "refine": False}
    return BinaryCodeClassifier(40, **options).fit(X, y)


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
    fit = ("fit", "first.npz", "--model", "m.safetensors", *OPTIONS, "--keep-statistics")
    succeed(*fit, cwd=tmp_path)
    return tmp_path


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def test_more_rows_and_new_classes_then_one_removed(folder, rows):
    X, y = rows
    before = library.load(folder / "m.safetensors")
    told = json.loads(succeed("update", "m.safetensors", "more.npz", "--json", cwd=folder))
    assert (told["rows"], told["classes"]) == (600, 6)
    model, whole = library.load(folder / "m.safetensors"), hinge(X, y)
    np.testing.assert_array_equal(model.classes, NAMES)
    np.testing.assert_array_equal(model.unpacked_weights(), whole.weights_)
    np.testing.assert_allclose(
        model.hash_function.projection, whole.projection_, rtol=1e-3, atol=1e-5
    )
    assert model.summary["n_rows"] == 600
    for name in ("loss", "parameters"):
        assert model.summary[name] == before.summary[name]

    told = json.loads(succeed("update", "m.safetensors", "--remove", "cat", "--json", cwd=folder))
    stays = y != "cat"
    assert (told["rows"], told["classes"]) == (stays.sum(), 5)
    model, whole = library.load(folder / "m.safetensors"), hinge(X[stays], y[stays])
    np.testing.assert_array_equal(model.classes, NAMES[NAMES != "cat"])
    np.testing.assert_array_equal(model.unpacked_weights(), whole.weights_)
    agreement = np.mean(model.predict(X[stays]) == whole.predict(X[stays]))
    assert agreement > 0.95, "the hash function is not that of the rows left"

    # Classes are removed before rows are added: new rows of the class add it again.
    update = ("update", "m.safetensors", "more.npz", "--remove", "dog", "--json")
    told = json.loads(succeed(*update, cwd=folder))
    added = np.load(folder / "more.npz")["y"]
    assert told["rows"] == np.sum(stays & (y != "dog")) + len(added)
    assert told["classes"] == 6


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
        "class that is not there": ((*update, "--remove", "fox"), 2, ["'fox'", "ant, bee, cat"]),
        "all classes but one": ((*update, *every), 1, ["class"]),
        "another width": ((*update, "narrow.npz"), 1, [5, 8]),
        "squares that overflow": ((*update, "large.npz"), 1, []),
        "nothing to do": (update, 2, ["--remove"]),
        "no statistics": (
            ("update", "alone.safetensors", "more.npz"), 2,
            ["alone.statistics.safetensors", "--keep-statistics"],
        ),
    }  # fmt: skip
    assert_refused(cases, folder)


# The first argument is a moment at which the command is killed, before or after it replaces one of
# its files: the statistics, then the model.
KILLS = """
run_whole = main
def main():
    moment = json.loads(sys.argv.pop(1))
    replace, moments = os.replace, iter(range(100))
    def die_if_due():
        if next(moments) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    def replace_or_die(*paths):
        die_if_due()
        replace(*paths)
        die_if_due()
    os.replace = replace_or_die
    run_whole()
"""
BEFORE_STATISTICS, AFTER_STATISTICS, BEFORE_MODEL, AFTER_MODEL = range(4)


@pytest.fixture(scope="module")
def run():
    """Run the command in a folder; it may be killed at one of the moments above."""
    with Forks(KILLS) as forks:

        def run_one(arguments, folder, killed_at=None):
            done = forks.run(json.dumps(killed_at), *arguments, cwd=folder)
            if killed_at is not None:
                assert done.returncode == -9, done.stderr
            return done

        yield run_one


def test_the_projection_type_is_kept(folder):
    fit = ("fit", "first.npz", "--model", "k.safetensors", *OPTIONS, "--projection", "int8")
    commands = {
        (*fit, "--keep-statistics"): "int8",
        ("update", "k.safetensors", "more.npz"): "int8",
        ("update", "k.safetensors", "--remove", "ant", "--projection", "float16"): "float16",
    }
    for command, expected in commands.items():
        succeed(*command, cwd=folder)
        assert read_header(folder / "k.safetensors").projection == expected


@pytest.mark.parametrize("moment", [BEFORE_STATISTICS, AFTER_STATISTICS, BEFORE_MODEL])
def test_a_killed_update_is_finished_by_the_same_command(run, folder, tmp_path, moment):
    command = ("update", "m.safetensors", "more.npz", "--remove", "ant")
    undisturbed = shutil.copytree(folder, tmp_path / "undisturbed")
    assert run(command, undisturbed).returncode == 0
    before = {path: path.read_bytes() for path in folder.glob("m.*")}
    run(command, folder, killed_at=moment)
    statistics, model = folder / "m.statistics.safetensors", folder / "m.safetensors"
    is_ahead = moment in (AFTER_STATISTICS, BEFORE_MODEL)
    assert model.read_bytes() == before[model]
    assert (statistics.read_bytes() != before[statistics]) == is_ahead, "killed at another moment"
    if is_ahead:  # again, before the run that finishes puts the model in place
        run(command, folder, killed_at=0)
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == done.stderr.count("interrupted") == is_ahead
    left = {path: data for path, data in contents(folder).items() if path.suffix != ".tmp"}
    assert left == contents(undisturbed)


def test_another_update_after_a_killed_one_counts_both(run, folder, rows):
    X, y = rows
    np.savez(folder / "others.npz", X=X[:50], y=y[:50])
    run(("update", "m.safetensors", "more.npz"), folder, killed_at=AFTER_STATISTICS)
    done = run(("update", "m.safetensors", "others.npz", "--json"), folder)
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stderr
    assert json.loads(done.stdout)["rows"] == 650

    # An update killed at its very end is complete.
    run(("update", "m.safetensors", "--remove", "cat"), folder, killed_at=AFTER_MODEL)
    assert_one_line(run(("update", "m.safetensors"), folder), 2, "--remove")
    n_rows = library.load(folder / "m.safetensors").summary["n_rows"]

    # Without arguments, only the killed update is completed; its files may no longer exist.
    run(("update", "m.safetensors", "others.npz"), folder, killed_at=AFTER_STATISTICS)
    (folder / "others.npz").unlink()
    done = run(("update", "m.safetensors", "--json"), folder)
    assert json.loads(done.stdout)["rows"] == n_rows + 50
    assert not list(folder.glob(".m*"))


def test_concurrent_updates_wait_for_each_other_and_lose_no_rows(folder, rows):
    X, y = rows
    n_before = library.load(folder / "m.safetensors").summary["n_rows"]
    lock = folder / ".m.safetensors.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = []
        for number in range(3):
            np.savez(folder / f"{number}.npz", X=X[:100], y=y[:100])
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
        lock.unlink()  # as the process that holds it does when it is done
    for process in running:
        process.communicate(timeout=300)
        assert process.returncode == 0
    assert library.load(folder / "m.safetensors").summary["n_rows"] == n_before + 300
    assert not lock.exists()


def test_a_refined_model_keeps_its_hash_function(tmp_path):
    X, y = problem(2000, 12, n_classes=12, noise=2.5)
    np.savez(tmp_path / "train.npz", X=X[:1500], y=y[:1500])
    np.savez(tmp_path / "one.npz", X=X[1500:1501], y=y[1500:1501])
    fit = ("fit", "train.npz", "--model", "m", "--keep-statistics", "--json")
    told = json.loads(succeed(*fit, cwd=tmp_path))
    assert told["refinement"]["epochs"] > 0, "not refined, so that nothing is shown"
    before = library.load(tmp_path / "m")
    told = json.loads(succeed("update", "m", "one.npz", "--json", cwd=tmp_path))
    assert told["rows"] == 1501
    after = library.load(tmp_path / "m")
    np.testing.assert_array_equal(after.hash_function.projection, before.hash_function.projection)
    test, labels = X[1500:], y[1500:]
    assert np.mean(after.predict(test) == labels) > np.mean(before.predict(test) == labels) - 0.01


def test_statistics_of_another_model_are_refused(run, folder):
    assert run(("fit", "more.npz", "--model", "m.safetensors", *OPTIONS), folder).returncode == 0
    before = contents(folder)
    done = run(("update", "m.safetensors", "more.npz"), folder)
    assert_one_line(
        done, 1, "m.statistics.safetensors", "does not belong to m.safetensors", "--keep-statistics"
    )
    assert contents(folder) == before
