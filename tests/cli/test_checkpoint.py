"""`fit --checkpoint`: killed at any moment, run again, it ends with the same model."""

import contextlib
import json
import random
import subprocess
import sys
import threading

import numpy as np
import pytest
from running import assert_one_line, bitclass, environment, problem

import bitclass as library
from bitclass.training import load_statistics

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

# The command with batches of 256 rows and a checkpoint after each. Runs of it are forks of one
# process, which has imported all there is; a line with the arguments begins one, and says after
# how many seconds to kill it.
SERVER = """
import json, os, signal, sys, time
import bitclass.cli.fit
import bitclass.io.rows
from bitclass.cli import main
bitclass.io.rows._MAX_BATCH_ROWS = 256
bitclass.cli.saving.Checkpoint.seconds_between_saves = 0.0
print("ready", flush=True)
for line in sys.stdin:
    arguments, seconds = json.loads(line)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        sys.argv = ["bitclass", *arguments]
        os.dup2(2, 1)
        try:
            main()
        except SystemExit as done:
            os._exit(done.code or 0)
        except BaseException:
            os._exit(99)
    if seconds is not None:
        # Until it is waited for, its number is given to nobody else.
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, time.monotonic() - start]), flush=True)
"""
ROWS = 256 * 160


class Runs:
    """Runs of `fit --checkpoint` on the same rows, with the same options."""

    def __init__(self, folder, loss):
        self.folder, self.loss = folder, loss
        with (folder / "complaints.txt").open("w") as complaints:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                cwd=folder,
                env=environment(),
            )
        assert self._server.stdout.readline() == "ready\n"

    def run(self, model, kill_after=None):
        """Exit code and seconds of a run, which is killed after some if still there."""
        arguments = ["fit", "train.npz", "--model", model, "--checkpoint", f"{model}-progress"]
        arguments += ["--loss", self.loss, "--bits", "24", "--seed", "5", "--scale", "0.3"]
        # The sums are what is saved; refinement after them would only take time.
        arguments += ["--initial-codes", "projection", "--no-refine"]
        self._server.stdin.write(json.dumps([arguments, kill_after]) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def close(self):
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()


class Watch:
    """Looks at a file all the time: it must be absent or whole."""

    def __init__(self, path, whole):
        self.path, self.whole = path, whole
        self.half_written = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def look(self):
        with contextlib.suppress(FileNotFoundError):
            self.half_written |= self.path.read_bytes() != self.whole

    def _look(self):
        while not self._end.wait(0.002):
            self.look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._end.set()
        self._thread.join()
        self.look()


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_a_run_killed_at_any_moment_ends_with_the_same_model(tmp_path, loss):
    X, own = problem(ROWS, 12, n_classes=9, noise=3.0)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    runs = Runs(tmp_path, loss)
    try:
        code, seconds = runs.run("undisturbed")
        assert code == 0, (tmp_path / "complaints.txt").read_text()
        expected = (tmp_path / "undisturbed").read_bytes()
        model, saved = tmp_path / "model", tmp_path / "model-progress" / "statistics.safetensors"
        n_kills = n_resumed = n_rows = 0
        window = 0.9 * seconds
        with Watch(model, expected) as watch:
            while n_kills < 6:
                # Runs that go on are shorter, so that some must be let alone to come to the end.
                code, _ = runs.run("model", kill_after=moments.uniform(0, window))
                # A run that was through before its time came says that the first one was slow.
                window *= 0.7 if code == 0 else 1.0
                assert code in (0, -9), (tmp_path / "complaints.txt").read_text()
                n_kills += code == -9
                watch.look()
                if saved.exists():
                    statistics, _ = load_statistics(saved)
                    assert statistics.n_rows >= n_rows, "a kill lost what was saved"
                    assert statistics.n_rows % 256 == 0
                    n_rows = statistics.n_rows
                    n_resumed += 0 < n_rows < ROWS
                # A kill may also fall behind the end of the work: the model is there, and what was
                # saved is gone.
                if n_rows == ROWS or model.exists():
                    assert runs.run("model")[0] == 0
                    assert model.read_bytes() == expected
                    assert not saved.exists(), "progress of a run that is done"
                    model.unlink()
                    n_rows = 0
            assert runs.run("model")[0] == 0
        assert model.read_bytes() == expected
        assert not watch.half_written
        assert n_resumed, "no kill left a run half done, so that nothing was shown"
    finally:
        runs.close()
    assert (tmp_path / "complaints.txt").read_text().count("Traceback") == 0
    assert library.load(tmp_path / "model").summary["n_rows"] == ROWS


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    X, own = problem(ROWS, 12, n_classes=9)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    runs = Runs(tmp_path, "hinge")
    try:
        _, seconds = runs.run("undisturbed")
        saved = tmp_path / "model-progress" / "statistics.safetensors"
        while not saved.exists():
            runs.run("model", kill_after=0.5 * seconds)
    finally:
        runs.close()
    (tmp_path / "model").unlink(missing_ok=True)
    before = saved.read_bytes()
    given = ["fit", "train.npz", "--model", "model", "--checkpoint", "model-progress"]
    given += ["--loss", "hinge", "--bits", "24", "--seed", "5", "--scale", "0.3"]
    other = [*given[:-1], "0.4"]
    assert_one_line(bitclass(*other, cwd=tmp_path), 1, saved.name, "another run", "parameters")

    # The same name, number and width of rows, but other rows.
    np.savez(tmp_path / "train.npz", X=X[::-1], y=own)
    done = bitclass(*given, cwd=tmp_path)
    assert_one_line(done, 1, saved.name, "another run", "files")
    assert saved.read_bytes() == before

    saved.write_bytes(before[: len(before) // 2])
    assert_one_line(bitclass(*given, cwd=tmp_path), 1, saved.name)
    assert not (tmp_path / "model").exists()
