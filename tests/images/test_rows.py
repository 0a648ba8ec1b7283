"""Rows of image features: all readable images, extracted once, resumed after a kill."""

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from image_files import broken, encoded, whole

from bitclass.images import (
    Extractor,
    ImageError,
    ImageSet,
    ImageWarning,
    decode,
    image_rows,
    open_images,
)
from bitclass.images import rows as rows_module
from drawing import scene


class Rows(Extractor):
    """Returns the first row of pixels, and records the batch sizes."""

    name = "rows"

    def __init__(self, size=16):
        self.size, self.n_features = size, 3 * size
        self.at_once = []

    def specification(self):
        return {"kind": self.name, "size": self.size}

    def extract(self, images):
        self.at_once.append(len(images))
        return np.array([image[0] for image in images], np.float32).reshape(-1, self.n_features)


@pytest.fixture
def image_set(tmp_path):
    """Create image datasets; None stands for a missing file."""

    def make(contents, labels=None):
        names = [f"{row}.png" for row in range(len(contents))]
        files = [tmp_path / "files" / name for name in names]
        (tmp_path / "files").mkdir(exist_ok=True)
        for file, content in zip(files, contents, strict=True):
            if content is not None:
                is_pixels = isinstance(content, np.ndarray)
                file.write_bytes(encoded(content, "PNG") if is_pixels else content)
        return ImageSet(names, labels, files)

    return make


