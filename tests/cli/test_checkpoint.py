"""`fit --checkpoint`: a run killed at any time and repeated gives the same model."""

import random
import sys

import numpy as np
import pytest
from running import Forks, assert_one_line, bitclass, problem

import bitclass as library
from bitclass.training import load_statistics

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

# Batches of 256 rows, and a checkpoint after each.
BATCHES = """
import bitclass.io.rows
bitclass.io.rows._MAX_BATCH_ROWS = 256
bitclass.cli.fit.Checkpoint.seconds_between_saves = 0.0
"""
ROWS = 256 * 160
OPTIONS = ("--bits", 24, "--seed", 5, "--initial-codes", "projection")


@pytest.fixture(scope="module")
def forks():
    with Forks(BATCHES) as forks:
        yield forks


@pytest.fixture
def fit(forks, tmp_path):
    """Run `fit --checkpoint` on the same rows; it is killed if it takes longer than a limit."""

    def run(model, loss, kill_after=None):
        given = ("fit", "train.npz", "--model", model, "--checkpoint", f"{model}-progress")
        # Only sums are saved; refinement would just take time.
        given += ("--loss", loss, "--scale", 0.3, *OPTIONS, "--no-refine")
        done = forks.run(*given, cwd=tmp_path, kill_after=kill_after)
        assert done.returncode in (0, -9), done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_a_run_killed_at_any_moment_ends_with_the_same_model(fit, tmp_path, loss):
    X, y = problem(ROWS, 12, n_classes=9, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    undisturbed = fit("undisturbed", loss)
    assert undisturbed.returncode == 0
    expected = (tmp_path / "undisturbed").read_bytes()
    model, saved = tmp_path / "model", tmp_path / "model-progress" / "statistics.safetensors"
    n_kills = n_resumed = n_rows = 0
    window = 0.9 * undisturbed.seconds
    while n_kills < 6 or not n_resumed:
        # Resumed runs are shorter, and some must be left to finish.
        code = fit("model", loss, kill_after=moments.uniform(0, window)).returncode
        # The speed of the machine may change: a run has finished before it is killed, or none has
        # saved anything yet.
        window *= 0.7 if code == 0 else 1.0 if n_resumed else 1.3
        n_kills += code == -9
        assert n_kills < 50, "no kill left a run half done, so that nothing was shown"
        assert not model.exists() or model.read_bytes() == expected, "half a model"
        if saved.exists():
            statistics, _ = load_statistics(saved)
            assert statistics.n_rows >= n_rows, "a kill lost what was saved"
            assert statistics.n_rows % 256 == 0
            n_rows = statistics.n_rows
            n_resumed += 0 < n_rows < ROWS
        # A kill may also fall behind the end of the work: the model is there, and what was saved
        # is gone.
        if n_rows == ROWS or model.exists():
            assert fit("model", loss).returncode == 0
            assert model.read_bytes() == expected
            assert not saved.exists(), "progress of a run that is done"
            model.unlink()
            n_rows = 0
    assert fit("model", loss).returncode == 0
    assert model.read_bytes() == expected
    assert library.load(tmp_path / "model").summary["n_rows"] == ROWS


def test_a_checkpoint_of_another_run_is_refused(fit, tmp_path):
    X, y = problem(ROWS, 12, n_classes=9)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    kill_after = 0.5 * fit("undisturbed", "hinge").seconds
    saved = tmp_path / "model-progress" / "statistics.safetensors"
    while not saved.exists():
        was_killed = fit("model", "hinge", kill_after=kill_after).returncode == -9
        kill_after *= 1.3 if was_killed else 0.7
    (tmp_path / "model").unlink(missing_ok=True)
    before = saved.read_bytes()
    given = ("fit", "train.npz", "--model", "model", "--checkpoint", "model-progress", *OPTIONS)
    other = bitclass(*given, "--scale", 0.4, cwd=tmp_path)
    assert_one_line(other, 1, saved.name, "another run", "parameters")

    # The same name, number and width of rows, but other rows.
    np.savez(tmp_path / "train.npz", X=X[::-1], y=y)
    done = bitclass(*given, "--scale", 0.3, "--no-refine", cwd=tmp_path)
    assert_one_line(done, 1, saved.name, "another run", "files")
    assert saved.read_bytes() == before

    saved.write_bytes(before[: len(before) // 2])
    assert_one_line(bitclass(*given, cwd=tmp_path), 1, saved.name)
    assert not (tmp_path / "model").exists()
