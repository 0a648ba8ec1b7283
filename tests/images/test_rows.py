"""Features of images as rows: every image that can be read, extracted once, resumed if killed."""

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from drawing import scene
from image_files import broken, encoded, whole

from bitclass.images import (
    Gist,
    ImageError,
    ImageSet,
    ImageWarning,
    Preparation,
    decode,
    image_rows,
    open_images,
)
from bitclass.images import rows as rows_module


@pytest.fixture
def image_set(tmp_path):
    """Makes sets of image files; None stands for one that does not exist."""

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
    rows, messages = collected(images, Gist())
    assert {name.partition("/")[2] for name in rows.names} == set(good)
    assert {name.partition("/")[2] for name in rows.skipped} == set(bad)
    assert len(messages) == len(bad)
    for name in bad:
        assert sum(message.startswith(f"skipped mixed/{name}: ") for message in messages) == 1
    # Features are those of the pixels, in the order of the set.
    prepare = Gist().preparation
    expected = [prepare(decode(rows.images.read(row), "")) for row in range(rows.n_rows)]
    X, labels = rows.sample()
    np.testing.assert_allclose(X, Gist().extract(expected), rtol=0, atol=1e-6)
    assert set(labels) == {"mixed"}
    assert rows.description == (
        f"{tmp_path}: {len(good)} images, {len(bad)} skipped, 512 features by gist"
    )


def test_no_image_can_be_read(image_set):
    with (
        pytest.warns(ImageWarning),
        pytest.raises(ImageError, match=r"none of the 2 images can be read, from 0\.png on"),
    ):
        image_rows(image_set([b"?", b""]), Gist())
    with pytest.raises(ImageError, match="no images"):
        image_rows(image_set([]), Gist())


def test_the_interface_of_rows(monkeypatch, image_set):
    monkeypatch.setattr("bitclass.io.rows._BATCH_BYTES", 4 * 512 * 4)
    labels = np.array(["cat", "dog"])[np.arange(10) % 2]
    contents = [scene(16, seed) for seed in range(10)]
    contents[3] = b"?"
    with pytest.warns(ImageWarning):
        rows = image_rows(image_set(contents, labels), Gist(), n_jobs=2)
    kept = [row for row in range(10) if row != 3]
    assert (rows.n_rows, rows.n_features, rows.dtype) == (9, 512, np.float32)
    assert (rows.has_labels, rows.is_sparse, rows.feature_names) == (True, False, None)
    assert (rows.paths, rows.label_paths) == ([], [])
    X, y = rows.sample(100)
    assert y.tolist() == labels[kept].tolist()
    batches = list(rows.batches(2, 3))
    assert [(batch.first_row, len(batch.X)) for batch in batches] == [(2, 1), (3, 3), (6, 3)]
    np.testing.assert_array_equal(np.concatenate([batch.X for batch in batches]), X[2:])
    assert np.concatenate([batch.labels for batch in batches]).tolist() == y[2:].tolist()
    assert list(rows.batches(9)) == []
    few, few_labels = rows.sample(3)
    np.testing.assert_array_equal(few, X[[0, 4, 8]])
    assert few_labels.tolist() == y[[0, 4, 8]].tolist()
    assert [len(batch.X) for batch in rows.batches()] == [4, 4, 1]
    assert next(image_rows(image_set(contents[:2]), Gist()).batches()).labels is None


class Counting:
    """An extractor of one feature, the mean, that records how many images it was given at once."""

    name, n_features = "counting", 1
    preparation = Preparation(64, 64, 1.0, "bilinear")

    def __init__(self):
        self.at_once = []

    def specification(self):
        return {"kind": self.name}

    def extract(self, images):
        self.at_once.append(len(images))
        return np.array([[image.mean()] for image in images], dtype=np.float32).reshape(-1, 1)


