"""Features of a set: every image that can be read, whatever the others do."""

import sys
import time
import warnings

import numpy as np
import pytest
from bitclass.images.preparing import Preparation
from drawing import scene, scenes
from image_files import broken, encoded, whole

from bitclass.data.images import ImageError, ImageSet, open_folder
from bitclass.data.worker import Worker
from bitclass.images import Gist, ImageWarning, decode, extract_features
from bitclass.images import decoder as decoder_module
from bitclass.images import extraction as extraction_module


class Held:
    """Images in memory; an exception stands for one that cannot be read."""

    def __init__(self, contents):
        self.contents = contents

    def read(self, row):
        content = self.contents[row]
        if isinstance(content, Exception):
            raise content
        return content


def image_set(contents):
    return ImageSet([f"{row}.png" for row in range(len(contents))], None, Held(contents))


def collected(batches):
    """Rows, features and warnings of a run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ImageWarning)
        batches = list(batches)
    rows = np.concatenate([rows for rows, _ in batches])
    return rows, np.concatenate([part for _, part in batches]), [str(w.message) for w in caught]


def test_every_image_that_can_be_read_and_no_other(tmp_path):
    good, bad = whole(), broken()
    (tmp_path / "mixed").mkdir()
    for name, content in (good | bad).items():
        (tmp_path / "mixed" / name).write_bytes(content)
    images = open_folder(tmp_path)
    rows, features, messages = collected(extract_features(images, Gist(), batch_images=5))
    assert {images.names[row].partition("/")[2] for row in rows} == set(good)
    assert len(messages) == len(bad)
    for name in bad:
        assert sum(f"mixed/{name}: " in message for message in messages) == 1
    # Features are those of the pixels, in the order of the set.
    expected = Gist().extract([decode(images.source.read(row), "") for row in rows])
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-6)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_that_lead_nowhere_are_counted_among_what_is_left_out(tmp_path):
    (tmp_path / "a.png").write_bytes(whole()["plain.png"])
    (tmp_path / "gone.png").symlink_to(tmp_path / "absent.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    rows, _, messages = collected(extract_features(open_folder(tmp_path), Gist()))
    assert rows.tolist() == [0]
    assert [message.rpartition(":")[0] for message in messages] == [
        "left out: gone.png", "left out: loop.png",
    ]  # fmt: skip


def test_pixels_and_files_may_be_mixed():
    contents = [encoded(scene(32, 1), "PNG"), scene(32, 2), encoded(scene(32, 3), "PNG")]
    rows, features, messages = collected(extract_features(image_set(contents), Gist()))
    expected = Gist().extract([scene(32, seed) for seed in (1, 2, 3)])
    assert (rows.tolist(), messages) == ([0, 1, 2], [])
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-6)


def test_images_that_the_source_cannot_read_are_left_out():
    contents = [scene(16, 1), OSError(5, "Input/output error"), ImageError("2.png: gone"), b"?"]
    rows, _, messages = collected(extract_features(image_set(contents), Gist()))
    assert rows.tolist() == [0]
    assert [message[:20] for message in messages] == [
        "left out: 1.png: Inp", "left out: 2.png: gon", "left out: 3.png: can",
    ]  # fmt: skip


def test_batches_end_at_multiples_wherever_they_begin():
    images = image_set([scene(16, row) for row in range(11)])
    whole_run = list(extract_features(images, Gist(), batch_images=4))
    later = list(extract_features(images, Gist(), batch_images=4, start_row=3))
    assert [rows.tolist() for rows, _ in later] == [[3], [4, 5, 6, 7], [8, 9, 10]]
    np.testing.assert_array_equal(later[1][1], whole_run[1][1])


class Counting:
    """An extractor of one feature, the mean, that counts the images which wait for it."""

    name, n_features = "counting", 1

    def __init__(self, side, source):
        self.preparation = Preparation(smallest=side, largest=side, crop=1.0, filter="bilinear")
        self.source, self.at_once, self.waiting = source, [], []

    def extract(self, images):
        self.at_once.append(len(images))
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline and self.source.n_read < len(self.source.contents):
            time.sleep(0.01)
        self.waiting.append(self.source.n_read - sum(self.at_once))
        return np.array([[image.mean()] for image in images], dtype=np.float32)


class Told(Held):
    """Tells how many images were read."""

    n_read = 0

    def read(self, row):
        self.n_read += 1
        return super().read(row)


def test_images_that_wait_are_bounded_by_their_bytes(monkeypatch):
    monkeypatch.setattr(extraction_module, "_WAITING_BYTES", 5 * 3 * 64 * 64)
    source = Told([np.full((64, 64, 3), row, dtype=np.uint8) for row in range(40)])
    extractor = Counting(64, source)
    images = ImageSet([f"{row}.png" for row in range(40)], None, source)
    batches = list(extract_features(images, extractor, batch_images=12, n_jobs=2))
    assert [rows.tolist() for rows, _ in batches] == [
        list(range(start, min(40, start + 12))) for start in range(0, 40, 12)
    ]
    np.testing.assert_array_equal(np.concatenate([part[:, 0] for _, part in batches]), range(40))
    assert extractor.at_once == [5, 5, 2] * 3 + [4]
    assert max(extractor.waiting) <= 5


@pytest.mark.parametrize(("side", "expected"), [(64, 128), (1024, 85), (4096, 5), (30_000, 2)])
def test_fewer_large_images_are_opened_ahead(side, expected):
    preparation = Preparation(smallest=16, largest=side, crop=1.0, filter="bilinear")
    assert extraction_module._n_ahead(preparation, 2) == expected


def test_a_batch_without_any_image_still_comes():
    images = image_set([b"?", b"?", scene(16, 0)])
    with pytest.warns(ImageWarning):
        batches = list(extract_features(images, Gist(), batch_images=2))
    assert [(len(rows), features.shape) for rows, features in batches] == [
        (0, (0, 512)), (1, (1, 512)),
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"batch_images": 0}, {"start_row": 4}, {"n_jobs": 0}])
def test_arguments_that_make_no_sense(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        list(extract_features(image_set(scenes()[:3]), Gist(), **options))


def killing(times):
    """A decoding process that dies of image 1.png, so many times."""
    left = [times]

    class Fragile(Worker):
        def ask(self, question, arrays=None):
            if question["name"] == "1.png" and left[0] > 0:
                left[0] -= 1
                self._process.kill()
                self._process.wait()
            super().ask(question, arrays)

    return Fragile


@pytest.mark.parametrize(("deaths", "expected"), [(1, [0, 1, 2]), (9, [0, 2])])
def test_a_image_that_kills_its_process(monkeypatch, deaths, expected):
    monkeypatch.setattr(decoder_module, "Worker", killing(deaths))
    contents = [encoded(scene(16, row), "PNG") for row in range(3)]
    rows, _, messages = collected(extract_features(image_set(contents), Gist(), n_jobs=1))
    assert rows.tolist() == expected
    assert len(messages) == 3 - len(expected)
    assert all("1.png: cannot be read" in m and "has died" in m for m in messages)


def test_a_image_that_takes_for_ever(monkeypatch):
    class Deaf(Worker):
        def ask(self, question, arrays=None):
            if question["name"] != "1.png":
                super().ask(question, arrays)

        def receive(self, name, patience):
            return super().receive(name, 0.2 if name == "1.png" else patience)

    monkeypatch.setattr(decoder_module, "Worker", Deaf)
    contents = [encoded(scene(16, row), "PNG") for row in range(3)]
    rows, _, messages = collected(extract_features(image_set(contents), Gist(), n_jobs=2))
    assert rows.tolist() == [0, 2]
    assert len(messages) == 1
    assert "1.png: cannot be read" in messages[0]
    assert "nothing came" in messages[0]


def test_no_process_can_be_started(monkeypatch):
    def fail(module):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(decoder_module, "Worker", fail)
    with pytest.raises(BlockingIOError):  # that is no fault of an image, and nothing waits for it
        list(extract_features(image_set([whole()["plain.png"]] * 5), Gist()))


def test_a_run_that_nobody_wants_the_rest_of_leaves_no_process(monkeypatch):
    made = []

    class Counted(Worker):
        def __init__(self, module):
            super().__init__(module)
            made.append(self)

    monkeypatch.setattr(decoder_module, "Worker", Counted)
    contents = [encoded(scene(16, row), "PNG") for row in range(40)]
    batches = extract_features(image_set(contents), Gist(), batch_images=4, n_jobs=2)
    next(batches)
    batches.close()
    assert made
    assert not any(worker.is_alive() for worker in made)


def test_without_pillow_one_line_says_what_to_install(monkeypatch):
    images = image_set([whole()["plain.png"]])
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"needs PIL; install it with: pip install 'bitclass\[im"):
        list(extract_features(images, Gist()))
    # Pixels of the right size need none.
    ((rows, _),) = extract_features(image_set([scene(32, 0)]), Gist())
    assert rows.tolist() == [0]
