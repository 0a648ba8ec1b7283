"""Saving is atomic, whatever happens in the meantime."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from bitclass import load
from bitclass.storage import save
from bitclass.storage.atomic import atomic_write

from .packed_models import plain

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")


def model(value=0, d=2000, n_bits=128):
    return plain(np.full((d, n_bits), value))


def value_of(path):
    """The value of a model; all of its numbers must come from the same save."""
    projection = load(path).hash_function.projection
    assert (projection == projection[0, 0]).all()
    return projection[0, 0]


@pytest.fixture
def folder():
    """A world-readable folder, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


# Saves models of value 1, 2, 3, ... in sequence, and prints a line before the first.
SAVING = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.test_saving_safely import model
from bitclass.storage import save
models = [model(value) for value in range(1, 9)]
print("ready", flush=True)
while True:
    for each in models:
        save(sys.argv[2], each)
"""


def test_a_process_killed_at_any_moment_leaves_a_complete_file(folder):
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    chance = random.Random(seed)
    path = folder / "model.safetensors"
    for _ in range(6):
        command = [sys.executable, "-c", SAVING, str(Path(__file__).parents[1]), str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.wait()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL
        if path.exists():
            value_of(path)
        # The temporary file of a killed process has a different name.
        left = [name for name in os.listdir(folder) if name != path.name]
        assert all(name.startswith(".bitclass-") and name.endswith(".tmp") for name in left)
    save(path, model(9))
    assert value_of(path) == 9


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "interrupt"])
def test_an_error_at_any_step_leaves_the_old_file_and_no_other(folder, monkeypatch, step):
    path = folder / "model.safetensors"
    save(path, model(1))
    before = path.read_bytes()

    def fail(*_):
        if step == "interrupt":
            raise KeyboardInterrupt
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def spoiled_save():
        with atomic_write(path) as file:
            file.write(b"x" * 100_000)
            if step == "write" and os.path.exists("/dev/full"):
                # The buffered data hit a full disk, now and again on closing.
                file.write(b"y")
                os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
            elif step in ("write", "interrupt"):
                fail()

    if step in ("fsync", "replace"):
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(KeyboardInterrupt if step == "interrupt" else OSError) as caught:
        spoiled_save()
    if step != "interrupt":
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(path)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(folder) == [path.name]


# Root has all permissions, so it must change to another user first.
PERMISSION = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.test_saving_safely import model
from bitclass.storage import save
made = model()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    save(sys.argv[2], made)
except OSError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("case", ["folder", "file"])
def test_no_permission_is_reported_and_nothing_is_lost(folder, case):
    path = folder / "model.safetensors"
    save(path, model(1, d=10))
    os.chmod(path, 0o644 if case == "folder" else 0o444)
    os.chmod(folder, 0o555 if case == "folder" else 0o777)
    command = [sys.executable, "-c", PERMISSION, Path(__file__).parents[1], path]
    tried = subprocess.run(command, capture_output=True, text=True)
    os.chmod(folder, 0o755)
    os.chmod(path, 0o644)
    assert tried.stdout.startswith("PermissionError"), tried.stderr
    assert str(path) in tried.stdout
    assert value_of(path) == 1
    assert os.listdir(folder) == [path.name]


def test_invalid_paths_are_reported_and_unchanged(folder):
    with pytest.raises(FileNotFoundError) as caught:
        save(folder / "nowhere" / "model", model(d=2))
    assert caught.value.filename == str(folder / "nowhere" / "model")
    (folder / "sub").mkdir()
    with pytest.raises(IsADirectoryError):
        save(folder / "sub", model(d=2))
    with pytest.raises(OSError, match="Not a regular file"):
        save("/dev/null", model(d=2))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.listdir(folder) == ["sub"]


def test_a_link_stays_a_link(folder):
    (folder / "real").mkdir()
    os.symlink(folder / "real" / "model", folder / "link")
    for value in (1, 2):  # the target is created, then replaced
        save(folder / "link", model(value, d=2))
        assert (folder / "link").is_symlink()
        assert value_of(folder / "real" / "model") == value
    assert os.listdir(folder / "real") == ["model"]


def test_permissions_are_those_of_the_old_file_or_the_default(folder):
    (folder / "other").touch()
    save(folder / "model", model(d=2))
    assert (folder / "model").stat().st_mode == (folder / "other").stat().st_mode
    os.chmod(folder / "model", 0o640)
    save(folder / "model", model(d=2))
    assert stat.S_IMODE((folder / "model").stat().st_mode) == 0o640
