"""`bitclass update`: more rows, new classes, classes forgotten, without the rows of before."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from running import FORKS, assert_one_line, bitclass, environment, problem, succeed

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
    X, own = problem(600, 8, n_classes=6, noise=2.0)
    return X, NAMES[own]


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


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_more_rows_and_new_classes_then_one_forgotten(folder, rows):
    X, y = rows
    before = library.load(folder / "m.safetensors")
    told = json.loads(succeed("update", "m.safetensors", "more.npz", "--json", cwd=folder))
    assert (told["rows"], told["classes"]) == (600, 6)
    model, whole = library.load(folder / "m.safetensors"), hinge(X, y)
    np.testing.assert_array_equal(model.classes, NAMES)
    np.testing.assert_array_equal(model.unpacked_weights(), whole.weights_)
    np.testing.assert_allclose(model.projection, whole.projection_, rtol=1e-3, atol=1e-5)
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

    # What cannot be done changes nothing.
    before = contents(folder)
    done = bitclass("update", "m.safetensors", "--remove", "cat", cwd=folder)
    assert_one_line(done, "'cat'", "ant, bee, dog, eel, fox")
    every = [part for name in model.classes[1:] for part in ("--remove", name)]
    assert_one_line(bitclass("update", "m.safetensors", *every, cwd=folder), "class")
    assert contents(folder) == before


def test_rows_of_another_width_or_kind_change_nothing(folder, rows):
    X, y = rows
    np.savez(folder / "narrow.npz", X=X[:, :5], y=y)
    np.savez(folder / "numbers.npz", X=X, y=np.arange(600) % 3)
    before = contents(folder)
    assert_one_line(bitclass("update", "m.safetensors", "narrow.npz", cwd=folder), 5, 8)
    assert_one_line(bitclass("update", "m.safetensors", "numbers.npz", cwd=folder), "labels")
    assert_one_line(bitclass("update", "m.safetensors", cwd=folder), "--remove")
    assert contents(folder) == before


def test_a_model_without_statistics_is_left_alone(folder):
    (folder / "m.statistics.safetensors").unlink()
    before = contents(folder)
    done = bitclass("update", "m.safetensors", "more.npz", cwd=folder)
    assert_one_line(done, "m.statistics.safetensors", "--keep-statistics")
    assert contents(folder) == before


def test_the_exponential_loss_learns_more_too(folder, rows):
    X, y = rows
    fit = ("fit", "first.npz", "--model", "e.safetensors", "--bits", 40, "--scale", 0.2)
    succeed(*fit, "--keep-statistics", cwd=folder)
    update = ("update", "e.safetensors", "more.npz", "--remove", "dog", "--json")
    told = json.loads(succeed(*update, cwd=folder))
    # Forgotten first, then learned: rows of the class that are new bring it back.
    first = np.load(folder / "first.npz")
    assert told["rows"] == 600 - np.sum(first["y"] == "dog")
    model = library.load(folder / "e.safetensors")
    np.testing.assert_array_equal(model.classes, NAMES)
    assert np.mean(model.predict(X) == y) > 0.7


# The command is killed before or after it puts its first or its second file in place, if its first
# argument is a moment.
KILLS = """
import signal
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
    """Runs the command in a folder; it may be killed at one of the moments above."""
    server = subprocess.Popen(
        [sys.executable, "-c", FORKS.replace("#PREPARE", KILLS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )

    def run_one(arguments, folder, killed_at=None):
        line = [[json.dumps(killed_at), *map(str, arguments)], str(folder), None]
        server.stdin.write(json.dumps(line) + "\n")
        server.stdin.flush()
        done = subprocess.CompletedProcess(arguments, *json.loads(server.stdout.readline()))
        if killed_at is not None:
            assert done.returncode == -9, done.stderr
        return done

    yield run_one
    server.stdin.close()
    server.wait(60)
    server.stdout.close()


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_the_projection_stays_in_what_it_was_saved_in(run, folder, kind):
    fit = ("fit", "first.npz", "--model", "k.safetensors", *OPTIONS, "--projection", kind)
    commands = {
        (*fit, "--keep-statistics"): kind,
        ("update", "k.safetensors", "more.npz"): kind,
        ("update", "k.safetensors", "--remove", "ant", "--projection", "float32"): "float32",
    }
    for command, expected in commands.items():
        done = run(command, folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert read_header(folder / "k.safetensors").projection == expected


@pytest.mark.parametrize("moment", [BEFORE_STATISTICS, AFTER_STATISTICS, BEFORE_MODEL])
@pytest.mark.parametrize(
    "update", [("more.npz",), ("--remove", "cat"), ("more.npz", "--remove", "ant")]
)
def test_an_update_killed_is_finished_by_the_same_command(run, folder, tmp_path, update, moment):
    command = ("update", "m.safetensors", *update)
    undisturbed = shutil.copytree(folder, tmp_path / "undisturbed")
    assert run(command, undisturbed).returncode == 0
    before = contents(folder)
    run(command, folder, killed_at=moment)
    is_ahead = moment != BEFORE_STATISTICS
    if is_ahead:  # once more, before the run that finishes it puts the model in place
        run(command, folder, killed_at=0)
    left = contents(folder)
    assert left["m.safetensors"] == before["m.safetensors"]
    name = "m.statistics.safetensors"
    assert (left[name] != before[name]) == is_ahead, "killed at another moment"
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == done.stderr.count("cut short") == is_ahead
    assert contents(folder) == contents(undisturbed)


def test_an_update_cut_short_is_not_mistaken_for_another(run, folder, rows):
    X, y = rows
    np.savez(folder / "others.npz", X=X[:50], y=y[:50])
    run(("update", "m.safetensors", "more.npz"), folder, killed_at=AFTER_STATISTICS)
    before = contents(folder)
    for update in (("others.npz",), ("--remove", "cat"), ("more.npz", "--remove", "cat")):
        done = run(("update", "m.safetensors", *update), folder)
        assert_one_line(done, "cut short", "more.npz", "bitclass update m.safetensors")
    assert contents(folder) == before

    # Finished without the rows, which may be gone by now; then the next one may come.
    done = run(("update", "m.safetensors", "--json"), folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 600
    np.testing.assert_array_equal(library.load(folder / "m.safetensors").classes, NAMES)
    assert_one_line(run(("update", "m.safetensors"), folder), "--remove")
    done = run(("update", "m.safetensors", "others.npz", "--json"), folder)
    assert json.loads(done.stdout)["rows"] == 650


def test_an_update_killed_when_all_is_done_is_done(run, folder):
    run(("update", "m.safetensors", "more.npz"), folder, killed_at=AFTER_MODEL)
    assert library.load(folder / "m.safetensors").summary["n_rows"] == 600
    done = run(("update", "m.safetensors", "--remove", "cat", "--json"), folder)
    assert json.loads(done.stdout)["classes"] == 5


def test_statistics_of_another_model_are_refused(run, folder):
    assert run(("fit", "more.npz", "--model", "m.safetensors", *OPTIONS), folder).returncode == 0
    before = contents(folder)
    done = run(("update", "m.safetensors", "more.npz"), folder)
    assert_one_line(done, "m.statistics.safetensors", "not the statistics", "--keep-statistics")
    assert contents(folder) == before
