"""Rows of image features: all readable images, in bounded memory."""

import warnings

import numpy as np
import pytest

from bitclass.images import ImageError, ImageSet, ImageWarning, decode, image_rows, open_images
from bitclass.images import rows as rows_module

from ..small_network import small_network
from .image_files import broken, encoded, whole


@pytest.fixture
def image_set(tmp_path):
    """Create image datasets from pixels or contents of files."""

    def make(contents, labels=None):
        files = [tmp_path / f"{row}.png" for row in range(len(contents))]
        for file, content in zip(files, contents, strict=True):
            is_pixels = isinstance(content, np.ndarray)
            file.write_bytes(encoded(content, "PNG") if is_pixels else content)
        return ImageSet([file.name for file in files], labels, files)

    return make


def test_every_image_that_can_be_read_and_no_other(tmp_path):
    good, bad = whole(), dict(broken())
    (tmp_path / "mixed").mkdir()
    for name, content in (good | bad).items():
        (tmp_path / "mixed" / name).write_bytes(content)
    (tmp_path / "mixed" / "gone.png").symlink_to(tmp_path / "absent")
    bad["gone.png"] = b""
    network = small_network()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = image_rows(open_images(tmp_path), network)
    assert all(w.category is ImageWarning and w.filename == __file__ for w in caught)
    messages = [str(w.message) for w in caught]
    assert {name.partition("/")[2] for name in rows.names} == set(good)
    assert {name.partition("/")[2] for name in rows.skipped} == set(bad)
    assert len(messages) == len(bad)
    assert not any("\n" in message for message in messages)
    for name in bad:
        assert sum(message.startswith(f"skipped mixed/{name}: ") for message in messages) == 1
    # Features are those of the pixels, in the order of the set.
    contents = [rows.images.read(row) for row in range(rows.n_rows)]
    expected = network.extract([network.prepare(decode(content, "")) for content in contents])
    np.testing.assert_array_equal(rows.X, expected)
    assert set(rows.labels) == {"mixed"}
    assert rows.description == (
        f"{tmp_path}: {len(good)} images, {len(bad)} skipped, 512 features by onnx"
    )


def test_no_image_can_be_read(image_set):
    with (
        pytest.warns(ImageWarning),
        pytest.raises(ImageError, match=r"none of the 2 images can be read, starting with 0\.png"),
    ):
        image_rows(image_set([b"?", b""]), small_network())
    with pytest.raises(ImageError, match="no images"):
        image_rows(image_set([]), small_network())


def test_batches_and_progress(image_set, monkeypatch, tmp_path):
    monkeypatch.setattr(rows_module, "_IMAGES_AT_ONCE", 4)
    monkeypatch.setattr(rows_module, "_ROWS_PER_BATCH", 5)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    labels = np.array(["cat", "dog"])[np.arange(10) % 2]
    contents = [np.full((16, 16, 3), 20 * row, dtype=np.uint8) for row in range(10)]
    contents[3] = b"?"
    done, images = [], image_set(contents, labels)
    before = set(tmp_path.iterdir())
    with pytest.warns(ImageWarning):
        rows = image_rows(images, small_network(), n_jobs=2, progress=done.append)
    assert set(tmp_path.iterdir()) == before  # no file is left, although the features are in one
    kept = [row for row in range(10) if row != 3]
    assert done == [4, 8, 10]
    assert (rows.n_rows, rows.n_features, rows.dtype) == (9, 512, np.float32)
    assert (rows.has_labels, rows.is_sparse, rows.feature_names) == (True, False, None)
    batches = list(rows.batches())
    assert [(batch.first_row, len(batch)) for batch in batches] == [(0, 5), (5, 4)]
    assert np.concatenate([batch.labels for batch in batches]).tolist() == labels[kept].tolist()
    np.testing.assert_array_equal(np.concatenate([X for X, _ in rows.pairs()]), rows.X)
    unlabelled = image_rows(image_set(contents[:2]), small_network())
    assert next(unlabelled.batches()).labels is None