def collected(*arguments, **options):
    """Rows, and the messages of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = image_rows(*arguments, **options)
    assert all(w.category is ImageWarning and w.filename == __file__ for w in caught)
    return rows, [str(w.message) for w in caught]


def test_every_image_that_can_be_read_and_no_other(tmp_path):
    good, bad = whole(), dict(broken())
    (tmp_path / "mixed").mkdir()
    for name, content in (good | bad).items():
        (tmp_path / "mixed" / name).write_bytes(content)
    (tmp_path / "mixed" / "gone.png").symlink_to(tmp_path / "absent")
    bad["gone.png"] = b""
    images = open_images(tmp_path)
    rows, messages = collected(images, Rows())
    assert {name.partition("/")[2] for name in rows.names} == set(good)
    assert {name.partition("/")[2] for name in rows.skipped} == set(bad)
    assert len(messages) == len(bad)
    assert not any("\n" in message for message in messages)
    for name in bad:
        assert sum(message.startswith(f"skipped mixed/{name}: ") for message in messages) == 1
    # Features are those of the pixels, in the order of the set.
    expected = [Rows().prepare(decode(rows.images.read(row), "")) for row in range(rows.n_rows)]
    X, labels = rows.sample()
    np.testing.assert_array_equal(X, Rows().extract(expected))
    assert set(labels) == {"mixed"}
    assert rows.description == (
        f"{tmp_path}: {len(good)} images, {len(bad)} skipped, 48 features by rows"
    )


def test_no_image_can_be_read(image_set):
    with (
        pytest.warns(ImageWarning),
        pytest.raises(ImageError, match=r"none of the 2 images can be read, starting with 0\.png"),
    ):
        image_rows(image_set([b"?", b""]), Rows())
    with pytest.raises(ImageError, match="no images"):
        image_rows(image_set([]), Rows())


def test_the_interface_of_rows(image_set):
    labels = np.array(["cat", "dog"])[np.arange(10) % 2]
    contents = [np.full((16, 16, 3), row, dtype=np.uint8) for row in range(10)]
    contents[3] = b"?"
    with pytest.warns(ImageWarning):
        rows = image_rows(image_set(contents, labels), Rows(), n_jobs=2)
    kept = [row for row in range(10) if row != 3]
    assert (rows.n_rows, rows.n_features, rows.dtype) == (9, 48, np.float32)
    assert (rows.has_labels, rows.is_sparse, rows.feature_names) == (True, False, None)
    assert rows.paths == []
    batches = list(rows.batches())
    assert [(batch.first_row, len(batch)) for batch in batches] == [(0, 9)]
    assert np.concatenate([batch.X[:, 0] for batch in batches]).tolist() == kept
    found = np.concatenate([batch.labels for batch in batches])
    assert found.tolist() == labels[kept].tolist()
    assert next(image_rows(image_set(contents[:2]), Rows()).batches()).labels is None


def test_memory_is_bounded_and_progress_reported(monkeypatch, image_set):
    monkeypatch.setattr(rows_module, "_BATCH_BYTES", 5 * 3 * 64 * 64)
    contents = [np.full((64, 64, 3), row, dtype=np.uint8) for row in range(12)]
    extractor, done = Rows(64), []
    rows = image_rows(image_set(contents), extractor, n_jobs=2, progress=done.append)
    assert (extractor.at_once, done) == ([5, 5, 2], [5, 10, 12])
    np.testing.assert_array_equal(rows.sample()[0][:, 0], range(12))


def test_temporary_features_are_removed(tmp_path, monkeypatch, image_set):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    rows = image_rows(image_set([scene(16, 0)]), Rows())
    assert len(list(temporary.rglob("*.npy"))) == 1
    del rows
    assert list(temporary.iterdir()) == []


@pytest.fixture
def folder(tmp_path):
    for row in range(9):
        path = tmp_path / "set" / "ab"[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(scene(16, row), "PNG"))
        os.utime(path, ns=(5, 5))
    return tmp_path / "set"


def test_a_cache_serves_any_number_of_runs(folder, tmp_path):
    first = image_rows(open_images(folder), Rows(), cache=tmp_path / "new" / "cache")
    image_rows(open_images(folder), Rows(size=32), cache=tmp_path / "new" / "cache")
    again = image_rows(open_images(folder), Rows(), cache=tmp_path / "new" / "cache")
    assert (first.n_cached, again.n_cached) == (0, 9)
    np.testing.assert_array_equal(again.sample()[0], first.sample()[0])
    assert again.sample()[1].tolist() == open_images(folder).labels.tolist()
    assert len(list((tmp_path / "new" / "cache").iterdir())) == 2


@pytest.mark.parametrize("change", ["edited", "touched", "replaced by a link", "other folder"])
def test_changed_images_are_extracted_again(folder, tmp_path, change):
    cache, path = tmp_path / "cache", folder / "a" / "0.png"
    other = tmp_path / "other.png"
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(5, 5))
    image_rows(open_images(folder), Rows(), cache=cache)
    if change == "edited":
        path.write_bytes(encoded(scene(20, 99), "PNG"))
        os.utime(path, ns=(5, 5))
    elif change == "touched":
        os.utime(path, ns=(5, 6))
    elif change == "replaced by a link":
        path.unlink()
        path.symlink_to(other)
    else:
        folder = folder.rename(tmp_path / "moved")
    rows = image_rows(open_images(folder), Rows(), cache=cache)
    assert rows.n_cached == 0
    fresh = image_rows(open_images(folder), Rows())
    np.testing.assert_array_equal(rows.sample()[0], fresh.sample()[0])


def test_skipped_images_are_named_again(folder, tmp_path):
    (folder / "a" / "bad.png").write_bytes(b"?")
    for n_cached in (0, 9):
        rows, messages = collected(open_images(folder), Rows(), cache=tmp_path / "cache")
        assert rows.n_cached == n_cached
        assert (rows.n_rows, rows.skipped, len(messages)) == (9, ("a/bad.png",), 1)


@pytest.mark.parametrize("damage", ["absent", "truncated", "overwritten", "of another shape"])
def test_a_damaged_cache_is_rebuilt(folder, tmp_path, damage):
    expected = image_rows(open_images(folder), Rows(), cache=tmp_path / "cache").sample()[0]
    (path,) = tmp_path.glob("cache/*/features.npy")
    if damage == "absent":
        path.unlink()
    elif damage == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "overwritten":
        path.write_bytes(b"?" * 500)
    else:
        np.save(path, np.ones((3, 4)))
    rows = image_rows(open_images(folder), Rows(), cache=tmp_path / "cache")
    assert rows.n_cached == 0
    np.testing.assert_array_equal(rows.sample()[0], expected)


def test_a_full_disk_is_an_error(folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        image_rows(open_images(folder), Rows(), cache=tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


class Fatal(Rows):
    """Kill the process in the third call."""

    def extract(self, images):
        if len(self.at_once) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().extract(images)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_run_resumes(folder, tmp_path):
    program = f"""
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]}
from test_rows import Fatal, image_rows, open_images, rows_module
rows_module._MAX_BATCH_IMAGES = 2
image_rows(open_images({str(folder)!r}), Fatal(), cache={str(tmp_path / "cache")!r}, n_jobs=1)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    rows = image_rows(open_images(folder), Rows(), cache=tmp_path / "cache")
    assert rows.n_cached == 4
    fresh = image_rows(open_images(folder), Rows())
    np.testing.assert_array_equal(rows.sample()[0], fresh.sample()[0])