def test_memory_is_bounded_and_progress_told(monkeypatch, image_set):
    monkeypatch.setattr(rows_module, "_BATCH_BYTES", 5 * 3 * 64 * 64)
    contents = [np.full((64, 64, 3), row, dtype=np.uint8) for row in range(12)]
    extractor, done = Counting(), []
    rows = image_rows(image_set(contents), extractor, n_jobs=2, progress=done.append)
    assert (extractor.at_once, done) == ([5, 5, 2], [5, 10, 12])
    np.testing.assert_array_equal(rows.sample()[0][:, 0], range(12))


def test_bad_number_of_jobs(image_set):
    with pytest.raises(ValueError, match="n_jobs"):
        image_rows(image_set([scene(16, 0)]), Gist(), n_jobs=0)


def test_without_pillow_one_line_says_what_to_install(monkeypatch, image_set):
    images = image_set([whole()["plain.png"]])
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"need PIL; install it with: pip install 'bitclass\[im"):
        image_rows(images, Gist())


def test_temporary_features_are_removed(tmp_path, monkeypatch, image_set):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    rows = image_rows(image_set([scene(16, 0)]), Gist())
    assert len(list(temporary.rglob("*.npy"))) == 2
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
    first = image_rows(open_images(folder), Gist(), cache=tmp_path / "new" / "cache")
    image_rows(open_images(folder), Gist(size=32), cache=tmp_path / "new" / "cache")
    again = image_rows(open_images(folder), Gist(), cache=tmp_path / "new" / "cache")
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
    image_rows(open_images(folder), Gist(), cache=cache)
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
    rows = image_rows(open_images(folder), Gist(), cache=cache)
    assert rows.n_cached == 0
    fresh = image_rows(open_images(folder), Gist())
    np.testing.assert_array_equal(rows.sample()[0], fresh.sample()[0])


def test_skipped_images_are_named_again(folder, tmp_path):
    (folder / "a" / "bad.png").write_bytes(b"?")
    for n_cached in (0, 9):
        rows, messages = collected(open_images(folder), Gist(), cache=tmp_path / "cache")
        assert rows.n_cached == n_cached
        assert (rows.n_rows, rows.skipped, len(messages)) == (9, ("a/bad.png",), 1)


@pytest.mark.parametrize("file", ["features.npy", "status.npy"])
@pytest.mark.parametrize("damage", ["absent", "truncated", "overwritten", "of another shape"])
def test_a_damaged_cache_is_made_again(folder, tmp_path, file, damage):
    expected = image_rows(open_images(folder), Gist(), cache=tmp_path / "cache").sample()[0]
    (path,) = tmp_path.glob(f"cache/*/{file}")
    if damage == "absent":
        path.unlink()
    elif damage == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "overwritten":
        path.write_bytes(b"?" * 500)
    else:
        np.save(path, np.ones((3, 4)))
    rows = image_rows(open_images(folder), Gist(), cache=tmp_path / "cache")
    assert rows.n_cached == 0
    np.testing.assert_array_equal(rows.sample()[0], expected)


def test_a_full_disk_is_an_error(folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        image_rows(open_images(folder), Gist(), cache=tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


KILLED = """
import os, signal, sys
from bitclass.images import Gist, image_rows, open_images, rows
rows._MAX_BATCH_IMAGES = 2

class Fatal(Gist):
    n_calls = 0

    def extract(self, images):
        Fatal.n_calls += 1
        if Fatal.n_calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().extract(images)

image_rows(open_images(sys.argv[1]), Fatal(), cache=sys.argv[2], n_jobs=1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_run_resumes(folder, tmp_path):
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "cache")]
    assert subprocess.run(command, cwd=Path(__file__).parent).returncode == -signal.SIGKILL
    rows = image_rows(open_images(folder), Gist(), cache=tmp_path / "cache")
    assert rows.n_cached == 4
    fresh = image_rows(open_images(folder), Gist())
    np.testing.assert_allclose(rows.sample()[0], fresh.sample()[0], rtol=0, atol=1e-6)
