"""Rows of image features: all readable images, in bounded memory."""

import warnings

import numpy as np
import pytest

from bitclass.images import ImageError, ImageWarning, decode, open_images
from bitclass.images import rows as rows_module

from ..small_network import small_network
from .image_files import broken, encoded, whole


def fill(folder, contents, classes=("",)):
    """Write images, given as pixels or contents of files, to a folder, or in turn to classes."""
    for row, content in enumerate(contents):
        file = folder / classes[row % len(classes)] / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        is_pixels = isinstance(content, np.ndarray)
        file.write_bytes(encoded(content, "PNG") if is_pixels else content)
    return folder


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
        rows = open_images(tmp_path, network)
    assert all(w.category is ImageWarning and w.filename == __file__ for w in caught)
    messages = [str(w.message) for w in caught]
    assert {name.partition("/")[2] for name in rows.names} == set(good)
    assert {name.partition("/")[2] for name in rows.skipped} == set(bad)
    assert len(messages) == len(bad)
    assert not any("\n" in message for message in messages)
    for name in bad:
        assert sum(message.startswith(f"skipped mixed/{name}: ") for message in messages) == 1
    # Features are those of the pixels, in the order of the set.
    contents = [(tmp_path / name).read_bytes() for name in rows.names]
    expected = network.extract([network.prepare(decode(content, "")) for content in contents])
    np.testing.assert_array_equal(rows.X, expected)
    assert set(rows.labels) == {"mixed"}
    assert rows.description == (
        f"{tmp_path}: {len(good)} images, {len(bad)} skipped, 512 features by onnx"
    )


def test_no_image_can_be_read(tmp_path):
    with (
        pytest.warns(ImageWarning),
        pytest.raises(ImageError, match=r"none of the 2 images can be read, starting with 0\.png"),
    ):
        open_images(fill(tmp_path, [b"?", b""]), small_network())


def test_batches_and_progress(monkeypatch, tmp_path):
    monkeypatch.setattr(rows_module, "_IMAGES_AT_ONCE", 4)
    monkeypatch.setattr(rows_module, "_ROWS_PER_BATCH", 5)
    contents = [np.full((16, 16, 3), 20 * row, dtype=np.uint8) for row in range(10)]
    contents[3] = b"?"
    done, folder = [], fill(tmp_path / "images", contents, ["cat", "dog"])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    def progress(*numbers):
        done.append(numbers)

    with pytest.warns(ImageWarning):
        rows = open_images(folder, small_network(), n_jobs=2, progress=progress)
    assert not list((tmp_path / "temporary").iterdir())  # although the features are in a file
    assert done == [(4, 10), (8, 10), (10, 10)]
    assert (rows.n_rows, rows.n_features, rows.dtype) == (9, 512, np.float32)
    assert (rows.has_labels, rows.is_sparse, rows.feature_names) == (True, False, None)
    batches = list(rows.batches())
    assert [(batch.first_row, len(batch)) for batch in batches] == [(0, 5), (5, 4)]
    assert [label for batch in batches for label in batch.labels] == ["cat"] * 5 + ["dog"] * 4
    np.testing.assert_array_equal(np.concatenate([X for X, _ in rows.pairs()]), rows.X)
    unlabelled = open_images(folder / "cat", small_network())
    assert next(unlabelled.batches()).labels is None
